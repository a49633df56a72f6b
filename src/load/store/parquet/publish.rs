//! Merges waiting parts into the files that readers see, partition by partition, each replaced by one rename.
//!
//! A kill between any two steps is harmless. Each file says which part it holds last, so a merge that is begun again skips the files
//! that are done. `sync_windows` comes last: once its file says that it holds a part, every other file does, and the part may go. A
//! reader therefore sees the old partition or the new one, and may see some partitions ahead of others for a moment.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use super::{
    disk::Disk,
    limits::Limits,
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

/// Merges parts.
pub(super) struct Publisher<'a> {
    pub(super) root: &'a Root,
    pub(super) disk: &'a Disk,
    pub(super) tree: &'a mut Tree,
    pub(super) identity: &'a Identity,
    pub(super) threads: u32,
    /// Those of all threads together.
    pub(super) limits: Limits,
}

impl Publisher<'_> {
    /// Merges the parts, which are all that wait, in order. The caller removes them.
    pub(super) fn publish(&mut self, parts: &[Part]) -> Result<(), LoadError> {
        let mut merges = Vec::new();
        for table in tables().iter().filter(|table| table.name != LEDGER_TABLE) {
            let changes = parts.iter().flat_map(|part| &part.layers).filter_map(|layer| layer.table(table));
            let partitions: BTreeSet<_> = changes.flat_map(|changes| changes.partitions()).collect();
            for partition in partitions {
                merges.extend(self.merge(table, partition, parts)?);
            }
        }
        // The largest first: the threads are to end at the same time.
        merges.sort_by_key(|merge| std::cmp::Reverse(merge.rows_max()));
        self.run(&merges)?;
        let ledger = self.merge(contract(LEDGER_TABLE)?, None, parts)?;
        self.run(ledger.as_slice())
    }

    /// An error if the ledger has no file although other tables have: then it was lost.
    pub(super) fn require_ledger(&mut self) -> Result<(), LoadError> {
        if self.tree.file(self.root, contract(LEDGER_TABLE)?, None)?.is_none() && !self.tree.is_empty() {
            let why = format!("its ledger {LEDGER_TABLE}/data.parquet is missing");
            return Err(LoadError::Damaged { path: self.root.path().to_path_buf(), why });
        }
        Ok(())
    }

    /// Writes the files of tables without partitions that have none yet, so that readers find every table. The ledger comes first: see
    /// [`Publisher::require_ledger`].
    pub(super) fn create_missing(&mut self) -> Result<(), LoadError> {
        let ledger = contract(LEDGER_TABLE)?;
        let others = tables().iter().filter(|table| table.partition.is_none() && table.name != LEDGER_TABLE);
        for table in std::iter::once(ledger).chain(others) {
            if self.tree.file(self.root, table, None)?.is_none() {
                let (partition, file, layers, rewrite) = (None, None, Vec::new(), Rewrite::Always);
                let empty = PartitionMerge { table, partition, file, layers, rewrite, applied_part: 0, run_id: None };
                self.run(&[empty])?;
            }
        }
        Ok(())
    }

    /// The last part that every file has.
    pub(super) fn published_part(&mut self) -> Result<u64, LoadError> {
        let ledger = self.tree.file(self.root, contract(LEDGER_TABLE)?, None)?;
        Ok(ledger.map_or(0, |file| file.footer.applied_part))
    }

    /// What is to be merged into a partition; `None` if its file has the last part already.
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
        // The ledger's file says up to which part all files go.
        let rewrite = if table.name == LEDGER_TABLE { Rewrite::Always } else { Rewrite::IfChanged };
        Ok(Some(PartitionMerge { table, partition, file, layers, rewrite, applied_part, run_id }))
    }

    /// Merges partitions, several side by side.
    fn run(&mut self, merges: &[PartitionMerge<'_>]) -> Result<(), LoadError> {
        let workers = worker_count(self.threads, merges);
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
            // What a thread that died leaves in it is whole: notes of files that are in place.
            tree.lock().unwrap_or_else(PoisonError::into_inner).note(merge.table, merge.partition, footer);
            Ok(())
        })
    }
}
