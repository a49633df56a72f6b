//! Opens warehouses. Only this file chooses between the kinds of stores.

use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use ::duckdb::Connection;

use super::{
    ENGINE_BYTES_MIN, EngineOptions, FullTextSearch, Identity, KeptFiles, LoadError, LockPatience, NightEstimate,
    ParquetOptions, PartitionBy, ReaderCopy, StartedEngine, TimeRange, Warehouse, replace,
    store::{
        SharedStore, Store,
        attached::{self, AttachedOptions, AttachedStore},
        duckdb::{self, Claim, DuckDbOptions, DuckDbStore},
        parquet::{self, ParquetStore},
    },
    table_views::TableViews,
};
pub use crate::bucket::{BucketCheck, OldVersions};
use crate::{
    bucket::Bucket,
    files::{self, FileError},
    model::{BucketAddress, CatalogAddress, Failpoints, LakeCatalog, Location, ScanId, Stream, WarehouseKind},
};

/// How long to wait for a reader whose files are to be removed.
const READERS_WAIT: Duration = Duration::from_secs(60);

/// A configured warehouse.
#[derive(Clone, Debug)]
pub struct Place {
    pub kind: WarehouseKind,
    pub location: Location,
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
    /// True if several workers write the warehouse: a bucket is then locked only from the first scan of a commit to its
    /// end.
    pub is_shared: bool,
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

    /// Returns the path or address as the checkpoints store it, like [`Warehouse::location`].
    pub fn address(&self) -> String {
        let Location { path, bucket, .. } = &self.location;
        match self.kind {
            WarehouseKind::Parquet if bucket.is_none() => {
                path.canonicalize().unwrap_or_else(|_| path.clone()).display().to_string()
            }
            _ => self.location.to_string(),
        }
    }

    /// Returns true if this is the warehouse with an [`address`](Place::address) that the checkpoints store.
    pub fn is_at(&self, address: &str) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        let is_same_file = || real(&self.location.path).is_some_and(|path| real(address.as_ref()) == Some(path));
        self.address() == address || (self.location.bucket.is_none() && is_same_file())
    }

    /// Returns true if there may be a warehouse at an [`address`](Place::address) that the checkpoints store.
    pub fn may_exist(address: &str) -> bool {
        match address.parse() {
            Ok(bucket) => connect(&bucket).and_then(|bucket| parquet::is_warehouse(&bucket)).unwrap_or(true),
            // A catalog that is not configured cannot be asked.
            Err(_) => address.contains("://") || Path::new(address).try_exists().unwrap_or(true),
        }
    }

    /// Returns true if there is a warehouse, or if it cannot be found out: opening it then says why.
    pub fn exists(&self) -> bool {
        let Location { path, bucket, catalog } = &self.location;
        match (bucket, catalog) {
            (Some(bucket), _) => connect(bucket).and_then(|bucket| parquet::is_warehouse(&bucket)).unwrap_or(true),
            (None, Some(catalog)) if !self.is_lake_file() => attached::exists(catalog).unwrap_or(true),
            (None, _) => path.try_exists().unwrap_or(true),
        }
    }

    /// Returns true for a DuckLake with a catalog file.
    fn is_lake_file(&self) -> bool {
        let address = self.location.catalog.as_ref().map(|catalog| &catalog.address);
        matches!(address, Some(CatalogAddress::DuckLake { catalog: LakeCatalog::File(_), .. }))
    }

    /// Returns the folder of this machine with the files of a DuckLake.
    fn lake_folder(&self) -> Option<&Path> {
        match self.location.catalog.as_ref().map(|catalog| &catalog.address) {
            Some(CatalogAddress::DuckLake { data, .. }) if !data.contains("://") => Some(Path::new(data)),
            _ => None,
        }
    }

    /// Returns the folders in which a run creates files, except partitions of Parquet tables. Some may be missing.
    pub fn folders(&self) -> Vec<PathBuf> {
        match self.kind {
            WarehouseKind::Parquet => {
                let copy = self.options.copy.as_ref().map(|copy| copy.path.clone());
                parquet::folders(&self.location.path).into_iter().chain(copy).collect()
            }
            _ => [&self.location.path]
                .into_iter()
                .chain(self.options.copy.as_ref().map(|copy| &copy.path))
                .map(|file| files::folder_of(file))
                .chain(self.lake_folder())
                .map(Path::to_owned)
                .collect(),
        }
    }

    /// Returns all files that may contain texts of the warehouse, in groups with names.
    pub fn files(&self) -> Result<Vec<(&'static str, Vec<PathBuf>)>, FileError> {
        let copy = self.options.copy.as_ref().map(|copy| copy.path.as_path());
        let (own, copied) = match self.kind {
            WarehouseKind::DuckDb => (
                files::files_beside(&self.location.path)?,
                copy.map(|copy| Ok(("publish", files::files_beside(copy)?))),
            ),
            WarehouseKind::DuckLake | WarehouseKind::Postgres | WarehouseKind::Iceberg => {
                let mut files = files::files_beside(&self.location.path)?;
                if let Some(folder) = self.lake_folder() {
                    files.extend(files::files_below(folder)?);
                }
                (files, None)
            }
            WarehouseKind::Parquet => {
                let path = &self.location.path;
                // Beside the working copy are the folders with files of the bucket for readers.
                let files = match self.location.bucket {
                    Some(_) => files::files_beside(path)?,
                    None => files::files_below(path)?,
                };
                (files, copy.map(|copy| Ok(("publish parquet", files::files_below(copy)?))))
            }
        };
        std::iter::once(Ok((self.name(), own))).chain(copied).collect()
    }

    /// Reads all objects of the bucket, one after the other, as [`Place::files`] does for a warehouse on this machine.
    /// `visit` gets the address and the content of each. Returns false without a bucket.
    pub fn read_objects(
        &self,
        visit: &mut dyn FnMut(&str, &mut dyn io::Read) -> io::Result<()>,
    ) -> Result<bool, LoadError> {
        let Some(address) = &self.location.bucket else { return Ok(false) };
        parquet::read_objects(&connect(address)?, visit).map(|()| true)
    }

    /// Removes files of a bucket that readers have on this machine, since they may be old.
    pub fn remove_fetched(&self) -> Result<(), LoadError> {
        if self.location.bucket.is_none() {
            return Ok(());
        }
        let compared = replace::compared_folder(&self.location.path);
        let of_readers = replace::reader_folder(&self.location.path);
        let mut folders = parquet::reader_folders(&of_readers).chain([compared]);
        let patience = LockPatience { wait: READERS_WAIT, ..LockPatience::default() };
        folders.try_for_each(|folder| patience.until_free(|| ParquetStore::clear_fetched(&folder)))
    }

    /// Returns whether the bucket keeps the content of objects that were replaced; `None` for a warehouse on this
    /// machine.
    pub fn old_versions(&self) -> Result<Option<OldVersions>, LoadError> {
        let Some(address) = &self.location.bucket else { return Ok(None) };
        Ok(Some(connect(address)?.old_versions()?))
    }

    /// Tries what the warehouse needs of its bucket; `None` for a warehouse on this machine.
    pub fn check_bucket(&self) -> Result<Option<BucketCheck>, LoadError> {
        let Some(address) = &self.location.bucket else { return Ok(None) };
        Ok(Some(connect(address)?.check()?))
    }

    /// Loads the extensions that a catalog needs, and returns their names and files; `None` without a catalog.
    ///
    /// # Errors
    /// `NoExtension` for an extension that is not installed, or of another version or platform.
    pub fn check_extensions(&self) -> Result<Option<Vec<(&'static str, PathBuf)>>, LoadError> {
        self.location.catalog.as_ref().map(attached::check_extensions).transpose()
    }

    /// Estimates what a `sync` with these scans needs of the bucket, without a request; `None` for a warehouse on this
    /// machine.
    pub fn estimate_night(&self, scans: &BTreeMap<Stream, Vec<TimeRange>>) -> Option<NightEstimate> {
        self.location.bucket.as_ref()?;
        Some(NightEstimate::of(&self.location.path, self.options.partition_by, scans))
    }

    /// Returns the small files of the program in the bucket of the warehouse; `None` without a bucket.
    pub fn kept_files(&self) -> Result<Option<KeptFiles>, LoadError> {
        self.location.bucket.as_ref().map(|address| connect(address).map(KeptFiles::of_bucket)).transpose()
    }

    /// Returns the small files of the program in a warehouse that several workers share. `None` for one that only one
    /// process can have open. Starts an engine for a catalog.
    pub fn files_of_workers(&self, opening: &Opening) -> Result<Option<KeptFiles>, LoadError> {
        if self.location.catalog.is_none() || self.is_lake_file() {
            return self.kept_files();
        }
        let engine = start_engine(&self.location.path, ENGINE_BYTES_MIN, 1)?;
        self.open_catalog(opening, engine, false).map(KeptFiles::of_catalog).map(Some)
    }

    /// Returns the least memory in bytes that the store can work with.
    pub fn memory_bytes_min(kind: WarehouseKind) -> u64 {
        match kind {
            WarehouseKind::Parquet => 0,
            _ => ENGINE_BYTES_MIN,
        }
    }

    /// Starts the engine of the store, for [`Place::open`]. The warehouse is not opened, so no lock is needed. Returns
    /// `None` if the store has no engine.
    pub fn start_engine(&self, memory_limit_bytes: u64, threads: u32) -> Result<Option<StartedEngine>, LoadError> {
        match self.kind {
            WarehouseKind::Parquet => Ok(None),
            _ => start_engine(&self.location.path, memory_limit_bytes, threads).map(Some),
        }
    }

    /// Replaces the warehouse by the rebuilt one at [`build_path`](super::build_path), which is a DuckDB file for a
    /// catalog. `scans` are those that the rebuilt one was made of.
    ///
    /// # Errors
    /// `Conflict` if another writer of a catalog has committed since the replay began.
    pub fn replace(&self, opening: &Opening, scans: &HashSet<&ScanId>) -> Result<(), LoadError> {
        let Location { path, bucket, catalog } = &self.location;
        match (self.kind, bucket) {
            (WarehouseKind::Parquet, None) => Ok(replace::replace_folder(path)?),
            (WarehouseKind::Parquet, Some(address)) => {
                replace::keep_for_bucket(path)?;
                let (bucket, built) = (connect(address)?, replace::path_for_bucket(path));
                ParquetStore::replace_in_bucket(&bucket, path, &built)?;
                Ok(replace::remove(&built)?)
            }
            _ if catalog.is_some() => {
                let engine = start_engine(path, opening.memory_limit_bytes, opening.threads)?;
                self.open_catalog(opening, engine, false)?.replace_rows(&replace::build_path(path), scans)?;
                Ok(replace::clear_built_file(path)?)
            }
            _ => Ok(replace::replace_file(path)?),
        }
    }

    /// Removes what a killed replay left at [`build_path`](super::build_path). Undoes a replacement that was
    /// interrupted; in a bucket, ends it.
    pub fn clear_leftovers(&self) -> Result<(), LoadError> {
        let Location { path, bucket, .. } = &self.location;
        match (self.kind, bucket) {
            (WarehouseKind::Parquet, Some(address)) if replace::path_for_bucket(path).is_dir() => {
                let built = replace::path_for_bucket(path);
                ParquetStore::end_replacement(&connect(address)?, path, &built)?;
                replace::remove(&built)?;
                Ok(replace::clear_folder(path)?)
            }
            (WarehouseKind::Parquet, _) => Ok(replace::clear_folder(path)?),
            _ => Ok(replace::clear_built_file(path)?),
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
        Ok(Warehouse::new(self.name(), self.address(), store, opening.buffer_bytes_max, opening.threads))
    }

    fn parquet_options(&self, opening: &Opening) -> ParquetOptions {
        let Opening { memory_limit_bytes, threads, .. } = *opening;
        ParquetOptions { partition_by: self.options.partition_by, memory_limit_bytes, threads }
    }

    fn open_store(&self, opening: &Opening, engine: Option<StartedEngine>) -> Result<Box<dyn Store>, LoadError> {
        let Opening { identity, patience, failpoints, .. } = opening;
        let path = &self.location.path;
        match self.kind {
            WarehouseKind::DuckDb | WarehouseKind::DuckLake | WarehouseKind::Postgres | WarehouseKind::Iceberg => {
                let engine = match engine {
                    Some(engine) => engine,
                    None => start_engine(path, opening.memory_limit_bytes, opening.threads)?,
                };
                if self.location.catalog.is_some() {
                    return Ok(Box::new(self.open_catalog(opening, engine, false)?));
                }
                // A replay builds the rows of a catalog in a DuckDB file, too.
                let (patience, failpoints) = (patience.clone(), failpoints.clone());
                let WarehouseOptions { copy, search, .. } = self.options.clone();
                let options = DuckDbOptions { path, identity, patience, failpoints, copy, search };
                Ok(Box::new(DuckDbStore::open(options, engine)?))
            }
            WarehouseKind::Parquet => {
                let (options, copy) = (self.parquet_options(opening), self.options.copy.clone());
                let Some(address) = &self.location.bucket else {
                    let store = ParquetStore::open(path, identity, &options, patience, failpoints)?;
                    return Ok(Box::new(store.with_copy(copy)));
                };
                let bucket = Bucket::connect(address, failpoints)?;
                let (path, identity, patience) = (path.clone(), identity.clone(), patience.clone());
                let open = move || -> Result<Box<dyn Store>, LoadError> {
                    let store = ParquetStore::open_bucket(&bucket, &path, &identity, &options, &patience)?;
                    Ok(Box::new(store.with_copy(copy.clone())))
                };
                match self.options.is_shared {
                    true => Ok(Box::new(SharedStore::new(Box::new(open))?)),
                    false => open(),
                }
            }
        }
    }

    fn open_catalog(
        &self,
        opening: &Opening,
        engine: StartedEngine,
        is_read_only: bool,
    ) -> Result<AttachedStore, LoadError> {
        let no_catalog = || LoadError::Bug(format!("{} has no catalog", self.name()));
        let catalog = self.location.catalog.clone().ok_or_else(no_catalog)?;
        let (identity, patience) = (opening.identity.clone(), opening.patience.clone());
        let options = AttachedOptions { catalog, identity, patience, is_read_only };
        AttachedStore::open(options, engine, opening.failpoints.clone())
    }

    /// Opens the warehouse read-only for `verify`, which compares it with the service. The warehouse's folder may be
    /// read-only. DuckDB spills data beyond its memory limit to `spill_folder`, which Parquet does not use.
    ///
    /// # Errors
    /// As [`Place::open`]; `Missing` if there is no warehouse; `Unfinished` if a publish of a Parquet warehouse was
    /// interrupted.
    pub fn open_to_compare(&self, opening: &Opening, spill_folder: PathBuf) -> Result<Warehouse, LoadError> {
        let &Opening { ref identity, memory_limit_bytes, threads, .. } = opening;
        let path = &self.location.path;
        let options = EngineOptions { memory_limit_bytes, threads, temp_directory: spill_folder };
        let store: Box<dyn Store> = match self.kind {
            WarehouseKind::DuckLake | WarehouseKind::Postgres | WarehouseKind::Iceberg => {
                Box::new(self.open_catalog(opening, StartedEngine::start(options)?, true)?)
            }
            WarehouseKind::DuckDb => Box::new(DuckDbStore::open_to_compare(path, identity, &options)?),
            WarehouseKind::Parquet => {
                let options = self.parquet_options(opening);
                Box::new(match &self.location.bucket {
                    Some(address) => {
                        let bucket = Bucket::connect(address, &opening.failpoints)?;
                        let folder = replace::compared_folder(path);
                        ParquetStore::open_bucket_to_compare(bucket, &folder, identity, &options)?
                    }
                    None => ParquetStore::open_to_compare(path, identity, &options)?,
                })
            }
        };
        Ok(Warehouse::new(self.name(), self.address(), store, opening.buffer_bytes_max, threads))
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

fn connect(address: &BucketAddress) -> Result<Bucket, LoadError> {
    Ok(Bucket::connect(address, &Failpoints::default())?)
}

/// A warehouse that a reader has attached to its engine.
pub(super) enum Attached {
    /// The claim keeps this process from opening the DuckDB file for writing.
    DuckDb {
        _claim: Claim,
    },
    Views(Box<TableViews>),
}

/// Returns the catalog in which a reader finds the tables of a warehouse. Each kind has another catalog. DuckDB itself
/// has the catalogs `memory`, `system` and `temp`.
pub(super) fn catalog(kind: WarehouseKind) -> &'static str {
    match kind {
        WarehouseKind::DuckDb => "warehouse",
        _ => kind.name(),
    }
}

/// Attaches a warehouse to the engine of a reader, read-only. Queries look names up in the catalog `first`.
pub(super) fn attach(
    kind: WarehouseKind,
    location: &Location,
    connection: &Connection,
    first: &'static str,
) -> Result<Attached, LoadError> {
    match kind {
        WarehouseKind::DuckDb => {
            let claim = duckdb::attach_for_reading(connection, &location.path, catalog(kind))?;
            Ok(Attached::DuckDb { _claim: claim })
        }
        _ => TableViews::attach(connection, kind, location, first).map(|views| Attached::Views(Box::new(views))),
    }
}

/// Starts an engine for the DuckDB file at `path`. The engine spills to a folder next to the file.
fn start_engine(path: &Path, memory_limit_bytes: u64, threads: u32) -> Result<StartedEngine, LoadError> {
    let temp_directory = files::with_suffix(path, ".spill");
    StartedEngine::start(EngineOptions { memory_limit_bytes, threads, temp_directory })
}
