//! Opens warehouses. Only this file chooses between the kinds of stores.

use std::path::{Path, PathBuf};

use super::{
    EngineOptions, FullTextSearch, Identity, LoadError, LockPatience, ParquetOptions, PartitionBy, StartedEngine,
    Warehouse,
    store::{
        Store,
        duckdb::{DuckDbOptions, DuckDbStore},
        parquet::{self, ParquetStore},
    },
};
use crate::{files, model::Failpoints};

/// The kind and path of a warehouse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A DuckDB file. `copy` is the path of the read-only copy for readers (`None` for no copy), `search` the settings
    /// of the search index.
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
    pub buffer_bytes_max: usize,
    /// Number of threads for parallel work.
    pub threads: u32,
    /// How long to wait for another process that has the warehouse open.
    pub patience: LockPatience,
    /// The failpoints at which a test can stop durable steps.
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

    /// Returns the path of the file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Place::DuckDb { path, .. } => path,
            Place::Parquet { root, .. } => root,
        }
    }

    /// Returns the folders in which a run creates files, except partitions of Parquet tables. Some may be missing.
    pub fn folders(&self) -> Vec<PathBuf> {
        match self {
            Place::DuckDb { path, copy, .. } => {
                [path].into_iter().chain(copy).map(|file| files::folder_of(file).to_owned()).collect()
            }
            Place::Parquet { root, .. } => parquet::folders(root),
        }
    }

    /// Returns the same warehouse at another path.
    #[must_use]
    pub fn at(self, other: PathBuf) -> Self {
        match self {
            Place::DuckDb { copy, search, .. } => Place::DuckDb { path: other, copy, search },
            Place::Parquet { partition_by, .. } => Place::Parquet { root: other, partition_by },
        }
    }

    /// Opens the warehouse for writing, and creates the warehouse if it is missing. A DuckDB file uses `engine`, an
    /// engine that was started before; `None` starts an engine. Parquet ignores `engine`.
    ///
    /// # Errors
    /// `Locked` if another process has the warehouse open; `OtherIdentity`, `OtherPartition`, `Newer`, `NotOurs` or
    /// `Damaged` if the file or folder is not this warehouse or cannot be used.
    pub fn open(&self, opening: &Opening, engine: Option<StartedEngine>) -> Result<Warehouse, LoadError> {
        let store = self.open_store(opening, engine)?;
        Ok(Warehouse::new(store, opening.buffer_bytes_max, opening.threads))
    }

    /// Opens the store of the warehouse for writing.
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
                let options = DuckDbOptions { path, identity, patience, failpoints, copy, search };
                Ok(Box::new(DuckDbStore::open(options, engine)?))
            }
            Place::Parquet { root, partition_by } => {
                let options = parquet_options(*partition_by, opening);
                Ok(Box::new(ParquetStore::open(root, identity, &options, patience, failpoints)?))
            }
        }
    }

    /// Opens the warehouse read-only for `verify`, which compares it with the service. The warehouse's folder may be
    /// read-only. DuckDB spills data beyond its memory limit to `spill_folder`, which Parquet does not use.
    ///
    /// # Errors
    /// As [`Place::open`]; `Missing` if there is no warehouse; `Unfinished` if a publish of a Parquet warehouse was
    /// interrupted.
    pub fn open_to_compare(&self, opening: &Opening, spill_folder: PathBuf) -> Result<Warehouse, LoadError> {
        let Opening { identity, memory_limit_bytes, threads, .. } = opening;
        let store: Box<dyn Store> = match self {
            Place::DuckDb { path, .. } => {
                let (memory_limit_bytes, threads) = (*memory_limit_bytes, *threads);
                let options = EngineOptions { memory_limit_bytes, threads, temp_directory: spill_folder };
                Box::new(DuckDbStore::open_to_compare(path, identity, &options)?)
            }
            Place::Parquet { root, partition_by } => {
                Box::new(ParquetStore::open_to_compare(root, identity, &parquet_options(*partition_by, opening))?)
            }
        };
        Ok(Warehouse::new(store, opening.buffer_bytes_max, *threads))
    }

    /// Binds the warehouse, which is bound to `from`, to the identity of `opening`. Returns false, and changes nothing,
    /// if the warehouse is bound to the identity of `opening` already. Fails if the warehouse is bound to a third
    /// identity.
    pub fn rebind(&self, from: &Identity, opening: &Opening) -> Result<bool, LoadError> {
        match self.open_store(opening, None) {
            Err(LoadError::OtherIdentity { .. }) => {
                let opening_from = Opening { identity: from.clone(), ..opening.clone() };
                self.open_store(&opening_from, None)?.rebind(&opening.identity).map(|()| true)
            }
            opened => opened.map(|_| false),
        }
    }
}

/// Starts an engine for the DuckDB file at `path`. The engine spills to a folder next to the file. The file is not
/// opened, so no lock is needed.
pub fn start_engine(path: &Path, memory_limit_bytes: u64, threads: u32) -> Result<StartedEngine, LoadError> {
    let mut spill = path.as_os_str().to_owned();
    spill.push(".spill");
    StartedEngine::start(EngineOptions { memory_limit_bytes, threads, temp_directory: spill.into() })
}

fn parquet_options(partition_by: PartitionBy, opening: &Opening) -> ParquetOptions {
    ParquetOptions { partition_by, memory_limit_bytes: opening.memory_limit_bytes, threads: opening.threads }
}
