//! A lock of the operating system on a file next to a state file. The system releases the lock when the process ends.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};

use crate::files::{FileError, with_suffix};

/// Why a lock cannot be taken, other than that another process has it.
#[derive(Debug)]
pub(super) enum LockError {
    /// The lock file cannot be opened.
    Open(FileError),
    /// The file system has no locks.
    Unsupported { path: PathBuf, source: io::Error },
}

/// How often the lock is tried while only readers of the status have it, which hold it for microseconds.
const TRIES_MAX: u32 = 1000;

/// Takes the lock of a state file. Returns `None` while another process has it.
pub(super) fn try_lock(state: &Path) -> Result<Option<File>, LockError> {
    let path = lock_path(state);
    let mut options = OpenOptions::new();
    let lock = options.create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(|error| LockError::Open(FileError::of("lock", &path)(error)))?;
    for _ in 0..TRIES_MAX {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(lock)),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(errno) => return Err(LockError::Unsupported { path, source: errno.into() }),
        }
        // A process that only asks who has the lock holds a shared lock for this moment, as here.
        if is_locked(&lock) {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(None)
}

/// Returns true if a process has the exclusive lock of the file. `lock` must have no lock.
pub(super) fn is_locked(lock: &File) -> bool {
    let is_locked = flock(lock, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK);
    // Without a lock to release, nothing happens.
    flock(lock, FlockOperation::Unlock).ok();
    is_locked
}

/// Returns the path of the lock file of a state file.
pub(super) fn lock_path(state: &Path) -> PathBuf {
    with_suffix(state, ".lock")
}
