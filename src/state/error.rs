//! Errors of the state file and the inbox. Each variant is a cause that callers handle or explain differently.

use std::{
    io,
    path::{Path, PathBuf},
};

use rusqlite::{ErrorCode, ffi::SQLITE_IOERR_SHMSIZE};

use rustix::io::Errno;

use crate::{
    files::{FileAccess, FileError, folder_of, refusal_hint},
    model::{FREE_SPACE, Fault, NEEDS_LOCKS, RunReason, USE_NEWER},
};

use super::{
    lease_holder::LeaseHolder,
    lock::{LockError, try_lock},
};

/// An error of the state file or the inbox.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// SQLite reported an error that no other variant names.
    #[error("cannot {action} the state file {}", path.display())]
    Sqlite {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// The disk is full.
    #[error("no space is left for the state file {}", path.display())]
    Full {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// The file is torn, overwritten or no database. Its coverage can be rebuilt from the ledgers of the warehouses.
    #[error("the state file {} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    /// The file or its folder cannot be written.
    #[error("the state file {} cannot be written", path.display())]
    ReadOnly {
        path: PathBuf,
        #[source]
        source: rusqlite::Error,
    },
    /// The user has no permission to read the file or to enter its folder.
    #[error("the state file {} cannot be read", path.display())]
    Inaccessible {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file system has no locks, so another run cannot be excluded.
    #[error("the file system gives no lock on {}", path.display())]
    LockRefused {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A damaged file cannot be renamed.
    #[error("the damaged state file {} cannot be renamed", path.display())]
    RenameDamaged {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The folder of the file cannot be created, or the lock file next to the state file cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
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
    Leased { path: PathBuf, holder: Option<LeaseHolder> },
    /// A failpoint stopped the run. Only tests set failpoints.
    #[error("cannot write the state file {}", path.display())]
    Stopped {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A row has a value that this program never writes.
    #[error("the state file {} has an invalid value: {what}", path.display())]
    InvalidValue { path: PathBuf, what: String },
}

impl StateError {
    /// Returns the variant for an error of SQLite. `action` completes "cannot ... the state file".
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
                // Opening the file would be wrong here: closing it again releases SQLite's locks of this process.
                match rustix::fs::access(&path, rustix::fs::Access::READ_OK).and_then(|()| has_file_handle()) {
                    Err(errno @ (Errno::ACCESS | Errno::MFILE | Errno::NFILE)) => {
                        StateError::Inaccessible { path, source: errno.into() }
                    }
                    _ => StateError::ReadOnly { path, source },
                }
            }
            // SQLite reports "busy" if the file system has no locks.
            Some(error) if error.code == ErrorCode::DatabaseBusy => match try_lock(&path) {
                Err(unsupported @ LockError::Unsupported { .. }) => unsupported.into(),
                _ => StateError::Sqlite { action, path, source },
            },
            _ => StateError::Sqlite { action, path, source },
        }
    }
}

impl Fault for StateError {
    fn reason(&self) -> RunReason {
        match self {
            StateError::Leased { .. } => RunReason::LeaseHeld,
            StateError::Full { .. } => RunReason::DiskFull,
            StateError::OtherService { .. } | StateError::Newer { .. } => RunReason::Configuration,
            _ => RunReason::StateFailed,
        }
    }

    fn hint(&self) -> Option<&str> {
        Some(match self {
            StateError::Leased { .. } => {
                "wait for it to end, or stop it: two runs at a time would request the same windows twice"
            }
            StateError::OtherService { .. } => {
                "name another --state: one state file belongs to one environment of one service. If the service has moved: studysync rebind --from ITS_OLD_ADDRESS"
            }
            StateError::Newer { .. } => USE_NEWER,
            StateError::Full { .. } => FREE_SPACE,
            StateError::Damaged { .. } => {
                "run sync: it renames the file and rebuilds the checkpoints from the ledgers of the warehouses"
            }
            StateError::RenameDamaged { .. } => "move it away and run the same command again",
            StateError::Inaccessible { path, source } => refusal_hint(path, source, FileAccess::Read)?,
            StateError::LockRefused { .. } => NEEDS_LOCKS,
            StateError::File(error) => error.hint().unwrap_or(WRITABLE),
            StateError::ReadOnly { path, .. } => {
                // SQLite does not say whether the file or its folder is not writable.
                let refused = [path.as_path(), folder_of(path)].into_iter().find_map(|path| {
                    let error = rustix::fs::access(path, rustix::fs::Access::WRITE_OK).err()?;
                    refusal_hint(path, &error.into(), FileAccess::Write)
                });
                refused.unwrap_or(WRITABLE)
            }
            StateError::Sqlite { .. } => {
                "check the disk (space, quota, errors) and run the same command again: nothing committed is lost"
            }
            _ => return None,
        })
    }
}

const WRITABLE: &str = "make the folder writable for this user, or name another path";

/// Fails if this process cannot open another file. SQLite does not say so.
fn has_file_handle() -> Result<(), Errno> {
    rustix::io::dup(std::io::stderr()).map(drop)
}

impl From<LockError> for StateError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Open(error) => error.into(),
            LockError::Unsupported { path, source } => StateError::LockRefused { path, source },
        }
    }
}
