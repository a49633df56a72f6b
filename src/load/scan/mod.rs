//! Applies complete scans to a store: classifies each row, and writes what changed (promises P1, P2, P4).
//!
//! 1. Read the summaries of the pages, and keep the key and the hashes of each record ([`staged`]).
//! 2. Read the keys and hashes of the stored rows of the window, and of rows outside it whose keys the scan returned
//!    ([`stored`]).
//! 3. [`classify::classify`], a pure function, decides what becomes of each record and of each stored row.
//! 4. Read all columns of the stored rows that change or may change.
//! 5. Read the pages again, only the records that may be written, and write the changes ([`mod@write`]): base table,
//!    children, history, snapshots, versions. Steps 4 and 5 are skipped if no row changes.
//! 6. Write the rejects that are not stored yet.
//!
//! The stored row of a record is searched near the record's creation time. A record that is new there can have the key
//! of a row in another window. So before each commit the keys of all new rows are compared with the complete table, and
//! of rows with one key only the current one stays ([`unique_keys`]). A re-scan finds the records that lost in the
//! history ([`superseded`]).

mod child_digests;
mod classify;
mod collisions;
mod compared;
mod fields;
mod hashes;
mod memory;
mod pages;
mod records;
mod rejects;
mod returned;
mod row_difference;
mod snapshots;
mod staged;
mod stamps;
mod stored;
mod superseded;
mod surveys;
mod unique_keys;
mod value_hashes;
mod verify;
mod versions;
mod write;
mod write_input;

pub(in crate::load) use compared::ComparedScan;
pub(in crate::load) use memory::ScanMemory;
pub use pages::{Pages, Wanted};
pub(in crate::load) use superseded::losers_of_vanished;
pub(in crate::load) use unique_keys::{CountCorrection, resolve_all, resolve_range};
pub(in crate::load) use verify::differences;
pub use verify::{Difference, Differences, Example};

use arrow::array::RecordBatch;

use self::{
    classify::{Classification, RecordChange},
    rejects::RejectCounts,
    staged::StagedScan,
    stored::OldRows,
    write::{ScanWriter, WriteResult},
    write_input::WriteInput,
};
use super::{LoadError, RowCounts, store::BufferedStore};
use crate::model::{Scan, Stream};

/// Writes the differences between a complete scan and the store, and returns the counts of rows. The caller adds the
/// row of the ledger and commits the transaction, or rolls it back after an error.
///
/// The cost grows with the scan and the stored rows of its window, not with the size of the store.
pub(in crate::load) fn apply(
    store: &mut BufferedStore,
    memory: &mut ScanMemory,
    scan: &Scan,
    pages: &dyn Pages,
    compared: &ComparedScan,
) -> Result<RowCounts, LoadError> {
    memory.new_keys.note(&scan.id, compared.new_records());
    let ComparedScan { staged, stored, classification } = compared;
    let snapshots = snapshots::find(store, &staged.snapshots)?;
    snapshots.remove_replaced(store, scan)?;
    let written = if classification.changes_nothing() && snapshots.is_empty() {
        WriteResult::default()
    } else {
        let old = OldRows::read(store, staged.base, stored, &indexes_to_read(classification))?;
        let input = WriteInput { scan, staged, stored, classification, old: &old, snapshots: &snapshots };
        write_pages(store, pages, input)?
    };
    superseded::note_vanished(memory, staged.base, &written.vanished)?;
    let new = write_rejects(store, memory, scan, staged, &written.collision_losers)?;
    let changed = written.counts.inserted + written.counts.updated + written.counts.filled_in;
    Ok(RowCounts {
        rows_read: staged.rows_read,
        outside_window: staged.outside_us.len() as u64,
        withheld: classification.withheld,
        unchanged: classification.current.saturating_sub(changed),
        rejected: new.rejected,
        collisions: written.counts.collisions + new.collisions,
        ..written.counts
    })
}

/// Reads the pages again and writes the changes of each page. After the last page, writes the changes that need all
/// pages: versions of surveys and users, and collision losers of responses.
fn write_pages(store: &mut BufferedStore, pages: &dyn Pages, input: WriteInput<'_>) -> Result<WriteResult, LoadError> {
    let WriteInput { scan, staged, classification, old, .. } = input;
    let base = staged.base;
    let mut writer = ScanWriter::begin(store, input)?;
    let records_of = |page_number| input.records_to_write(page_number);
    pages.for_each(Wanted::Records(&records_of), &mut |page| writer.write_page(store, page))?;
    let mut written = writer.written;
    returned::mark(store, scan, base, &written.returned)?;
    let vanished = || old.take(base, classification.vanished.iter().copied());
    match scan.scope.stream {
        Stream::Surveys => {
            let vanished = vanished()?;
            surveys::write(store, scan, base, &written, &vanished)?;
            versions::write(store, scan, base, &written, &vanished)?;
        }
        Stream::Users => versions::write(store, scan, base, &written, &vanished()?)?,
        Stream::Responses => {
            let losers = std::mem::take(&mut written.collision_losers);
            let winners = &classification.winners;
            written.counts.collisions =
                collisions::write_to_history(store, scan, base, &losers, &written.stored_losers, winners)?;
        }
        Stream::Themes => {}
    }
    Ok(written)
}

/// Writes the rejects of a scan that are not stored yet, and returns their numbers. The collision losers of streams
/// without a history of losers become rejects too.
fn write_rejects(
    store: &mut BufferedStore,
    memory: &mut ScanMemory,
    scan: &Scan,
    staged: &StagedScan,
    collision_losers: &[RecordBatch],
) -> Result<RejectCounts, LoadError> {
    let collision_losers = collisions::as_rejects(staged.base, collision_losers)?;
    let losers = || collision_losers.iter().map(|(hash, reject)| (hash, reject));
    let mut new = rejects::find_new(store, scan, staged.rejects.iter().chain(losers()))?;
    if !new.is_empty() && !memory.are_rejects_current {
        rejects::upgrade(store)?;
        memory.are_rejects_current = true;
        new = rejects::find_new(store, scan, staged.rejects.iter().chain(losers()))?;
    }
    rejects::write(store, scan, &new)
}

/// Returns the indexes of the stored rows of which all columns are needed: rows that are replaced, compared or removed.
fn indexes_to_read(classification: &Classification) -> Vec<usize> {
    let compared = classification.records.iter().filter_map(|change| match change {
        RecordChange::Stored { stored, .. } => Some(*stored),
        _ => None,
    });
    compared
        .chain(classification.vanished.iter().copied())
        .chain(classification.duplicate_rows.iter().copied())
        .collect()
}
