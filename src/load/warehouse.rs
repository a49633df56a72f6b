//! A warehouse: a store, and what is done with the rows in it.

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

/// One warehouse. Everything it does to data is a scan applied, all or nothing, and applying a scan again changes nothing.
///
/// Scans that are applied one after the other are made durable together, by [`Warehouse::commit`]. A failure leaves the warehouse as it was
/// when it was last committed. Every other method seals first. One thread uses it at a time.
pub struct Warehouse {
    store: BufferedStore,
    /// The scans that the ledger holds, once that was asked; those that are not committed as well.
    scans: Option<HashSet<ScanId>>,
    /// The last scan that was applied and is not committed.
    uncommitted: Option<ScanId>,
    /// Scans that were applied are lost, and nobody asked yet.
    has_lost: bool,
    threads: usize,
}

impl Warehouse {
    /// A warehouse in this store, of which so many bytes of rows may wait to be written.
    pub(in crate::load) fn new(store: Box<dyn Store>, waiting_bytes_max: usize, threads: u32) -> Self {
        let threads = usize::try_from(threads).unwrap_or(1);
        let store = BufferedStore::new(store, waiting_bytes_max);
        Self { store, scans: None, uncommitted: None, has_lost: false, threads }
    }

    /// "duckdb" or "parquet": for people, and the key under which `state` remembers it.
    pub fn name(&self) -> &'static str {
        self.store.as_store().name()
    }

    /// Where it is, for people.
    pub fn location(&self) -> String {
        self.store.as_store().location()
    }

    /// Whether the ledger holds the scan.
    pub fn holds(&mut self, scan: &ScanId) -> Result<bool, LoadError> {
        self.ready()?;
        self.is_in_ledger(scan)
    }

    fn is_in_ledger(&mut self, scan: &ScanId) -> Result<bool, LoadError> {
        let scans = match self.scans.take() {
            Some(scans) => scans,
            None => ledger::scan_ids(&mut self.store)?,
        };
        Ok(self.scans.insert(scans).contains(scan))
    }

    /// Every scan that the ledger holds, in no particular order.
    pub fn ledger(&mut self) -> Result<Vec<LedgerEntry>, LoadError> {
        self.ready()?;
        ledger::entries(&mut self.store)
    }

    /// Applies a complete scan and makes it durable.
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

    /// Applies a complete scan, with its row of the ledger. Until it is committed nobody may believe that it is in the warehouse. A scan that
    /// the ledger already holds changes nothing.
    pub fn apply(&mut self, scan: &Scan, pages: &dyn Pages, options: &CommitOptions) -> Result<Applied, LoadError> {
        self.require_none_lost()?;
        let applied = self.apply_unless_held(scan, pages, options);
        if applied.is_err() {
            self.rollback();
        }
        applied
    }

    fn apply_unless_held(
        &mut self,
        scan: &Scan,
        pages: &dyn Pages,
        options: &CommitOptions,
    ) -> Result<Applied, LoadError> {
        if self.is_in_ledger(&scan.id)? {
            let counts = ledger::counts_of(&mut self.store, &scan.id)?.unwrap_or_default();
            return Ok(Applied { counts, wrote: false, was_held: true });
        }
        let before = self.store.changes();
        let counts = scan::apply(&mut self.store, scan, pages, options.vanish)?;
        let wrote = self.store.changes() > before || options.record_unchanged;
        if wrote {
            ledger::add(&mut self.store, scan, &counts, options.proof)?;
            self.scans.get_or_insert_default().insert(scan.id.clone());
            self.uncommitted = Some(scan.id.clone());
        }
        Ok(Applied { counts, wrote, was_held: false })
    }

    /// Makes durable what was applied. Cheap when there is nothing to do.
    ///
    /// # Errors
    /// Also when something was applied and is lost, because of an error that was told since: no scan that was applied and not
    /// committed is in the warehouse then.
    pub fn commit(&mut self) -> Result<(), LoadError> {
        let committed = self.require_none_lost().and_then(|()| self.commit_changes());
        // Whatever was lost is told now.
        self.has_lost = false;
        committed
    }

    fn require_none_lost(&self) -> Result<(), LoadError> {
        match self.has_lost {
            true => Err(LoadError::Contract("what was applied before an error is lost with it".into())),
            false => Ok(()),
        }
    }

    /// Makes changes durable, scans among them.
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
        self.has_lost |= self.uncommitted.take().is_some();
        self.scans = None;
        self.store.rollback();
    }

    /// Seals what was applied.
    fn ready(&mut self) -> Result<(), LoadError> {
        self.commit_changes()
    }

    /// Changes rows, durably.
    fn change<T>(&mut self, work: impl FnOnce(&mut BufferedStore) -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.ready()?;
        let done = work(&mut self.store);
        match &done {
            Ok(_) => self.commit_changes()?,
            Err(_) => self.rollback(),
        }
        done
    }

    /// Says how the warehouse differs from a complete scan, which is all that the service has of the window, and names at most
    /// `examples_max` rows of each kind of difference. Changes nothing.
    pub fn compare(&mut self, scan: &Scan, pages: &dyn Pages, examples_max: usize) -> Result<Differences, LoadError> {
        self.ready()?;
        scan::differences(&mut self.store, scan, pages, examples_max)
    }

    /// Makes what was committed visible to readers of files (Parquet), or compact (DuckDB). Cheap when there is nothing to do.
    pub fn publish(&mut self) -> Result<(), LoadError> {
        self.ready()?;
        self.scans = None;
        self.store.store().publish()
    }

    /// Whether so much waits for [`Warehouse::publish`], committed or not, that it is better done now than at the end.
    pub fn should_compact(&self) -> bool {
        self.store.as_store().should_compact()
    }

    /// Lets other processes at the warehouse until it is used again, if it is one that keeps them out.
    pub fn release_lock(&mut self) -> Result<(), LoadError> {
        self.ready()?;
        self.scans = None;
        self.store.store().release_lock()
    }

    /// The run is over, its row is in `sync_runs`: leaves what others are to find. Cheap when nothing changed since.
    pub fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        self.ready()?;
        self.store.store().export_reader_copy()
    }

    /// Adds a row to `sync_runs`, in the place of an earlier one of the same run.
    pub fn record_run(&mut self, run: &RunRecord) -> Result<(), LoadError> {
        self.record_runs(std::slice::from_ref(run))
    }

    /// Adds rows to `sync_runs`, in one transaction.
    pub fn record_runs(&mut self, runs: &[RunRecord]) -> Result<(), LoadError> {
        self.change(|store| runs::record(store, runs))
    }

    /// The rows of `sync_runs`, in no particular order.
    pub fn runs(&mut self) -> Result<Vec<RunRecord>, LoadError> {
        self.ready()?;
        runs::all(&mut self.store)
    }

    /// Adds what webhooks told, and the changes of status in it, in one transaction. An event that the warehouse holds is left out:
    /// the same deliveries can be applied again. Returns the events added.
    pub fn add_events(&mut self, events: &EventRows) -> Result<u64, LoadError> {
        self.change(|store| events::add(store, events))
    }

    /// Adds the events of another warehouse to this one, which has none. Each body is read again: that fills columns and tables which
    /// are newer than their rows. Returns how many.
    pub fn copy_events(&mut self, from: &mut Warehouse, read_again: &ReadAgain<'_>) -> Result<u64, LoadError> {
        from.ready()?;
        self.change(|store| events::copy(&mut from.store, store, read_again))
    }

    /// Puts the rows of `source`, which a replay built, in the place of those held of a range. One transaction. Returns the rows put
    /// in.
    pub fn replace(&mut self, source: &mut Warehouse, what: &Replacement) -> Result<u64, LoadError> {
        source.ready()?;
        self.scans = None;
        self.change(|store| ranges::replace(store, &mut source.store, what))
    }

    /// Which identifiers stand together with these in rows. Changes nothing.
    pub fn co_occurrence(&mut self, wanted: &[Identifier]) -> Result<CoOccurrence, LoadError> {
        self.ready()?;
        persons::co_occurrence(&mut self.store, wanted)
    }

    /// Sessions of which every row had vanished at the service before this moment (epoch milliseconds), at most so many.
    pub fn vanished_sessions(&mut self, before_ms: i64, sessions_max: usize) -> Result<Vec<Identifier>, LoadError> {
        self.ready()?;
        persons::vanished_sessions(&mut self.store, before_ms, sessions_max)
    }

    /// Of these sessions, those of which some row has not vanished.
    pub fn live_sessions(&mut self, sessions: &[Identifier]) -> Result<Vec<Identifier>, LoadError> {
        self.ready()?;
        persons::live_sessions(&mut self.store, sessions)
    }

    /// The rows that carry one of these identifiers, and what belongs to them. Changes nothing.
    pub fn find_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        self.ready()?;
        persons::find(&mut self.store, person)
    }

    /// Takes those rows out, so that no byte of them is left in any file of the warehouse. Does so also where none is held any
    /// more: an earlier try may have been cut short between the rows and the bytes.
    pub fn erase_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        let found = self.change(|store| persons::remove(store, person))?;
        self.store.store().purge_removed_bytes()?;
        Ok(found)
    }

    /// An error that names what somebody else keeps in the warehouse if rows could not be taken out because of it. Changes nothing.
    pub fn require_erasable(&mut self) -> Result<(), LoadError> {
        self.ready()?;
        self.store.store().require_purgeable()
    }

    /// Looks for identifiers in every text that the warehouse holds. Changes nothing.
    pub fn search(&mut self, matcher: &IdentifierMatcher) -> Result<SearchReport, LoadError> {
        self.ready()?;
        persons::search(&mut self.store, matcher, self.threads)
    }

    /// Replaces the identifiers in the columns that mention them, in the tables that tell of the program itself or in all, and
    /// returns the rows that changed. As for [`Warehouse::erase_people`], no byte of the old texts is left.
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

    /// Adds rows to `erasures`, in the place of earlier ones of the same erasures.
    pub fn record_erasures(&mut self, records: &[ErasureRecord]) -> Result<(), LoadError> {
        self.change(|store| receipts::record(store, records))
    }

    /// The rows of `erasures`, in no particular order.
    pub fn erasures(&mut self) -> Result<Vec<ErasureRecord>, LoadError> {
        self.ready()?;
        receipts::all(&mut self.store)
    }

    /// The recordings that answers name and that are not known to be here, of answers up to a moment (epoch microseconds): at most so many.
    pub fn wanted_recordings(&mut self, until_us: i64, rows_max: usize) -> Result<WantedRecordings, LoadError> {
        self.ready()?;
        recordings::wanted(&mut self.store, until_us, rows_max)
    }

    /// Writes what became of recordings into the rows that name them, and returns the rows that changed. `stamp`: which run does so, and when
    /// by the service's clock; without it the rows keep what they say of that.
    pub fn settle_recordings(
        &mut self,
        outcomes: &[RecordingOutcome],
        stamp: Option<Stamp<'_>>,
    ) -> Result<u64, LoadError> {
        self.change(|store| recordings::write_outcomes(store, outcomes, stamp))
    }

    /// Makes a warehouse at `fresh` with all that others keep in this one, as far as it has no rows: for a replay, which fills it. An
    /// error names what could not come along. A warehouse that holds nothing of others makes none.
    pub fn create_empty_beside(&mut self, fresh: &Path) -> Result<(), LoadError> {
        self.ready()?;
        self.store.store().create_empty_beside(fresh)
    }

    /// Brings the rows of others from the warehouse at `left`, beside which this one was made, and what was left out until all rows
    /// are there.
    pub fn import_foreign(&mut self, left: &Path) -> Result<(), LoadError> {
        self.ready()?;
        self.store.store().import_foreign(left)
    }
}
