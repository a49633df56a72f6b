//! Applies scans to warehouses, and does all other work on the rows of warehouses. Uses no network, no page files and
//! no configuration.
//!
//! A [`Warehouse`] is a store ([`store`]: a DuckDB file, a folder of Parquet files, or an attached catalog) with
//! operations on its rows. [`scan`] compares a scan with the stored rows and writes the differences. [`tables`] reads
//! and writes rows that are not records of a scan, such as the ledger and webhook events. [`persons`] finds and removes
//! people.

mod analyst_copy;
#[cfg(test)]
mod conformance;
mod contract;
mod copy_age;
mod engine;
mod error;
mod extension;
mod interface;
mod json_rows;
mod kept_files;
mod lock_wait;
mod open;
mod persons;
mod pseudonyms;
mod reader;
mod replace;
mod scan;
mod store;
mod table_views;
mod tables;
mod warehouse;

pub use analyst_copy::{AnalystCopy, CopyContent, Pseudonyms, ReaderCopy};
pub use copy_age::CopyAge;
use engine::ENGINE_BYTES_MIN;
pub use engine::{EngineOptions, StartedEngine};
pub use error::LoadError;
pub use extension::FullTextSearch;
pub use interface::{
    Applied, CommitFindings, CommitOptions, EventRows, Identity, LedgerEntry, ParseAgain, Replacement, RowCounts,
    RunRecord, VanishPolicy,
};
pub use json_rows::{ExportedRows, ParquetRows, json_rows, read_parquet_file};
pub use kept_files::KeptFiles;
pub use lock_wait::{LockPatience, WhileLocked};
pub use open::{BucketCheck, OldVersions, Opening, Place, WarehouseOptions};
pub use persons::{CoOccurrence, LocationResult, PeopleFound};
pub use pseudonyms::PseudonymKey;
pub use reader::{
    AnswerRange, QueryResult, Reader, ReaderLimits, RowFormat, RowsQuery, Streamed, in_place, statements,
};
pub use replace::{build_path, clear_built_file};
pub use scan::{Difference, Differences, Example, Pages, Wanted};
pub use store::{NightEstimate, ParquetOptions, PartitionBy, TimeRange};
pub use tables::{
    ErasureRecord, LostRecordings, RecordingOutcome, Stamp, StoredRecording, WantedRecording, WantedRecordings,
};
pub use warehouse::Warehouse;
