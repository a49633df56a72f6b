//! A lock of the operating system on a file next to a state file. The system releases the lock when the process ends.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::files::with_suffix;

/// Why a lock cannot be taken, other than that another process has it.
#[derive(Debug)]
pub(super) enum LockError {
    /// The lock file cannot be opened.
    Open { path: PathBuf, source: io::Error },
    /// The file system has no locks.
    Unsupported { path: PathBuf, source: io::Error },
}

/// Takes the lock of a state file. Returns `None` while another process has it.
pub(super) fn try_lock(state: &Path) -> Result<Option<File>, LockError> {
    let path = lock_path(state);
    let mut options = OpenOptions::new();
    let lock = match options.create(true).truncate(false).write(true).open(&path) {
        Ok(lock) => lock,
        Err(source) => return Err(LockError::Open { path, source }),
    };
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(LockError::Unsupported { path, source: errno.into() }),
    }
}

/// Returns the path of the lock file of a state file.
pub(super) fn lock_path(state: &Path) -> PathBuf {
    with_suffix(state, ".lock")
}
