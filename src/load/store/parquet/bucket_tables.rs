//! The tables of a warehouse in a bucket, for readers on this machine.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{
    lease,
    remote::{READ_BYTES, Remote, WAREHOUSE},
};
use crate::{
    bucket::{Bucket, BucketErrorKind, ListedObject, ObjectReader},
    files,
    load::{LoadError, LockPatience},
    model::{BucketAddress, Failpoints},
    schema::Table,
};

/// Tries to fetch files that a writer replaces meanwhile.
const TRIES: usize = 5;
/// Number of readers on this machine that have a folder each. A further one waits.
const READERS_MAX: usize = 8;

/// The tables of a warehouse in a bucket. Their files are fetched when they are needed. The folder of the files stays
/// locked until this value is dropped, so that no other reader replaces or removes them.
pub(in crate::load) struct BucketTables {
    remote: Remote,
    /// The tables whose files are in the folder.
    fetched: RefCell<BTreeSet<String>>,
}

/// Returns true if a bucket has a warehouse.
pub(in crate::load) fn is_warehouse(bucket: &Bucket) -> Result<bool, LoadError> {
    Ok(bucket.read(WAREHOUSE)?.is_some())
}

/// Reads all objects but the lease, one after the other. `visit` gets the address and the content of each.
pub(in crate::load) fn read_objects(
    bucket: &Bucket,
    visit: &mut dyn FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<(), LoadError> {
    // A store may show a folder as an object without bytes, which cannot be read.
    let has_texts = |object: &ListedObject| object.bytes > 0 && object.key != lease::KEY;
    for object in bucket.list("", None)?.iter().filter(|object| has_texts(object)) {
        let url = bucket.url_of(&object.key);
        let mut reader = ObjectReader::open(bucket, object, READ_BYTES)?;
        visit(&url, &mut reader).map_err(LoadError::io("read", url.as_ref()))?;
    }
    Ok(())
}

/// Returns the folders of readers on this machine.
pub(in crate::load) fn folders(folder: &Path) -> impl Iterator<Item = PathBuf> {
    let more = (2..=READERS_MAX).map(|number| files::with_suffix(folder, &format!(".{number}")));
    std::iter::once(folder.to_owned()).chain(more)
}

impl BucketTables {
    /// Lists the files of the warehouse. `folder` is the folder of this machine for fetched files. While another reader
    /// has it, a folder with a number takes its place.
    ///
    /// # Errors
    /// [`LoadError::Missing`] if the bucket has no warehouse.
    pub fn list(address: &BucketAddress, folder: &Path, patience: &LockPatience) -> Result<Self, LoadError> {
        let bucket = Bucket::connect(address, &Failpoints::default())?;
        patience.until_free(|| {
            let mut locked = None;
            for folder in folders(folder) {
                match Remote::open_to_compare(bucket.clone(), &folder) {
                    Err(error @ LoadError::Locked { .. }) => locked = Some(error),
                    opened => return Ok(Self { remote: opened?, fetched: RefCell::default() }),
                }
            }
            Err(locked.unwrap_or_else(|| LoadError::Bug("no folder for a reader".to_owned())))
        })
    }

    /// Returns the folder of this machine that has the files.
    pub fn folder(&self) -> &Path {
        self.remote.folder()
    }

    /// Returns true if the table has a file.
    pub fn has_files(&self, table: &Table) -> bool {
        self.remote
            .files_below(&self.folder().join(&table.name))
            .iter()
            .any(|file| file.extension().is_some_and(|name| name == "parquet"))
    }

    /// Brings the files of these tables into the folder. If a writer replaces files meanwhile, the files of all fetched
    /// tables become the newer ones.
    pub fn fetch<'t>(&self, tables: impl IntoIterator<Item = &'t str>) -> Result<(), LoadError> {
        let mut fetched = self.fetched.borrow_mut();
        let new: BTreeSet<String> =
            tables.into_iter().map(str::to_owned).filter(|table| !fetched.contains(table)).collect();
        let mut wanted = new.clone();
        fetched.extend(new);
        let mut tries = 1;
        loop {
            let done = wanted.iter().try_for_each(|table| self.remote.fetch_below(table));
            match done {
                Err(LoadError::Bucket(error)) if tries < TRIES && error.kind() != BucketErrorKind::Refused => {
                    tracing::debug!(%error, "listing the files again");
                    self.remote.list()?;
                    wanted.clone_from(&fetched);
                    tries += 1;
                }
                done => return done,
            }
        }
    }
}
