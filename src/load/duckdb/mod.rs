//! The warehouse as one DuckDB file.
//!
//! The file is attached to the in-memory engine while there is something to do, and let go by [`Destination::publish`]: DuckDB
//! locks a file against every other process for as long as one has it open for writing, and analysts want to read it between
//! runs.

mod apply;
mod below;
mod catalog;
mod claims;
mod copy;
mod file;
mod objects;
mod rewrite;
mod transaction;
mod views;

use self::{below::Below, catalog::Lacking, transaction::Unsealed};
pub(super) use self::{claims::Claim, file::explain};

use std::path::{Path, PathBuf};

use super::{
    Applied, CommitOptions, Destination, Differences, ErasureRecord, EventRows, Facts, Identity, LedgerEntry,
    LoadError, LockPatience, Mention, PeopleFound, Replacement, RunRecord, Searched, Stage, TableDelta, Targets,
    TimeBounds,
    diff::{
        all_new, carry_in, carry_out, diff, differences, put_in, stage_events, stage_runs, take_at_once, take_leave,
    },
    engine::{Engine, EngineOptions, StartedEngine},
    ledger, people,
};
use crate::{
    files,
    model::{Digest, FlatPage, Identifier, Scan, ScanId, Steps},
    person::Finder,
    schema::{Table, quote_identifier},
};

/// Under which name the file is attached.
const CATALOG: &str = "warehouse";

/// A commit log of this size is better folded into the file: its rows stay in memory until then, and so does what was written beside it,
/// up to the engine's limit; and whoever opens the file after a crash has to replay it. Tables of which a transaction brings many rows
/// are not in it: a million responses leave some 20 MiB.
const COMMIT_LOG_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// The warehouse in one DuckDB file.
pub struct DuckDbDestination {
    engine: Engine,
    options: EngineOptions,
    steps: Steps,
    path: PathBuf,
    /// Where a copy for readers goes when a run ends.
    copy: Option<PathBuf>,
    identity: Identity,
    patience: LockPatience,
    stage: Option<Stage>,
    /// Opened to compare alone: the file is attached for reading, and nothing is created or widened.
    is_read_only: bool,
    /// What the file lacks of the contracts, where it may not be widened.
    lacking: Lacking,
    /// Held while the file is attached.
    claim: Option<Claim>,
    /// Whether the views were seen to be up to date, or made so: that is done once, not whenever the file is opened again.
    has_views: bool,
    /// Whether something was committed since the last checkpoint.
    is_dirty: bool,
    unsealed: Unsealed,
    /// Bytes of rows that may wait to be written.
    pending_bytes_max: usize,
    /// While the file is built anew.
    below: Option<Below>,
}

impl DuckDbDestination {
    /// Opens the warehouse; creates the file, its folder and the tables on first use. The file stays open until
    /// [`Destination::publish`] or [`DuckDbDestination::release`], and is opened again when needed.
    ///
    /// # Errors
    /// `Locked` if another process has the file open, `OtherIdentity`, `Newer` or `NotOurs` if it is not this warehouse.
    pub fn open(path: &Path, identity: &Identity, options: &EngineOptions) -> Result<Self, LoadError> {
        let engine = StartedEngine::start(options.clone())?;
        Self::open_watched(path, identity, engine, LockPatience::default(), Steps::default())
    }

    /// The same in an engine that was started already, but a file that another process has open is waited for, now and whenever
    /// the file is opened again; with somebody who watches its durable steps.
    pub fn open_watched(
        path: &Path,
        identity: &Identity,
        engine: StartedEngine,
        patience: LockPatience,
        steps: Steps,
    ) -> Result<Self, LoadError> {
        let folder = files::folder_of(path);
        files::create_folders(folder).map_err(|source| LoadError::io("create the folder", folder, source))?;
        Self::open_as(path, identity, engine, false, (patience, steps))
    }

    /// Opens the warehouse to compare: for reading alone, so that it can lie where nothing may be written. Nothing in it is made,
    /// widened or repaired.
    ///
    /// # Errors
    /// As [`DuckDbDestination::open`]; `Missing` if there is no such file.
    pub fn open_to_compare(path: &Path, identity: &Identity, options: &EngineOptions) -> Result<Self, LoadError> {
        LoadError::require_file(path)?;
        let engine = StartedEngine::start(options.clone())?;
        Self::open_as(path, identity, engine, true, (LockPatience::default(), Steps::default()))
    }

    fn open_as(
        path: &Path,
        identity: &Identity,
        engine: StartedEngine,
        is_read_only: bool,
        (patience, steps): (LockPatience, Steps),
    ) -> Result<Self, LoadError> {
        let options = engine.options().clone();
        let mut destination = Self {
            engine: engine.ready()?.watched(steps.clone()),
            options,
            steps,
            path: path.to_owned(),
            copy: None,
            identity: identity.clone(),
            patience,
            stage: None,
            is_read_only,
            lacking: Lacking::default(),
            claim: None,
            has_views: false,
            is_dirty: false,
            unsealed: Unsealed::default(),
            pending_bytes_max: transaction::PENDING_BYTES_MAX,
            below: None,
        };
        destination.attach()?;
        Ok(destination)
    }

    /// The same with a copy for readers, which [`Destination::finish`] leaves at this path.
    #[must_use]
    pub fn with_copy(mut self, copy: Option<PathBuf>) -> Self {
        self.copy = copy;
        self
    }

    /// Closes the file, so that other processes can open it. A scan that is being staged is not touched.
    pub fn release(&mut self) -> Result<(), LoadError> {
        self.close_transaction()?;
        if self.claim.is_some() {
            file::detach(&self.engine, &self.path)?;
            self.claim = None;
        }
        Ok(())
    }

    fn attach(&mut self) -> Result<(), LoadError> {
        if self.claim.is_some() {
            return Ok(());
        }
        if self.is_read_only {
            let claim = Claim::for_reading(&self.path)?;
            file::attach_read_only(&self.engine, &self.path)?;
            self.claim = Some(claim);
            self.lacking = catalog::check(&self.engine, &self.path, &self.identity)?;
            return Ok(());
        }
        let claim = Claim::for_writing(&self.path)?;
        // What a killed run left in the commit log is folded in by the next publish.
        self.is_dirty |= file::has_commit_log(&self.path);
        self.patience.until_free(|| file::attach(&self.engine, &self.path))?;
        self.claim = Some(claim);
        let ready = catalog::make_ready(&self.engine, &self.path, &self.identity, self.has_views);
        self.has_views |= ready.is_ok();
        if ready.is_err() {
            // The first error is the one to tell.
            self.release().ok();
        }
        ready
    }

    /// Puts a fresh file with the same content in the place of the file: rows that were taken out leave their bytes in the old one.
    fn rewrite(&mut self) -> Result<(), LoadError> {
        self.attach()?;
        file::checkpoint(&self.engine, &self.path)?;
        rewrite::write(&self.engine, &self.path)?;
        self.release()?;
        self.is_dirty = false;
        rewrite::put_in_place(&self.engine, &self.path)?;
        if let Some(copy) = &self.copy {
            // It is a copy of the file with those rows; the run's end makes a new one.
            rewrite::empty_copy(copy)?;
        }
        Ok(())
    }

    fn stage_page(&mut self, page: &FlatPage) -> Result<(), LoadError> {
        let stage = self.stage.as_mut().ok_or_else(|| LoadError::Contract("a page before begin".into()))?;
        stage.add(&self.engine, page)
    }

    fn stage_all_if_held(&mut self, digest: Digest, repeated: u64) -> Result<bool, LoadError> {
        self.require_none_lost()?;
        self.attach()?;
        self.show_pending()?;
        let stage = self.stage.as_mut().ok_or_else(|| LoadError::Contract("pages before begin".into()))?;
        take_at_once(&self.engine, stage, &mut Attached(&self.lacking), digest, repeated)
    }

    fn begin_stage(&mut self, scan: &Scan) -> Result<(), LoadError> {
        self.stage = None;
        self.stage = Some(Stage::begin(&self.engine, scan)?);
        Ok(())
    }

    fn apply_stage(&mut self, scan: &Scan, options: &CommitOptions) -> Result<Applied, LoadError> {
        self.require_none_lost()?;
        // First the file: while another process holds it, the staged scan waits and can be committed later.
        self.attach()?;
        let stage = self.stage.take().filter(|stage| stage.scan() == scan);
        let held = match self.unsealed.rows.counts_of(&scan.id) {
            Some(counts) => Some(counts),
            None => ledger::counts_of(&self.engine, &qualified("sync_windows"), &scan.id)?,
        };
        if let Some(counts) = held {
            Stage::clear(&self.engine)?;
            return Ok(Applied { counts, wrote: false, was_held: true });
        }
        let mut stage = stage.ok_or_else(|| LoadError::Contract("a commit of a scan that was not staged".into()))?;
        if self.unsealed.rows.touches(scan) || self.below.as_ref().is_some_and(|below| below.touches(scan)) {
            self.show_pending()?;
        }
        let delta = match all_new(&self.engine, &mut stage, &mut Attached(&self.lacking), &self.unsealed.rows, options)?
        {
            Some(delta) => delta,
            None => {
                self.show_pending()?;
                diff(&self.engine, &mut stage, &mut Attached(&self.lacking), options)?
            }
        };
        let (counts, wrote) = (delta.counts, !delta.is_empty());
        if wrote {
            self.change(&delta.tables)?;
            self.add_pending(scan, delta)?;
        }
        Stage::clear(&self.engine)?;
        self.applied_one();
        Ok(Applied { counts, wrote, was_held: false })
    }
}

impl Destination for DuckDbDestination {
    fn name(&self) -> &'static str {
        "duckdb"
    }

    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn holds(&mut self, scan: &ScanId) -> Result<bool, LoadError> {
        self.ready()?;
        Ok(ledger::counts_of(&self.engine, &qualified("sync_windows"), scan)?.is_some())
    }

    fn ledger(&mut self) -> Result<Vec<LedgerEntry>, LoadError> {
        self.ready()?;
        ledger::entries(&self.engine, &qualified("sync_windows"))
    }

    fn begin(&mut self, scan: &Scan) -> Result<(), LoadError> {
        let begun = self.begin_stage(scan);
        self.kept(begun)
    }

    fn stage(&mut self, page: &FlatPage) -> Result<(), LoadError> {
        let staged = self.stage_page(page);
        self.kept(staged)
    }

    fn stage_if_held(&mut self, digest: Digest, repeated: u64) -> Result<bool, LoadError> {
        let staged = self.stage_all_if_held(digest, repeated);
        self.kept(staged)
    }

    fn apply(&mut self, scan: &Scan, options: &CommitOptions) -> Result<Applied, LoadError> {
        let applied = self.apply_stage(scan, options);
        self.kept(applied)
    }

    fn seal(&mut self) -> Result<(), LoadError> {
        self.seal_transaction()
    }

    fn compare(&mut self, scan: &Scan, keys_max: usize) -> Result<Differences, LoadError> {
        self.ready()?;
        let stage = self.stage.take().filter(|stage| stage.scan() == scan);
        let mut stage =
            stage.ok_or_else(|| LoadError::Contract("a comparison with a scan that was not staged".into()))?;
        let found = differences(&self.engine, &mut stage, &mut Attached(&self.lacking), keys_max)?;
        Stage::clear(&self.engine)?;
        Ok(found)
    }

    fn publish(&mut self) -> Result<(), LoadError> {
        if self.is_dirty {
            self.ready()?;
            file::checkpoint(&self.engine, &self.path)?;
            self.is_dirty = false;
        }
        self.release()
    }

    fn rest(&mut self) -> Result<(), LoadError> {
        if self.claim.is_some() { self.publish() } else { Ok(()) }
    }

    fn finish(&mut self) -> Result<(), LoadError> {
        let Some(copy) = self.copy.clone() else { return Ok(()) };
        if copy::is_current(&self.path, &copy) {
            return Ok(());
        }
        self.release()?;
        copy::check_place(&self.engine, &copy, &self.identity)?;
        self.ready()?;
        file::checkpoint(&self.engine, &self.path)?;
        self.is_dirty = false;
        let made = copy::make(&self.engine, &self.path, &copy);
        // The lock went with the copying's handle: DuckDB's locks are the process's, and any close drops them.
        self.release().and(made)?;
        tracing::info!(path = %copy.display(), "the copy for readers is replaced");
        Ok(())
    }

    fn build_anew(&mut self) -> Result<(), LoadError> {
        self.close_transaction()?;
        self.below = Some(Below::of(&self.engine, &self.path)?);
        Ok(())
    }

    fn wants_publish(&self) -> bool {
        file::commit_log_bytes(&self.path) >= COMMIT_LOG_BYTES_MAX
    }

    fn record_runs(&mut self, runs: &[RunRecord]) -> Result<(), LoadError> {
        self.ready()?;
        let table = stage_runs(&self.engine, runs)?;
        table.map_or(Ok(()), |table| self.change_now(&[table]))
    }

    fn runs(&mut self) -> Result<Vec<RunRecord>, LoadError> {
        self.ready()?;
        ledger::runs(&self.engine, &qualified("sync_runs"))
    }

    fn add_events(&mut self, events: &EventRows) -> Result<u64, LoadError> {
        self.ready()?;
        self.stage = None;
        let delta = stage_events(&self.engine, &mut Attached(&self.lacking), events)?;
        if !delta.is_empty() {
            self.change_now(&delta.tables)?;
        }
        Stage::clear(&self.engine)?;
        Ok(delta.counts.inserted)
    }

    fn carry_events_out(&mut self, file: &Path) -> Result<u64, LoadError> {
        self.ready()?;
        carry_out(&self.engine, &mut Attached(&self.lacking), file)
    }

    fn carry_events_in(&mut self, file: &Path) -> Result<(), LoadError> {
        self.ready()?;
        self.stage = None;
        carry_in(&self.engine, file)?.map_or(Ok(()), |table| self.change_now(&[table]))?;
        Stage::clear(&self.engine)
    }

    fn replace(&mut self, source: &Path, what: &Replacement) -> Result<u64, LoadError> {
        self.ready()?;
        self.stage = None;
        let delta = put_in(&self.engine, &mut Attached(&self.lacking), source, what)?;
        self.change_now(&delta.tables)?;
        take_leave(&self.engine)?;
        Ok(delta.counts.inserted)
    }

    fn facts(&mut self, wanted: &[Identifier]) -> Result<Facts, LoadError> {
        self.ready()?;
        people::facts(&self.engine, &mut Attached(&self.lacking), wanted)
    }

    fn vanished_sessions(&mut self, before_ms: i64, sessions_max: usize) -> Result<Vec<Identifier>, LoadError> {
        self.ready()?;
        people::vanished_sessions(&self.engine, &mut Attached(&self.lacking), before_ms, sessions_max)
    }

    fn live_sessions(&mut self, sessions: &[Identifier]) -> Result<Vec<Identifier>, LoadError> {
        self.ready()?;
        people::live_sessions(&self.engine, &mut Attached(&self.lacking), sessions)
    }

    fn find_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        self.ready()?;
        self.stage = None;
        let mut held = Attached(&self.lacking);
        let deltas = people::find(&self.engine, &mut held, person)?;
        let found = people::count(&self.engine, &mut held, &deltas)?;
        Stage::clear(&self.engine)?;
        Ok(found)
    }

    fn erase_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        self.ready()?;
        self.stage = None;
        let mut held = Attached(&self.lacking);
        let deltas = people::find(&self.engine, &mut held, person)?;
        let found = people::count(&self.engine, &mut held, &deltas)?;
        if !deltas.is_empty() {
            self.change_now(&deltas)?;
        }
        Stage::clear(&self.engine)?;
        self.rewrite()?;
        Ok(found)
    }

    fn require_erasable(&mut self) -> Result<(), LoadError> {
        self.ready()?;
        rewrite::require_possible(&self.engine, &self.path)
    }

    fn clone_objects(&mut self, fresh: &Path) -> Result<(), LoadError> {
        self.clone_to(fresh)
    }

    fn import_objects(&mut self, left: &Path) -> Result<(), LoadError> {
        self.import_from(left)
    }

    fn search(&mut self, finder: &Finder) -> Result<Searched, LoadError> {
        self.ready()?;
        let theirs = objects::their_tables(&self.engine)?;
        people::search(&self.engine, &mut Attached(&self.lacking), finder, &theirs)
    }

    fn redact(&mut self, finder: &Finder, mentions: &[Mention], only_own: bool) -> Result<u64, LoadError> {
        self.ready()?;
        self.stage = None;
        let (deltas, rows) = people::redact(&self.engine, &mut Attached(&self.lacking), finder, mentions, only_own)?;
        if !deltas.is_empty() {
            self.change_now(&deltas)?;
            Stage::clear(&self.engine)?;
            self.rewrite()?;
        }
        Ok(rows)
    }

    fn record_erasures(&mut self, records: &[ErasureRecord]) -> Result<(), LoadError> {
        self.ready()?;
        let table = people::stage_erasures(&self.engine, records)?;
        table.map_or(Ok(()), |table| self.change_now(&[table]))
    }

    fn erasures(&mut self) -> Result<Vec<ErasureRecord>, LoadError> {
        self.ready()?;
        people::erasures(&self.engine, &qualified("erasures"))
    }
}

/// The attached file's tables, as the comparison reads them. Their zone maps prune by constant bounds.
struct Attached<'a>(&'a Lacking);

impl Targets for Attached<'_> {
    fn relation(&mut self, table: &'static Table, _bounds: Option<TimeBounds>) -> Result<String, LoadError> {
        Ok(match self.0.get(table.name.as_str()) {
            None => qualified(&table.name),
            Some(lacking) => catalog::filled_up(table, lacking),
        })
    }
}

/// The name of one of our tables as SQL.
fn qualified(table: &str) -> String {
    format!("{CATALOG}.main.{}", quote_identifier(table))
}

#[cfg(test)]
mod tests;
