//! A partial download, which can be resumed after an interruption.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::upload::hexadecimal;
use crate::files::{self, FileError};

/// Size of one read.
const CHUNK_BYTES: usize = 256 << 10;

/// The version of the remote file. A download can only be resumed while the host still has this version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// A strong entity tag or a last-modified date, as the host sent it.
    pub validator: String,
}

/// A partial download that is open for appending. The bytes stay on disk if the value is dropped.
pub struct PartialFile {
    path: PathBuf,
    file: File,
    /// Hash of the bytes on disk.
    hash: Context,
    /// Number of bytes on disk.
    bytes: u64,
    /// The version of the remote file. `None` if the host sent none.
    version: Option<FileVersion>,
}

impl PartialFile {
    /// Opens or creates `<name>.part`, and hashes the bytes in it. Discards the bytes if no version is stored with
    /// them, because the host may have another version of the file.
    pub(super) fn open(name: PathBuf) -> Result<PartialFile, FileError> {
        let path = part_of(&name);
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.map_err(FileError::of("open", &path))?;
        let version = fs::read(version_of(&name)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let mut hash = Context::new(&SHA256);
        let mut bytes = 0;
        if version.is_some() {
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                let read = file.read(&mut chunk).map_err(FileError::of("read", &path))?;
                let Some(bytes_read) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
                hash.update(bytes_read);
                bytes += read as u64;
            }
        }
        let mut partial = PartialFile { path, file, hash, bytes, version };
        if partial.bytes == 0 {
            partial.restart(None)?;
        }
        Ok(partial)
    }

    /// Returns the number of bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the version of the bytes on disk. Returns `None` if there are no bytes, or the host sent no version.
    pub fn version(&self) -> Option<&FileVersion> {
        self.version.as_ref().filter(|_| self.bytes > 0)
    }

    /// Discards all bytes, because the host sends the file from its beginning. Stores the `version` of the file that
    /// the host is about to send.
    pub fn restart(&mut self, version: Option<FileVersion>) -> Result<(), FileError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(FileError::of("empty", &self.path))?;
        (self.hash, self.bytes) = (Context::new(&SHA256), 0);
        let version_path = files::with_suffix(&self.path, ".json");
        match &version {
            // The old version must not stay, because a later download would mix bytes of two versions.
            None => files::remove(&version_path).map_err(FileError::of("remove", &version_path))?,
            Some(version) => {
                let text = serde_json::to_vec(version).map_err(FileError::of("write", &version_path))?;
                files::write_private(&version_path, &text).map_err(FileError::of("write", &version_path))?;
            }
        }
        self.version = version;
        Ok(())
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.file.write_all(bytes).map_err(FileError::of("write", &self.path))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Syncs the complete file. Returns its SHA-256, its size and its path.
    pub(super) fn finish(self) -> Result<(String, u64, PathBuf), FileError> {
        self.file.sync_all().map_err(FileError::of("sync", &self.path))?;
        Ok((hexadecimal(self.hash.finish().as_ref()), self.bytes, self.path))
    }

    /// Removes the stored version of a finished download.
    pub(super) fn forget(name: &Path) -> Result<(), FileError> {
        let version_path = version_of(name);
        files::remove(&version_path).map_err(FileError::of("remove", &version_path))
    }

    /// Removes a partial download that will not be resumed.
    pub(super) fn remove(name: &Path) -> Result<(), FileError> {
        [version_of(name), part_of(name)]
            .iter()
            .try_for_each(|path| files::remove(path).map_err(FileError::of("remove", path)))
    }
}

/// Returns the path of the partial file of an upload.
fn part_of(name: &Path) -> PathBuf {
    files::with_suffix(name, ".part")
}

fn version_of(name: &Path) -> PathBuf {
    files::with_suffix(name, ".part.json")
}
