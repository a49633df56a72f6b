//! Merges waiting parts into the files that readers see. One rename replaces the file of a partition.
//!
//! A publish that was killed is repeated. The footer of each file names the last part that is merged into the file, so
//! the repeated merge skips finished files. The file of the ledger, `sync_windows`, is written last: once its footer
//! names a part, all other files contain the part, and the part may be removed. A reader of a partition sees either the
//! old or the new file. During a publish some partitions are newer than others.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use super::{
    disk::Disk,
    options::Limits,
    parallel::{run_parallel, worker_count},
    part::Part,
    partition::Partition,
    partition_merge::{Merged, Merger, PartitionMerge, Rewrite},
    root::Root,
    tree::Tree,
};
use crate::{
    load::{Identity, LoadError, contract::contract},
    schema::{Table, tables},
};

/// The table whose file is written last.
const LEDGER_TABLE: &str = "sync_windows";
/// Most rows of a small merge: into a bucket, its thread mostly waits for the request, and needs little memory.
const SMALL_ROWS_MAX: u64 = 50_000;
/// Least number of threads for small merges into a bucket.
const SMALL_THREADS: u32 = 8;

/// Merges waiting parts into the files of partitions.
pub(super) struct Publisher<'a> {
    pub(super) root: &'a Root,
    pub(super) disk: &'a Disk,
    pub(super) tree: &'a mut Tree,
    pub(super) identity: &'a Identity,
    pub(super) threads: u32,
    /// Limits of memory and open files of all threads together.
    pub(super) limits: Limits,
}

impl Publisher<'_> {
    /// Merges the parts, oldest first, into the files of all tables. The file of the ledger is written last. The caller
    /// removes the parts afterwards. After an error the publish can be repeated.
    pub(super) fn publish(&mut self, parts: &[Part]) -> Result<(), LoadError> {
        let mut merges = Vec::new();
        for table in tables().iter().filter(|table| table.name != LEDGER_TABLE) {
            let changes = parts.iter().flat_map(|part| &part.layers).filter_map(|layer| layer.table(table));
            let partitions: BTreeSet<_> = changes.flat_map(|changes| changes.partitions()).collect();
            for partition in partitions {
                merges.extend(self.merge(table, partition, parts)?);
            }
        }
        self.run(merges)?;
        let ledger = self.merge(contract(LEDGER_TABLE)?, None, parts)?;
        self.run(ledger.into_iter().collect())
    }

    /// Returns an error if the file of the ledger was lost: it is missing although other tables have files.
    pub(super) fn require_ledger(&self) -> Result<(), LoadError> {
        if !self.tree.has(contract(LEDGER_TABLE)?, None) && !self.tree.is_empty() {
            let why = format!("its ledger {LEDGER_TABLE}/data.parquet is missing");
            return Err(LoadError::Damaged { path: self.root.place(), why });
        }
        Ok(())
    }

    /// Writes empty files for tables without partitions that have no file, so that readers find every table. The ledger
    /// comes first, because [`Publisher::require_ledger`] takes other files without a ledger for damage.
    pub(super) fn create_missing(&mut self) -> Result<(), LoadError> {
        let is_missing = |table: &&Table| table.partition.is_none() && !self.tree.has(table, None);
        let empty = |table| {
            let (partition, file, layers, rewrite) = (None, None, Vec::new(), Rewrite::Always);
            PartitionMerge { table, partition, file, layers, rewrite, applied_part: 0, run_id: None }
        };
        let missing = tables().iter().filter(is_missing).map(empty);
        let (ledger, others): (Vec<_>, Vec<_>) = missing.partition(|merge| merge.table.name == LEDGER_TABLE);
        self.run(ledger)?;
        self.run(others)
    }

    /// Returns the number of the last part that is merged into all files, from the footer of the ledger; 0 if there is
    /// none.
    pub(super) fn published_part(&mut self) -> Result<u64, LoadError> {
        let ledger = self.tree.file(self.root, contract(LEDGER_TABLE)?, None)?;
        Ok(ledger.map_or(0, |file| file.footer.applied_part))
    }

    /// Prepares the merge of these parts into the file of a partition. Returns `None` if there are no parts, or if the
    /// file contains the last part already. Parts that the file contains are left out.
    fn merge<'p>(
        &mut self,
        table: &'static Table,
        partition: Option<Partition>,
        parts: &'p [Part],
    ) -> Result<Option<PartitionMerge<'p>>, LoadError> {
        let Some(applied_part) = parts.last().map(Part::number) else { return Ok(None) };
        let file = self.tree.file(self.root, table, partition)?;
        let merged_part = file.as_ref().map_or(0, |file| file.footer.applied_part);
        if merged_part >= applied_part {
            return Ok(None);
        }
        let layers = parts.iter().filter(|part| part.number() > merged_part).flat_map(|part| &part.layers).collect();
        let run_id = parts.iter().rev().find_map(|part| part.run_id.as_deref());
        // The footer of the ledger must name the last published part even if no row of the ledger changed.
        let rewrite = if table.name == LEDGER_TABLE { Rewrite::Always } else { Rewrite::IfChanged };
        Ok(Some(PartitionMerge { table, partition, file, layers, rewrite, applied_part, run_id }))
    }

    /// Runs merges in parallel, and records the new and removed files in the tree. After an error some merges may be
    /// done.
    fn run(&mut self, mut merges: Vec<PartitionMerge<'_>>) -> Result<(), LoadError> {
        // The largest merge begins first, so that the threads end at about the same time.
        merges.sort_by_key(|merge| Reverse(merge.rows_max()));
        let (large, small) = merges.split_at(merges.partition_point(|merge| merge.rows_max() > SMALL_ROWS_MAX));
        let small_threads = if self.disk.remote.is_some() { SMALL_THREADS } else { 1 };
        self.run_on(large, self.threads)?;
        self.run_on(small, self.threads.max(small_threads))
    }

    fn run_on(&mut self, merges: &[PartitionMerge<'_>], threads: u32) -> Result<(), LoadError> {
        let workers = worker_count(threads, merges);
        let limits = self.limits.shared_by(workers);
        let Self { root, disk, tree, identity, .. } = self;
        let merger = Merger { root, disk, identity, limits };
        let tree = Mutex::new(tree);
        run_parallel(merges, workers, |merge| {
            let footer = match merger.merge(merge)? {
                Merged::Untouched => return Ok(()),
                Merged::Replaced(footer) => Some(footer),
                Merged::Removed => None,
            };
            // A lock that a panic poisoned is used too: the tree lists only files that were renamed before, so it is
            // right after each call of `note`.
            tree.lock().unwrap_or_else(PoisonError::into_inner).note(merge.table, merge.partition, footer);
            Ok(())
        })
    }
}
