//! The tables of a warehouse in a bucket, for readers on this machine.

use std::{path::PathBuf, time::Duration};

use super::remote::{Remote, WAREHOUSE};
use crate::{
    bucket::{Bucket, BucketErrorKind},
    load::{LoadError, LockPatience},
    model::{BucketAddress, Failpoints},
    schema::Table,
};

/// How long to wait for another reader that fetches files.
const PATIENCE: Duration = Duration::from_secs(600);
/// Tries to fetch files that a writer replaces meanwhile.
const TRIES: usize = 5;

/// The tables of a warehouse in a bucket. Their files are fetched when they are needed.
pub(in crate::load) struct BucketTables {
    bucket: Bucket,
    folder: PathBuf,
    keys: Vec<String>,
}

/// Returns true if a bucket has a warehouse.
pub(in crate::load) fn is_warehouse(bucket: &Bucket) -> Result<bool, LoadError> {
    Ok(bucket.read(WAREHOUSE)?.is_some())
}

impl BucketTables {
    /// Lists the files of the warehouse. `folder` is the folder of this machine for fetched files.
    ///
    /// # Errors
    /// [`LoadError::Missing`] if the bucket has no warehouse.
    pub fn list(address: &BucketAddress, folder: PathBuf) -> Result<Self, LoadError> {
        let bucket = Bucket::connect(address, &Failpoints::default())?;
        let keys: Vec<String> = bucket.list("", None)?.into_iter().map(|object| object.key).collect();
        match keys.iter().any(|key| key == WAREHOUSE) {
            true => Ok(Self { bucket, folder, keys }),
            false => Err(LoadError::Missing { path: address.to_string().into() }),
        }
    }

    /// Returns true if the table has a file.
    pub fn has_files(&self, table: &Table) -> bool {
        let is_of_table = |key: &&String| key.strip_prefix(&table.name).is_some_and(|rest| rest.starts_with('/'));
        self.keys.iter().filter(is_of_table).any(|key| key.ends_with(".parquet"))
    }

    /// Brings the files of these tables into the folder: those that are not there, and those that have changed.
    pub fn fetch(&self, tables: &[&str]) -> Result<(), LoadError> {
        self.fetch_with(|remote| tables.iter().try_for_each(|table| remote.fetch_below(table)))
    }

    /// Brings all objects into the folder.
    pub fn fetch_all(&self) -> Result<(), LoadError> {
        self.fetch_with(|remote| remote.fetch_below(""))
    }

    fn fetch_with(&self, fetch: impl Fn(&Remote) -> Result<(), LoadError>) -> Result<(), LoadError> {
        let patience = LockPatience { wait: PATIENCE, ..LockPatience::default() };
        let mut tries = 1;
        loop {
            let fetched = patience.until_free(|| {
                let remote = Remote::open_to_compare(self.bucket.clone(), &self.folder)?;
                fetch(&remote)
            });
            match fetched {
                Err(LoadError::Bucket(error)) if tries < TRIES && error.kind() != BucketErrorKind::Refused => {
                    tracing::debug!(%error, "listing the files again");
                    tries += 1;
                }
                fetched => return fetched,
            }
        }
    }
}
