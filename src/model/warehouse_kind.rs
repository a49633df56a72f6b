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
    /// A DuckLake: Parquet files with a catalog in a file or in PostgreSQL.
    DuckLake,
    /// A schema of a PostgreSQL database.
    Postgres,
    /// A namespace of an Iceberg REST catalog.
    Iceberg,
}

named! {
    /// Returns the name in the checkpoints and in results, which is also the key under `[warehouse]` and the flag.
    WarehouseKind {
        DuckDb => "duckdb",
        Parquet => "parquet",
        DuckLake => "ducklake",
        Postgres => "postgres",
        Iceberg => "iceberg",
    }
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
            WarehouseKind::DuckLake => "DuckLake: its catalog file, or postgres://HOST/DATABASE?data=FOLDER",
            WarehouseKind::Postgres => "Schema of a PostgreSQL database: postgres://HOST/DATABASE?schema=NAME",
            WarehouseKind::Iceberg => "Iceberg REST catalog: https://HOST?warehouse=NAME&namespace=NAME",
        }
    }

    /// Returns the words that stand before the path in a message.
    pub fn noun(self) -> &'static str {
        match self {
            WarehouseKind::DuckDb => "the DuckDB file",
            WarehouseKind::Parquet => "the Parquet files in",
            WarehouseKind::DuckLake => "the DuckLake",
            WarehouseKind::Postgres => "the PostgreSQL schema",
            WarehouseKind::Iceberg => "the Iceberg namespace",
        }
    }

    /// Returns true if a warehouse of this kind is a folder of files that others may read. The folder of recordings is
    /// then in this folder by default.
    pub fn is_folder(self) -> bool {
        matches!(self, WarehouseKind::Parquet)
    }

    /// Returns the locations of one warehouse of this kind.
    pub fn at(self, location: impl Into<Location>) -> WarehouseLocations {
        WarehouseLocations::from([(self, location.into())])
    }

    /// Returns the flags of the kinds that need no other program, each with `suffix`, joined by "or".
    pub fn flags(suffix: &str) -> String {
        [WarehouseKind::DuckDb, WarehouseKind::Parquet].map(|kind| format!("--{}{suffix}", kind.name())).join(" or ")
    }
}
