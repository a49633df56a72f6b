//! The Parquet folder against the suite that every destination must pass.

use super::*;
use crate::load::{
    Reader,
    conformance::{self, Warehouse, conformance_tests, throughput},
};

struct Folder {
    root: TempDir,
}

fn folder() -> Box<dyn Warehouse> {
    Box::new(Folder { root: new_folder() })
}

impl Warehouse for Folder {
    fn open(&self, identity: &Identity) -> Result<Box<dyn Destination>, LoadError> {
        Ok(Box::new(ParquetDestination::open(self.root.path(), identity, &options())?))
    }

    fn reader(&self) -> Reader {
        Reader::open(None, Some(self.root.path())).unwrap()
    }

    fn root(&self) -> &Path {
        self.root.path()
    }
}

conformance_tests!(folder);

#[test]
#[ignore = "a measurement, not a check: minutes of work"]
fn a_million_answers() {
    let root = new_folder();
    let options =
        ParquetOptions { memory_limit_bytes: throughput::MEMORY_LIMIT_BYTES, threads: 2, ..ParquetOptions::default() };
    let mut destination = ParquetDestination::open(root.path(), &conformance::identity("test"), &options).unwrap();
    throughput::a_million_answers(&mut destination, root.path());
}
