//! Pages that come again as they were: a page of which is known what it comes to is not read again.
//!
//! What is known follows from the page's bytes and from who read them, so it can be wrong about no warehouse: whether one holds
//! what the pages come to is looked up there.

use std::{collections::HashMap, sync::LazyLock};

use arrow::{array::AsArray as _, datatypes::Int64Type};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::{PipelineError, pull::Shared};
use crate::{
    load::RowCounts,
    model::{Digest, DriftRules, Flag, FlatPage, Scan, Stream},
    plan::edges::PageMoments,
    schema::{self, ROW_HASH_COLUMN},
    source::Page,
    state::KnownPage,
};

/// Records of a page's last millisecond that are remembered. A page with more of them is read each time.
const EDGE_RECORDS_MAX: usize = 16;

/// Whether pages of the scan can be known: the records are all that there is to a page, and most of the time they are as they were.
fn can_be_known(shared: &Shared, scan: &Scan) -> bool {
    !shared.reads_all && scan.scope.stream == Stream::Responses && !scan.flags.contains(Flag::WithSnapshots)
}

/// The pages of the last scan of the window, by hash: those that the scan can leave unread.
pub(super) fn before(shared: &Shared, scan: &Scan) -> Result<HashMap<u128, KnownPage>, PipelineError> {
    if !can_be_known(shared, scan) {
        return Ok(HashMap::new());
    }
    let pages = shared.state().known_pages(scan, reader(shared.drift.of(scan.scope.stream)));
    Ok(pages.map_err(PipelineError::State)?.into_iter().map(|page| (page.page, page)).collect())
}

/// What a page is known by, if it can be: a hash of its list of records, for the token beside it is another one each time.
pub(super) fn hash_of(shared: &Shared, scan: &Scan, page: &Page) -> Option<u128> {
    let list = page.list.clone().filter(|_| can_be_known(shared, scan))?;
    page.body.get(list).map(xxh3_128)
}

/// Stands for whatever a page is read by: this version, its contracts and the rules.
pub(super) fn reader(rules: DriftRules) -> i64 {
    static CONTRACTS: LazyLock<u64> = LazyLock::new(|| xxh3_64(schema::contracts().concat().as_bytes()));
    let reader = format!("{} {} {rules:?}", env!("CARGO_PKG_VERSION"), *CONTRACTS);
    xxh3_64(reader.as_bytes()).cast_signed()
}

/// What a page comes to that was read, if there is nothing else to say about it.
pub(super) fn page_of(hash: u128, flat: &FlatPage, moments: &PageMoments) -> Option<KnownPage> {
    if !is_all_said(flat) {
        return None;
    }
    let (mut digest, mut edge) = (Digest::default(), Vec::new());
    let at_edge = moments.last_ms.map(|at_ms| moments.keys_at(at_ms)).unwrap_or_default();
    for (key, row) in records_of(flat)? {
        digest.add(key, row);
        if at_edge.contains(&key) {
            edge.push((key, row));
        }
    }
    let is_edge_known = moments.last_ms.is_some() == (flat.records > 0) && edge.len() <= EDGE_RECORDS_MAX;
    is_edge_known.then_some(KnownPage { page: hash, digest, last_ms: moments.last_ms, edge, tie_ms: moments.tie_ms })
}

/// Whether a look at a page's edge brought nothing but records that known pages have shown there, as they are.
pub(super) fn shows_nothing_new(side: &FlatPage, known: &[KnownPage]) -> bool {
    // Most looks are at the edge of the last page.
    let is_shown = |record: &(u128, i64)| known.iter().rev().any(|page| page.edge.contains(record));
    is_all_said(side) && records_of(side).is_some_and(|records| records.iter().all(is_shown))
}

/// Whether every record was placed, and nothing is to be told of any.
fn is_all_said(flat: &FlatPage) -> bool {
    let is_placed = flat.rejects.is_empty() && flat.discarded.is_none() && flat.absent.is_empty();
    is_placed && flat.drift.is_empty() && flat.key_hashes.len() == flat.records
}

/// The hashes of the key and of the content of each record.
fn records_of(flat: &FlatPage) -> Option<Vec<(u128, i64)>> {
    let Some(rows) = flat.table(Stream::Responses.name()) else { return Some(Vec::new()) };
    let row_hashes = rows.column_by_name(ROW_HASH_COLUMN)?.as_primitive_opt::<Int64Type>()?;
    Some(flat.key_hashes.iter().copied().zip(row_hashes.values().iter().copied()).collect())
}

/// The pages of a scan that are worth remembering: none, where some record came twice, or was not placed, or does not count. They would
/// not come to what a warehouse holds.
pub(super) fn worth_knowing<'a>(pages: &'a [KnownPage], counts: &RowCounts) -> &'a [KnownPage] {
    let records: u64 = pages.iter().map(|page| page.digest.records).sum();
    let placed = counts.inserted + counts.updated + counts.unchanged + counts.soft_deleted;
    let elsewhere = counts.outside_window + counts.withheld + counts.rejected + counts.collisions;
    if records == placed && elsewhere == 0 { pages } else { &[] }
}

/// The creation times that are known of a page: those at its edge.
pub(super) fn moments_of(page: &KnownPage) -> PageMoments {
    PageMoments {
        rows: page.edge.iter().map(|(key, _)| (page.last_ms, *key)).collect(),
        last_ms: page.last_ms,
        records: usize::try_from(page.digest.records).unwrap_or(usize::MAX),
        tie_ms: page.tie_ms,
    }
}
