//! Limits of memory and of open files. Tests set them low.

/// Limits of a store. They never change what it reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Runs that one merge reads at once. Each takes a page of each column in memory.
    pub(super) open_runs_max: usize,
    /// Bytes of rows in merges, for all threads together.
    pub(super) merge_bytes_max: usize,
    /// Bytes of rows that are sorted at once if a file is not in order.
    pub(super) sort_bytes_max: usize,
    /// Removed keys in memory: 32 to 64 bytes each.
    pub(super) removed_keys_max: usize,
    /// Rows in the partition cache for each table: about 100 bytes each.
    pub(super) cached_rows_max: usize,
}

impl Limits {
    /// The limits for this much memory.
    pub(super) fn for_memory(memory_limit_bytes: u64) -> Self {
        let memory_limit = usize::try_from(memory_limit_bytes).unwrap_or(usize::MAX);
        Self {
            open_runs_max: 16,
            // The rest is for the writers of files, and for rows.
            merge_bytes_max: (memory_limit / 4).min(160 << 20),
            sort_bytes_max: (memory_limit / 8).min(32 << 20),
            removed_keys_max: 500_000,
            cached_rows_max: 250_000,
        }
    }

    /// The same memory, divided among parallel merges.
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
