//! What the second reading of a scan's pages needs: the summary of the first reading, and what becomes of each record.

use super::{
    classify::{Classification, RecordChange},
    records::records_of_rows,
    snapshots::NewSnapshots,
    staged::StagedScan,
    stored::{OldRows, StoredRows},
};
use crate::{
    load::LoadError,
    model::{FlatPage, RecordSet, Scan},
};

/// A scan with its summary, its classification and the stored rows that it is compared with.
#[derive(Clone, Copy)]
pub(super) struct WriteInput<'a> {
    pub scan: &'a Scan,
    pub staged: &'a StagedScan,
    pub stored: &'a StoredRows,
    pub classification: &'a Classification,
    pub old: &'a OldRows,
    pub snapshots: &'a NewSnapshots,
}

impl WriteInput<'_> {
    /// Returns the records of a page that are written, may be written, or have a snapshot that is written.
    pub fn records_to_write(&self, page_number: usize) -> RecordSet {
        let snapshots = self.snapshots.of_page(page_number).iter().map(|new| new.record);
        let Some(page) = self.staged.pages.get(page_number) else { return RecordSet::default() };
        let Classification { records, collision_losers, .. } = self.classification;
        let is_written = |change: &RecordChange| matches!(change, RecordChange::New | RecordChange::Stored { .. });
        let written = page.records.clone().filter(|record| records.get(*record).is_some_and(is_written));
        let lost = collision_losers.iter().copied().filter(|record| page.records.contains(record));
        written.chain(lost).map(|record| page.number(record)).chain(snapshots).collect()
    }

    /// Returns the record of each row that a page has in the base table, as index in [`StagedScan::records`]. Fails if
    /// the page has a record that the first reading did not find, or lacks a record that has to be written.
    pub fn records_of(&self, page: &FlatPage, page_number: usize) -> Result<Vec<usize>, LoadError> {
        let other = || LoadError::Bug("a page has other records than before".to_owned());
        let staged = self.staged.pages.get(page_number).ok_or_else(other)?;
        let numbers = page.table(&self.staged.base.name).map(records_of_rows).transpose()?.unwrap_or_default();
        let wanted = self.records_to_write(page_number);
        let found = numbers.iter().filter(|number| wanted.contains(**number)).count();
        let records: Option<Vec<usize>> = numbers.iter().map(|number| staged.record(*number)).collect();
        records.filter(|_| found == wanted.len() && !page.is_summary).ok_or_else(other)
    }
}
