//! Merges layers into the file of one partition, or of a table without partitions.

use std::path::Path;

use super::{
    disk::Disk,
    options::Limits,
    part::Layer,
    partition::Partition,
    removed_keys::RemovedKeys,
    root::Root,
    rows_reader::{RowsReader, pick_partition},
    runs::{Run, RunWriter, Target},
    sources::{Content, Source, Sources},
    table_file::Notes,
    tree::{DataFile, FooterNotes, read_footer},
};
use crate::{
    load::{Identity, LoadError},
    schema::Table,
};

/// When a merge rewrites the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// The file is rewritten only if a row changes.
    IfChanged,
    /// The file is rewritten also if no row changes, because the footer must change.
    Always,
}

/// The input of a merge.
pub(super) struct PartitionMerge<'a> {
    pub(super) table: &'static Table,
    /// The partition whose file is rewritten; `None` for a table without partitions.
    pub(super) partition: Option<Partition>,
    /// The partition's file; `None` if there is none yet.
    pub(super) file: Option<DataFile>,
    /// The layers that are not merged into the file yet, oldest first.
    pub(super) layers: Vec<&'a Layer>,
    /// Whether the file is rewritten even if no row changes.
    pub(super) rewrite: Rewrite,
    /// The number of the last part that the publish merges, for the footer of the new file; 0 for an empty file that
    /// belongs to no part.
    pub(super) applied_part: u64,
    /// The program run of the last part that names one, for the footer.
    pub(super) run_id: Option<&'a str>,
}

impl PartitionMerge<'_> {
    /// Returns an upper bound of the number of rows in the new file: removals are not subtracted.
    pub(super) fn rows_max(&self) -> u64 {
        let added = self.layers.iter().filter_map(|layer| layer.table(self.table)).flat_map(|changes| &changes.added);
        let added = added.filter(|file| file.may_contain(self.partition, None)).map(|file| file.rows);
        self.file.as_ref().map_or(0, |file| file.footer.rows) + added.sum::<u64>()
    }
}

/// Result of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Merged {
    /// No row changed. The file stayed as it was, or there is no file.
    Untouched,
    /// A new file with this footer took the place of the partition's file.
    Replaced(FooterNotes),
    /// No row is left, so the file of the partition was removed.
    Removed,
}

/// Merges layers into the files of partitions.
pub(super) struct Merger<'a> {
    pub(super) root: &'a Root,
    pub(super) disk: &'a Disk,
    pub(super) identity: &'a Identity,
    /// Limits of one merge.
    pub(super) limits: Limits,
}

impl Merger<'_> {
    /// Merges the layers into the file of one partition. One rename replaces the file. If one sorted run is the
    /// complete partition, and the partition has no file, the run becomes its file. A partition without rows loses its
    /// file; a table without partitions keeps an empty file.
    pub(super) fn merge(&self, merge: &PartitionMerge<'_>) -> Result<Merged, LoadError> {
        let PartitionMerge { table, partition, file, rewrite, .. } = merge;
        let target = self.root.data_file(table, *partition);
        let runs = self.runs(merge)?;
        let is_untouched = match (runs.as_slice(), file) {
            ([only], Some(file)) => only.path == file.path && only.has_all_rows(),
            ([], Some(file)) => file.footer.rows == 0,
            ([], None) => true,
            _ => false,
        };
        match runs.as_slice() {
            _ if *rewrite == Rewrite::Always => self.replace(merge, runs, &target),
            _ if is_untouched => Ok(Merged::Untouched),
            [] if partition.is_some() => self.remove(&target),
            [only] if file.is_none() && only.has_all_rows() && only.is_in_order => self.move_run(&only.path, &target),
            _ => self.replace(merge, runs, &target),
        }
    }

    /// Returns the files to merge as runs, oldest first, each without the rows that later layers remove. Runs without
    /// rows are left out.
    fn runs(&self, merge: &PartitionMerge<'_>) -> Result<Vec<Run>, LoadError> {
        let PartitionMerge { table, partition, file, layers, .. } = merge;
        let partition_by = self.root.partition_by();
        let bounds = partition.map(|partition| partition_by.bounds(partition));
        let sources = Sources::find(table, *partition, None, file.as_ref().map(|file| file.path.clone()), layers);
        let mut removed = RemovedKeys::new(table, bounds, &sources.removals, self.limits.removed_keys_max)?;
        let mut runs = Vec::new();
        for Source { order, path, content } in &sources.rows {
            let reader = RowsReader::open(path)?;
            let mut pick = reader.all();
            if let (Content::SeveralPartitions, Some(partition)) = (content, partition) {
                pick = pick_partition(table, &reader, &pick, partition_by, *partition)?;
            }
            let pick = removed.exclude(&reader, pick, *order)?;
            if pick.count() > 0 {
                runs.push(Run::new(table, path, &reader, pick));
            }
        }
        Ok(runs)
    }

    /// Merges the runs into a new file, makes the file durable, and moves it to `path`.
    fn replace(&self, merge: &PartitionMerge<'_>, runs: Vec<Run>, path: &Path) -> Result<Merged, LoadError> {
        let PartitionMerge { table, partition, applied_part, run_id, .. } = *merge;
        let stem = partition.map_or_else(|| "all".to_owned(), |partition| partition.first_day.to_string());
        // The new file is written outside of the table's folder, because some readers read every file there as data.
        let scratch = self.root.scratch().join(format!("{}.{stem}", table.name));
        let new_file = self.root.scratch().join(format!("{}.{stem}.parquet", table.name));
        let notes = Notes { applied_part, identity: self.identity, run_id };
        let target = Target { table, partition_by: self.root.partition_by(), partition, notes };
        self.disk.step("write", &new_file)?;
        let rows = RunWriter::new(target, scratch, self.limits).write(runs, &new_file)?;
        self.disk.sync(&new_file)?;
        self.move_into_place(&new_file, path)?;
        Ok(Merged::Replaced(FooterNotes { applied_part, rows }))
    }

    /// Moves a run that is the complete partition into the table. The run was made durable with its part.
    fn move_run(&self, run: &Path, path: &Path) -> Result<Merged, LoadError> {
        let footer = read_footer(self.root, run)?;
        self.move_into_place(run, path)?;
        Ok(Merged::Replaced(footer))
    }

    /// Renames a file to `path` and creates the folder of the partition if it is missing.
    fn move_into_place(&self, file: &Path, path: &Path) -> Result<(), LoadError> {
        if let Some(folder) = path.parent() {
            self.disk.create_folder(folder)?;
        }
        self.disk.rename(file, path)
    }

    /// Removes the file of a partition without rows. After a kill, the repeated publish merges this partition again,
    /// and finds no rows again.
    fn remove(&self, path: &Path) -> Result<Merged, LoadError> {
        self.disk.remove_file(path)?;
        // An empty folder that cannot be removed does no harm.
        let _ = path.parent().map(std::fs::remove_dir);
        Ok(Merged::Removed)
    }
}
