//! The DuckDB file against the suite that every destination must pass.

mod anew;
mod crashes;
mod files;
mod views;

use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::load::{
    Reader,
    conformance::{Warehouse, conformance_tests, identity, throughput},
};

struct File {
    folder: TempDir,
    /// As a replay has it.
    is_built_anew: bool,
    /// Bytes of rows that may wait, if not as many as ever.
    pending_bytes_max: Option<usize>,
}

fn file() -> Box<dyn Warehouse> {
    Box::new(File { folder: TempDir::new().unwrap(), is_built_anew: false, pending_bytes_max: None })
}

fn file_built_anew() -> Box<dyn Warehouse> {
    Box::new(File { folder: TempDir::new().unwrap(), is_built_anew: true, pending_bytes_max: None })
}

/// The other session has rows whenever something was applied.
fn file_built_anew_in_little_memory() -> Box<dyn Warehouse> {
    Box::new(File { folder: TempDir::new().unwrap(), is_built_anew: true, pending_bytes_max: Some(1) })
}

fn options(folder: &Path) -> EngineOptions {
    EngineOptions { memory_limit_bytes: 256 << 20, threads: 2, temp_directory: folder.join("spill") }
}

impl Warehouse for File {
    fn open(&self, identity: &Identity) -> Result<Box<dyn Destination>, LoadError> {
        let path = self.folder.path().join("data/warehouse.duckdb");
        let mut destination = DuckDbDestination::open(&path, identity, &options(self.folder.path()))?;
        if self.is_built_anew {
            destination.build_anew()?;
        }
        destination.pending_bytes_max = self.pending_bytes_max.unwrap_or(destination.pending_bytes_max);
        Ok(Box::new(destination))
    }

    fn reader(&self) -> Reader {
        Reader::open(Some(&self.folder.path().join("data/warehouse.duckdb")), None).unwrap()
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }
}

conformance_tests!(file);

mod slow_built_anew {
    crate::load::conformance::conformance_tests!(slow super::file_built_anew);
}

mod slow_built_anew_in_little_memory {
    crate::load::conformance::conformance_tests!(slow super::file_built_anew_in_little_memory);
}

#[test]
#[ignore = "a measurement, not a check: minutes of work"]
fn a_million_answers() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    let options = EngineOptions { memory_limit_bytes: throughput::MEMORY_LIMIT_BYTES, ..options(folder.path()) };
    let mut destination = DuckDbDestination::open(&path, &identity("test"), &options).unwrap();
    throughput::a_million_answers(&mut destination, folder.path());
}
