//! Runs the conformance suite on a folder of Parquet files.

use std::path::Path;

use tempfile::TempDir;

use super::{ParquetOptions, ParquetStore, PartitionBy};
use crate::{
    load::{
        Identity, LoadError, LockPatience, Reader, Warehouse,
        conformance::{Kind, conformance_tests, identity, throughput},
    },
    model::{Failpoints, WarehouseKind},
};

/// Bytes of rows that are buffered.
const BUFFER_BYTES_MAX: usize = 16 << 20;

struct Folder {
    folder: TempDir,
    partition_by: PartitionBy,
    buffer_bytes_max: usize,
}

fn by_month() -> Box<dyn Kind> {
    folder(PartitionBy::Month, BUFFER_BYTES_MAX)
}

fn by_day() -> Box<dyn Kind> {
    folder(PartitionBy::Day, BUFFER_BYTES_MAX)
}

/// Without a buffer: each change is a layer of its own.
fn by_month_written_at_once() -> Box<dyn Kind> {
    folder(PartitionBy::Month, 0)
}

fn folder(partition_by: PartitionBy, buffer_bytes_max: usize) -> Box<dyn Kind> {
    Box::new(Folder { folder: TempDir::new().unwrap(), partition_by, buffer_bytes_max })
}

fn open(root: &Path, identity: &Identity, partition_by: PartitionBy) -> Result<ParquetStore, LoadError> {
    let options = ParquetOptions { partition_by, memory_limit_bytes: 256 << 20, threads: 2 };
    ParquetStore::open(root, identity, &options, &LockPatience::default(), &Failpoints::default())
}

impl Kind for Folder {
    fn open(&self, identity: &Identity) -> Result<Warehouse, LoadError> {
        let store = open(&self.folder.path().join("w"), identity, self.partition_by)?;
        Ok(Warehouse::new("parquet", String::new(), Box::new(store), self.buffer_bytes_max, 2))
    }

    fn reader(&self) -> Reader {
        Reader::open(&WarehouseKind::Parquet.at(self.folder.path().join("w"))).unwrap()
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }
}

conformance_tests!(by_month);

mod days {
    crate::load::conformance::conformance_tests!(super::by_day);
}

mod slow_written_at_once {
    crate::load::conformance::conformance_tests!(slow super::by_month_written_at_once);
}

#[test]
#[ignore = "a measurement, not a check: minutes of work"]
fn a_million_answers() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder.path().join("w"), &identity("test"), PartitionBy::Month).unwrap();
    throughput::a_million_answers(
        &mut Warehouse::new("parquet", String::new(), Box::new(store), 64 << 20, 2),
        folder.path(),
    );
}
