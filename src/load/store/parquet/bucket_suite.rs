//! Runs the conformance suite on a bucket in memory, and kills at each request.

use std::{fs, path::Path};

use tempfile::TempDir;

use super::{ParquetOptions, ParquetStore, PartitionBy};
use crate::{
    bucket::{Bucket, faulty::Objects},
    files,
    load::{
        Identity, LoadError, LockPatience, Reader, Warehouse,
        conformance::{Kind, conformance_tests},
    },
    model::{Failpoints, WarehouseKind},
};

/// Bytes of rows that are buffered.
const BUFFER_BYTES_MAX: usize = 16 << 20;

struct InBucket {
    bucket: Bucket,
    /// Has the objects as files, for readers and for comparisons.
    mirror: TempDir,
}

fn bucket() -> Box<dyn Kind> {
    Box::new(InBucket { bucket: Objects::default().bucket(), mirror: TempDir::new().unwrap() })
}

/// A new folder of the bucket that `scripts/bucket.sh` names.
#[expect(clippy::disallowed_methods, reason = "the script starts the server of the bucket")]
fn real_bucket() -> Box<dyn Kind> {
    let name = std::env::var("STUDYSYNC_TEST_BUCKET").expect("run by scripts/bucket.sh, which starts an S3 server");
    let address = format!("{name}/{}", uuid::Uuid::new_v4()).parse().unwrap();
    let bucket = Bucket::connect(&address, &Failpoints::default()).unwrap();
    Box::new(InBucket { bucket, mirror: TempDir::new().unwrap() })
}

/// Opens the warehouse in the bucket. Returns the folder of work too, which must outlive the warehouse.
fn open(bucket: &Bucket, identity: &Identity) -> Result<(Warehouse, TempDir), LoadError> {
    let options = ParquetOptions { partition_by: PartitionBy::Month, memory_limit_bytes: 256 << 20, threads: 2 };
    let work = TempDir::new().unwrap();
    let store = ParquetStore::open_bucket(bucket, work.path(), identity, &options, &LockPatience::default())?;
    Ok((Warehouse::new("parquet", String::new(), Box::new(store), BUFFER_BYTES_MAX, 2), work))
}

impl InBucket {
    fn update_mirror(&self) {
        let Self { bucket, .. } = self;
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
        open(&self.bucket, identity).map(|(warehouse, work)| {
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

mod real_bucket {
    crate::load::conformance::conformance_tests!(slow super::real_bucket);
}
