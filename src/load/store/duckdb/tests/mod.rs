//! Runs the conformance suite on a DuckDB file.

mod crashes;
mod files;
mod memory;
mod views;
mod visits;

use std::path::Path;

use tempfile::TempDir;

use super::{DuckDbOptions, DuckDbStore};
use crate::{
    load::{
        EngineOptions, FullTextSearch, Identity, LoadError, LockPatience, Reader, StartedEngine, Warehouse,
        conformance::{Kind, conformance_tests, identity, throughput},
    },
    model::{Failpoints, WarehouseKind},
};

/// Bytes of rows that are buffered.
const BUFFER_BYTES_MAX: usize = 16 << 20;

struct File {
    folder: TempDir,
    buffer_bytes_max: usize,
}

fn file() -> Box<dyn Kind> {
    Box::new(File { folder: TempDir::new().unwrap(), buffer_bytes_max: BUFFER_BYTES_MAX })
}

/// Without a buffer: each change is written to the file's transaction.
fn file_that_is_written_at_once() -> Box<dyn Kind> {
    Box::new(File { folder: TempDir::new().unwrap(), buffer_bytes_max: 0 })
}

fn options(folder: &Path) -> EngineOptions {
    EngineOptions { memory_limit_bytes: 256 << 20, threads: 2, temp_directory: folder.join("spill") }
}

fn open_store(path: &Path, identity: &Identity, options: &EngineOptions) -> Result<DuckDbStore, LoadError> {
    let engine = StartedEngine::start(options.clone())?;
    let (patience, failpoints) = (LockPatience::default(), Failpoints::default());
    let search = FullTextSearch::default();
    let options = DuckDbOptions { path, identity, patience, failpoints, copy: None, search };
    DuckDbStore::open(options, engine)
}

fn warehouse_in(store: DuckDbStore) -> Warehouse {
    Warehouse::new("duckdb", String::new(), Box::new(store), BUFFER_BYTES_MAX, 2)
}

fn open(path: &Path) -> Result<Warehouse, LoadError> {
    open_store(path, &identity("test"), &options(path.parent().unwrap())).map(warehouse_in)
}

impl Kind for File {
    fn open(&self, identity: &Identity) -> Result<Warehouse, LoadError> {
        let path = self.folder.path().join("data/warehouse.duckdb");
        let store = open_store(&path, identity, &options(self.folder.path()))?;
        Ok(Warehouse::new("duckdb", String::new(), Box::new(store), self.buffer_bytes_max, 2))
    }

    fn reader(&self) -> Reader {
        Reader::open(&WarehouseKind::DuckDb.at(self.folder.path().join("data/warehouse.duckdb"))).unwrap()
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }
}

conformance_tests!(file);

mod slow_written_at_once {
    crate::load::conformance::conformance_tests!(slow super::file_that_is_written_at_once);
}

#[test]
#[ignore = "a measurement, not a check: minutes of work"]
fn a_million_answers() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    let options = EngineOptions { memory_limit_bytes: throughput::MEMORY_LIMIT_BYTES, ..options(folder.path()) };
    let mut warehouse = warehouse_in(open_store(&path, &identity("test"), &options).unwrap());
    throughput::a_million_answers(&mut warehouse, folder.path());
}
