//! Opens warehouses. Only this file chooses between the kinds of stores.

use std::path::{Path, PathBuf};

use ::duckdb::Connection;

use super::{
    ENGINE_BYTES_MIN, EngineOptions, FullTextSearch, Identity, LoadError, LockPatience, ParquetOptions, PartitionBy,
    ReaderCopy, StartedEngine, Warehouse,
    parquet_views::{PARQUET_CATALOG, ParquetViews},
    replace,
    store::{
        Store,
        duckdb::{self, Claim, DuckDbOptions, DuckDbStore},
        parquet::{self, ParquetStore},
    },
};
use crate::{
    files::{self, FileError},
    model::{Failpoints, WarehouseKind},
};

/// A configured warehouse.
#[derive(Clone, Debug)]
pub struct Place {
    pub kind: WarehouseKind,
    /// The path of the file or folder. The warehouse exists if something is at the path.
    pub path: PathBuf,
    pub options: WarehouseOptions,
}

/// The options of all kinds of warehouses. A kind ignores those of other kinds.
#[derive(Clone, Debug, Default)]
pub struct WarehouseOptions {
    /// The copy for readers; `None` for no copy.
    pub copy: Option<ReaderCopy>,
    /// The settings of DuckDB's search index.
    pub search: FullTextSearch,
    pub partition_by: PartitionBy,
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
    /// Returns the name of the kind.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Returns the path as the checkpoints store it, like [`Warehouse::location`].
    pub fn location(&self) -> String {
        let path = match self.kind {
            WarehouseKind::DuckDb => self.path.clone(),
            WarehouseKind::Parquet => self.path.canonicalize().unwrap_or_else(|_| self.path.clone()),
        };
        path.display().to_string()
    }

    /// Returns the folders in which a run creates files, except partitions of Parquet tables. Some may be missing.
    pub fn folders(&self) -> Vec<PathBuf> {
        match self.kind {
            WarehouseKind::DuckDb => [&self.path]
                .into_iter()
                .chain(self.options.copy.as_ref().map(|copy| &copy.path))
                .map(|file| files::folder_of(file).to_owned())
                .collect(),
            WarehouseKind::Parquet => {
                let copy = self.options.copy.as_ref().map(|copy| copy.path.clone());
                parquet::folders(&self.path).into_iter().chain(copy).collect()
            }
        }
    }

    /// Returns all files that may contain texts of the warehouse, in groups with names.
    pub fn files(&self) -> Result<Vec<(&'static str, Vec<PathBuf>)>, FileError> {
        let copy = self.options.copy.as_ref().map(|copy| copy.path.as_path());
        let (own, copied) = match self.kind {
            WarehouseKind::DuckDb => {
                (files::files_beside(&self.path)?, copy.map(|copy| Ok(("publish", files::files_beside(copy)?))))
            }
            WarehouseKind::Parquet => {
                (files::files_below(&self.path)?, copy.map(|copy| Ok(("publish parquet", files::files_below(copy)?))))
            }
        };
        std::iter::once(Ok((self.name(), own))).chain(copied).collect()
    }

    /// Returns the least memory in bytes that the store can work with.
    pub fn memory_bytes_min(kind: WarehouseKind) -> u64 {
        match kind {
            WarehouseKind::DuckDb => ENGINE_BYTES_MIN,
            WarehouseKind::Parquet => 0,
        }
    }

    /// Starts the engine of the store, for [`Place::open`]. The warehouse is not opened, so no lock is needed. Returns
    /// `None` if the store has no engine.
    pub fn start_engine(&self, memory_limit_bytes: u64, threads: u32) -> Result<Option<StartedEngine>, LoadError> {
        match self.kind {
            WarehouseKind::DuckDb => start_engine(&self.path, memory_limit_bytes, threads).map(Some),
            WarehouseKind::Parquet => Ok(None),
        }
    }

    /// Replaces the warehouse by the rebuilt one at [`build_path`](super::build_path).
    pub fn replace(&self) -> Result<(), FileError> {
        match self.kind {
            WarehouseKind::DuckDb => replace::replace_file(&self.path),
            WarehouseKind::Parquet => replace::replace_folder(&self.path),
        }
    }

    /// Removes what a killed replay left at [`build_path`](super::build_path), and undoes a replacement that was
    /// interrupted.
    pub fn clear_leftovers(&self) -> Result<(), FileError> {
        match self.kind {
            WarehouseKind::DuckDb => replace::clear_built_file(&self.path),
            WarehouseKind::Parquet => replace::clear_folder(&self.path),
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
        Ok(Warehouse::new(self.name(), self.location(), store, opening.buffer_bytes_max, opening.threads))
    }

    fn parquet_options(&self, opening: &Opening) -> ParquetOptions {
        let Opening { memory_limit_bytes, threads, .. } = *opening;
        ParquetOptions { partition_by: self.options.partition_by, memory_limit_bytes, threads }
    }

    fn open_store(&self, opening: &Opening, engine: Option<StartedEngine>) -> Result<Box<dyn Store>, LoadError> {
        let Opening { identity, patience, failpoints, .. } = opening;
        let path = &self.path;
        match self.kind {
            WarehouseKind::DuckDb => {
                let engine = match engine {
                    Some(engine) => engine,
                    None => start_engine(path, opening.memory_limit_bytes, opening.threads)?,
                };
                let (patience, failpoints) = (patience.clone(), failpoints.clone());
                let WarehouseOptions { copy, search, .. } = self.options.clone();
                let options = DuckDbOptions { path, identity, patience, failpoints, copy, search };
                Ok(Box::new(DuckDbStore::open(options, engine)?))
            }
            WarehouseKind::Parquet => {
                let options = self.parquet_options(opening);
                let store = ParquetStore::open(path, identity, &options, patience, failpoints)?;
                Ok(Box::new(store.with_copy(self.options.copy.clone())))
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
        let path = &self.path;
        let store: Box<dyn Store> = match self.kind {
            WarehouseKind::DuckDb => {
                let (memory_limit_bytes, threads) = (*memory_limit_bytes, *threads);
                let options = EngineOptions { memory_limit_bytes, threads, temp_directory: spill_folder };
                Box::new(DuckDbStore::open_to_compare(path, identity, &options)?)
            }
            WarehouseKind::Parquet => {
                Box::new(ParquetStore::open_to_compare(path, identity, &self.parquet_options(opening))?)
            }
        };
        Ok(Warehouse::new(self.name(), self.location(), store, opening.buffer_bytes_max, *threads))
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

/// A warehouse that a reader has attached to its engine.
pub(super) enum Attached {
    /// The claim keeps this process from opening the DuckDB file for writing.
    DuckDb {
        _claim: Claim,
    },
    Parquet(ParquetViews),
}

/// Returns the catalog in which a reader finds the tables of a warehouse. Each kind has another catalog. DuckDB itself
/// has the catalogs `memory`, `system` and `temp`.
pub(super) fn catalog(kind: WarehouseKind) -> &'static str {
    match kind {
        WarehouseKind::DuckDb => "warehouse",
        WarehouseKind::Parquet => PARQUET_CATALOG,
    }
}

/// Attaches a warehouse to the engine of a reader, read-only. Queries look names up in the catalog `first`.
pub(super) fn attach(
    kind: WarehouseKind,
    path: &Path,
    connection: &Connection,
    first: &'static str,
) -> Result<Attached, LoadError> {
    match kind {
        WarehouseKind::DuckDb => {
            let claim = duckdb::attach_for_reading(connection, path, catalog(kind))?;
            Ok(Attached::DuckDb { _claim: claim })
        }
        WarehouseKind::Parquet => ParquetViews::attach(connection, path, first).map(Attached::Parquet),
    }
}

/// Starts an engine for the DuckDB file at `path`. The engine spills to a folder next to the file.
fn start_engine(path: &Path, memory_limit_bytes: u64, threads: u32) -> Result<StartedEngine, LoadError> {
    let temp_directory = files::with_suffix(path, ".spill");
    StartedEngine::start(EngineOptions { memory_limit_bytes, threads, temp_directory })
}
