//! The list of warehouses that users can configure.

use std::{collections::BTreeMap, path::PathBuf};

use super::{Location, named::named};

/// A kind of warehouse. A run writes the configured warehouses in this order, and readers prefer the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WarehouseKind {
    /// A DuckDB file.
    DuckDb,
    /// A folder of Parquet files, on this machine or in a bucket.
    Parquet,
}

named! {
    /// Returns the name in the checkpoints and in results, which is also the key under `[warehouse]` and the flag.
    WarehouseKind { DuckDb => "duckdb", Parquet => "parquet" }
}

/// The location of each configured warehouse.
pub type WarehouseLocations = BTreeMap<WarehouseKind, Location>;

/// A path for each kind of warehouse.
pub type WarehousePaths = BTreeMap<WarehouseKind, PathBuf>;

impl WarehouseKind {
    /// Returns the help of the flag with the path.
    pub fn help(self) -> &'static str {
        match self {
            WarehouseKind::DuckDb => "DuckDB file of the warehouse",
            WarehouseKind::Parquet => "Folder of the Parquet warehouse, or s3://, gs:// or az://BUCKET/FOLDER",
        }
    }

    /// Returns the words that stand before the path in a message.
    pub fn noun(self) -> &'static str {
        match self {
            WarehouseKind::DuckDb => "the DuckDB file",
            WarehouseKind::Parquet => "the Parquet files in",
        }
    }

    /// Returns true if a warehouse of this kind is a folder of files that others may read. The folder of recordings is
    /// then in this folder by default.
    pub fn is_folder(self) -> bool {
        match self {
            WarehouseKind::DuckDb => false,
            WarehouseKind::Parquet => true,
        }
    }

    /// Returns the locations of one warehouse of this kind.
    pub fn at(self, location: impl Into<Location>) -> WarehouseLocations {
        WarehouseLocations::from([(self, location.into())])
    }

    /// Returns the flags of all kinds, each with `suffix`, joined by "or".
    pub fn flags(suffix: &str) -> String {
        WarehouseKind::ALL.map(|kind| format!("--{}{suffix}", kind.name())).join(" or ")
    }
}
