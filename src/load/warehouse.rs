//! A warehouse: a store, and the operations on the rows in it.

use std::{collections::BTreeMap, path::Path};

use super::{
    Applied, CoOccurrence, CommitFindings, CommitOptions, Differences, ErasureRecord, EventRows, ExportedRows,
    LedgerEntry, LoadError, LocationResult, LostRecordings, Pages, ParseAgain, PeopleFound, RecordingOutcome,
    Replacement, RowCounts, RunRecord, Stamp, WantedRecordings,
    lock_wait::Conflicts,
    persons,
    scan::{self, ComparedScan, ScanMemory},
    store::{BufferedStore, Store, TimeRange},
    tables::{
        events,
        ledger::{self, KnownScans},
        ranges, receipts, recordings, runs,
        status_changes::{self, SeenSurveys, StatusReport},
    },
};
use crate::{
    model::{Identifier, RunId, Scan, ScanId, Snapshots, Stream},
    person::IdentifierMatcher,
};

/// A warehouse: applies scans, and reads and changes the rows of their tables. Applying a scan is atomic and
/// idempotent. Only one thread may use a warehouse at a time.
///
/// [`Warehouse::apply`] can be called for several scans before one [`Warehouse::commit`] makes all of them durable. An
/// error rolls all of them back. Methods that read or write other rows commit the applied scans first.
pub struct Warehouse {
    name: &'static str,
    location: String,
    store: BufferedStore,
    /// What the ledger says, committed or not; `None` if the ledger must be read again.
    scans: Option<KnownScans>,
    /// The last scan that was applied and not committed.
    uncommitted: Option<ScanId>,
    /// True if an error rolled back applied scans, and [`Warehouse::commit`] has not reported the loss yet.
    lost_uncommitted: bool,
    /// The changes of status that stored webhook events report; `None` if the events must be read again.
    reports: Option<Vec<StatusReport>>,
    /// Only events that were stored up to this time count, in epoch milliseconds. Less than the maximum only during a
    /// replay, which adds all events before the scans.
    reports_until_ms: i64,
    /// [`Self::reports_until_ms`] at the last commit.
    committed_until_ms: i64,
    /// What earlier scans of this process found.
    memory: ScanMemory,
    /// What the comparison of keys over all windows found since the last [`Warehouse::commit`].
    findings: CommitFindings,
    /// How often in succession another writer was first.
    conflicts: Conflicts,
    /// Number of threads for [`Warehouse::search`].
    threads: usize,
}

impl Warehouse {
    /// Creates a warehouse on this store, with the name and location of its [`super::Place`]. Changes are written to
    /// the store when they take about `buffer_bytes_max` bytes.
    pub(in crate::load) fn new(
        name: &'static str,
        location: String,
        store: Box<dyn Store>,
        buffer_bytes_max: usize,
        threads: u32,
    ) -> Self {
        let threads = usize::try_from(threads).unwrap_or(1);
        let store = BufferedStore::new(store, buffer_bytes_max);
        Self {
            name,
            location,
            store,
            scans: None,
            uncommitted: None,
            lost_uncommitted: false,
            reports: None,
            reports_until_ms: i64::MAX,
            committed_until_ms: i64::MAX,
            memory: ScanMemory::default(),
            findings: CommitFindings::default(),
            conflicts: Conflicts::default(),
            threads,
        }
    }

    /// Returns the kind of the store, "duckdb" or "parquet": for people, and as a key in the checkpoints.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the path of the warehouse, for people.
    pub fn location(&self) -> String {
        self.location.clone()
    }

    /// Commits applied scans, and returns true if the ledger has this scan.
    pub fn has_applied(&mut self, scan: &ScanId) -> Result<bool, LoadError> {
        self.commit_pending()?;
        Ok(self.known_scans()?.has(scan))
    }

    /// Returns what the ledger says. Reads it if [`Warehouse::scans`] is `None`.
    fn known_scans(&mut self) -> Result<&mut KnownScans, LoadError> {
        if self.scans.is_none() {
            self.scans = Some(KnownScans::read(&mut self.store)?);
        }
        Ok(self.scans.get_or_insert_default())
    }

    /// Returns the scans of the ledger, in no particular order.
    pub fn ledger(&mut self) -> Result<Vec<LedgerEntry>, LoadError> {
        self.run(ledger::entries)
    }

    /// Applies a complete scan and commits it.
    pub fn apply_and_commit(
        &mut self,
        scan: &Scan,
        pages: &dyn Pages,
        options: &CommitOptions,
    ) -> Result<Applied, LoadError> {
        let applied = self.apply(scan, pages, options)?;
        let corrected = self.commit()?.corrected.remove(&scan.id);
        Ok(Applied { counts: corrected.unwrap_or(applied.counts), ..applied })
    }

    /// Applies a complete scan and adds its row to the ledger. The changes are durable only after the next commit.
    /// Changes nothing if the ledger has the scan already. An error rolls back all scans since the last commit. After
    /// such a loss, fails with `RolledBack` until [`Warehouse::commit`] has reported the loss.
    pub fn apply(&mut self, scan: &Scan, pages: &dyn Pages, options: &CommitOptions) -> Result<Applied, LoadError> {
        self.require_nothing_lost()?;
        self.apply_if_new(scan, pages, options).inspect_err(|_| self.rollback())
    }

    /// Applies the scan and adds its ledger row, unless the ledger has the scan already. Does not roll back after an
    /// error.
    fn apply_if_new(&mut self, scan: &Scan, pages: &dyn Pages, options: &CommitOptions) -> Result<Applied, LoadError> {
        if self.known_scans()?.has(&scan.id) {
            let counts = ledger::counts_of(&mut self.store, &scan.id)?.unwrap_or_default();
            return Ok(Applied { counts, wrote: false, already_applied: true });
        }
        if self.memory.new_keys.is_full() {
            self.resolve_keys()?;
        }
        let mut before = self.store.changes();
        let collisions = if scan.scope.stream == Stream::Responses { self.check_older_keys()? } else { 0 };
        let mut compared = ComparedScan::new(&mut self.store, scan, pages, options.vanish)?;
        if compared.must_follow(&self.memory.new_keys) {
            // What this changes is of earlier scans.
            let resolving = self.store.changes();
            self.resolve_keys()?;
            before += self.store.changes() - resolving;
            compared = compared.repeated(&mut self.store, scan, options.vanish)?;
        }
        let counts = scan::apply(&mut self.store, &mut self.memory, scan, pages, &compared)?;
        if scan.scope.stream == Stream::Surveys {
            let seen = SeenSurveys::of(scan, pages)?;
            self.update_statuses(Some(&seen), Stamp { run_id: &scan.run_id, at_ms: scan.started_ms })?;
        }
        let counts = RowCounts { collisions: counts.collisions + collisions, ..counts };
        let must_record = options.record_unchanged || self.known_scans()?.must_record(scan, counts.withheld);
        let wrote = self.store.changes() > before || must_record;
        if wrote {
            ledger::add(&mut self.store, scan, &counts, options.proof)?;
            self.known_scans()?.add(scan, counts.withheld);
            self.uncommitted = Some(scan.id.clone());
        }
        Ok(Applied { counts, wrote, already_applied: false })
    }

    /// Derives the status changes of surveys from the stored surveys and webhook events. `seen` are the surveys of a
    /// scan that was just applied.
    fn update_statuses(&mut self, seen: Option<&SeenSurveys>, stamp: Stamp<'_>) -> Result<(), LoadError> {
        let reports = match self.reports.take() {
            Some(reports) => reports,
            None => status_changes::stored_reports(&mut self.store)?,
        };
        let count = reports.partition_point(|report| report.applied_ms <= self.reports_until_ms);
        let updated = status_changes::update(&mut self.store, reports.get(..count).unwrap_or_default(), seen, stamp);
        self.reports = Some(reports);
        updated
    }

    /// Lets the copied events count that were stored up to `until_ms` (epoch milliseconds), as they counted when they
    /// were stored. A replay calls this before each scan, with the time at which the scan was committed.
    pub fn replay_events(&mut self, until_ms: i64) -> Result<(), LoadError> {
        let replayed = self.replay_status_reports(until_ms);
        replayed.inspect_err(|_| self.rollback())
    }

    /// Derives the status changes again after each group of events that were stored together.
    fn replay_status_reports(&mut self, until_ms: i64) -> Result<(), LoadError> {
        if self.reports.is_none() {
            self.reports = Some(status_changes::stored_reports(&mut self.store)?);
        }
        let since_ms = self.reports_until_ms;
        let of_range = |report: &&StatusReport| since_ms < report.applied_ms && report.applied_ms <= until_ms;
        let reports = self.reports.iter().flatten().filter(of_range);
        let mut groups: Vec<(i64, RunId)> =
            reports.map(|report| (report.applied_ms, RunId(report.run_id.clone()))).collect();
        groups.dedup();
        for (at_ms, run_id) in &groups {
            self.reports_until_ms = *at_ms;
            self.update_statuses(None, Stamp { run_id, at_ms: *at_ms })?;
        }
        self.reports_until_ms = self.reports_until_ms.max(until_ms);
        Ok(())
    }

    /// Compares the keys of all responses with each other, if a scan of the ledger was applied by a version of the
    /// program that did not. Returns the number of rows that went to the history as losers of a collision.
    fn check_older_keys(&mut self) -> Result<u64, LoadError> {
        let mut collisions = 0;
        if !self.memory.are_keys_checked && ledger::has_unchecked_keys(&mut self.store)? {
            collisions = scan::resolve_all(&mut self.store)?;
            ledger::mark_keys_checked(&mut self.store)?;
        }
        self.memory.are_keys_checked = true;
        Ok(collisions)
    }

    /// Compares the keys of added rows with all windows, and corrects the counts of their scans.
    fn resolve_keys(&mut self) -> Result<(), LoadError> {
        for (scan, correction) in self.memory.new_keys.resolve(&mut self.store)? {
            if let Some(counts) = ledger::correct(&mut self.store, &scan, correction)? {
                self.findings.corrected.insert(scan, counts);
            }
        }
        let rechecks = scan::losers_of_vanished(&mut self.store, &mut self.memory)?;
        self.findings.rechecks.extend(rechecks);
        Ok(())
    }

    /// Makes applied scans durable. A call is cheap if nothing changed. Returns what the comparison of keys over all
    /// windows found.
    ///
    /// # Errors
    /// `RolledBack` if an error rolled back applied scans since the last call: none of these scans is stored. The next
    /// call does not report them again.
    pub fn commit(&mut self) -> Result<CommitFindings, LoadError> {
        let committed = self.require_nothing_lost().and_then(|()| self.commit_pending());
        self.lost_uncommitted = false;
        committed.map(|()| std::mem::take(&mut self.findings))
    }

    /// Returns `RolledBack` if applied scans were rolled back and the loss was not reported yet.
    fn require_nothing_lost(&self) -> Result<(), LoadError> {
        if self.lost_uncommitted { Err(LoadError::RolledBack) } else { Ok(()) }
    }

    /// Makes all changes durable, applied scans included. An error rolls all of them back.
    fn commit_pending(&mut self) -> Result<(), LoadError> {
        let label = self.uncommitted.as_ref().map_or("tables", |scan| scan.0.as_str()).to_owned();
        let committed = self.resolve_keys().and_then(|()| self.store.commit(&label));
        match &committed {
            Ok(()) => {
                (self.uncommitted, self.committed_until_ms, self.conflicts) =
                    (None, self.reports_until_ms, Conflicts::default())
            }
            Err(_) => self.rollback(),
        }
        committed
    }

    /// Undoes all changes since the last commit, and notes if applied scans are among them.
    fn rollback(&mut self) {
        self.lost_uncommitted |= self.uncommitted.take().is_some();
        (self.scans, self.reports) = (None, None);
        self.reports_until_ms = self.committed_until_ms;
        self.memory = ScanMemory::default();
        self.findings = CommitFindings::default();
        self.store.rollback();
    }

    /// Commits applied scans, runs `work`, and commits its changes if there are any. An error of `work` rolls its
    /// changes back. Repeats work that [`Warehouse::can_repeat`].
    fn run<T>(&mut self, mut work: impl FnMut(&mut BufferedStore) -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.commit_pending()?;
        loop {
            match work(&mut self.store).and_then(|done| self.commit_pending().map(|()| done)) {
                Err(error) if self.can_repeat(&error)? => {}
                done => return done.inspect_err(|_| self.rollback()),
            }
        }
    }

    /// Returns true if work that failed with this error can be done again: the store has twice the memory now, or this
    /// thread has waited for another writer. The caller applies scans again that the error rolled back.
    pub fn can_repeat(&mut self, error: &LoadError) -> Result<bool, LoadError> {
        let is_conflict = matches!(error, LoadError::Conflict { .. });
        if !is_conflict && !error.is_out_of_memory() {
            return Ok(false);
        }
        self.rollback();
        self.lost_uncommitted = false;
        if is_conflict { Ok(self.conflicts.wait()) } else { self.store.store().raise_memory() }
    }

    /// Compares the warehouse with a complete scan, and counts the rows that differ. Lists at most `examples_max` rows
    /// of each kind of difference. The comparison changes no row.
    pub fn compare(&mut self, scan: &Scan, pages: &dyn Pages, examples_max: usize) -> Result<Differences, LoadError> {
        self.run(|store| scan::differences(store, scan, pages, examples_max))
    }

    /// Makes committed rows visible to other readers. A Parquet warehouse merges commits into the files of tables. A
    /// DuckDB warehouse closes the file. A call is cheap if nothing changed.
    pub fn publish(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.scans = None;
        self.store.store().publish()
    }

    /// Returns true if so many changes are not published yet that [`Warehouse::publish`] should run now, and not only
    /// at the end of the run. With `has_readers`, also so that readers of a new warehouse see its first rows.
    pub fn should_compact(&self, has_readers: bool) -> bool {
        self.store.as_store().should_compact(has_readers)
    }

    /// Releases the lock on the DuckDB file, so that other processes can open it. The next use of the warehouse takes
    /// the lock again. A Parquet folder stays locked.
    pub fn release_lock(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.scans = None;
        self.store.store().release_lock()
    }

    /// Runs the maintenance of a DuckLake if it is due. Returns the snapshots that the catalog keeps, if it keeps any.
    pub fn maintain(&mut self, now_ms: i64) -> Result<Option<Snapshots>, LoadError> {
        self.run(|store| store.store().maintain(now_ms))
    }

    /// Updates the search index and the copy for readers. Called after the run's row is in `sync_runs`, so that the
    /// copy contains the row. A call is cheap if nothing changed.
    pub fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.store.store().export_reader_copy()
    }

    /// Adds rows to `sync_runs`, or replaces the rows of the same runs, in one transaction.
    pub fn record_runs(&mut self, runs: &[RunRecord]) -> Result<(), LoadError> {
        self.run(|store| runs::record(store, runs))
    }

    /// Returns the rows of `sync_runs`, in no particular order.
    pub fn runs(&mut self) -> Result<Vec<RunRecord>, LoadError> {
        self.run(runs::all)
    }

    /// Adds webhook events and the status changes in them, in one transaction. Events that are stored already are
    /// skipped. Returns the number of added events.
    pub fn add_events(&mut self, events: &EventRows) -> Result<u64, LoadError> {
        self.reports = None;
        self.run(|store| events::add(store, events))
    }

    /// Copies the webhook events of another warehouse into this one, which must have none. Each body is parsed again,
    /// to fill columns and tables that are newer than the stored rows. The statuses that the events report count only
    /// after [`Warehouse::replay_events`]. Returns the number of events.
    pub fn copy_events(&mut self, from: &mut Warehouse, parse_again: &ParseAgain<'_>) -> Result<u64, LoadError> {
        from.commit_pending()?;
        (self.reports, self.reports_until_ms) = (None, i64::MIN);
        self.run(|store| events::copy(&mut from.store, store, parse_again))
    }

    /// Replaces the rows of a time range by those of `source`, which a replay built, in one transaction. Returns the
    /// number of added rows.
    pub fn replace(&mut self, source: &mut Warehouse, replacement: &Replacement) -> Result<u64, LoadError> {
        source.commit_pending()?;
        self.scans = None;
        self.run(|store| {
            let added = ranges::replace(store, &mut source.store, replacement)?;
            if replacement.stream == Stream::Responses {
                scan::resolve_range(store, TimeRange::of(replacement.window))?;
            }
            Ok(added)
        })
    }

    /// Returns the identifiers that share a row with one of the wanted identifiers, without changing a row.
    pub fn co_occurrence(&mut self, wanted: &[Identifier]) -> Result<CoOccurrence, LoadError> {
        self.run(|store| persons::co_occurrence(store, wanted))
    }

    /// Returns at most `sessions_max` sessions of which all rows vanished before `before_ms` (epoch milliseconds).
    pub fn vanished_sessions(&mut self, before_ms: i64, sessions_max: usize) -> Result<Vec<Identifier>, LoadError> {
        self.run(|store| persons::vanished_sessions(store, before_ms, sessions_max))
    }

    /// Returns the given sessions that have at least one row which has not vanished.
    pub fn live_sessions(&mut self, sessions: &[Identifier]) -> Result<Vec<Identifier>, LoadError> {
        self.run(|store| persons::live_sessions(store, sessions))
    }

    /// Counts the rows that contain one of these identifiers, with their parent and child rows. No row is changed.
    pub fn find_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        self.run(|store| persons::find(store, person))
    }

    /// Calls `take` with the rows that [`Warehouse::find_people`] counts, for each table once. Changes no row.
    pub fn export_people(
        &mut self,
        person: &[Identifier],
        take: &mut dyn FnMut(ExportedRows) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        self.commit_pending()?;
        persons::export(&mut self.store, person, take)
    }

    /// Removes the rows that [`Warehouse::find_people`] counts, and their bytes from the files of the warehouse. The
    /// files are rewritten even if no row is found, because an earlier erasure may have been killed before its rewrite.
    pub fn erase_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        let found = self.run(|store| persons::remove(store, person))?;
        self.remove_old_bytes()?;
        Ok(found)
    }

    /// Returns an error if the bytes of removed rows could not be removed from the files. The error names the user's
    /// object that blocks the removal. Changes no row.
    pub fn require_erasable(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.store.store().require_purgeable()
    }

    /// Searches all texts of the warehouse for identifiers, and counts as `left` the rows that
    /// [`Warehouse::find_people`] counts. The search changes no row.
    pub fn search(&mut self, people: &[Identifier], matcher: &IdentifierMatcher) -> Result<LocationResult, LoadError> {
        let threads = self.threads;
        let mut found = self.run(|store| persons::search(store, people, matcher, threads))?;
        if found.left > 0 {
            found.left = found.left.max(self.find_people(people)?.total());
        }
        Ok(found)
    }

    /// Replaces identifiers in the columns that `mentions` of a search lists. With `only_own`, replaces identifiers
    /// only in the table with the program's reports about its runs (`sync_runs`). Returns the number of rows that
    /// mentioned a person. The files still have the bytes of the old texts, until [`Warehouse::remove_old_bytes`].
    pub fn redact(
        &mut self,
        matcher: &IdentifierMatcher,
        mentions: &BTreeMap<String, u64>,
        only_own: bool,
    ) -> Result<u64, LoadError> {
        self.run(|store| persons::redact(store, matcher, mentions, only_own))
    }

    /// Removes the bytes of removed and replaced rows from the files of the warehouse.
    pub fn remove_old_bytes(&mut self) -> Result<(), LoadError> {
        self.run(|store| store.store().purge_removed_bytes())
    }

    /// Adds rows to `erasures`, or replaces the rows of the same erasures.
    pub fn record_erasures(&mut self, records: &[ErasureRecord]) -> Result<(), LoadError> {
        self.run(|store| receipts::record(store, records))
    }

    /// Returns the rows of `erasures`, in no particular order.
    pub fn erasures(&mut self) -> Result<Vec<ErasureRecord>, LoadError> {
        self.run(receipts::all)
    }

    /// Returns the newest recordings that are not fetched yet, of answers created at `until_us` (epoch microseconds) or
    /// before; at most `rows_max`.
    pub fn wanted_recordings(&mut self, until_us: i64, rows_max: usize) -> Result<WantedRecordings, LoadError> {
        self.run(|store| recordings::wanted(store, until_us, rows_max))
    }

    /// Writes the outcomes of fetches into the rows that link to the recordings, and returns the number of changed
    /// rows.
    pub fn write_recording_outcomes(&mut self, outcomes: &[RecordingOutcome]) -> Result<u64, LoadError> {
        self.run(|store| recordings::write_outcomes(store, outcomes))
    }

    /// Returns the recordings that rows call stored and whose files are gone; at most `rows_max`, the newest.
    /// `is_stored` returns true if the file with this path and size is there.
    pub fn lost_recordings(
        &mut self,
        is_stored: &dyn Fn(&str, u64) -> bool,
        rows_max: usize,
    ) -> Result<LostRecordings, LoadError> {
        self.run(|store| recordings::lost(store, is_stored, rows_max))
    }

    /// Creates a DuckDB file at `new_path` with the objects of this warehouse, users' objects included, but without
    /// rows. A replay fills the new file. An error names the object that cannot be copied. A Parquet warehouse does
    /// nothing.
    pub fn create_empty_at(&mut self, new_path: &Path) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.store.store().create_empty_at(new_path)
    }

    /// Imports the rows of users' tables, and users' indexes on tables of this program, from the warehouse at
    /// `old_path`. A Parquet warehouse does nothing.
    pub fn import_foreign(&mut self, old_path: &Path) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.store.store().import_foreign(old_path)
    }
}
