//! Compares a complete scan with the stored rows: the first three steps of [`super::apply`].

use super::{
    classify::{Classification, ClassifyOptions, RecordChange, classify},
    collisions::has_history,
    pages::{Pages, Wanted},
    records::Record,
    staged::StagedScan,
    stored::StoredRows,
    superseded,
    unique_keys::NewKeys,
    versions,
};
use crate::{
    load::{
        LoadError, VanishPolicy,
        store::{BufferedStore, TimeRange},
    },
    model::{Flag, Scan},
};

/// A complete scan, compared with the stored rows. Nothing is written yet.
pub(in crate::load) struct ComparedScan {
    pub(super) staged: StagedScan,
    pub(super) stored: StoredRows,
    pub(super) classification: Classification,
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

    /// Returns the records that the scan adds, of a table whose keys are compared over all windows.
    pub fn new_records(&self) -> impl Iterator<Item = &Record> {
        let new = self.changes().filter(|(_, change)| *change == RecordChange::New).map(|(record, _)| record);
        new.filter(|_| has_history(self.staged.base))
    }

    /// Returns true if the keys must be compared with the complete table before this scan is applied, and the scan with
    /// the stored rows once more: it changes a row with one of the keys, or found that such a record lost before.
    /// Whether a row is current when it changes decides what the history gets.
    pub fn must_follow(&self, keys: &NewKeys) -> bool {
        let is_decided = |change: RecordChange| !matches!(change, RecordChange::New | RecordChange::Unchanged);
        let records = self.changes().filter(|(_, change)| is_decided(*change)).map(|(record, _)| record.key);
        let removed = self.classification.vanished.iter().chain(&self.classification.duplicate_rows);
        let removed = removed.filter_map(|index| Some(self.stored.rows.get(*index)?.key));
        has_history(self.staged.base) && keys.has_any(records.chain(removed))
    }

    fn changes(&self) -> impl Iterator<Item = (&Record, RecordChange)> {
        self.staged.records.iter().zip(self.classification.records.iter().copied())
    }
}

/// Reads the summaries of all pages once.
pub(super) fn stage(scan: &Scan, pages: &dyn Pages) -> Result<StagedScan, LoadError> {
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
pub(super) fn classify_options(scan: &Scan, staged: &StagedScan, vanish: VanishPolicy) -> ClassifyOptions {
    let base = staged.base;
    ClassifyOptions {
        window: base.partition.is_some().then(|| TimeRange::of(scan.window)),
        survey_id: scan.scope.survey_id.filter(|_| base.column("survey_id").is_some()),
        flags: base.column("_flags").map(|_| scan.flags.bits().into()),
        includes_deleted: base.column("deleted_at").is_none() || scan.flags.contains(Flag::WithDeletedResponses),
        discarded: staged.discarded.clone(),
        vanish,
        is_empty_answer: staged.rows_read == 0,
        has_broken_records: staged.has_broken_records,
    }
}
