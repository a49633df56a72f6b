//! Merges waiting parts into the files that readers see, one partition after the other, each swapped in by one rename.
//!
//! A kill between any two steps is harmless. Each file says which part it holds last, so a merge that is begun again skips the
//! files that are done. `sync_windows` comes last: once its file says that it holds a part, every other file does, and the part
//! may go. A reader therefore sees the old partition or the new one, and may see some partitions ahead of others for a moment.

use std::collections::BTreeSet;

use super::{
    disk::Disk,
    part::Part,
    partition::Partition,
    relation::Sources,
    root::Root,
    slices::{self, SortLimits},
    table_file::{self, Notes},
    tree::{FileFacts, Tree},
};
use crate::{
    load::{Engine, Identity, LoadError},
    schema::{Table, table, tables},
};

/// The table whose file is written last.
const LEDGER_TABLE: &str = "sync_windows";

/// What publish works with.
pub(super) struct Publisher<'a> {
    pub(super) engine: &'a Engine,
    pub(super) root: &'a Root,
    pub(super) disk: &'a Disk,
    pub(super) tree: &'a mut Tree,
    pub(super) identity: &'a Identity,
    pub(super) sort_limits: SortLimits,
}

impl Publisher<'_> {
    /// Merges the parts, which are all that wait, in order. Those are left for the caller to remove.
    pub(super) fn publish(&mut self, parts: &[Part]) -> Result<(), LoadError> {
        for table in tables().iter().filter(|table| table.name != LEDGER_TABLE) {
            let changes = parts.iter().filter_map(|part| part.manifest.tables.get(&table.name));
            let partitions: BTreeSet<_> = changes.flat_map(|changes| changes.partitions()).collect();
            for partition in partitions {
                self.merge(table, partition, parts)?;
            }
        }
        self.merge(ledger_table()?, None, parts)
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
                self.replace(table, None, &Sources::new(table, None, &[], []), 0, None)?;
            }
        }
        Ok(())
    }

    /// The last part that every file holds.
    pub(super) fn published_part(&mut self) -> Result<u64, LoadError> {
        let ledger = self.tree.file(self.root, ledger_table()?, None)?;
        Ok(ledger.map_or(0, |file| file.facts.applied_part))
    }

    fn merge(&mut self, table: &'static Table, partition: Option<Partition>, parts: &[Part]) -> Result<(), LoadError> {
        let Some(last) = parts.last() else { return Ok(()) };
        let held = self.tree.file(self.root, table, partition)?;
        let held_part = held.as_ref().map_or(0, |file| file.facts.applied_part);
        if held_part >= last.number() {
            return Ok(());
        }
        let news = parts.iter().filter(|part| part.number() > held_part && part.touches(table, partition));
        let bounds = partition.map(|partition| self.root.partition_by().bounds(partition));
        let files: Vec<_> = held.into_iter().collect();
        let sources = Sources::new(table, bounds, &files, news);
        self.replace(table, partition, &sources, last.number(), run_of(parts))
    }

    /// Writes the rows to a new file and puts it in the place of the old one.
    fn replace(
        &mut self,
        table: &'static Table,
        partition: Option<Partition>,
        sources: &Sources<'_>,
        applied_part: u64,
        run_id: Option<&str>,
    ) -> Result<(), LoadError> {
        let target = self.root.data_file(table, partition);
        // Not beside the target: some readers take every file of a folder for data, whatever it is called.
        let fresh = self.root.scratch().join(format!("{}.parquet", table.name));
        let notes = Notes { applied_part, identity: self.identity, run_id };
        self.disk.step("write", &fresh)?;
        let slices = slices::selects(self.engine, table, sources, self.sort_limits)?;
        let rows = self.engine.with_all_threads(|| table_file::write(self.engine, table, &slices, &fresh, &notes))?;
        if rows == 0 && partition.is_some() {
            // Not durably: what is left there goes at the next open.
            let _ = std::fs::remove_file(&fresh);
            return self.remove(table, partition);
        }
        self.disk.sync_file(&fresh)?;
        if let Some(folder) = target.parent() {
            self.disk.create_folder(folder)?;
        }
        self.disk.rename(&fresh, &target)?;
        self.tree.note(table, partition, Some(FileFacts { applied_part, rows, missing: Vec::new() }));
        Ok(())
    }

    /// A partition without rows has no file. A merge that is begun again finds the same parts, and again no rows.
    fn remove(&mut self, table: &'static Table, partition: Option<Partition>) -> Result<(), LoadError> {
        let target = self.root.data_file(table, partition);
        if target.is_file() {
            self.disk.remove_file(&target)?;
        }
        self.tree.note(table, partition, None);
        // Only for tidiness: a folder that stays behind, or is not empty, harms nobody.
        let _ = target.parent().map(std::fs::remove_dir);
        Ok(())
    }
}

fn run_of(parts: &[Part]) -> Option<&str> {
    parts.iter().rev().find_map(|part| part.manifest.scan.as_ref()).map(|scan| scan.run_id.0.as_str())
}

fn ledger_table() -> Result<&'static Table, LoadError> {
    table(LEDGER_TABLE).ok_or_else(|| LoadError::Contract(format!("no table is called {LEDGER_TABLE}")))
}
