//! Merges the runs (files with rows) of a partition into one sorted file, with limits of memory and of open files. Runs
//! that are not sorted are sorted first.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;

use super::{
    merge::{Merge, OpenRun},
    options::Limits,
    partition::{Partition, PartitionBy},
    rows_reader::{Pick, RowsReader, read_picked},
    sorted_rows::SortedRows,
    table_file::{Notes, TableFile},
};
use crate::{load::LoadError, schema::Table};

/// A file with rows of one partition that are to be merged: the partition's file, a file of a layer, or an intermediate
/// file.
pub(super) struct Run {
    pub(super) path: PathBuf,
    /// The rows of the file that are merged.
    pub(super) pick: Pick,
    /// Number of rows in the file.
    pub(super) file_rows: usize,
    /// True if the footer says that the rows are in the order of the table.
    pub(super) is_in_order: bool,
    /// Memory for reading the file, in bytes.
    buffer_bytes: usize,
    /// True for a file of an intermediate merge: dropping the run removes the file.
    is_intermediate: bool,
}

impl Run {
    /// Creates a run of the picked rows of a file, which `reader` has open.
    pub(super) fn new(table: &Table, path: &Path, reader: &RowsReader, pick: Pick) -> Self {
        Self {
            path: path.to_owned(),
            pick,
            file_rows: reader.all().count(),
            is_in_order: reader.is_in_order(table),
            buffer_bytes: reader.buffer_bytes(),
            is_intermediate: false,
        }
    }

    /// Creates a run of all rows of an intermediate file. Dropping the run removes the file.
    fn intermediate(table: &Table, path: &Path) -> Result<Self, LoadError> {
        let reader = RowsReader::open(path)?;
        let pick = reader.all();
        let mut run = Self::new(table, path, &reader, pick);
        run.is_intermediate = true;
        Ok(run)
    }

    /// Returns the number of rows that are merged.
    pub(super) fn rows(&self) -> usize {
        self.pick.count()
    }

    /// Returns true if all rows of the file are merged.
    pub(super) fn has_all_rows(&self) -> bool {
        self.rows() == self.file_rows
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.is_intermediate {
            // If this fails, clearing the scratch folder removes the file.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The partition whose rows are written, and the metadata for the footers of the new file and of intermediate files.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) table: &'static Table,
    pub(super) partition_by: PartitionBy,
    /// The partition of the written rows; `None` for a table without partitions.
    pub(super) partition: Option<Partition>,
    pub(super) notes: Notes<'a>,
}

/// Merges the runs of one partition into a file, with intermediate files if there are too many runs or a run is not
/// sorted.
pub(super) struct RunWriter<'a> {
    target: Target<'a>,
    /// Start of the paths of intermediate files. A number and an extension follow.
    scratch: PathBuf,
    limits: Limits,
    /// Number of intermediate files so far, which numbers the next one.
    files: usize,
}

impl<'a> RunWriter<'a> {
    /// Prepares a merge into `target`. The paths of intermediate files begin with `scratch`.
    pub(super) fn new(target: Target<'a>, scratch: PathBuf, limits: Limits) -> Self {
        Self { target, scratch, limits, files: 0 }
    }

    /// Merges runs, oldest first, into one sorted file and returns its number of rows. If too many runs would be open,
    /// neighbouring runs are merged into intermediate files first. The file is not made durable.
    pub(super) fn write(&mut self, runs: Vec<Run>, path: &Path) -> Result<u64, LoadError> {
        let mut in_order = Vec::new();
        for run in runs {
            if run.is_in_order {
                in_order.push(run);
            } else {
                in_order.extend(self.sorted_runs(&run)?);
            }
        }
        let mut runs = in_order;
        let open_runs_max = self.open_runs_max(&runs);
        while runs.len() > open_runs_max {
            let width = open_runs_max.min(runs.len() - open_runs_max + 1);
            let first = fewest_rows(&runs, width);
            let path = self.intermediate_path();
            self.merge(&runs.drain(first..first + width).collect::<Vec<_>>(), &path)?;
            runs.insert(first, Run::intermediate(self.target.table, &path)?);
        }
        self.merge(&runs, path)
    }

    /// Merges sorted runs, oldest first, into one file, with all runs open together. Returns the number of rows.
    fn merge(&self, runs: &[Run], path: &Path) -> Result<u64, LoadError> {
        let Target { table, notes, .. } = &self.target;
        let open = |run: &'_ Run| RowsReader::open(&run.path);
        let readers = runs.iter().map(open).collect::<Result<Vec<_>, _>>()?;
        let open: Vec<_> = readers.iter().zip(runs).map(|(reader, run)| OpenRun { reader, pick: &run.pick }).collect();
        let schema = table.parquet_schema();
        let mut merge = Merge::of(table, &schema, &open)?;
        let mut file = TableFile::create(table, path, notes)?;
        while let Some(chunk) = merge.next_chunk()? {
            file.write(&chunk)?;
        }
        file.finish()
    }

    /// Splits an unsorted run into pieces of about [`Limits::sort_bytes_max`], and writes each as a sorted run in an
    /// intermediate file.
    fn sorted_runs(&mut self, run: &Run) -> Result<Vec<Run>, LoadError> {
        let (mut runs, mut rows, mut bytes) = (Vec::new(), Vec::new(), 0);
        let reader = RowsReader::open(&run.path)?;
        for batch in read_picked(&reader, &run.pick, &self.target.table.parquet_schema()) {
            let batch = batch?;
            bytes += batch.get_array_memory_size();
            rows.push(batch);
            if bytes >= self.limits.sort_bytes_max {
                runs.extend(self.sorted_run(&std::mem::take(&mut rows))?);
                bytes = 0;
            }
        }
        runs.extend(self.sorted_run(&rows)?);
        Ok(runs)
    }

    /// Sorts rows in memory and writes the rows of the partition as an intermediate run. Returns `None` if no row
    /// belongs to the partition.
    fn sorted_run(&mut self, rows: &[RecordBatch]) -> Result<Option<Run>, LoadError> {
        let Target { table, partition_by, partition, notes } = self.target;
        let sorted = SortedRows::of(table, partition_by, rows)?;
        let of_partition = sorted.partitions()?.into_iter().find(|rows| rows.partition == partition);
        let Some(of_partition) = of_partition else { return Ok(None) };
        let path = self.intermediate_path();
        sorted.write(&of_partition, &path, &notes)?;
        Run::intermediate(table, &path).map(Some)
    }

    fn intermediate_path(&mut self) -> PathBuf {
        self.files += 1;
        let mut name = self.scratch.clone().into_os_string();
        name.push(format!(".{}.parquet", self.files));
        name.into()
    }

    /// Returns how many of these runs may be open together, by the limits of memory and of open files; at least 2.
    fn open_runs_max(&self, runs: &[Run]) -> usize {
        let largest_buffer = runs.iter().map(|run| run.buffer_bytes).max().unwrap_or(0);
        (self.limits.merge_bytes_max / largest_buffer.max(1)).min(self.limits.open_runs_max).max(2)
    }
}

/// Returns the index of the first of the `width` neighbouring runs that together have the fewest rows. Only
/// neighbouring runs are merged, because the runs must stay in the order of their age.
fn fewest_rows(runs: &[Run], width: usize) -> usize {
    let rows = |neighbours: &[Run]| neighbours.iter().map(Run::rows).sum::<usize>();
    let fewest = runs.windows(width).enumerate().min_by_key(|(_, neighbours)| rows(neighbours));
    fewest.map_or(0, |(first, _)| first)
}
