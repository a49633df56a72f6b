//! Opens warehouses. This is the only file that knows which stores there are.

use std::path::{Path, PathBuf};

use super::{
    EngineOptions, FullTextSearch, Identity, LoadError, LockPatience, ParquetOptions, PartitionBy, StartedEngine,
    Warehouse,
    store::{
        Store,
        duckdb::{DuckDbPlace, DuckDbStore},
        parquet::ParquetStore,
    },
};
use crate::model::Failpoints;

/// The kind and path of a warehouse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A DuckDB file. `copy` is the path of the copy for readers, `search` the full-text search.
    DuckDb { path: PathBuf, copy: Option<PathBuf>, search: FullTextSearch },
    /// A folder of Parquet files.
    Parquet { root: PathBuf, partition_by: PartitionBy },
}

/// How to open a warehouse.
#[derive(Clone, Debug)]
pub struct Opening {
    /// The service and environment that the warehouse belongs to.
    pub identity: Identity,
    /// Memory that the store may use, in bytes.
    pub memory_limit_bytes: u64,
    /// Bytes of changed rows that are buffered before the store writes them.
    pub waiting_bytes_max: usize,
    /// Threads for work that several threads speed up.
    pub threads: u32,
    /// How long to wait while another process has the warehouse open.
    pub patience: LockPatience,
    /// The failpoints before durable steps.
    pub failpoints: Failpoints,
}

impl Place {
    /// "duckdb" or "parquet".
    pub fn name(&self) -> &'static str {
        match self {
            Place::DuckDb { .. } => "duckdb",
            Place::Parquet { .. } => "parquet",
        }
    }

    /// The path of the file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Place::DuckDb { path, .. } => path,
            Place::Parquet { root, .. } => root,
        }
    }

    /// The same warehouse at another path.
    #[must_use]
    pub fn at(self, other: PathBuf) -> Self {
        match self {
            Place::DuckDb { copy, search, .. } => Place::DuckDb { path: other, copy, search },
            Place::Parquet { partition_by, .. } => Place::Parquet { root: other, partition_by },
        }
    }

    /// Opens the warehouse for writing; creates it if it is missing.
    /// `engine` is one that was started before, for a DuckDB file.
    ///
    /// # Errors
    /// `Locked` if another process has it open, `OtherIdentity`, `Newer`,
    /// `NotOurs` or `OtherPartition` if it is not this warehouse.
    pub fn open(&self, opening: &Opening, engine: Option<StartedEngine>) -> Result<Warehouse, LoadError> {
        let store = self.open_store(opening, engine)?;
        Ok(Warehouse::new(store, opening.waiting_bytes_max, opening.threads))
    }

    fn open_store(&self, opening: &Opening, engine: Option<StartedEngine>) -> Result<Box<dyn Store>, LoadError> {
        let Opening { identity, patience, failpoints, .. } = opening;
        match self {
            Place::DuckDb { path, copy, search } => {
                let engine = match engine {
                    Some(engine) => engine,
                    None => start_engine(path, opening.memory_limit_bytes, opening.threads)?,
                };
                let (patience, failpoints) = (patience.clone(), failpoints.clone());
                let (copy, search) = (copy.clone(), search.clone());
                let place = DuckDbPlace { path, identity, patience, failpoints, copy, search };
                Ok(Box::new(DuckDbStore::open(place, engine)?))
            }
            Place::Parquet { root, partition_by } => {
                let options = parquet_options(*partition_by, opening);
                Ok(Box::new(ParquetStore::open(root, identity, &options, patience, failpoints)?))
            }
        }
    }

    /// Opens the warehouse read-only, also where nothing may be written. Data beyond the memory limit spills to
    /// `spill`.
    ///
    /// # Errors
    /// As [`Place::open`]; `Missing` if there is no warehouse.
    pub fn open_to_compare(&self, opening: &Opening, spill: PathBuf) -> Result<Warehouse, LoadError> {
        let Opening { identity, memory_limit_bytes, threads, .. } = opening;
        let store: Box<dyn Store> = match self {
            Place::DuckDb { path, .. } => {
                let options =
                    EngineOptions { memory_limit_bytes: *memory_limit_bytes, threads: *threads, temp_directory: spill };
                Box::new(DuckDbStore::open_to_compare(path, identity, &options)?)
            }
            Place::Parquet { root, partition_by } => {
                Box::new(ParquetStore::open_to_compare(root, identity, &parquet_options(*partition_by, opening))?)
            }
        };
        Ok(Warehouse::new(store, opening.waiting_bytes_max, *threads))
    }

    /// Binds the warehouse of `from` to the identity of `opening`.
    /// Returns false if it is bound to that identity already.
    pub fn rebind(&self, from: &Identity, opening: &Opening) -> Result<bool, LoadError> {
        match self.open_store(opening, None) {
            Err(LoadError::OtherIdentity { .. }) => {
                let as_before = Opening { identity: from.clone(), ..opening.clone() };
                self.open_store(&as_before, None)?.rebind(&opening.identity).map(|()| true)
            }
            opened => opened.map(|_| false),
        }
    }
}

/// Starts an engine for a DuckDB file, which spills next to the file. Touches no file, so no lock is needed.
pub fn start_engine(path: &Path, memory_limit_bytes: u64, threads: u32) -> Result<StartedEngine, LoadError> {
    let mut spill = path.as_os_str().to_owned();
    spill.push(".spill");
    StartedEngine::start(EngineOptions { memory_limit_bytes, threads, temp_directory: spill.into() })
}

fn parquet_options(partition_by: PartitionBy, opening: &Opening) -> ParquetOptions {
    ParquetOptions { partition_by, memory_limit_bytes: opening.memory_limit_bytes, threads: opening.threads }
}
