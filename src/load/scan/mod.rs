//! Applies complete scans to a store: what becomes of each row, and what is written for it (promises P1, P2, P4).
//!
//! 1. The pages are gone through once: of each record its key and hashes are kept ([`staged`]).
//! 2. What the store has of the window, and of the keys that lie outside of it, is read:
//!    keys and hashes again ([`held`]).
//! 3. [`classify()`] says what becomes of each record and each stored row. It is a pure function.
//! 4. Rows that change, or may, are read whole.
//! 5. The pages are gone through once more, and what changes is written ([`mod@write`]): the base table, its children,
//!    history, snapshots, versions, rejects. If nothing changes, this does not happen.
//!
//! A key is looked up where its creation time says that it is. Should the service ever move the creation time of a
//! record from one window to another, the record is new in the one and vanishes from the other. Records that share a
//! key and lie in different windows both have a row, until a scan meets both: then the row at the record's moment
//! stays, and the others go to the history.

mod children;
mod classify;
mod collisions;
mod compare;
mod differ;
mod fields;
mod held;
mod pages;
mod record_set;
mod records;
mod rejects;
mod snapshots;
mod staged;
mod stamps;
mod surveys;
mod tables;
mod values;
mod versions;
mod write;

pub(in crate::load) use compare::differences;
pub use compare::{Difference, Differences, Example};
pub use pages::Pages;

use std::collections::BTreeMap;

use arrow::array::RecordBatch;

use self::{
    classify::{Fate, Fates, Question, classify},
    held::{OldRows, Stored},
    rejects::NewRejects,
    staged::Staged,
    write::{Known, Writer, Written},
};
use super::{LoadError, RowCounts, VanishPolicy, store::BufferedStore};
use crate::{
    model::{Flag, Reject, Scan, Stream},
    schema::Table,
};

/// Compares a complete scan with the store, and changes what differs. The caller adds the row of the ledger, and
/// commits. After an error the caller rolls back.
///
/// The cost is that of the scan and of the stored rows in its window, whatever else is stored.
pub(in crate::load) fn apply(
    store: &mut BufferedStore,
    scan: &Scan,
    pages: &dyn Pages,
    vanish: VanishPolicy,
) -> Result<RowCounts, LoadError> {
    let staged = stage(scan, pages)?;
    versions::begin_missing(store, staged.base)?;
    let stored = Stored::read(store, scan, &staged)?;
    let fates = classify(&staged.records, &stored.rows, &question(scan, &staged, vanish));
    let snapshots = snapshots::find(store, &staged.snapshots)?;
    snapshots.remove_replaced(store, scan)?;
    let written = if fates.is_settled() && snapshots.is_empty() {
        Written::default()
    } else {
        let old = OldRows::read(store, staged.base, &stored, &places_of_old(&fates))?;
        let known = Known { scan, staged: &staged, stored: &stored, fates: &fates, old: &old, snapshots: &snapshots };
        write_pages(store, pages, &known)?
    };
    let new = write_rejects(store, scan, staged.base, &staged.rejects, &written.losers)?;
    let changed = written.counts.inserted + written.counts.updated;
    Ok(RowCounts {
        rows_read: staged.rows_read,
        outside_window: staged.outside_us.len() as u64,
        withheld: fates.withheld,
        unchanged: fates.standing.saturating_sub(changed),
        rejected: new.rejected,
        collisions: written.counts.collisions + new.collisions,
        ..written.counts
    })
}

/// Goes through the pages once more and writes what changes; then what is known only when all are written.
fn write_pages(store: &mut BufferedStore, pages: &dyn Pages, known: &Known<'_>) -> Result<Written, LoadError> {
    let Known { scan, staged, fates, old, .. } = *known;
    let base = staged.base;
    let mut writer = Writer::begin(store, known)?;
    pages.for_each(&mut |page| writer.page(store, page))?;
    let mut written = writer.written;
    let gone = || old.take(base, fates.gone.iter().copied());
    match scan.scope.stream {
        Stream::Surveys => {
            let gone = gone()?;
            surveys::write(store, scan, base, &written, &old.rows, &gone)?;
            versions::write(store, scan, base, &written, &gone)?;
        }
        Stream::Users => versions::write(store, scan, base, &written, &gone()?)?,
        Stream::Responses => {
            let losers = std::mem::take(&mut written.losers);
            written.counts.collisions = collisions::write_to_history(store, scan, base, &losers, &written.edited)?;
        }
        Stream::Themes => {}
    }
    Ok(written)
}

/// Writes the rejects of a scan, and the records that lost to others where no history has room for them.
fn write_rejects(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    rejects: &BTreeMap<i64, Reject>,
    losers: &[RecordBatch],
) -> Result<NewRejects, LoadError> {
    let losers = collisions::as_rejects(base, losers)?;
    let new = rejects::find_new(store, scan, rejects.iter().chain(losers.iter().map(|(hash, reject)| (hash, reject))))?;
    rejects::write(store, scan, &new)
}

/// Goes through all pages once.
fn stage(scan: &Scan, pages: &dyn Pages) -> Result<Staged, LoadError> {
    let mut staged = Staged::new(scan)?;
    let mut number = 0;
    pages.for_each(&mut |page| {
        staged.add(scan, number, page)?;
        number += 1;
        Ok(())
    })?;
    Ok(staged)
}

fn question(scan: &Scan, staged: &Staged, vanish: VanishPolicy) -> Question {
    let base = staged.base;
    Question {
        window: base.partition.is_some().then(|| super::store::TimeBounds::of(scan.window)),
        survey_id: scan.scope.survey_id.filter(|_| base.column("survey_id").is_some()),
        flags: base.column("_flags").map(|_| scan.flags.bits().into()),
        asks_for_deleted: base.column("deleted_at").is_none() || scan.flags.contains(Flag::WithDeletedResponses),
        discarded: staged.discarded.clone(),
        vanish,
        is_empty_answer: staged.rows_read == 0,
        has_broken_records: staged.has_broken_records,
    }
}

/// The places of the stored rows that are to be read whole.
fn places_of_old(fates: &Fates) -> Vec<usize> {
    let held = fates.records.iter().filter_map(|fate| match fate {
        Fate::Held { stored, .. } => Some(*stored),
        _ => None,
    });
    held.chain(fates.gone.iter().copied()).chain(fates.doubles.iter().copied()).collect()
}
