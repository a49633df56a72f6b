//! Errors of a warehouse. The doc of each variant says what happened and what the user can do.

use std::{
    io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use arrow::error::ArrowError;

use crate::{
    bucket::BucketError,
    files::{self, FileError},
    model::{FREE_SPACE, Fault, NEEDS_LOCKS, RunReason, USE_NEWER, WarehouseKind},
    schema::Table,
};

/// Name of DuckDB's extension for the search index.
pub(super) const FULL_TEXT: &str = "fts";

/// An error of a warehouse.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Another process has the file open, or this process has it open already: wait, or end that process.
    #[error("{} is held open by another process{}", path.display(), holder.as_deref().map(|holder| format!(" ({holder})")).unwrap_or_default())]
    Locked { path: PathBuf, holder: Option<String> },
    /// The file system refuses locks, so other writers cannot be kept out: move the warehouse.
    #[error("the file system gives no lock on {}", path.display())]
    LockRefused {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file or folder does not exist: create it, or name another path.
    #[error("there is no warehouse at {}", path.display())]
    Missing { path: PathBuf },
    /// The warehouse belongs to another service or environment: name another warehouse, or rebind it.
    #[error("{} was filled from {found}, and this run reads {wanted}", path.display())]
    OtherIdentity { path: PathBuf, found: String, wanted: String },
    /// The Parquet warehouse has another partition size than the setting: restore the setting, or fill a new folder.
    #[error("{} is partitioned by {found}, and the setting says {wanted}", path.display())]
    OtherPartition { path: PathBuf, found: String, wanted: String },
    /// A newer version of this program or of the engine wrote the warehouse: upgrade.
    #[error("{} was written by a newer version ({found})", path.display())]
    Newer { path: PathBuf, found: String },
    /// The file or folder at the path is not a warehouse of this program: name another path.
    #[error("{} is not a warehouse of studysync: {why}", path.display())]
    NotOurs { path: PathBuf, why: String },
    /// A killed writer left a publish unfinished, and a reader may not finish it: run `sync` once.
    #[error("the last run on {} was interrupted while it published files", path.display())]
    Unfinished { path: PathBuf },
    /// The disk is full: make room and run again.
    #[error("no space is left for {}", path.display())]
    Full {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A file is truncated, overwritten or missing: restore the warehouse, or fill a new one.
    #[error("{} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    /// An object that a user created in the file, such as a table, blocks the work: remove the object.
    #[error("{}: {object} {why}", path.display())]
    ForeignObject { path: PathBuf, object: String, why: String },
    /// An extension of the engine is missing or broken: install it.
    #[error("DuckDB's extension {name} cannot be loaded: {why}")]
    NoExtension { name: &'static str, why: String },
    /// Reading or writing a file or folder failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A request to a bucket failed: see the answer of the store.
    #[error(transparent)]
    Bucket(#[from] BucketError),
    /// Another writer committed at the same time, and nothing of this transaction was stored: repeat it.
    #[error("another writer changed {} at the same time", path.display())]
    Conflict { path: PathBuf },
    /// The engine refused a statement, or failed to run it.
    #[error("the engine failed to {action}")]
    Engine {
        action: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A format cannot hold a column of a query: change the query as the hint says.
    #[error("the column {column} cannot be written: {why}")]
    Column { column: String, why: String, hint: String },
    /// A query exceeded its time limit: change the query, or raise the limit.
    #[error("no answer within {} s", limit.as_secs_f64())]
    TimedOut { limit: std::time::Duration },
    /// A page of the scan cannot be read. The source of the error says why.
    #[error("a page of the scan cannot be read")]
    Pages(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Stored rows have values that this program does not write: restore the warehouse, or fill a new one.
    #[error("the warehouse has damaged rows: {0}")]
    DamagedRows(String),
    /// The input or the command needs something that is not implemented: change the input, or use another command.
    #[error("{0}")]
    Unsupported(String),
    /// More rows contain the identifiers of one request than fit into memory: split the request.
    #[error("more than {rows_max} rows carry these identifiers")]
    TooManyRows { rows_max: usize },
    /// An error rolled back scans that had been applied and not committed: apply these scans again.
    #[error("scans that were applied and not committed are rolled back after an error")]
    RolledBack,
    /// The program has a bug: report it. The warehouse is unchanged since its last commit.
    #[error("internal error: {0}")]
    Bug(String),
}

impl LoadError {
    /// Returns a closure for `map_err` that makes the error of a failed statement. The error is [`LoadError::Full`] if
    /// the disk is full, or else [`LoadError::Engine`]. `action` completes the message "the engine failed to ...".
    pub(super) fn engine(action: &str) -> impl Fn(duckdb::Error) -> LoadError + Copy + use<'_> {
        move |source| {
            let message = source.to_string();
            if is_full(&message) {
                let path = PathBuf::from(quoted(&message).unwrap_or("the engine's files"));
                return LoadError::Full { path, source: io::Error::new(io::ErrorKind::StorageFull, message) };
            }
            if message.contains(TOO_MANY_FILES) {
                let path = PathBuf::from(quoted(&message).unwrap_or("the engine's files"));
                return LoadError::File(FileError { action: "open", path, source: too_many_files() });
            }
            // The message becomes the source, because it has every detail. The source of a DuckDB error is only a
            // constant code.
            LoadError::Engine { action: action.to_owned(), source: message.into() }
        }
    }

    /// Returns true if the engine needed more memory than its limit, or than the machine has.
    pub(crate) fn is_out_of_memory(&self) -> bool {
        matches!(self, LoadError::Engine { source, .. } if is_out_of_memory(&source.to_string()))
    }

    /// Returns true if another command of this program, or this process, holds the lock.
    pub(crate) fn is_own_lock(&self) -> bool {
        let is_own = |holder: &str| holder == "this process" || holder.ends_with("studysync");
        matches!(self, LoadError::Locked { holder: Some(holder), .. } if is_own(holder))
    }

    /// Returns `Missing` if there is nothing at the path, and `NotOurs` if it is not a file.
    pub(super) fn require_file(path: &Path) -> Result<(), LoadError> {
        match Self::require(path)? {
            found if found.is_file() => Ok(()),
            _ => Err(LoadError::NotOurs { path: path.to_owned(), why: "it is not a file".into() }),
        }
    }

    /// Returns `Missing` if there is nothing at the path, and `NotOurs` if it is not a folder.
    pub(super) fn require_folder(path: &Path) -> Result<(), LoadError> {
        match Self::require(path)? {
            found if found.is_dir() => Ok(()),
            _ => Err(LoadError::NotOurs { path: path.to_owned(), why: "it is not a folder".into() }),
        }
    }

    /// Returns the metadata of the file or folder at the path, or the error `Missing` if nothing is there.
    fn require(path: &Path) -> Result<std::fs::Metadata, LoadError> {
        let found = files::metadata(path).map_err(LoadError::io("reach", path))?;
        found.ok_or_else(|| LoadError::Missing { path: path.to_owned() })
    }

    /// Returns a closure for `map_err` that makes the error of a failed file operation. The error is
    /// [`LoadError::Full`] if the disk or a quota is full, or else [`LoadError::File`]. `action` completes the message
    /// "cannot ... PATH".
    pub(super) fn io<'p>(action: &'static str, path: &'p Path) -> impl Fn(io::Error) -> LoadError + Copy + use<'p> {
        move |source| {
            let path = path.to_path_buf();
            match source.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                    LoadError::Full { path, source }
                }
                _ => LoadError::File(FileError { action, path, source }),
            }
        }
    }
}

impl Fault for LoadError {
    fn reason(&self) -> RunReason {
        match self {
            LoadError::Locked { .. } | LoadError::Conflict { .. } => RunReason::WarehouseLocked,
            LoadError::Full { .. } => RunReason::DiskFull,
            LoadError::OtherIdentity { .. }
            | LoadError::OtherPartition { .. }
            | LoadError::Newer { .. }
            | LoadError::Missing { .. }
            | LoadError::NotOurs { .. }
            | LoadError::ForeignObject { .. }
            | LoadError::Column { .. } => RunReason::Configuration,
            LoadError::Bucket(error) => error.reason(),
            _ => RunReason::WarehouseFailed,
        }
    }

    fn hint(&self) -> Option<&str> {
        Some(match self {
            error if error.is_own_lock() => {
                "another command of studysync has it open: wait for it to end, then run again; commands wait for it as long as lock_wait_secs \
                 under [warehouse] says. Readers of the copy that publish names never wait"
            }
            LoadError::LockRefused { .. } => NEEDS_LOCKS,
            LoadError::Missing { .. } => &MISSING,
            LoadError::Locked { .. } => {
                "close the program that has it open (an analyst's session, a notebook), then run again; commands wait for it as long as \
                 lock_wait_secs under [warehouse] says"
            }
            LoadError::OtherIdentity { .. } => {
                "name another warehouse: one warehouse holds one environment of one service. If the service has moved: studysync rebind --from ITS_OLD_ADDRESS"
            }
            LoadError::NoExtension { name, .. } if *name != FULL_TEXT => {
                "install it for the user who runs studysync, with DuckDB of the same version: duckdb -c 'INSTALL ...'. Or name its folder by \
                 extension_directory under [warehouse]"
            }
            LoadError::NoExtension { .. } => {
                "install it for the user who runs studysync (INSTALL fts, in DuckDB of the same version), or name its folder by \
                 extension_directory under [warehouse]; until then search_answers searches without an index. Or switch off full_text_search"
            }
            LoadError::Newer { .. } => USE_NEWER,
            LoadError::NotOurs { .. } => {
                "name another path; or, if it was a warehouse before, move it away and run `studysync replay`: it rebuilds the warehouse from \
                 the archive, without a request and with the history of edits. Without an archive restore a backup"
            }
            LoadError::ForeignObject { .. } => {
                "it is an object of your own: drop it, or create it without the object that is named here (its rows can be copied to another \
                 table or file first), then run the same command again"
            }
            LoadError::OtherPartition { .. } => "use the partition with which it was created, or name another folder",
            LoadError::Full { .. } => FREE_SPACE,
            LoadError::Unfinished { .. } => "run `studysync sync` once, which finishes the change",
            LoadError::Damaged { .. } | LoadError::DamagedRows(_) => DAMAGED,
            LoadError::TooManyRows { .. } => "name fewer people at once",
            LoadError::Conflict { .. } => "let the other writer end, then run again: nothing committed is lost",
            LoadError::RolledBack => "run the same command again: it applies these scans again",
            LoadError::Bug(_) => BUG,
            LoadError::TimedOut { .. } => "read less: --survey selects one survey",
            error if error.is_out_of_memory() => {
                "raise memory_limit_mb under [warehouse] and run the same command again: nothing committed is lost"
            }
            LoadError::Engine { source, .. } if refuses_keys(&source.to_string()) => {
                "set STUDYSYNC_ICEBERG_CREDENTIAL or STUDYSYNC_ICEBERG_TOKEN to keys that may read and write the namespace"
            }
            LoadError::Bucket(error) => error.hint()?,
            LoadError::File(error) => error.hint()?,
            _ => return None,
        })
    }
}

/// Returns true if a message of the engine means that an Iceberg catalog refuses the keys, or that it needs some.
fn refuses_keys(message: &str) -> bool {
    ["Unauthorized_401", "Forbidden_403"].iter().any(|code| message.contains(code))
}

const DAMAGED: &str = "move it away and run `studysync replay`: it rebuilds the warehouse from the archive, without a request and with \
     the history of edits. Without an archive restore a backup, or run `studysync sync`, which pulls the rows again";
const BUG: &str =
    "report this bug of studysync with the message; nothing committed is lost, and the command can be run again";

static MISSING: LazyLock<String> = LazyLock::new(|| {
    format!(
        "name the warehouse with {}; the first `studysync sync` creates it. If it was lost, `studysync replay` rebuilds it \
         from the archive, without a request and with the history of edits",
        WarehouseKind::flags("")
    )
});

/// Returns a closure for `map_err` that makes the error for rows of a table that Arrow refuses. Input does not cause
/// such an error, so the error is a bug.
pub(super) fn invalid_rows(table: &Table) -> impl Fn(ArrowError) -> LoadError + Copy + use<'_> {
    invalid(&table.name)
}

/// Returns a closure for `map_err`, as [`invalid_rows`] does, for rows that belong to no single table. `what` names the
/// rows.
pub(super) fn invalid(what: &str) -> impl Fn(ArrowError) -> LoadError + Copy + use<'_> {
    move |error| LoadError::Bug(format!("{what}: {error}"))
}

/// Returns true if the engine's message says that the disk is full. The engine has no error codes, so the message is
/// matched. `max_temp_directory_size` is the limit of the spill folder, which the engine derives from the free space.
pub(super) fn is_full(message: &str) -> bool {
    let signs = ["No space left on device", "Disk quota exceeded", "File too large", "max_temp_directory_size"];
    signs.iter().any(|sign| message.contains(sign))
}

/// Text of the operating system in messages of the engine: the process has too many files open.
pub(super) const TOO_MANY_FILES: &str = "Too many open files";

/// Returns the error of the operating system for [`TOO_MANY_FILES`].
pub(super) fn too_many_files() -> io::Error {
    rustix::io::Errno::MFILE.into()
}

/// Returns the path in a message of the engine: the first text in double quotes, if the text contains a path separator.
fn quoted(message: &str) -> Option<&str> {
    message.split('"').nth(1).filter(|path| path.contains(std::path::MAIN_SEPARATOR))
}

/// Returns true if this message of the engine says that memory was not enough. A failed checkpoint or commit quotes the
/// cause alone.
pub(super) fn is_out_of_memory(message: &str) -> bool {
    let signs = [
        "Out of Memory Error",
        "bad_alloc",
        "failed to pin block",
        "allocate block of size",
        "failed to allocate data",
        "failed to reserve memory",
    ];
    signs.iter().any(|sign| message.contains(sign))
}
