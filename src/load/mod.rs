//! Applies scans to warehouses. Knows no network, no files of pages and no configuration.

mod destination;
mod error;

pub use destination::{Applied, CommitOptions, Destination, Identity, LedgerEntry, RowCounts, RunRecord, VanishPolicy};
pub use error::LoadError;
