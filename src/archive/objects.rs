//! The part of an archive that is in a bucket: the objects of committed scans.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{ArchiveError, PageFile};
use crate::{
    bucket::{Bucket, Content, Expected, UPLOADS},
    model::ScanId,
};

/// Ends the keys of objects with pages.
const PAGES_SUFFIX: &str = ".pages";

/// The objects of committed scans.
#[derive(Clone, Debug)]
pub(super) struct PageObjects {
    pub bucket: Bucket,
    /// The folder of this machine for objects that are being rewritten.
    pub scratch: PathBuf,
    /// The scans whose spools are objects already.
    pub prepared: Arc<Mutex<HashSet<ScanId>>>,
}

impl PageObjects {
    /// Lists the objects.
    pub fn list(&self) -> Result<Vec<PageFile>, ArchiveError> {
        let listed = self.bucket.list("", None)?.into_iter();
        let pages = listed.filter(|object| is_pages(&object.key));
        Ok(pages.map(|object| PageFile::in_bucket(&self.bucket, object, &self.scratch)).collect())
    }

    /// Writes the spool of a scan to the bucket.
    ///
    /// An earlier run may have written the object, and was killed before it removed the spool. If the scan was then
    /// committed again, the spool has one more commit note, and replaces the object.
    pub fn put(&self, key: &str, spool: &Path) -> Result<(), ArchiveError> {
        if self.bucket.put(key, Content::File(spool), &Expected::Missing)?.is_none() {
            let folder = key.rsplit_once('/').map_or("", |(folder, _)| folder);
            let found = self.bucket.list(folder, None)?.into_iter().find(|object| object.key == key);
            let expected = found.map(|object| object.version).into();
            let changed = || ArchiveError::Changed { path: self.bucket.url_of(key).into() };
            self.bucket.put(key, Content::File(spool), &expected)?.ok_or_else(changed)?;
        }
        Ok(())
    }

    /// Returns the scans whose spools are objects already.
    pub fn prepared(&self) -> MutexGuard<'_, HashSet<ScanId>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes objects; one that does not exist is no error.
    pub fn remove(&self, files: &[PageFile]) -> Result<(), ArchiveError> {
        let keys: Vec<String> = files.iter().filter_map(PageFile::key).map(str::to_owned).collect();
        Ok(self.bucket.remove(&keys)?)
    }

    /// Aborts writes in parts that killed runs have left, because their parts have pages.
    pub fn abort_uploads(&self) -> Result<(), ArchiveError> {
        let records = self.bucket.list(UPLOADS, None)?;
        Ok(self.bucket.abort_uploads(&records)?)
    }
}

/// Returns true for a key `<stream>/<month>/<scan>.pages`.
fn is_pages(key: &str) -> bool {
    let mut names = key.rsplit('/');
    names.next().is_some_and(|name| name.ends_with(PAGES_SUFFIX)) && names.count() == 2
}
