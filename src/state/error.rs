//! What can go wrong with the checkpoint database, named for what the caller can do about it.

use std::{io, path::PathBuf};

use super::Holder;

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
