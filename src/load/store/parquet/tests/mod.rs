//! A warehouse under random changes, kills and readers, compared with a store in memory and with an earlier version.

mod bucket;
mod earlier_version;
mod files;
mod kills;
mod layout;
mod merges;
mod partition_cache;
mod random;
mod readers;
mod reading;
mod rows;
mod speed;
mod transactions;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{disk::Disk, *};
use crate::load::{
    Identity, LoadError,
    store::{Filter, KeySet, MemoryStore, Shelf, Store, TableChange, TimeRange},
};
use rows::{DAY_US, Row, START_US, added, batch, contents, file_rows, removed};

fn identity() -> Identity {
    Identity { base_url: "https://feedback.example".into(), environment: "production".into() }
}

fn options() -> ParquetOptions {
    ParquetOptions { partition_by: PartitionBy::Month, memory_limit_bytes: 256 << 20, threads: 1 }
}

/// A folder for a warehouse, in memory where possible: these tests mostly wait for the disk.
fn new_folder() -> TempDir {
    TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap()
}

fn open_with(root: &Path, options: &ParquetOptions) -> ParquetStore {
    ParquetStore::open_on(Disk::default(), root, &identity(), options).unwrap()
}

fn open(root: &TempDir) -> ParquetStore {
    open_with(root.path(), &options())
}

fn commit(store: &mut dyn Store, changes: &[TableChange]) {
    store.write(changes).unwrap();
    store.commit("test").unwrap();
}

/// Every file below the folder; all must be data files.
fn data_files(folder: &Path) -> Vec<PathBuf> {
    let files = all_files(folder);
    for file in &files {
        assert_eq!(file.file_name().unwrap(), "data.parquet", "{} is no data", file.display());
    }
    files
}

fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(all_files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let copy = to.join(path.file_name().unwrap());
        if path.is_dir() {
            std::fs::create_dir(&copy).unwrap();
            copy_folder(&path, &copy);
        } else {
            std::fs::copy(&path, &copy).unwrap();
        }
    }
}
