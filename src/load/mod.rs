//! Applies scans to warehouses. Knows no network, no files of pages and no configuration.
//!
//! A scan's pages go to the [`stage`](Stage) of an in-memory [`Engine`]; [`diff()`] compares the stage with the warehouse and
//! leaves what must change as a [`Delta`]; the destination applies the delta in one transaction. Stage and diff are the same
//! for every destination.

#[cfg(test)]
mod conformance;
mod destination;
mod diff;
mod duckdb;
mod engine;
mod error;
mod json_rows;
mod ledger;
mod lock_wait;
mod parquet;
mod pending;
mod people;
mod reader;
mod rows_file;
mod stage;

pub use self::duckdb::DuckDbDestination;
pub use destination::{
    Applied, CommitOptions, Destination, EventRows, Identity, LedgerEntry, Replacement, RowCounts, RunRecord,
    VanishPolicy,
};
pub use diff::{
    Delta, DeltaRows, Difference, Differences, Example, Fill, TableDelta, Targets, TimeBounds, diff, differences,
};
pub use engine::{Engine, EngineOptions, StartedEngine};
pub use error::LoadError;
pub use json_rows::{json_rows, read_parquet_file};
pub use lock_wait::LockPatience;
pub use parquet::{ParquetDestination, ParquetOptions, PartitionBy};
pub use people::{ErasureRecord, Facts, Mention, PeopleFound, Searched};
pub use reader::{QueryResult, Reader, ReaderLimits, Streamed, in_place, statements};
pub use rows_file::ParquetRows;
pub use stage::Stage;
