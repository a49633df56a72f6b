//! Opens warehouses: the one place that knows which stores there are.

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
use crate::model::Steps;

/// Where a warehouse is, and of which kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A DuckDB file; `copy` is where a copy of it is left for readers, `search` how its answers are searched.
    DuckDb { path: PathBuf, copy: Option<PathBuf>, search: FullTextSearch },
    /// A folder of Parquet files.
    Parquet { root: PathBuf, partition_by: PartitionBy },
}

/// What opening a warehouse takes beside its place.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Whose it is.
    pub identity: Identity,
    /// Memory that its store may take, in bytes.
    pub memory_limit_bytes: u64,
    /// Bytes of rows that may wait to be written.
    pub waiting_bytes_max: usize,
    /// Threads for what gains by them.
    pub threads: u32,
    /// How long to wait for one that another process has open.
    pub patience: LockPatience,
    /// Who watches its durable steps.
    pub steps: Steps,
}

impl Place {
    /// "duckdb" or "parquet".
    pub fn name(&self) -> &'static str {
        match self {
            Place::DuckDb { .. } => "duckdb",
            Place::Parquet { .. } => "parquet",
        }
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        match self {
            Place::DuckDb { path, .. } => path,
            Place::Parquet { root, .. } => root,
        }
    }

    /// The warehouse at another path.
    #[must_use]
    pub fn at(self, other: PathBuf) -> Self {
        match self {
            Place::DuckDb { copy, search, .. } => Place::DuckDb { path: other, copy, search },
            Place::Parquet { partition_by, .. } => Place::Parquet { root: other, partition_by },
        }
    }

    /// Opens it for writing; makes it if it is not there. `engine`: one that was started before, for a DuckDB file.
    ///
    /// # Errors
    /// `Locked` if another process has it open, `OtherIdentity`, `Newer`,
    /// `NotOurs` or `OtherPartition` if it is not this warehouse.
    pub fn open(&self, opening: &Opening, engine: Option<StartedEngine>) -> Result<Warehouse, LoadError> {
        let store: Box<dyn Store> = match self {
            Place::DuckDb { path, copy, search } => {
                Box::new(open_duckdb(path, copy.as_ref(), search, opening, engine)?)
            }
            Place::Parquet { root, partition_by } => Box::new(open_parquet(root, *partition_by, opening)?),
        };
        Ok(Warehouse::new(store, opening.waiting_bytes_max, opening.threads))
    }

    /// Opens it to compare: for reading alone, so that it can lie where nothing may be written.
    /// What does not fit into memory goes to `spill`.
    ///
    /// # Errors
    /// As [`Place::open`]; `Missing` if there is none.
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

    /// Writes whose it is, whatever it was. Whether it was bound to another identity: it is opened as that one's if it
    /// is not `opening.identity`'s already.
    pub fn rebind(&self, from: &Identity, opening: &Opening) -> Result<bool, LoadError> {
        let as_of = |identity: &Identity| Opening { identity: identity.clone(), ..opening.clone() };
        match self {
            Place::DuckDb { path, copy, search } => {
                let open = |identity: &Identity| open_duckdb(path, copy.as_ref(), search, &as_of(identity), None);
                let opened = bound_to(from, opening, open)?;
                opened.map(|mut store| store.rebind(&opening.identity)).transpose().map(|bound| bound.is_some())
            }
            Place::Parquet { root, partition_by } => {
                let opened = bound_to(from, opening, |identity| open_parquet(root, *partition_by, &as_of(identity)))?;
                opened.map(|mut store| store.rebind(&opening.identity)).transpose().map(|bound| bound.is_some())
            }
        }
    }
}

/// An engine for a DuckDB file, which spills beside it. Touches no file:
/// whoever may not yet open the warehouse can start it.
pub fn start_engine(path: &Path, memory_limit_bytes: u64, threads: u32) -> Result<StartedEngine, LoadError> {
    let mut spill = path.as_os_str().to_owned();
    spill.push(".spill");
    StartedEngine::start(EngineOptions { memory_limit_bytes, threads, temp_directory: spill.into() })
}

/// Opens a DuckDB file, with what the end of a run leaves of it.
fn open_duckdb(
    path: &Path,
    copy: Option<&PathBuf>,
    search: &FullTextSearch,
    opening: &Opening,
    engine: Option<StartedEngine>,
) -> Result<DuckDbStore, LoadError> {
    let engine = match engine {
        Some(engine) => engine,
        None => start_engine(path, opening.memory_limit_bytes, opening.threads)?,
    };
    let (identity, patience, steps) = (&opening.identity, opening.patience.clone(), opening.steps.clone());
    DuckDbStore::open(
        DuckDbPlace { path, identity, patience, steps, copy: copy.cloned(), search: search.clone() },
        engine,
    )
}

fn open_parquet(root: &Path, partition_by: PartitionBy, opening: &Opening) -> Result<ParquetStore, LoadError> {
    let options = parquet_options(partition_by, opening);
    ParquetStore::open_watched(root, &opening.identity, &options, &opening.patience, &opening.steps)
}

fn parquet_options(partition_by: PartitionBy, opening: &Opening) -> ParquetOptions {
    ParquetOptions { partition_by, memory_limit_bytes: opening.memory_limit_bytes, threads: opening.threads }
}

/// What is bound to `from`, opened; `None` if it is bound to the identity of `opening` already.
fn bound_to<T>(
    from: &Identity,
    opening: &Opening,
    open: impl Fn(&Identity) -> Result<T, LoadError>,
) -> Result<Option<T>, LoadError> {
    match open(&opening.identity) {
        Err(LoadError::OtherIdentity { .. }) => open(from).map(Some),
        opened => opened.map(|_| None),
    }
}
