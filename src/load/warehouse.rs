//! A warehouse: a store, and the operations on the rows in it.

use std::{collections::HashSet, path::Path};

use super::{
    Applied, CoOccurrence, CommitOptions, Differences, ErasureRecord, EventRows, LedgerEntry, LoadError, Mention,
    Pages, PeopleFound, ReadAgain, RecordingOutcome, Replacement, RunRecord, SearchReport, Stamp, WantedRecordings,
    persons, scan,
    store::{BufferedStore, Store},
    tables::{events, ledger, ranges, receipts, recordings, runs},
};
use crate::{
    model::{Identifier, Scan, ScanId},
    person::IdentifierMatcher,
};

/// One warehouse. Applying a scan is atomic and idempotent.
///
/// [`Warehouse::commit`] makes scans durable together that were applied one after the other. A failure rolls back to
/// the last commit. Every other method commits first. One thread uses a warehouse at a time.
pub struct Warehouse {
    store: BufferedStore,
    /// The scans in the ledger, committed or not; `None` before the ledger is read.
    scans: Option<HashSet<ScanId>>,
    /// The last scan that was applied and not committed.
    uncommitted: Option<ScanId>,
    /// True if an error rolled back applied scans and [`Warehouse::commit`] has not reported the loss yet.
    lost_uncommitted: bool,
    threads: usize,
}

impl Warehouse {
    /// A warehouse in this store. `buffer_bytes_max` limits the rows that are buffered before the store writes them.
    pub(in crate::load) fn new(store: Box<dyn Store>, buffer_bytes_max: usize, threads: u32) -> Self {
        let threads = usize::try_from(threads).unwrap_or(1);
        let store = BufferedStore::new(store, buffer_bytes_max);
        Self { store, scans: None, uncommitted: None, lost_uncommitted: false, threads }
    }

    /// "duckdb" or "parquet": a name for people, and the key in the checkpoints.
    pub fn name(&self) -> &'static str {
        self.store.as_store().name()
    }

    /// The path of the warehouse, for people.
    pub fn location(&self) -> String {
        self.store.as_store().location()
    }

    /// Returns true if the ledger lists the scan.
    pub fn holds(&mut self, scan: &ScanId) -> Result<bool, LoadError> {
        self.commit_pending()?;
        self.is_in_ledger(scan)
    }

    fn is_in_ledger(&mut self, scan: &ScanId) -> Result<bool, LoadError> {
        let scans = match self.scans.take() {
            Some(scans) => scans,
            None => ledger::scan_ids(&mut self.store)?,
        };
        Ok(self.scans.insert(scans).contains(scan))
    }

    /// Returns the scans of the ledger, in no particular order.
    pub fn ledger(&mut self) -> Result<Vec<LedgerEntry>, LoadError> {
        self.commit_pending()?;
        ledger::entries(&mut self.store)
    }

    /// Applies a complete scan and commits it.
    pub fn apply_and_commit(
        &mut self,
        scan: &Scan,
        pages: &dyn Pages,
        options: &CommitOptions,
    ) -> Result<Applied, LoadError> {
        let applied = self.apply(scan, pages, options)?;
        self.commit()?;
        Ok(applied)
    }

    /// Applies a complete scan and adds its row to the ledger. The scan counts only after the next commit. A scan that
    /// is in the ledger already changes nothing.
    pub fn apply(&mut self, scan: &Scan, pages: &dyn Pages, options: &CommitOptions) -> Result<Applied, LoadError> {
        self.require_nothing_lost()?;
        let applied = self.apply_if_new(scan, pages, options);
        if applied.is_err() {
            self.rollback();
        }
        applied
    }

    fn apply_if_new(&mut self, scan: &Scan, pages: &dyn Pages, options: &CommitOptions) -> Result<Applied, LoadError> {
        if self.is_in_ledger(&scan.id)? {
            let counts = ledger::counts_of(&mut self.store, &scan.id)?.unwrap_or_default();
            return Ok(Applied { counts, wrote: false, already_applied: true });
        }
        let before = self.store.changes();
        let counts = scan::apply(&mut self.store, scan, pages, options.vanish)?;
        let wrote = self.store.changes() > before || options.record_unchanged;
        if wrote {
            ledger::add(&mut self.store, scan, &counts, options.proof)?;
            self.scans.get_or_insert_default().insert(scan.id.clone());
            self.uncommitted = Some(scan.id.clone());
        }
        Ok(Applied { counts, wrote, already_applied: false })
    }

    /// Makes applied scans durable. Cheap when nothing changed.
    ///
    /// # Errors
    /// `RolledBack` once after an error that rolled back applied scans: none of the scans since the last commit is
    /// stored.
    pub fn commit(&mut self) -> Result<(), LoadError> {
        let committed = self.require_nothing_lost().and_then(|()| self.commit_changes());
        // The loss is reported once.
        self.lost_uncommitted = false;
        committed
    }

    fn require_nothing_lost(&self) -> Result<(), LoadError> {
        match self.lost_uncommitted {
            true => Err(LoadError::RolledBack),
            false => Ok(()),
        }
    }

    /// Makes all changes durable, applied scans among them.
    fn commit_changes(&mut self) -> Result<(), LoadError> {
        let label = self.uncommitted.as_ref().map_or("tables", |scan| scan.0.as_str()).to_owned();
        let committed = self.store.commit(&label);
        match &committed {
            Ok(()) => self.uncommitted = None,
            Err(_) => self.rollback(),
        }
        committed
    }

    fn rollback(&mut self) {
        self.lost_uncommitted |= self.uncommitted.take().is_some();
        self.scans = None;
        self.store.rollback();
    }

    /// Commits what was applied.
    fn commit_pending(&mut self) -> Result<(), LoadError> {
        self.commit_changes()
    }

    /// Changes rows in a transaction of their own.
    fn change<T>(&mut self, work: impl FnOnce(&mut BufferedStore) -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.commit_pending()?;
        let done = work(&mut self.store);
        match &done {
            Ok(_) => self.commit_changes()?,
            Err(_) => self.rollback(),
        }
        done
    }

    /// Compares the warehouse with a complete scan, and returns at most `examples_max` rows of each kind of difference.
    /// Changes nothing.
    pub fn compare(&mut self, scan: &Scan, pages: &dyn Pages, examples_max: usize) -> Result<Differences, LoadError> {
        self.commit_pending()?;
        scan::differences(&mut self.store, scan, pages, examples_max)
    }

    /// Makes committed rows visible to readers of Parquet files, or compacts the DuckDB file. Cheap when nothing
    /// changed.
    pub fn publish(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.scans = None;
        self.store.store().publish()
    }

    /// Returns true if so many changes are pending that [`Warehouse::publish`] should run now and not at the end of the run.
    pub fn should_compact(&self) -> bool {
        self.store.as_store().should_compact()
    }

    /// Releases the lock on the file, so that other processes can open it until the warehouse is used again.
    pub fn release_lock(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.scans = None;
        self.store.store().release_lock()
    }

    /// Exports what readers find after a run: the copy for readers and the search index. Called after the run's row is
    /// in `sync_runs`. Cheap when nothing changed.
    pub fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.store.store().export_reader_copy()
    }

    /// Adds a row to `sync_runs`, or replaces the row of the same run.
    pub fn record_run(&mut self, run: &RunRecord) -> Result<(), LoadError> {
        self.record_runs(std::slice::from_ref(run))
    }

    /// Adds rows to `sync_runs` in one transaction.
    pub fn record_runs(&mut self, runs: &[RunRecord]) -> Result<(), LoadError> {
        self.change(|store| runs::record(store, runs))
    }

    /// Returns the rows of `sync_runs`, in no particular order.
    pub fn runs(&mut self) -> Result<Vec<RunRecord>, LoadError> {
        self.commit_pending()?;
        runs::all(&mut self.store)
    }

    /// Adds webhook events and the changes of status in them, in one transaction. Idempotent: stored events are
    /// skipped. Returns the number of events added.
    pub fn add_events(&mut self, events: &EventRows) -> Result<u64, LoadError> {
        self.change(|store| events::add(store, events))
    }

    /// Copies the events of another warehouse into this one, which has none. Each body is parsed again, which fills
    /// columns and tables that are newer than the stored rows. Returns the number of events.
    pub fn copy_events(&mut self, from: &mut Warehouse, read_again: &ReadAgain<'_>) -> Result<u64, LoadError> {
        from.commit_pending()?;
        self.change(|store| events::copy(&mut from.store, store, read_again))
    }

    /// Replaces the rows of a range by those of `source`, which a replay built, in one transaction. Returns the rows
    /// added.
    pub fn replace(&mut self, source: &mut Warehouse, what: &Replacement) -> Result<u64, LoadError> {
        source.commit_pending()?;
        self.scans = None;
        self.change(|store| ranges::replace(store, &mut source.store, what))
    }

    /// Returns the identifiers that share a row with one of these. Changes nothing.
    pub fn co_occurrence(&mut self, wanted: &[Identifier]) -> Result<CoOccurrence, LoadError> {
        self.commit_pending()?;
        persons::co_occurrence(&mut self.store, wanted)
    }

    /// Returns at most `sessions_max` sessions of which every row had vanished before `before_ms`, in epoch
    /// milliseconds.
    pub fn vanished_sessions(&mut self, before_ms: i64, sessions_max: usize) -> Result<Vec<Identifier>, LoadError> {
        self.commit_pending()?;
        persons::vanished_sessions(&mut self.store, before_ms, sessions_max)
    }

    /// Returns those of the sessions that have a row which has not vanished.
    pub fn live_sessions(&mut self, sessions: &[Identifier]) -> Result<Vec<Identifier>, LoadError> {
        self.commit_pending()?;
        persons::live_sessions(&mut self.store, sessions)
    }

    /// Finds the rows that carry one of these identifiers, and their child rows. Changes nothing.
    pub fn find_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        self.commit_pending()?;
        persons::find(&mut self.store, person)
    }

    /// Removes these rows, and every byte of them from the files of the warehouse. The files are rewritten even if no
    /// row is found: a kill may have separated an earlier removal from its rewrite.
    pub fn erase_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        let found = self.change(|store| persons::remove(store, person))?;
        self.store.store().purge_removed_bytes()?;
        Ok(found)
    }

    /// Returns an error that names an object of somebody else which blocks the removal of rows. Changes nothing.
    pub fn require_erasable(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.store.store().require_purgeable()
    }

    /// Looks for identifiers in every text that the warehouse holds. Changes nothing.
    pub fn search(&mut self, matcher: &IdentifierMatcher) -> Result<SearchReport, LoadError> {
        self.commit_pending()?;
        persons::search(&mut self.store, matcher, self.threads)
    }

    /// Replaces identifiers in the columns that mention them, in all tables or only in the program's own. Returns the
    /// rows that changed. No byte of the old texts is left in the files.
    pub fn redact(
        &mut self,
        matcher: &IdentifierMatcher,
        mentions: &[Mention],
        only_own: bool,
    ) -> Result<u64, LoadError> {
        let before = self.store.changes();
        let rows = self.change(|store| persons::redact(store, matcher, mentions, only_own))?;
        if self.store.changes() > before {
            self.store.store().purge_removed_bytes()?;
        }
        Ok(rows)
    }

    /// Adds rows to `erasures`, or replaces the rows of the same erasures.
    pub fn record_erasures(&mut self, records: &[ErasureRecord]) -> Result<(), LoadError> {
        self.change(|store| receipts::record(store, records))
    }

    /// Returns the rows of `erasures`, in no particular order.
    pub fn erasures(&mut self) -> Result<Vec<ErasureRecord>, LoadError> {
        self.commit_pending()?;
        receipts::all(&mut self.store)
    }

    /// Returns at most `rows_max` recordings that answers up to `until_us` (epoch microseconds) name and that are not
    /// stored yet.
    pub fn wanted_recordings(&mut self, until_us: i64, rows_max: usize) -> Result<WantedRecordings, LoadError> {
        self.commit_pending()?;
        recordings::wanted(&mut self.store, until_us, rows_max)
    }

    /// Writes the outcomes of recordings into the rows that name them, and returns the rows that changed. `stamp` is
    /// the run and its time by the service's clock; without it the rows keep their stamps.
    pub fn settle_recordings(
        &mut self,
        outcomes: &[RecordingOutcome],
        stamp: Option<Stamp<'_>>,
    ) -> Result<u64, LoadError> {
        self.change(|store| recordings::write_outcomes(store, outcomes, stamp))
    }

    /// Creates a warehouse at `fresh` with the objects of others but no rows, for a replay to fill. An error names an
    /// object that cannot be copied. Does nothing if this warehouse has no such objects.
    pub fn create_empty_at(&mut self, fresh: &Path) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.store.store().create_empty_at(fresh)
    }

    /// Imports the rows of others from the warehouse at `left`, and creates their indexes on our tables.
    pub fn import_foreign(&mut self, left: &Path) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.store.store().import_foreign(left)
    }
}
