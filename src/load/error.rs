//! What can go wrong with a warehouse, named for what the caller can do about it.

use std::{
    io,
    path::{Path, PathBuf},
};

use arrow::error::ArrowError;

use crate::{files, schema::Table};

/// An error of a warehouse.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Another process has the file open; wait, or close it.
    #[error("{} is held open by another process{}", path.display(), holder.as_deref().map(|holder| format!(" ({holder})")).unwrap_or_default())]
    Locked { path: PathBuf, holder: Option<String> },
    /// The file system gives no locks, so nobody can tell whether another process writes.
    #[error("the file system gives no lock on {}", path.display())]
    LockRefused {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// There is no such file or folder.
    #[error("there is no warehouse at {}", path.display())]
    Missing { path: PathBuf },
    /// The warehouse was filled from another service or environment.
    #[error("{} was filled from {found}, and this run reads {wanted}", path.display())]
    OtherIdentity { path: PathBuf, found: String, wanted: String },
    /// The Parquet warehouse is cut otherwise than the setting says; set it back, or fill a new folder.
    #[error("{} is cut by {found}, and the setting says by {wanted}", path.display())]
    OtherPartition { path: PathBuf, found: String, wanted: String },
    /// The warehouse was written by a newer version of this program, or of the engine.
    #[error("{} was written by a newer version ({found})", path.display())]
    Newer { path: PathBuf, found: String },
    /// There is a file or folder, but it is not a warehouse of ours.
    #[error("{} is not a warehouse of studysync: {why}", path.display())]
    NotOurs { path: PathBuf, why: String },
    /// A writer was killed half-way through putting files in place, and whoever only reads may not finish it.
    #[error("the last run on {} was cut short while it put files in place", path.display())]
    Unfinished { path: PathBuf },
    /// No space is left.
    #[error("no space is left for {}", path.display())]
    Full {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file of the warehouse is torn, overwritten or missing.
    #[error("{} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    /// Somebody else keeps something in the file with which the work cannot be done.
    #[error("{}: {object} {why}", path.display())]
    InTheWay { path: PathBuf, object: String, why: String },
    /// An extension of the engine is not installed, or cannot be loaded.
    #[error("DuckDB's extension {name} cannot be loaded: {why}")]
    NoExtension { name: &'static str, why: String },
    /// Reading or writing failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The engine refused a statement.
    #[error("the engine failed to {action}")]
    Engine {
        action: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A question took longer than it may.
    #[error("no answer within {} s", limit.as_secs_f64())]
    OutOfTime { limit: std::time::Duration },
    /// A page of the scan cannot be had; whoever reads the pages knows why.
    #[error("a page of the scan cannot be read")]
    Pages(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Stored rows have values that no version of this program writes: restore the warehouse, or fill a new one.
    #[error("the warehouse has damaged rows: {0}")]
    DamagedRows(String),
    /// The input or the command asks for something that is not implemented: change the input, or use another command.
    #[error("{0}")]
    Unsupported(String),
    /// More rows carry the identifiers of one request than fit into memory: split the request.
    #[error("more than {rows_max} rows carry these identifiers")]
    TooManyRows { rows_max: usize },
    /// An error rolled back scans that were applied before it and not committed: apply these scans again.
    #[error("scans that were applied and not committed are rolled back after an error")]
    RolledBack,
    /// The program broke one of its own rules: report it. The warehouse is unchanged since its last commit.
    #[error("internal error: {0}")]
    Bug(String),
}

impl LoadError {
    /// What the engine refused; `action` completes "the engine failed to ...".
    pub(super) fn engine(action: impl Into<String>, source: duckdb::Error) -> Self {
        let message = source.to_string();
        if is_full(&message) {
            let path = PathBuf::from(quoted(&message).unwrap_or("the engine's files"));
            return LoadError::Full { path, source: io::Error::new(io::ErrorKind::StorageFull, message) };
        }
        // The text says all: the error behind it has a number that is always the same.
        LoadError::Engine { action: action.into(), source: message.into() }
    }

    /// Nothing at all if the file is there; else why it cannot be read.
    pub(super) fn require_file(path: &Path) -> Result<(), LoadError> {
        match Self::require(path)? {
            found if found.is_file() => Ok(()),
            _ => Err(LoadError::NotOurs { path: path.to_owned(), why: "it is not a file".into() }),
        }
    }

    /// The same of a folder.
    pub(super) fn require_folder(path: &Path) -> Result<(), LoadError> {
        match Self::require(path)? {
            found if found.is_dir() => Ok(()),
            _ => Err(LoadError::NotOurs { path: path.to_owned(), why: "it is not a folder".into() }),
        }
    }

    fn require(path: &Path) -> Result<std::fs::Metadata, LoadError> {
        let found = files::metadata(path).map_err(|source| LoadError::io("reach", path, source))?;
        found.ok_or_else(|| LoadError::Missing { path: path.to_owned() })
    }

    /// An error of the file system; `action` completes "cannot ... PATH".
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                LoadError::Full { path, source }
            }
            _ => LoadError::Io { action, path, source },
        }
    }
}

/// For `map_err`: an error of Arrow about rows of a table. No input causes one, so it is a bug.
pub(super) fn invalid_rows(table: &Table) -> impl Fn(ArrowError) -> LoadError + use<'_> {
    move |error| LoadError::Bug(format!("{}: {error}", table.name))
}

/// Whether the engine ran out of disk: it has no codes, so its messages are read. The last is its bound on what it spills, which
/// follows what is free.
pub(super) fn is_full(message: &str) -> bool {
    let signs = ["No space left on device", "Disk quota exceeded", "File too large", "max_temp_directory_size"];
    signs.iter().any(|sign| message.contains(sign))
}

/// The file that a message of the engine names: the first text in double quotes.
fn quoted(message: &str) -> Option<&str> {
    message.split('"').nth(1).filter(|path| path.contains(std::path::MAIN_SEPARATOR))
}
