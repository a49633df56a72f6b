//! Options of a Parquet warehouse.

use super::partition::PartitionBy;

/// Default of [`ParquetOptions::memory_limit_bytes`].
const MEMORY_LIMIT_BYTES: u64 = 1 << 30;
/// Default of [`ParquetOptions::threads`].
const THREADS: u32 = 2;

/// The layout of a Parquet warehouse, and the resources of its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParquetOptions {
    /// Whether tables with a creation time have a partition for each month or for each day. The choice is fixed once
    /// the folder exists: opening it with another choice fails.
    pub partition_by: PartitionBy,
    /// Memory for data, in bytes. Default 1 GiB. With less memory a merge has fewer files open together, so it needs
    /// more passes over the rows.
    pub memory_limit_bytes: u64,
    /// Threads that write files in parallel, at least 1. Default 2.
    pub threads: u32,
}

impl Default for ParquetOptions {
    fn default() -> Self {
        Self { partition_by: PartitionBy::Month, memory_limit_bytes: MEMORY_LIMIT_BYTES, threads: THREADS }
    }
}
