//! The lock beside a state file. It is the system's, so it goes with its process whatever ends that.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

/// Why it is not known whether the lock is free.
#[derive(Debug)]
pub(super) enum LockError {
    /// The file of the lock cannot be opened.
    Unopened { path: PathBuf, source: io::Error },
    /// The file system gives no locks.
    Refused { path: PathBuf, source: io::Error },
}

/// The lock beside a state file; `None` while another process has it.
///
/// # Errors
/// `Refused` if the file system gives no locks.
pub(super) fn try_lock(state: &Path) -> Result<Option<File>, LockError> {
    let path = lock_path(state);
    let failed = |path: PathBuf| move |source| LockError::Unopened { path, source };
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).open(&path).map_err(failed(path.clone()))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(lock)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(errno) => Err(LockError::Refused { path, source: errno.into() }),
    }
}

pub(super) fn lock_path(state: &Path) -> PathBuf {
    let mut name = OsString::from(state.as_os_str());
    name.push(".lock");
    PathBuf::from(name)
}
