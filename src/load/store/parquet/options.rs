//! Options of a Parquet warehouse, and the limits of memory and of open files. Tests set the limits low.

use super::partition::PartitionBy;

/// The layout of a Parquet warehouse, and the resources of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// Whether tables with a creation time have a partition for each month or for each day. The choice is fixed once
    /// the folder exists: opening it with another choice fails.
    pub partition_by: PartitionBy,
    /// Memory for data, in bytes. With less memory a merge has fewer files open together, so it needs
    /// more passes over the rows.
    pub memory_limit_bytes: u64,
    /// Threads that write files in parallel, at least 1.
    pub threads: u32,
}

/// Limits of a store. A limit changes how much work a read or a merge is, but not its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Largest number of sorted runs that one merge has open together. Each open run needs memory for a page of each
    /// column.
    pub(super) open_runs_max: usize,
    /// Memory for the open sorted runs of merges, in bytes: pages, dictionaries and decoded batches. Two runs may be
    /// open even if they need more.
    pub(super) merge_bytes_max: usize,
    /// Number of bytes of rows at which rows are sorted in memory and written to an intermediate file. Only a file that
    /// is not in order is sorted.
    pub(super) sort_bytes_max: usize,
    /// Largest number of removed keys in memory; more keys are read in batches. A key takes 32 to 64 bytes.
    pub(super) removed_keys_max: usize,
    /// Largest number of rows of one file in the partition cache, which caches at most three files. A row takes about
    /// 100 bytes.
    pub(super) cached_rows_max: usize,
}

impl Limits {
    /// Returns the limits of a store that may use this much memory.
    pub(super) fn for_memory(memory_limit_bytes: u64) -> Self {
        let memory_limit = usize::try_from(memory_limit_bytes).unwrap_or(usize::MAX);
        Self {
            open_runs_max: 16,
            // The other three quarters of the memory are for the writers of files, and for rows.
            merge_bytes_max: (memory_limit / 4).min(160 << 20),
            sort_bytes_max: (memory_limit / 8).min(32 << 20),
            removed_keys_max: 500_000,
            cached_rows_max: 250_000,
        }
    }

    /// Returns the limits of each of `workers` parallel merges that share the memory. The number of open runs is not
    /// shared: the limit holds for each merge.
    pub(super) fn shared_by(self, workers: usize) -> Self {
        let share = |bytes: usize| bytes / workers.max(1);
        Self {
            merge_bytes_max: share(self.merge_bytes_max),
            sort_bytes_max: share(self.sort_bytes_max),
            removed_keys_max: share(self.removed_keys_max),
            ..self
        }
    }
}
