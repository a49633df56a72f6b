//! The part of the open transaction. Each write adds a layer, and the commit makes the part durable.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use arrow::{
    array::{Array as _, AsArray as _, RecordBatch},
    datatypes::Schema,
};

use super::{
    disk::Disk,
    parallel::{run_parallel, worker_count},
    part::{Layer, LayerTables, MANIFEST_FILE, Manifest, Part, RowsFile, TableLayer, finished_folder, new_folder},
    root::Root,
    sorted_rows::{PartitionRows, SortedRows, distinct_partitions},
    table_file::{self, Notes},
};
use crate::{
    files,
    load::{
        Identity, LoadError,
        error::invalid_rows,
        store::{TableChange, TimeRange, fit},
    },
};

/// What writing a part needs from the store.
#[derive(Clone, Copy)]
pub(super) struct WriteContext<'a> {
    pub(super) root: &'a Root,
    pub(super) disk: &'a Disk,
    pub(super) identity: &'a Identity,
    /// Threads that write files in parallel.
    pub(super) threads: u32,
}

/// The part of the open transaction, whose files are being written.
pub(super) struct OpenPart {
    number: u64,
    folder: PathBuf,
    /// The program run that the rows name in `_run_id`; `None` if no row named a run so far.
    run_id: Option<String>,
    /// The layers so far, oldest first.
    layers: Vec<Layer>,
}

impl OpenPart {
    /// Creates an empty folder for the part with this number. Removes the folder of an unfinished part with the same
    /// number.
    pub(super) fn begin(context: WriteContext<'_>, number: u64) -> Result<Self, LoadError> {
        let folder = new_folder(context.root, number);
        context.disk.remove_folder(&folder)?;
        context.disk.step("create", &folder)?;
        files::create_folders(&folder).map_err(LoadError::io("create", &folder))?;
        Ok(Self { number, folder, run_id: None, layers: Vec::new() })
    }

    /// Returns the layers so far, oldest first.
    pub(super) fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Writes changes as a layer. If a table has several changes, writes several layers, because a layer has one change
    /// for each table. After an error the caller must discard the part.
    pub(super) fn write(&mut self, context: WriteContext<'_>, changes: &[TableChange]) -> Result<(), LoadError> {
        self.run_id = run_id_of(changes).or(self.run_id.take());
        for changes in split_by_table(changes) {
            let tables = self.write_layer(context, &changes)?;
            self.layers.push(Layer { part: self.number, folder: self.folder.clone(), tables });
        }
        Ok(())
    }

    /// Writes the files of one layer, in which each table has at most one change. Returns the files by table. The files
    /// of added rows are written in parallel.
    fn write_layer(&self, context: WriteContext<'_>, changes: &[&TableChange]) -> Result<LayerTables, LoadError> {
        let mut tables = LayerTables::new();
        // The added rows of each change, sorted.
        let mut sorted = Vec::new();
        for change in changes {
            let removed = self.write_removed(context, change)?;
            tables.insert(change.table.name.clone(), TableLayer { removed, added: Vec::new() });
            sorted.push(SortedRows::of(change.table, context.root.partition_by(), &change.added)?);
        }
        let mut runs = Vec::new();
        for (change, sorted) in changes.iter().zip(&sorted) {
            runs.extend(sorted.partitions()?.into_iter().map(|rows| (change.table, sorted, rows)));
        }
        // The largest file begins first, so that the threads end at about the same time.
        runs.sort_by_key(|(.., rows)| std::cmp::Reverse(rows.rows()));
        // A sorted run that is a complete partition becomes the partition's file, so its footer needs these notes.
        let notes = Notes { applied_part: self.number, identity: context.identity, run_id: self.run_id.as_deref() };
        run_parallel(&runs, worker_count(context.threads, &runs), |(table, sorted, rows)| {
            let path = self.folder.join(self.rows_file_name(&table.name, rows));
            context.disk.step("write", &path)?;
            sorted.write(rows, &path, &notes).map(drop)
        })?;
        for (table, _, rows) in &runs {
            let partitions = rows.partition.into_iter().collect();
            let file =
                RowsFile::new(self.rows_file_name(&table.name, rows), rows.rows() as u64, rows.bounds, partitions);
            tables.entry(table.name.clone()).or_default().added.push(file);
        }
        Ok(tables)
    }

    /// Writes the keys that a change removes to a file. Returns `None` if the change removes nothing.
    fn write_removed(&self, context: WriteContext<'_>, change: &TableChange) -> Result<Option<RowsFile>, LoadError> {
        let TableChange { table, removed, .. } = change;
        if removed.is_empty() {
            return Ok(None);
        }
        let of_files = table.parquet_schema();
        let fields = removed.columns().iter().map(|name| of_files.field_with_name(name).cloned());
        let schema = Arc::new(Schema::new(fields.collect::<Result<Vec<_>, _>>().map_err(invalid_rows(table))?));
        let keys = removed.values().iter().map(|batch| fit(batch, &schema));
        let keys = keys.collect::<Result<Vec<_>, _>>().map_err(invalid_rows(table))?;
        let partitions = distinct_partitions(table, context.root.partition_by(), &keys)?;
        let name = format!("{:04}.{}.removed.parquet", self.layers.len(), table.name);
        let path = self.folder.join(&name);
        context.disk.step("write", &path)?;
        table_file::write_keys(&path, &keys)?;
        Ok(Some(RowsFile::new(name, removed.len() as u64, TimeRange::over(table, &keys)?, partitions)))
    }

    fn rows_file_name(&self, table: &str, rows: &PartitionRows) -> String {
        let stem = rows.partition.map_or_else(|| "all".to_owned(), |partition| partition.first_day.to_string());
        format!("{:04}.{table}.{stem}.parquet", self.layers.len())
    }

    /// Makes the part durable and renames its folder, which commits the part. After an error the part is removed. If
    /// removing fails too, the next refresh of the store removes an unfinished part, and takes a renamed one as
    /// committed.
    pub(super) fn commit(self, context: WriteContext<'_>, label: &str) -> Result<Part, LoadError> {
        let finished = finished_folder(context.root, self.number, label);
        let committed = self.rename_into_place(context, &finished);
        if committed.is_err() {
            // The first error is returned. If the folder was renamed already, the rename is undone: the commit failed.
            if finished.exists() {
                context.disk.rename(&finished, &self.folder).ok();
            }
            self.discard(context.disk).ok();
        }
        committed
    }

    /// Makes the files durable, writes the manifest, and renames the folder to `finished`. The rename is the commit.
    fn rename_into_place(&self, context: WriteContext<'_>, finished: &Path) -> Result<Part, LoadError> {
        let disk = context.disk;
        for layer in &self.layers {
            let files = layer.tables.values().flat_map(|changes| changes.removed.iter().chain(&changes.added));
            files.map(|file| layer.path(file)).try_for_each(|path| disk.sync(&path))?;
        }
        let layers = self.layers.iter().map(|layer| layer.tables.clone()).collect();
        let manifest = Manifest::new(self.number, self.run_id.clone(), layers);
        let path = self.folder.join(MANIFEST_FILE);
        let text =
            serde_json::to_vec_pretty(&manifest).map_err(|source| LoadError::io("write", &path)(source.into()))?;
        disk.write(&path, &text)?;
        disk.sync(&self.folder)?;
        if let Some(remote) = &disk.remote {
            let name = finished.file_name().unwrap_or_default().to_string_lossy();
            remote.commit(&self.folder, self.number, &name)?;
        }
        disk.rename(&self.folder, finished)?;
        Part::new(manifest, finished.to_owned())
    }

    /// Removes the part with its files.
    pub(super) fn discard(&self, disk: &Disk) -> Result<(), LoadError> {
        disk.remove_folder(&self.folder)
    }
}

/// Splits changes into groups in which each table occurs at most once. The n-th change of a table goes to the n-th
/// group. Empty changes are left out.
fn split_by_table(changes: &[TableChange]) -> Vec<Vec<&TableChange>> {
    let mut groups: Vec<Vec<&TableChange>> = Vec::new();
    for change in changes.iter().filter(|change| !change.is_empty()) {
        let has_table = |group: &&Vec<&TableChange>| group.iter().any(|other| other.table.name == change.table.name);
        let earlier_changes = groups.iter().filter(has_table).count();
        match groups.get_mut(earlier_changes) {
            Some(group) => group.push(change),
            None => groups.push(vec![change]),
        }
    }
    groups
}

/// Returns the program run that the added rows name in `_run_id`. Looks only at the last row of each batch, the newest
/// batch first, and takes the first value. Returns `None` if there is none.
fn run_id_of(changes: &[TableChange]) -> Option<String> {
    let run_id = |rows: &RecordBatch| {
        let column = rows.column_by_name("_run_id")?.as_string_opt::<i32>()?;
        let last = column.len().checked_sub(1).filter(|last| column.is_valid(*last))?;
        Some(column.value(last).to_owned())
    };
    changes.iter().rev().find_map(|change| change.added.iter().rev().find_map(run_id))
}
