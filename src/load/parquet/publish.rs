//! Merges waiting parts into the files that readers see, partition by partition, each swapped in by one rename.
//!
//! Where a part has the whole file of a partition, and no other part changes it, that file is put in its place as it is.
//!
//! A kill between any two steps is harmless. Each file says which part it holds last, so a merge that is begun again skips the
//! files that are done. `sync_windows` comes last: once its file says that it holds a part, every other file does, and the part
//! may go. A reader therefore sees the old partition or the new one, and may see some partitions ahead of others for a moment.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Mutex, PoisonError},
};

use super::{
    disk::Disk,
    gather,
    part::Part,
    partition::Partition,
    relation::Sources,
    root::Root,
    slices::{self, SortLimits},
    table_file::{self, Notes},
    tree::{DataFile, FileFacts, Tree},
    workers::{share_out, workers},
};
use crate::{
    load::{Engine, Identity, LoadError},
    schema::{Table, table, tables},
};

/// Rows from which on a merge is worth all threads of the engine: to set their number costs some milliseconds, for the engine gives back
/// what memory it has free.
const ROWS_FOR_ALL_THREADS: u64 = 50_000;

/// The table whose file is written last.
pub(super) const LEDGER_TABLE: &str = "sync_windows";

/// What publish works with.
pub(super) struct Publisher<'a> {
    pub(super) engine: &'a Engine,
    pub(super) root: &'a Root,
    pub(super) disk: &'a Disk,
    pub(super) tree: &'a mut Tree,
    pub(super) identity: &'a Identity,
    pub(super) sort_limits: SortLimits,
}

/// What is left to be merged.
struct Merge<'a> {
    table: &'static Table,
    partition: Option<Partition>,
    /// The partition as it is: the file in its place, or the one that a part has of it.
    held: Vec<DataFile>,
    /// The latter is all that there is of it.
    puts_whole: bool,
    /// The parts that change it, in order.
    news: Vec<&'a Part>,
    /// The last part of this publish.
    applied_part: u64,
    run_id: Option<&'a str>,
}

impl Merge<'_> {
    /// Rows that come together, at most.
    fn rows_max(&self) -> u64 {
        let held: u64 = self.held.iter().map(|file| file.facts.rows).sum();
        let upserts = self.news.iter().filter_map(|part| part.manifest.tables.get(&self.table.name)?.upserts.as_ref());
        held + upserts.map(|extent| extent.rows).sum::<u64>()
    }
}

impl Publisher<'_> {
    /// Merges the parts, which are all that wait, in order. Those are left for the caller to remove.
    pub(super) fn publish(&mut self, parts: &[Part]) -> Result<(), LoadError> {
        let mut merges = Vec::new();
        for table in tables().iter().filter(|table| table.name != LEDGER_TABLE) {
            let changes = parts.iter().filter_map(|part| part.manifest.tables.get(&table.name));
            let partitions: BTreeSet<_> = changes.flat_map(|changes| changes.partitions()).collect();
            for partition in partitions {
                merges.extend(self.merge(table, partition, parts)?);
            }
        }
        self.run(&merges)?;
        let ledger = self.merge(ledger_table()?, None, parts)?;
        self.run(ledger.as_slice())
    }

    /// Writes the files of tables that are not cut and have none yet, so that readers find every table. The ledger comes first:
    /// where it is missing although others are there, it was lost.
    pub(super) fn create_missing(&mut self) -> Result<(), LoadError> {
        let ledger = ledger_table()?;
        if self.tree.file(self.root, ledger, None)?.is_none() && !self.tree.is_empty() {
            let why = format!("its ledger {LEDGER_TABLE}/data.parquet is missing");
            return Err(LoadError::Damaged { path: self.root.path().to_path_buf(), why });
        }
        let others = tables().iter().filter(|table| table.partition.is_none() && table.name != LEDGER_TABLE);
        for table in std::iter::once(ledger).chain(others) {
            if self.tree.file(self.root, table, None)?.is_none() {
                let (held, news) = (Vec::new(), Vec::new());
                let (partition, puts_whole, run_id) = (None, false, None);
                self.run(&[Merge { table, partition, held, puts_whole, news, applied_part: 0, run_id }])?;
            }
        }
        Ok(())
    }

    /// The last part that every file holds.
    pub(super) fn published_part(&mut self) -> Result<u64, LoadError> {
        let ledger = self.tree.file(self.root, ledger_table()?, None)?;
        Ok(ledger.map_or(0, |file| file.facts.applied_part))
    }

    /// What is to be merged into a partition; `None` if its file holds the last part already.
    fn merge<'p>(
        &mut self,
        table: &'static Table,
        partition: Option<Partition>,
        parts: &'p [Part],
    ) -> Result<Option<Merge<'p>>, LoadError> {
        let Some(last) = parts.last() else { return Ok(None) };
        let in_place = self.tree.file(self.root, table, partition)?;
        let is_in_place = in_place.is_some();
        let held = in_place.or_else(|| parts.iter().find_map(|part| part.whole_file(table, partition)));
        let held_part = held.as_ref().map_or(0, |file| file.facts.applied_part);
        let news = parts.iter().filter(|part| part.number() > held_part && part.merges_into(table, partition));
        let news: Vec<_> = news.collect();
        // A table that is not cut says up to which part it goes, whatever they bring it: the ledger of all.
        let has_all = if partition.is_some() { is_in_place && news.is_empty() } else { held_part >= last.number() };
        if has_all {
            return Ok(None);
        }
        let puts_whole = partition.is_some() && !is_in_place && news.is_empty();
        Ok(Some(Merge {
            table,
            partition,
            puts_whole,
            held: held.into_iter().collect(),
            news,
            applied_part: last.number(),
            run_id: run_of(parts),
        }))
    }

    /// Merges partitions: several side by side, each on one thread; a single one with all threads, if it is large.
    fn run(&mut self, merges: &[Merge<'_>]) -> Result<(), LoadError> {
        let Self { engine, root, disk, tree, identity, sort_limits } = self;
        let workers = workers(engine.threads(), merges);
        let place = Place { root, disk, identity, sort_limits: sort_limits.shared_by(workers) };
        if workers <= 1 {
            let writer = Writer { engine, place, worker: 0 };
            return merges.iter().try_for_each(|merge| {
                let replace = || writer.replace(merge);
                let is_large = merge.rows_max() >= ROWS_FOR_ALL_THREADS;
                let facts = if is_large { engine.with_all_threads(replace)? } else { replace()? };
                tree.note(merge.table, merge.partition, facts);
                Ok(())
            });
        }
        // Each has a session of its own.
        let sessions: Vec<(Engine, usize)> =
            (0..workers).map(|worker| Ok((engine.beside()?, worker))).collect::<Result<_, LoadError>>()?;
        let tree = Mutex::new(tree);
        share_out(merges, sessions, |(engine, worker), merge| {
            let facts = Writer { engine, place, worker: *worker }.replace(merge)?;
            // What a thread that died leaves in it is whole: notes of files that are in place.
            let mut tree = tree.lock().unwrap_or_else(PoisonError::into_inner);
            tree.note(merge.table, merge.partition, facts);
            Ok(())
        })
    }
}

/// Where files go, and what is the same for all of them.
#[derive(Clone, Copy)]
struct Place<'a> {
    root: &'a Root,
    disk: &'a Disk,
    identity: &'a Identity,
    sort_limits: SortLimits,
}

/// Writes files and puts them in their places.
struct Writer<'a> {
    engine: &'a Engine,
    place: Place<'a>,
    /// Its number among those at work.
    worker: usize,
}

impl Writer<'_> {
    /// Writes the rows to a new file and puts it in the place of the old one; `None`: there are none, and there is no file.
    fn replace(&self, merge: &Merge<'_>) -> Result<Option<FileFacts>, LoadError> {
        let Merge { table, partition, held, puts_whole, news, applied_part, run_id } = merge;
        let Place { root, disk, identity, sort_limits } = self.place;
        let bounds = partition.map(|partition| root.partition_by().bounds(partition));
        let target = root.data_file(table, *partition);
        if let (true, [file]) = (*puts_whole, held.as_slice()) {
            self.put(&file.path, &target)?;
            return Ok(Some(file.facts.clone()));
        }
        // Not beside the target: some readers take every file of a folder for data, whatever it is called.
        let fresh = root.scratch().join(format!("{}.{}.parquet", table.name, self.worker));
        let notes = Notes { applied_part: *applied_part, identity, run_id: *run_id };
        disk.step("write", &fresh)?;
        let gathered = match bounds {
            Some(bounds) => gather::rows_of(table, bounds, held, news, sort_limits.gathered_bytes_max)?,
            None => None,
        };
        let rows = match gathered {
            Some(fill) => table_file::write_whole(&fill, &fresh, &notes)?,
            None => {
                let sources = Sources::new(table, bounds, held, news.iter().copied());
                let slices = slices::selects(self.engine, table, &sources, sort_limits)?;
                table_file::write(self.engine, table, &slices, &fresh, &notes)?
            }
        };
        if rows == 0 && partition.is_some() {
            // Not durably: what is left there goes at the next open.
            let _ = std::fs::remove_file(&fresh);
            return self.remove(&target).map(|()| None);
        }
        disk.sync_file(&fresh)?;
        self.put(&fresh, &target)?;
        Ok(Some(FileFacts { applied_part: *applied_part, rows, missing: Vec::new() }))
    }

    /// Puts a file, which is durable, in its place.
    fn put(&self, file: &Path, target: &Path) -> Result<(), LoadError> {
        if let Some(folder) = target.parent() {
            self.place.disk.create_folder(folder)?;
        }
        self.place.disk.rename(file, target)
    }

    /// A partition without rows has no file. A merge that is begun again finds the same parts, and again no rows.
    fn remove(&self, target: &Path) -> Result<(), LoadError> {
        if target.is_file() {
            self.place.disk.remove_file(target)?;
        }
        // Only for tidiness: a folder that stays behind, or is not empty, harms nobody.
        let _ = target.parent().map(std::fs::remove_dir);
        Ok(())
    }
}

fn run_of(parts: &[Part]) -> Option<&str> {
    let last = parts.iter().rev().find_map(|part| part.manifest.scans.last());
    last.map(|applied| applied.scan.run_id.0.as_str())
}

fn ledger_table() -> Result<&'static Table, LoadError> {
    table(LEDGER_TABLE).ok_or_else(|| LoadError::Contract(format!("no table is called {LEDGER_TABLE}")))
}
