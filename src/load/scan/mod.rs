//! Applies complete scans to a store: classifies each row, and writes what changed (promises P1, P2, P4).
//!
//! 1. Read the summaries of the pages, and keep the key and the hashes of each record ([`staged`]).
//! 2. Read the keys and hashes of the stored rows of the window, and of rows outside it whose keys the scan returned
//!    ([`stored`]).
//! 3. [`classify()`], a pure function, decides what becomes of each record and of each stored row.
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

pub(in crate::load) use memory::ScanMemory;
pub use pages::{Pages, Wanted};
pub(in crate::load) use superseded::losers_of_vanished;
pub(in crate::load) use unique_keys::{CountCorrection, resolve_all, resolve_range};
pub(in crate::load) use verify::differences;
pub use verify::{Difference, Differences, Example};

use arrow::array::RecordBatch;

use self::{
    classify::{Classification, ClassifyOptions, RecordChange, classify},
    records::Record,
    rejects::RejectCounts,
    staged::StagedScan,
    stored::{OldRows, StoredRows},
    write::{ScanWriter, WriteResult},
    write_input::WriteInput,
};
use super::{LoadError, RowCounts, VanishPolicy, store::BufferedStore};
use crate::model::{Flag, Scan, Stream};

/// A complete scan, compared with the stored rows. Nothing is written yet.
pub(in crate::load) struct ComparedScan {
    staged: StagedScan,
    stored: StoredRows,
    classification: Classification,
}

impl ComparedScan {
    /// Reads the summaries of the pages and compares them with the store. `vanish` decides whether missing rows are
    /// marked as vanished.
    pub fn new(
        store: &mut BufferedStore,
        scan: &Scan,
        pages: &dyn Pages,
        vanish: VanishPolicy,
    ) -> Result<Self, LoadError> {
        let staged = stage(scan, pages)?;
        versions::backfill_missing(store, staged.base)?;
        let compared = Self { staged, stored: StoredRows::default(), classification: Classification::default() };
        compared.repeated(store, scan, vanish)
    }

    /// Compares the scan with the store again, after rows changed.
    pub fn repeated(self, store: &mut BufferedStore, scan: &Scan, vanish: VanishPolicy) -> Result<Self, LoadError> {
        let staged = self.staged;
        let stored = StoredRows::read(store, scan, &staged)?;
        let mut classification = classify(&staged.records, &stored.rows, &classify_options(scan, &staged, vanish));
        superseded::mark(store, scan, &staged, &mut classification)?;
        Ok(Self { staged, stored, classification })
    }

    /// Returns each record of the scan with what becomes of it.
    fn changes(&self) -> impl Iterator<Item = (&Record, RecordChange)> {
        self.staged.records.iter().zip(self.classification.records.iter().copied())
    }

    /// Returns the hashes of the keys of the stored rows that vanish or are removed.
    fn removed_keys(&self) -> impl Iterator<Item = u128> {
        let removed = self.classification.vanished.iter().chain(&self.classification.duplicate_rows);
        removed.filter_map(|index| Some(self.stored.rows.get(*index)?.key))
    }
}

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
    memory.new_keys.note(scan, compared);
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

/// Reads the summaries of all pages once.
fn stage(scan: &Scan, pages: &dyn Pages) -> Result<StagedScan, LoadError> {
    let mut staged = StagedScan::new(scan)?;
    let mut page_number = 0;
    pages.for_each(Wanted::Summaries, &mut |page| {
        staged.add(scan, page_number, page)?;
        page_number += 1;
        Ok(())
    })?;
    Ok(staged)
}

/// Returns what the classification must know of the scan and its base table.
fn classify_options(scan: &Scan, staged: &StagedScan, vanish: VanishPolicy) -> ClassifyOptions {
    let base = staged.base;
    ClassifyOptions {
        window: base.partition.is_some().then(|| super::store::TimeRange::of(scan.window)),
        survey_id: scan.scope.survey_id.filter(|_| base.column("survey_id").is_some()),
        flags: base.column("_flags").map(|_| scan.flags.bits().into()),
        includes_deleted: base.column("deleted_at").is_none() || scan.flags.contains(Flag::WithDeletedResponses),
        discarded: staged.discarded.clone(),
        vanish,
        is_empty_answer: staged.rows_read == 0,
        has_broken_records: staged.has_broken_records,
    }
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
