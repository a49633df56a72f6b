//! What can go wrong with the checkpoint database, named for what the caller can do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use rusqlite::{ErrorCode, ffi::SQLITE_IOERR_SHMSIZE};

use rustix::io::Errno;

use super::{
    holder::Holder,
    lock::{LockError, try_lock},
};

/// An error of the checkpoint database.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// SQLite refused.
    #[error("cannot {action} the state file {}", path.display())]
    Sqlite {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// No space is left.
    #[error("no space is left for the state file {}", path.display())]
    Full {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// The file is torn, overwritten or no database at all.
    /// What it knew can be rebuilt from the ledgers of the warehouses.
    #[error("the state file {} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    /// The file or its folder cannot be written.
    #[error("the state file {} cannot be written", path.display())]
    ReadOnly {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// This user may not reach or read the file.
    #[error("the state file {} cannot be read", path.display())]
    Unreachable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file system gives no locks, so nobody can tell whether another run is at work.
    #[error("the file system gives no lock on {}", path.display())]
    LockRefused {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A damaged file cannot be put aside.
    #[error("the damaged state file {} cannot be put aside", path.display())]
    PutAside {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The folder of the file cannot be made.
    #[error("cannot create the folder {}", path.display())]
    Folder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The lock beside the file cannot be taken for another reason than a holder.
    #[error("cannot lock {}", path.display())]
    Lock {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file was written by a newer version of this program.
    #[error("the state file {} was written by a newer version of studysync", path.display())]
    Newer { path: PathBuf },
    /// A migration failed.
    #[error("the state file {} cannot be brought up to date: {why}", path.display())]
    Migration { path: PathBuf, why: String },
    /// The file belongs to another service or environment (promise P10).
    #[error("the state file {} belongs to {what} '{found}', and this run names '{wanted}'", path.display())]
    OtherService { path: PathBuf, what: &'static str, found: String, wanted: String },
    /// Another run holds the lease.
    #[error("another run holds the lease on {}{}", path.display(), holder.as_ref().map(|holder| format!(": {holder}")).unwrap_or_default())]
    Leased { path: PathBuf, holder: Option<Holder> },
    /// A watcher ended the run: only tests have one.
    #[error("cannot write the state file {}", path.display())]
    Stopped {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A row holds what this program never writes.
    #[error("the state file {} holds a value that cannot be read: {what}", path.display())]
    Unreadable { path: PathBuf, what: String },
}

impl StateError {
    /// An error of SQLite by what can be done about it. `action` completes "cannot ... the state file".
    pub(super) fn sqlite(action: &'static str, path: &Path, source: rusqlite::Error) -> StateError {
        let path = path.to_owned();
        match source.sqlite_error() {
            Some(error) if error.code == ErrorCode::DiskFull || error.extended_code == SQLITE_IOERR_SHMSIZE => {
                StateError::Full { path, source }
            }
            Some(error) if matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                StateError::Damaged { path, why: source.to_string() }
            }
            Some(error)
                if matches!(error.code, ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) =>
            {
                // Not by opening it: to close a file gives back every lock that this process has on it.
                match rustix::fs::access(&path, rustix::fs::Access::READ_OK) {
                    Err(errno @ Errno::ACCESS) => StateError::Unreachable { path, source: errno.into() },
                    _ => StateError::ReadOnly { path, source },
                }
            }
            // SQLite waits for a lock that the file system refuses, and then says that somebody holds it.
            Some(error) if error.code == ErrorCode::DatabaseBusy => match try_lock(&path) {
                Err(refused @ LockError::Refused { .. }) => refused.into(),
                _ => StateError::Sqlite { action, path, source },
            },
            _ => StateError::Sqlite { action, path, source },
        }
    }
}

impl From<LockError> for StateError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Unopened { path, source } => StateError::Lock { path, source },
            LockError::Refused { path, source } => StateError::LockRefused { path, source },
        }
    }
}
