//! Applies scans to warehouses. Knows no network, no files of pages and no configuration.
//!
//! A scan's pages go to the [`stage`](Stage) of an in-memory [`Engine`]; [`diff`] compares the stage with the warehouse and
//! leaves what must change as a [`Delta`]; the destination applies the delta in one transaction. Stage and diff are the same
//! for every destination.

mod destination;
mod diff;
mod engine;
mod error;
mod parquet;
mod stage;

pub use destination::{Applied, CommitOptions, Destination, Identity, LedgerEntry, RowCounts, RunRecord, VanishPolicy};
pub use diff::{Delta, DeltaRows, TableDelta, Targets, TimeBounds, diff};
pub use engine::{Engine, EngineOptions};
pub use error::LoadError;
pub use parquet::{ParquetDestination, ParquetOptions, PartitionBy};
pub use stage::Stage;
