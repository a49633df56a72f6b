//! The Parquet folder against the suite that every destination must pass.

use super::*;
use crate::load::{
    Reader,
    conformance::{Warehouse, conformance_tests},
};

struct Folder {
    root: TempDir,
}

fn folder() -> Box<dyn Warehouse> {
    Box::new(Folder { root: TempDir::new().unwrap() })
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
