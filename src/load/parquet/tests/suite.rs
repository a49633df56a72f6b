//! The Parquet folder against the suite that every destination must pass.

use super::*;
use crate::load::{
    Reader,
    conformance::{self, Warehouse, conformance_tests, throughput},
};

struct Folder {
    root: TempDir,
    is_built_anew: bool,
    /// Bytes of rows that may wait, if not what the memory allows.
    pending_bytes_max: Option<usize>,
}

fn folder() -> Box<dyn Warehouse> {
    Box::new(Folder { root: new_folder(), is_built_anew: false, pending_bytes_max: None })
}

fn folder_in_little_memory() -> Box<dyn Warehouse> {
    Box::new(Folder { root: new_folder(), is_built_anew: false, pending_bytes_max: Some(1) })
}

fn folder_built_anew() -> Box<dyn Warehouse> {
    Box::new(Folder { root: new_folder(), is_built_anew: true, pending_bytes_max: None })
}

fn folder_built_anew_in_little_memory() -> Box<dyn Warehouse> {
    Box::new(Folder { root: new_folder(), is_built_anew: true, pending_bytes_max: Some(1) })
}

impl Warehouse for Folder {
    fn open(&self, identity: &Identity) -> Result<Box<dyn Destination>, LoadError> {
        let mut destination = ParquetDestination::open(self.root.path(), identity, &options())?;
        destination.is_built_anew = self.is_built_anew;
        destination.pending_bytes_max = self.pending_bytes_max.unwrap_or(destination.pending_bytes_max);
        Ok(Box::new(destination))
    }

    fn reader(&self) -> Reader {
        Reader::open(None, Some(self.root.path())).unwrap()
    }

    fn root(&self) -> &Path {
        self.root.path()
    }
}

conformance_tests!(folder);

mod slow_in_little_memory {
    crate::load::conformance::conformance_tests!(slow super::folder_in_little_memory);
}

mod slow_built_anew {
    crate::load::conformance::conformance_tests!(slow super::folder_built_anew);
}

mod slow_built_anew_in_little_memory {
    crate::load::conformance::conformance_tests!(slow super::folder_built_anew_in_little_memory);
}

#[test]
#[ignore = "a measurement, not a check: minutes of work"]
fn a_million_answers() {
    let root = new_folder();
    let options =
        ParquetOptions { memory_limit_bytes: throughput::MEMORY_LIMIT_BYTES, threads: 2, ..ParquetOptions::default() };
    let mut destination = ParquetDestination::open(root.path(), &conformance::identity("test"), &options).unwrap();
    throughput::a_million_answers(&mut destination, root.path());
}
