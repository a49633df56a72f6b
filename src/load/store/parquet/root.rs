//! The folder of a Parquet warehouse: its owner, its lock, and the paths in it.
//!
//! ```text
//! <root>/<table>/created_month=2026-01-01/data.parquet   what readers see: nothing else is ever in there
//! <root>/<table>/data.parquet                            a table without a partition
//! <root>/.studysync/warehouse.json                       which service, which layout
//! <root>/.studysync/files.json                           the files of tables after the last publish
//! <root>/.studysync/lock                                 locked while a process has the warehouse open
//! <root>/.studysync/parts/<number>-<label>/              commits that wait for publish
//! <root>/.studysync/parts/<number>.tmp/                  an open transaction, or the remains of one; removed at open
//! <root>/.studysync/scratch/                             files that publish is writing; emptied at open
//! ```
//!
//! The module `root` reads neither parts nor rows.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use parquet::{errors::ParquetError, file::metadata::ParquetMetaDataReader};
use serde::{Deserialize, Serialize};

use super::{
    disk::Disk,
    lock,
    partition::{Partition, PartitionBy},
    remote::{Remote, SCRATCH},
    rows_reader::unreadable,
    working_copy::{LIST, PARTS},
};
use crate::{
    files,
    load::{Identity, LoadError},
    model::is_same_service,
    schema::{Table, tables},
};

/// Version of the layout of the folder. A folder with a newer version is refused.
const FORMAT_VERSION: u32 = 1;
/// Name of the folder with the files that programs which read the tables must not see.
const PRIVATE_FOLDER: &str = ".studysync";
/// The list of files, below the root.
pub(super) const INVENTORY: &str = ".studysync/files.json";
/// Tables in which the program records its runs and scans. The rows of these tables do not come from a service.
const TABLES_OF_RUNS: [&str; 2] = ["sync_runs", "sync_windows"];

/// The content of `warehouse.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Warehouse {
    format_version: u32,
    base_url: String,
    environment: String,
    partition: PartitionBy,
}

/// Returns the folders in which a run creates files, except partitions. Some may be missing.
pub(in crate::load) fn folders(root: &Path) -> Vec<PathBuf> {
    let private = root.join(PRIVATE_FOLDER);
    let own = [root.to_owned(), root.join(PARTS), private];
    own.into_iter().chain(tables().iter().map(|table| root.join(&table.name))).collect()
}

/// An open warehouse folder. The folder stays locked until this value is dropped.
pub(super) struct Root {
    path: PathBuf,
    partition_by: PartitionBy,
    /// The bucket of the warehouse, whose working copy is the folder; `None` for a warehouse in a folder.
    remote: Option<Arc<Remote>>,
    /// The locked file. Closing the file releases the lock. `None` for a bucket, and for a reader if the lock file
    /// cannot be opened or the file system has no locks.
    _lock: Option<File>,
}

impl Root {
    /// Opens and locks the folder for writing. Creates the folder and its subfolders if they are missing. Checks that
    /// the folder belongs to this service ([`Root::check_or_bind`]), and removes the unfinished files of a killed
    /// publish.
    pub(super) fn open(
        path: &Path,
        identity: &Identity,
        partition_by: PartitionBy,
        disk: &Disk,
    ) -> Result<Self, LoadError> {
        files::create_folders(path).map_err(LoadError::io("create", path))?;
        let path = absolute(path)?;
        let private = path.join(PRIVATE_FOLDER);
        let is_other = match &disk.remote {
            Some(remote) => remote.is_of_others(),
            None => !private.is_dir() && !is_empty_folder(&path)?,
        };
        if is_other {
            let why = "it holds other files".to_owned();
            return Err(LoadError::NotOurs { path: disk.remote.as_ref().map_or(path, |remote| remote.place()), why });
        }
        if disk.remote.is_none() && path.join(LIST).exists() {
            let why = "it is the folder of this machine for files of a bucket".to_owned();
            return Err(LoadError::NotOurs { path, why });
        }
        disk.create_folder(&private)?;
        let lock = match &disk.remote {
            // The working copy has its own lock.
            Some(_) => None,
            None => Some(lock::exclusive(&path, &private.join("lock"))?),
        };
        let root = Self { partition_by, _lock: lock, path, remote: disk.remote.clone() };
        root.fetch_notes()?;
        root.check_or_bind(identity, disk)?;
        root.clear_scratch(disk)?;
        disk.create_folder(&root.parts())?;
        tables().iter().try_for_each(|table| disk.create_folder(&root.table_folder(table)))?;
        Ok(root)
    }

    /// Opens the folder read-only: creates and removes nothing. Takes a shared lock, which keeps writers out, if there
    /// is a lock file and the file system has locks.
    pub(super) fn open_to_compare(
        path: &Path,
        identity: &Identity,
        partition_by: PartitionBy,
        disk: &Disk,
    ) -> Result<Self, LoadError> {
        LoadError::require_folder(path)?;
        let path = absolute(path)?;
        let private = path.join(PRIVATE_FOLDER);
        let lock = match &disk.remote {
            Some(_) => None,
            None => lock::shared(&path, &private.join("lock"))?,
        };
        let root = Self { partition_by, _lock: lock, path, remote: disk.remote.clone() };
        root.fetch_notes()?;
        let bytes = fs::read(private.join("warehouse.json")).map_err(|_| LoadError::NotOurs {
            path: root.place(),
            why: format!("{PRIVATE_FOLDER}/warehouse.json is missing"),
        })?;
        root.check(&bytes, &root.wanted(identity))?;
        Ok(root)
    }

    /// Returns the content that `warehouse.json` must have for this identity.
    fn wanted(&self, identity: &Identity) -> Warehouse {
        Warehouse {
            format_version: FORMAT_VERSION,
            base_url: identity.base_url.clone(),
            environment: identity.environment.clone(),
            partition: self.partition_by,
        }
    }

    /// Checks that the folder belongs to this service. Binds a new folder to the service. A folder of another service
    /// without rows of that service is emptied and bound too. Fails if `warehouse.json` is lost.
    fn check_or_bind(&self, identity: &Identity, disk: &Disk) -> Result<(), LoadError> {
        let path = self.path.join(PRIVATE_FOLDER).join("warehouse.json");
        let wanted = self.wanted(identity);
        match fs::read(&path) {
            Ok(bytes) => match self.check(&bytes, &wanted) {
                Err(LoadError::OtherIdentity { .. }) if !self.has_service_rows()? => {
                    // The ledger of the other service is removed before the folder is bound to this service.
                    self.files()?.iter().try_for_each(|file| disk.remove_file(file))?;
                    disk.remove_folder(&self.parts())?;
                    self.remote.as_ref().map_or(Ok(()), |remote| remote.remove_all_commits())?;
                    disk.remove_file(&self.inventory())?;
                    self.write_identity(&wanted, disk)
                }
                checked => checked,
            },
            Err(source) if source.kind() == io::ErrorKind::NotFound => {
                // `warehouse.json` is written before the folder of parts is created. So if the folder of parts exists,
                // `warehouse.json` was lost.
                let has_parts = match &self.remote {
                    Some(remote) => !remote.is_empty(),
                    None => self.parts().exists(),
                };
                if has_parts {
                    let why = format!("{PRIVATE_FOLDER}/warehouse.json is missing");
                    return Err(LoadError::Damaged { path: self.place(), why });
                }
                self.remote.as_ref().map_or(Ok(()), |remote| remote.require_conditions())?;
                self.write_identity(&wanted, disk)
            }
            Err(source) => Err(LoadError::io("read", &path)(source)),
        }
    }

    /// Binds the folder to an identity, without a check of the service to which it was bound before.
    pub(super) fn rebind(&self, identity: &Identity, disk: &Disk) -> Result<(), LoadError> {
        self.write_identity(&self.wanted(identity), disk)
    }

    /// Replaces `warehouse.json` atomically, which binds the folder to a service.
    fn write_identity(&self, wanted: &Warehouse, disk: &Disk) -> Result<(), LoadError> {
        let path = self.path.join(PRIVATE_FOLDER).join("warehouse.json");
        let text = serde_json::to_vec_pretty(wanted).map_err(|source| LoadError::io("write", &path)(source.into()))?;
        disk.replace(&path, &text)
    }

    /// Returns true if a file of a table or of a waiting commit has rows. The files of [`TABLES_OF_RUNS`] do not count.
    /// A file whose footer cannot be read counts as one with rows.
    fn has_service_rows(&self) -> Result<bool, LoadError> {
        for file in self.files()? {
            self.fetch(&file)?;
            // The table is the folder of a published file, and a part of the name of a waiting file.
            let below_root = file.strip_prefix(&self.path).unwrap_or(&file).to_string_lossy();
            let is_of_runs = below_root.split(['/', '.']).any(|part| TABLES_OF_RUNS.contains(&part));
            if !is_of_runs && rows_of(&file)? != Some(0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the Parquet files of all tables, of waiting commits and of unfinished commits. A missing folder has no
    /// files.
    fn files(&self) -> Result<Vec<PathBuf>, LoadError> {
        if let Some(remote) = &self.remote {
            let is_of_rows = |path: &PathBuf| path.extension().is_some_and(|name| name == "parquet" || name == "part");
            return Ok(remote.files_below(&self.path).into_iter().filter(is_of_rows).collect());
        }
        let mut folders: Vec<PathBuf> = tables().iter().map(|table| self.table_folder(table)).collect();
        folders.push(self.parts());
        let mut files = Vec::new();
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                entries => entries.map_err(LoadError::io("read", &folder))?,
            };
            for entry in entries {
                let path = entry.map_err(LoadError::io("read", &folder))?.path();
                match path.extension() {
                    _ if path.is_dir() => folders.push(path),
                    Some(extension) if extension == "parquet" => files.push(path),
                    _ => {}
                }
            }
        }
        Ok(files)
    }

    /// Compares the content of `warehouse.json` with the wanted content. Fails with `Damaged`, `Newer`, `OtherIdentity`
    /// or `OtherPartition`.
    fn check(&self, bytes: &[u8], wanted: &Warehouse) -> Result<(), LoadError> {
        let damaged = |why: String| LoadError::Damaged { path: self.place(), why };
        // The version is read first: a newer layout may have other fields.
        let version = serde_json::from_slice::<serde_json::Value>(bytes).ok();
        let version = version.as_ref().and_then(|value| value.get("format_version")).and_then(|value| value.as_u64());
        let version = version.ok_or_else(|| damaged(format!("{PRIVATE_FOLDER}/warehouse.json cannot be read")))?;
        if version > u64::from(FORMAT_VERSION) {
            return Err(LoadError::Newer { path: self.place(), found: format!("format {version}") });
        }
        let found: Warehouse = serde_json::from_slice(bytes)
            .map_err(|error| damaged(format!("{PRIVATE_FOLDER}/warehouse.json cannot be read: {error}")))?;
        if !is_same_service(&found.base_url, &wanted.base_url) || found.environment != wanted.environment {
            let name = |warehouse: &Warehouse| format!("{} ({})", warehouse.base_url, warehouse.environment);
            return Err(LoadError::OtherIdentity { path: self.place(), found: name(&found), wanted: name(wanted) });
        }
        if found.partition != wanted.partition {
            let (found, wanted) = (found.partition.to_string(), wanted.partition.to_string());
            return Err(LoadError::OtherPartition { path: self.place(), found, wanted });
        }
        Ok(())
    }

    /// Empties the scratch folder; creates it if it is missing.
    pub(super) fn clear_scratch(&self, disk: &Disk) -> Result<(), LoadError> {
        disk.remove_folder(&self.scratch())?;
        disk.create_folder(&self.scratch())
    }

    /// Returns the absolute path of the folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the bucket of the warehouse; `None` for a warehouse in a folder.
    pub(super) fn remote(&self) -> Option<&Remote> {
        self.remote.as_deref()
    }

    /// Returns the warehouse's path or address, for messages.
    pub(super) fn place(&self) -> PathBuf {
        self.remote.as_ref().map_or_else(|| self.path.clone(), |remote| remote.place())
    }

    /// Brings a file into the folder. Does nothing for a warehouse in a folder.
    pub(super) fn fetch(&self, path: &Path) -> Result<(), LoadError> {
        self.remote.as_ref().map_or(Ok(()), |remote| remote.fetch(path))
    }

    /// Reads the list of the objects in the bucket again. Does nothing for a warehouse in a folder.
    pub(super) fn refresh(&self) -> Result<(), LoadError> {
        self.remote.as_ref().map_or(Ok(()), |remote| remote.refresh())?;
        self.fetch_notes()
    }

    fn fetch_notes(&self) -> Result<(), LoadError> {
        self.fetch(&self.path.join(PRIVATE_FOLDER).join("warehouse.json"))?;
        self.fetch(&self.inventory())
    }

    /// Returns whether partitions are months or days.
    pub(super) fn partition_by(&self) -> PartitionBy {
        self.partition_by
    }

    /// Returns the path of the list of files, which [`super::inventory`] reads and writes.
    pub(super) fn inventory(&self) -> PathBuf {
        self.path.join(INVENTORY)
    }

    /// Returns the path of the folder with waiting commits.
    pub(super) fn parts(&self) -> PathBuf {
        self.path.join(PARTS)
    }

    /// Returns the path of the folder for files that publish is writing. The folder is on the file system of the
    /// tables, so that a rename moves a file into a table.
    pub(super) fn scratch(&self) -> PathBuf {
        self.path.join(SCRATCH)
    }

    /// Returns the path of the folder of a table.
    pub(super) fn table_folder(&self, table: &Table) -> PathBuf {
        self.path.join(&table.name)
    }

    /// Returns the path of the file of a partition. `partition` is `None` for a table without partitions.
    pub(super) fn data_file(&self, table: &Table, partition: Option<Partition>) -> PathBuf {
        let mut path = self.table_folder(table);
        if let (Some(column), Some(partition)) = (&table.partition, partition) {
            path.push(self.partition_by.folder(column, partition));
        }
        path.push("data.parquet");
        path
    }
}

/// Returns the absolute path without links. Fails if the path is not UTF-8, or has a character
/// that the SQL engine which reads the files would take for a pattern.
fn absolute(path: &Path) -> Result<PathBuf, LoadError> {
    let path = fs::canonicalize(path).map_err(LoadError::io("find", path))?;
    let not_ours = |why: &str| LoadError::NotOurs { path: path.clone(), why: why.to_owned() };
    let text = path.to_str().ok_or_else(|| not_ours("its path is not UTF-8"))?;
    if text.contains(['*', '?', '[']) {
        return Err(not_ours("its path has one of the characters * ? [, which the engine takes for a pattern"));
    }
    Ok(path)
}

/// Returns the number of rows in a file, or `None` if the footer cannot be read.
fn rows_of(path: &Path) -> Result<Option<i64>, LoadError> {
    let file = File::open(path).map_err(LoadError::io("open", path))?;
    match ParquetMetaDataReader::new().parse_and_finish(&file) {
        Ok(footer) => Ok(Some(footer.file_metadata().num_rows())),
        Err(error @ ParquetError::External(_)) => Err(unreadable(path, error)),
        Err(_) => Ok(None),
    }
}

fn is_empty_folder(path: &Path) -> Result<bool, LoadError> {
    let mut entries = fs::read_dir(path).map_err(LoadError::io("read", path))?;
    Ok(entries.next().is_none())
}
