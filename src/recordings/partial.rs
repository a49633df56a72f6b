//! A download under way, and how it goes on after it was cut short.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::{RecordingsError, error::failed, upload::hexadecimal};
use crate::files;

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 256 << 10;

/// Which version of a file at a host a part is of: what a host must still have for the rest to fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// A strong entity tag, or a date of the last change, as the host spelled it.
    pub validator: String,
}

/// A download under way. What was written stays if it is dropped.
pub struct Partial {
    path: PathBuf,
    file: File,
    hash: Context,
    bytes: u64,
    version: Option<Version>,
}

impl Partial {
    /// Opens `<name>.part`. Without a note of its version it begins anew: nobody knows what its bytes are.
    pub(super) fn open(name: PathBuf) -> Result<Partial, RecordingsError> {
        let path = part_of(&name);
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
        let mut file = opened.map_err(failed("open", &path))?;
        let version = fs::read(version_of(&name)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let mut hash = Context::new(&SHA256);
        let mut bytes = 0;
        if version.is_some() {
            let mut chunk = vec![0; CHUNK_BYTES];
            loop {
                let read = file.read(&mut chunk).map_err(failed("read", &path))?;
                let Some(some) = chunk.get(..read).filter(|some| !some.is_empty()) else { break };
                hash.update(some);
                bytes += read as u64;
            }
        }
        let mut partial = Partial { path, file, hash, bytes, version };
        if partial.bytes == 0 {
            partial.restart(None)?;
        }
        Ok(partial)
    }

    /// The bytes that are there.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Of which version they are; `None` if there are none, or the host did not say.
    pub fn version(&self) -> Option<&Version> {
        self.version.as_ref().filter(|_| self.bytes > 0)
    }

    /// The file is sent from its beginning: nothing of what was there is kept.
    pub fn restart(&mut self, version: Option<Version>) -> Result<(), RecordingsError> {
        let emptied = self.file.set_len(0).and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(failed("empty", &self.path))?;
        (self.hash, self.bytes) = (Context::new(&SHA256), 0);
        let noted = files::beside(&self.path, ".json");
        match &version {
            // A part that outlives its version is begun anew; one with the wrong version would be completed wrongly.
            None => files::remove(&noted).map_err(failed("remove", &noted))?,
            Some(version) => {
                let text = serde_json::to_vec(version).map_err(failed("write", &noted))?;
                files::write_private(&noted, &text).map_err(failed("write", &noted))?;
            }
        }
        self.version = version;
        Ok(())
    }

    /// Takes the bytes that follow.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), RecordingsError> {
        self.file.write_all(bytes).map_err(failed("write", &self.path))?;
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// All bytes are there: their SHA-256, how many they are, and the file.
    pub(super) fn finish(self) -> Result<(String, u64, PathBuf), RecordingsError> {
        self.file.sync_all().map_err(failed("sync", &self.path))?;
        Ok((hexadecimal(self.hash.finish().as_ref()), self.bytes, self.path))
    }

    /// Removes what is noted of a download that is over.
    pub(super) fn forget(name: &Path) -> Result<(), RecordingsError> {
        let noted = version_of(name);
        files::remove(&noted).map_err(failed("remove", &noted))
    }

    /// Removes a part that nobody will go on with.
    pub(super) fn remove(name: &Path) -> Result<(), RecordingsError> {
        [version_of(name), part_of(name)]
            .iter()
            .try_for_each(|path| files::remove(path).map_err(failed("remove", path)))
    }
}

fn part_of(name: &Path) -> PathBuf {
    files::beside(name, ".part")
}

fn version_of(name: &Path) -> PathBuf {
    files::beside(name, ".part.json")
}
