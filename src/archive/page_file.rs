//! A file with the pages of one scan: on this machine, or an object in a bucket.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use super::ArchiveError;
use crate::{
    bucket::{Bucket, Content, Expected, ListedObject, ObjectReader},
    files,
    model::ScanId,
};

/// The name of the folder of spools.
pub(super) const UNDER_WAY: &str = "under-way";
/// Suffix of a file that will replace a file of pages and is being written.
pub(super) const REWRITE_SUFFIX: &str = ".rewrite";
/// The most bytes of an object that one request reads.
pub(super) const PART_BYTES: u64 = 8 << 20;

/// A file with the pages of one scan: a spool, or a file of the archive.
#[derive(Clone, Debug)]
pub struct PageFile {
    path: PathBuf,
    object: Option<PagesObject>,
}

/// A version of an object with the pages of a committed scan.
#[derive(Clone, Debug)]
struct PagesObject {
    bucket: Bucket,
    listed: ListedObject,
    /// The path of this machine next to which a rewrite puts the new content.
    local: PathBuf,
}

impl From<PathBuf> for PageFile {
    fn from(path: PathBuf) -> PageFile {
        PageFile { path, object: None }
    }
}

impl PageFile {
    /// Returns the file that is an object. A rewrite uses the folder `scratch` of this machine.
    pub(super) fn in_bucket(bucket: &Bucket, listed: ListedObject, scratch: &Path) -> PageFile {
        let path = PathBuf::from(bucket.url_of(&listed.key));
        let local = scratch.join(path.file_name().unwrap_or_default());
        PageFile { path, object: Some(PagesObject { bucket: bucket.clone(), listed, local }) }
    }

    /// Returns the path; for an object its address, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the key of an object; `None` for a file on this machine.
    pub fn key(&self) -> Option<&str> {
        self.object.as_ref().map(|object| object.listed.key.as_str())
    }

    /// Returns true for the spool of a scan that is not committed yet, or not archived yet.
    pub fn is_spool(&self) -> bool {
        self.object.is_none() && files::folder_of(&self.path).ends_with(UNDER_WAY)
    }

    /// Returns the id of the scan, from the name of the file.
    pub(super) fn scan_id(&self) -> Option<ScanId> {
        self.path.file_stem().map(|stem| ScanId(stem.to_string_lossy().into_owned()))
    }

    /// Opens the file to read its bytes. `part_bytes` is the most that one request reads of an object.
    pub(super) fn open_bytes(&self, part_bytes: u64) -> Result<PageFileReader, ArchiveError> {
        Ok(match &self.object {
            Some(PagesObject { bucket, listed, .. }) => {
                PageFileReader::Object(ObjectReader::open(bucket, listed, part_bytes)?)
            }
            None => PageFileReader::Local(File::open(&self.path).map_err(ArchiveError::io("open", &self.path))?),
        })
    }

    /// Opens the file to read its bytes.
    pub fn open_raw(&self) -> Result<impl Read + use<>, ArchiveError> {
        self.open_bytes(PART_BYTES)
    }

    /// Returns the path of the new content during a rewrite.
    pub(super) fn replacement_path(&self) -> PathBuf {
        let local = self.object.as_ref().map_or(&self.path, |object| &object.local);
        files::with_suffix(local, REWRITE_SUFFIX)
    }

    /// Replaces the file by the file `new`, which is gone afterwards.
    ///
    /// # Errors
    /// [`ArchiveError::Changed`] if the object has another version than this value.
    pub(super) fn replace_by(&self, new: &Path) -> Result<(), ArchiveError> {
        let Some(PagesObject { bucket, listed, .. }) = &self.object else {
            return files::replace(new, &self.path).map_err(ArchiveError::io("replace", &self.path));
        };
        let expected = Expected::Version(listed.version.clone());
        let written = bucket.put(&listed.key, Content::File(new), &expected);
        files::remove(new).map_err(ArchiveError::io("remove", new))?;
        match written? {
            Some(_) => Ok(()),
            None => Err(ArchiveError::Changed { path: self.path.clone() }),
        }
    }
}

/// The bytes of a file of pages.
#[derive(Debug)]
pub(super) enum PageFileReader {
    Local(File),
    Object(ObjectReader),
}

impl Read for PageFileReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            PageFileReader::Local(file) => file.read(buffer),
            PageFileReader::Object(object) => object.read(buffer),
        }
    }
}

impl Seek for PageFileReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            PageFileReader::Local(file) => file.seek(to),
            PageFileReader::Object(object) => object.seek(to),
        }
    }
}
