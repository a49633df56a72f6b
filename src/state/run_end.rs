//! The end of a run, in the lock file of the lease: for a state file that cannot be written any more, because its disk
//! is full. The lock file reserves the space while there is some, so that the end of the run can replace it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::lock::lock_path;

/// The reserved bytes of the lock file.
const RESERVED_BYTES: usize = 16 << 10;

/// How a run ended whose end the state file does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    pub run_id: String,
    /// Epoch milliseconds.
    pub finished_ms: i64,
    pub outcome: String,
    pub exit_code: i64,
    /// The run JSON.
    pub report: String,
}

impl RunEnd {
    /// Reads the end of a run from the lock file of a state file; `None` if there is none.
    pub(super) fn read(state: &Path) -> Option<RunEnd> {
        serde_json::from_slice(&fs::read(lock_path(state)).ok()?).ok()
    }

    /// Writes the end of a run into the reserved space of a lock file. After a power loss, the run counts as killed.
    ///
    /// # Errors
    /// The space was not reserved, or the text is too long for it.
    pub(super) fn write(&self, lock: &File) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        if text.len() > RESERVED_BYTES || lock.metadata()?.len() < RESERVED_BYTES as u64 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        text.resize(RESERVED_BYTES, b' ');
        lock.write_all_at(&text, 0)
    }
}

/// Fills the reserved space of a lock file with blanks. A failure is ignored: then a run that meets a full disk counts
/// as killed.
pub(super) fn reserve(lock: &File) {
    let _ = lock.write_all_at(&[b' '; RESERVED_BYTES], 0);
}
