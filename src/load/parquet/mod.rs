//! The warehouse as a tree of Parquet files that any reader understands.
//!
//! A commit is one *part*: a folder of its changes, outside of what readers see, made durable and put in place by one rename.
//! *Publish* merges the waiting parts into the files of the partitions that they touch. So a commit costs what it brings, and a
//! partition is rewritten once a publish, not once a window.
//!
//! In reading order: [`root`] (the folder and its lock), [`partition`] (how tables are cut), [`tree`] (the files), [`part`] (a
//! commit), [`commits`] (what becomes one), [`relation`] (what a table holds, as SQL), [`targets`] and [`kept`] (for the comparison), [`slices`]
//! (what is sorted at once), [`table_file`] (writing one file), [`whole`] (partitions whose rows come together), [`publish`],
//! [`workers`] (several at once), [`inventory`] (which files there must be); and [`disk`], through which every durable step goes. What a scan changes is not decided here: see [`super::diff()`].

mod commits;
mod disk;
mod gather;
mod inventory;
mod kept;
mod part;
mod partition;
mod publish;
mod relation;
mod root;
mod slices;
mod table_file;
mod targets;
mod tree;
mod whole;
mod workers;

pub use partition::PartitionBy;

use std::path::{Path, PathBuf};

use disk::Disk;
use part::Part;
use publish::Publisher;
use root::Root;
use slices::SortLimits;
use targets::TreeTargets;
use tree::Tree;

use super::{
    Applied, CommitOptions, Destination, Differences, Engine, EngineOptions, ErasureRecord, EventRows, Facts, Identity,
    LedgerEntry, LoadError, LockPatience, Mention, PeopleFound, Replacement, RowCounts, RunRecord, Searched, Stage,
    TableDelta, Targets,
    diff::{all_new, carry_in, carry_out, diff, differences, put_in, stage_events, stage_runs, take_leave},
    ledger,
    pending::{AppliedScan, Pending},
    people,
};
use crate::{
    model::{Digest, FlatPage, Identifier, Scan, ScanId, Steps},
    person::Finder,
    schema::{Table, table},
};

/// Parts that wait for publish, at most: each adds to what a commit has to look through.
const WAITING_PARTS_MAX: usize = 256;
/// Bytes of parts that wait for publish, at most.
const WAITING_BYTES_MAX: u64 = 1 << 30;
/// Memory for data if nothing else is said, in bytes.
const MEMORY_LIMIT_BYTES: u64 = 1 << 30;
/// Memory that each thread needs for what it reads and sorts, in bytes: with half of it four million answers failed.
const MEMORY_PER_THREAD_BYTES: u64 = 256 << 20;
/// Name of the parts that hold what webhooks told, for people who look at the folder.
const EVENTS_PART: &str = "webhooks";
/// Threads of the engine if nothing else is said.
const THREADS: u32 = 2;

/// How to lay out a Parquet warehouse, and what the engine may use while it works on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// How tables with a creation time are cut. Fixed when the folder is first filled.
    pub partition_by: PartitionBy,
    /// Memory for data, in bytes; what does not fit is spilled below the root. Default 1 GiB; large warehouses need 256 MiB.
    pub memory_limit_bytes: u64,
    /// Threads of the engine, at least 1. Default 2; fewer are used where there is not 256 MiB of memory for each.
    pub threads: u32,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self { partition_by: PartitionBy::Month, memory_limit_bytes: MEMORY_LIMIT_BYTES, threads: THREADS }
    }
}

impl ParquetOptions {
    /// Threads share the engine's memory, and what has too little of it fails rather than to slow down.
    fn threads_for_memory(&self) -> u32 {
        let fitting = u32::try_from(self.memory_limit_bytes / MEMORY_PER_THREAD_BYTES).unwrap_or(u32::MAX);
        self.threads.min(fitting).max(1)
    }
}

/// A Parquet warehouse, open for writing. Dropping it writes nothing: what is sealed is durable already.
pub struct ParquetDestination {
    root: Root,
    disk: Disk,
    identity: Identity,
    engine: Engine,
    tree: Tree,
    /// Commits that readers do not see yet, in order.
    waiting: Vec<Part>,
    /// Applied, and in no part yet.
    pending: Pending,
    next_number: u64,
    sort_limits: SortLimits,
    stage: Option<Stage>,
    /// A step failed: what is on the disk must be looked at again before anything is built on it.
    is_stale: bool,
    /// Bytes of rows that may wait for more of their partitions.
    pending_bytes_max: usize,
    /// Nothing has to survive a kill: a seal commits nothing, and what is complete is committed whatever was applied before it.
    is_built_anew: bool,
}

impl ParquetDestination {
    /// Opens the warehouse in this folder; an empty or missing folder becomes one.
    ///
    /// # Errors
    /// [`LoadError::Locked`] while another writer has it open, [`LoadError::OtherIdentity`] and [`LoadError::OtherPartition`]
    /// if it was filled otherwise, [`LoadError::Newer`], and [`LoadError::NotOurs`] for a folder with other things in it.
    pub fn open(root: &Path, identity: &Identity, options: &ParquetOptions) -> Result<Self, LoadError> {
        Self::open_on(Disk::default(), root, identity, options)
    }

    /// The same, but a folder that another writer has open is waited for; with somebody who watches its durable steps.
    ///
    /// # Errors
    /// Those of [`ParquetDestination::open`].
    pub fn open_watched(
        root: &Path,
        identity: &Identity,
        options: &ParquetOptions,
        patience: &LockPatience,
        steps: &Steps,
    ) -> Result<Self, LoadError> {
        patience.until_free(|| Self::open_on(Disk::watched(steps.clone()), root, identity, options))
    }

    fn open_on(disk: Disk, root: &Path, identity: &Identity, options: &ParquetOptions) -> Result<Self, LoadError> {
        let root = Root::open(root, identity, options.partition_by, &disk)?;
        let spill = root.scratch().join("spill");
        let mut opened = Self::open_root(disk, root, identity, options, spill)?;
        opened.publisher().create_missing()?;
        opened.refresh()?;
        Ok(opened)
    }

    /// Opens the warehouse to compare: for reading alone, so that it can lie where nothing may be written. Nothing in it is made,
    /// finished or removed; what does not fit into memory goes to `spill`.
    ///
    /// # Errors
    /// As [`ParquetDestination::open`]; `Unfinished` where a publish was cut short.
    pub fn open_to_compare(
        root: &Path,
        identity: &Identity,
        options: &ParquetOptions,
        spill: &Path,
    ) -> Result<Self, LoadError> {
        let disk = Disk::default();
        let root = Root::open_to_compare(root, identity, options.partition_by)?;
        let mut opened = Self::open_root(disk, root, identity, options, spill.to_owned())?;
        let published = opened.publisher().published_part()?;
        opened.waiting = part::read_finished(&opened.root)?;
        opened.waiting.retain(|part| part.number() > published);
        inventory::check(&opened.root, &opened.tree, published, &opened.waiting)?;
        opened.require_whole_files()?;
        if opened.publish_was_cut_short()? {
            return Err(LoadError::Unfinished { path: opened.root.path().to_owned() });
        }
        opened.is_stale = false;
        Ok(opened)
    }

    fn open_root(
        disk: Disk,
        root: Root,
        identity: &Identity,
        options: &ParquetOptions,
        temp_directory: PathBuf,
    ) -> Result<Self, LoadError> {
        let engine = Engine::open(&EngineOptions {
            memory_limit_bytes: options.memory_limit_bytes,
            threads: options.threads_for_memory(),
            temp_directory,
        })?;
        // Files are replaced under their names here: nothing of an old one may be remembered.
        engine.execute("set up", "SET enable_external_file_cache = false")?;
        let tree = Tree::read(&root)?;
        Ok(Self {
            root,
            disk,
            identity: identity.clone(),
            engine,
            tree,
            waiting: Vec::new(),
            pending: Pending::default(),
            next_number: 1,
            sort_limits: SortLimits::for_memory(options.memory_limit_bytes),
            stage: None,
            is_stale: true,
            pending_bytes_max: whole::pending_bytes_max(options.memory_limit_bytes),
            is_built_anew: false,
        })
    }

    /// Looks at the disk again after a failed step, and at open: which parts wait, and which are published and may go.
    fn refresh(&mut self) -> Result<(), LoadError> {
        if !self.is_stale {
            return Ok(());
        }
        self.tree = Tree::read(&self.root)?;
        let published = self.publisher().published_part()?;
        let (done, waiting) = part::read_all(&self.root, &self.disk)?
            .into_iter()
            .partition::<Vec<Part>, _>(|part| part.number() <= published);
        inventory::check(&self.root, &self.tree, published, &waiting)?;
        done.iter().try_for_each(|part| part.remove(&self.disk))?;
        self.next_number = waiting.last().map_or(published, Part::number).max(published) + 1;
        self.waiting = waiting;
        self.require_whole_files()?;
        if self.publish_was_cut_short()? {
            self.publish_waiting()?;
        }
        self.is_stale = false;
        Ok(())
    }

    /// Whether some file holds parts that still wait: then files and parts cannot be laid over each other, and what was begun
    /// is finished first.
    fn publish_was_cut_short(&mut self) -> Result<bool, LoadError> {
        let Some(first) = self.waiting.first().map(Part::number) else { return Ok(false) };
        for part in &self.waiting {
            for (name, changes) in &part.manifest.tables {
                let table = known_table(name)?;
                for partition in changes.partitions() {
                    let file = self.tree.file(&self.root, table, partition)?;
                    if file.is_some_and(|file| file.facts.applied_part >= first) {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    fn publisher(&mut self) -> Publisher<'_> {
        let Self { engine, root, disk, tree, identity, sort_limits, .. } = self;
        Publisher { engine, root, disk, tree, identity, sort_limits: *sort_limits }
    }

    fn publish_waiting(&mut self) -> Result<(), LoadError> {
        let waiting = std::mem::take(&mut self.waiting);
        self.publisher().publish(&waiting)?;
        let published = self.publisher().published_part()?;
        inventory::write(&self.root, &self.disk, &self.tree, published)?;
        waiting.iter().try_for_each(|part| part.remove(&self.disk))
    }

    fn targets(&mut self) -> TreeTargets<'_> {
        TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting }
    }
}

impl Destination for ParquetDestination {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn location(&self) -> String {
        self.root.text().to_owned()
    }

    fn holds(&mut self, scan: &ScanId) -> Result<bool, LoadError> {
        self.commit_pending()?;
        Ok(self.held_counts(scan)?.is_some())
    }

    fn ledger(&mut self) -> Result<Vec<LedgerEntry>, LoadError> {
        self.commit_pending()?;
        let relation = self.targets().relation(known_table("sync_windows")?, None)?;
        ledger::entries(&self.engine, &relation)
    }

    fn begin(&mut self, scan: &Scan) -> Result<(), LoadError> {
        self.refresh()?;
        self.stage = None;
        self.stage = Some(Stage::begin(&self.engine, scan)?);
        Ok(())
    }

    fn stage(&mut self, page: &FlatPage) -> Result<(), LoadError> {
        let stage = self.stage.as_mut().ok_or_else(|| LoadError::Contract("a page came before its scan".into()))?;
        stage.add(&self.engine, page)
    }

    fn stage_if_held(&mut self, digest: Digest, repeated: u64) -> Result<bool, LoadError> {
        self.stage_all_if_held(digest, repeated)
    }

    fn apply(&mut self, scan: &Scan, options: &CommitOptions) -> Result<Applied, LoadError> {
        if let Some(counts) = self.held_counts(&scan.id)? {
            self.stage = None;
            Stage::clear(&self.engine)?;
            return Ok(Applied { counts, wrote: false, was_held: true });
        }
        let stage = self.stage.take().filter(|stage| stage.scan() == scan);
        let mut stage = stage.ok_or_else(|| LoadError::Contract("a commit of a scan that was not begun".into()))?;
        if self.pending.touches(scan) {
            self.commit_pending()?;
        }
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        let delta = match all_new(&self.engine, &mut stage, &mut targets, &self.pending, options)? {
            Some(delta) => delta,
            None => {
                self.commit_pending()?;
                let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
                diff(&self.engine, &mut stage, &mut targets, options)?
            }
        };
        let (counts, wrote) = (delta.counts, !delta.is_empty());
        let applied = AppliedScan { scan: scan.clone(), counts };
        if delta.tables.is_empty() && wrote {
            self.pending.add(applied, delta.fills);
            self.commit_if_large(&options.coming)?;
        } else if wrote {
            // Its other tables are in the engine until the next scan: it does not wait.
            let mut own = Pending::default();
            own.add(applied, delta.fills);
            self.commit_part(&scan.id.0, &own, &delta.tables)?;
        }
        Stage::clear(&self.engine)?;
        Ok(Applied { counts, wrote, was_held: false })
    }

    fn seal(&mut self) -> Result<(), LoadError> {
        if self.is_built_anew { Ok(()) } else { self.commit_pending() }
    }

    fn compare(&mut self, scan: &Scan, keys_max: usize) -> Result<Differences, LoadError> {
        self.commit_pending()?;
        let stage = self.stage.take().filter(|stage| stage.scan() == scan);
        let mut stage = stage.ok_or_else(|| LoadError::Contract("a comparison of a scan that was not begun".into()))?;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        let found = differences(&self.engine, &mut stage, &mut targets, keys_max)?;
        Stage::clear(&self.engine)?;
        Ok(found)
    }

    fn build_anew(&mut self) -> Result<(), LoadError> {
        self.is_built_anew = true;
        Ok(())
    }

    fn publish(&mut self) -> Result<(), LoadError> {
        self.commit_pending()?;
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.change(Self::publish_waiting)
    }

    fn wants_publish(&self) -> bool {
        let bytes: u64 = self.waiting.iter().map(|part| part.bytes).sum();
        self.waiting.len() >= WAITING_PARTS_MAX || bytes >= WAITING_BYTES_MAX
    }

    fn record_runs(&mut self, runs: &[RunRecord]) -> Result<(), LoadError> {
        self.commit_pending()?;
        let (Some(table), Some(last)) = (stage_runs(&self.engine, runs)?, runs.last()) else { return Ok(()) };
        self.commit_tables(&last.run_id.0, &[table])
    }

    fn runs(&mut self) -> Result<Vec<RunRecord>, LoadError> {
        self.commit_pending()?;
        let relation = self.targets().relation(known_table("sync_runs")?, None)?;
        ledger::runs(&self.engine, &relation)
    }

    fn add_events(&mut self, events: &EventRows) -> Result<u64, LoadError> {
        self.commit_pending()?;
        self.stage = None;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        let delta = stage_events(&self.engine, &mut targets, events)?;
        if !delta.is_empty() {
            self.commit_tables(EVENTS_PART, &delta.tables)?;
        }
        Stage::clear(&self.engine)?;
        Ok(delta.counts.inserted)
    }

    fn carry_events_out(&mut self, file: &Path) -> Result<u64, LoadError> {
        self.commit_pending()?;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        carry_out(&self.engine, &mut targets, file)
    }

    fn carry_events_in(&mut self, file: &Path) -> Result<(), LoadError> {
        self.commit_pending()?;
        self.stage = None;
        if let Some(table) = carry_in(&self.engine, file)? {
            self.commit_tables(EVENTS_PART, &[table])?;
        }
        Stage::clear(&self.engine)
    }

    fn replace(&mut self, source: &Path, what: &Replacement) -> Result<u64, LoadError> {
        // The ledger of what waits is in the parts; a replacement takes its rows out of the files alone.
        self.publish()?;
        self.stage = None;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        let delta = put_in(&self.engine, &mut targets, source, what)?;
        self.commit_tables("replay", &delta.tables)?;
        take_leave(&self.engine)?;
        Ok(delta.counts.inserted)
    }

    fn facts(&mut self, wanted: &[Identifier]) -> Result<Facts, LoadError> {
        self.commit_pending()?;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        people::facts(&self.engine, &mut targets, wanted)
    }

    fn vanished_sessions(&mut self, before_ms: i64, sessions_max: usize) -> Result<Vec<Identifier>, LoadError> {
        self.commit_pending()?;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        people::vanished_sessions(&self.engine, &mut targets, before_ms, sessions_max)
    }

    fn live_sessions(&mut self, sessions: &[Identifier]) -> Result<Vec<Identifier>, LoadError> {
        self.commit_pending()?;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        people::live_sessions(&self.engine, &mut targets, sessions)
    }

    fn find_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        self.commit_pending()?;
        self.stage = None;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        let deltas = people::find(&self.engine, &mut targets, person)?;
        let found = people::count(&self.engine, &mut targets, &deltas)?;
        Stage::clear(&self.engine)?;
        Ok(found)
    }

    fn erase_people(&mut self, person: &[Identifier]) -> Result<PeopleFound, LoadError> {
        self.publish()?;
        self.stage = None;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        let deltas = people::find(&self.engine, &mut targets, person)?;
        let found = people::count(&self.engine, &mut targets, &deltas)?;
        if !deltas.is_empty() {
            self.commit_tables("erase", &deltas)?;
        }
        Stage::clear(&self.engine)?;
        // The files of the partitions that it touches are written anew, and the part, which names rows, goes.
        self.publish()?;
        Ok(found)
    }

    fn search(&mut self, finder: &Finder) -> Result<Searched, LoadError> {
        self.commit_pending()?;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        people::search(&self.engine, &mut targets, finder, &[])
    }

    fn redact(&mut self, finder: &Finder, mentions: &[Mention], only_own: bool) -> Result<u64, LoadError> {
        self.publish()?;
        self.stage = None;
        let mut targets = TreeTargets { root: &self.root, tree: &mut self.tree, waiting: &self.waiting };
        let (deltas, rows) = people::redact(&self.engine, &mut targets, finder, mentions, only_own)?;
        if !deltas.is_empty() {
            self.commit_tables("redact", &deltas)?;
        }
        Stage::clear(&self.engine)?;
        self.publish()?;
        Ok(rows)
    }

    fn record_erasures(&mut self, records: &[ErasureRecord]) -> Result<(), LoadError> {
        self.commit_pending()?;
        let (Some(table), Some(last)) = (people::stage_erasures(&self.engine, records)?, records.last()) else {
            return Ok(());
        };
        self.commit_tables(&last.erasure_id, &[table])
    }

    fn erasures(&mut self) -> Result<Vec<ErasureRecord>, LoadError> {
        self.commit_pending()?;
        let relation = self.targets().relation(known_table("erasures")?, None)?;
        people::erasures(&self.engine, &relation)
    }
}

fn known_table(name: &str) -> Result<&'static Table, LoadError> {
    table(name).ok_or_else(|| LoadError::Contract(format!("no table is called {name}")))
}

#[cfg(test)]
mod tests;
