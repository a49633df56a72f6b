//! Runs the conformance suite on a bucket in memory, and kills at each request.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{ParquetOptions, ParquetStore, PartitionBy};
use crate::{
    bucket::faulty::Objects,
    files,
    load::{
        Identity, LoadError, LockPatience, Reader, Warehouse,
        conformance::{Kind, conformance_tests},
    },
    model::WarehouseKind,
};

/// Bytes of rows that are buffered.
const BUFFER_BYTES_MAX: usize = 16 << 20;

struct InBucket {
    objects: Objects,
    /// Has the objects as files, for readers and for comparisons.
    mirror: TempDir,
}

fn bucket() -> Box<dyn Kind> {
    Box::new(InBucket { objects: Objects::default(), mirror: TempDir::new().unwrap() })
}

/// Opens the warehouse in the bucket. Returns the folder of work too, which must outlive the warehouse.
fn open(objects: &Objects, identity: &Identity) -> Result<(Warehouse, TempDir), LoadError> {
    let options = ParquetOptions { partition_by: PartitionBy::Month, memory_limit_bytes: 256 << 20, threads: 2 };
    let work = TempDir::new().unwrap();
    let store =
        ParquetStore::open_bucket(&objects.bucket(), work.path(), identity, &options, &LockPatience::default())?;
    Ok((Warehouse::new("parquet", String::new(), Box::new(store), BUFFER_BYTES_MAX, 2), work))
}

impl InBucket {
    fn update_mirror(&self) {
        let bucket = self.objects.bucket();
        let root = self.mirror.path();
        let listed = bucket.list("", None).unwrap();
        for file in files::files_below(root).unwrap() {
            let key = file.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            if !listed.iter().any(|object| object.key == key) {
                fs::remove_file(file).unwrap();
            }
        }
        for object in listed.iter().filter(|object| !object.key.ends_with("lease.json")) {
            let (path, found) = (root.join(&object.key), bucket.read(&object.key).unwrap().unwrap());
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if fs::read(&path).ok().as_deref() != Some(&found.bytes) {
                fs::write(path, &found.bytes).unwrap();
            }
        }
    }
}

impl Kind for InBucket {
    fn open(&self, identity: &Identity) -> Result<Warehouse, LoadError> {
        open(&self.objects, identity).map(|(warehouse, work)| {
            // The system removes its folder of temporary files.
            let _ = work.keep();
            warehouse
        })
    }

    fn reader(&self) -> Reader {
        self.update_mirror();
        Reader::open(&WarehouseKind::Parquet.at(self.mirror.path())).unwrap()
    }

    fn root(&self) -> &Path {
        self.update_mirror();
        self.mirror.path()
    }
}

conformance_tests!(bucket);
