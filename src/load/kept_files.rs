//! Small files of the program in a warehouse that several machines share.

use super::{LoadError, store::attached::AttachedStore};
use crate::bucket::{Bucket, Content, Expected};

/// Folder of a bucket for small files of the program.
const FOLDER: &str = ".studysync/state";

/// The small files of the program in a bucket or a catalog.
pub struct KeptFiles(Keeper);

enum Keeper {
    /// The files are objects.
    Bucket(Bucket),
    /// The files are rows of the metadata.
    Catalog(Box<AttachedStore>),
}

impl KeptFiles {
    pub(super) fn of_bucket(bucket: Bucket) -> Self {
        Self(Keeper::Bucket(bucket))
    }

    pub(super) fn of_catalog(store: AttachedStore) -> Self {
        Self(Keeper::Catalog(Box::new(store)))
    }

    /// Reads a file; `None` if there is none.
    pub fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, LoadError> {
        match &mut self.0 {
            Keeper::Bucket(bucket) => Ok(bucket.read(&key_of(name))?.map(|found| found.bytes.to_vec())),
            Keeper::Catalog(store) => Ok(store.kept_text(name)?.map(String::into_bytes)),
        }
    }

    /// Writes or replaces a file, which must be a text in a catalog.
    ///
    /// # Errors
    /// `Locked` or `Conflict` if another machine writes the file at the same time.
    pub fn write(&mut self, name: &str, bytes: &[u8]) -> Result<(), LoadError> {
        let bucket = match &mut self.0 {
            Keeper::Bucket(bucket) => bucket,
            Keeper::Catalog(store) => return store.keep_text(name, &String::from_utf8_lossy(bytes)),
        };
        let key = key_of(name);
        let found = bucket.read(&key)?;
        if found.as_ref().is_some_and(|found| found.bytes == bytes) {
            return Ok(());
        }
        match bucket.put(&key, Content::Bytes(bytes), &found.map(|found| found.version).into())? {
            Some(_) => Ok(()),
            None => Err(LoadError::Locked { path: bucket.address().to_string().into(), holder: None }),
        }
    }

    /// Writes or replaces a file, whatever another machine has written there.
    pub fn overwrite(&mut self, name: &str, bytes: &[u8]) -> Result<(), LoadError> {
        match &mut self.0 {
            Keeper::Bucket(bucket) => {
                Ok(bucket.put(&key_of(name), Content::Bytes(bytes), &Expected::Anything).map(drop)?)
            }
            Keeper::Catalog(_) => self.write(name, bytes),
        }
    }
}

fn key_of(name: &str) -> String {
    format!("{FOLDER}/{name}")
}
