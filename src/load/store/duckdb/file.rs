//! Attaches the file, and translates the engine's errors.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::names::CATALOG;
use crate::{
    files,
    load::{LoadError, engine::Engine, error::is_full},
    model::DurableStep,
    schema::quote_text,
};

/// Messages about a file that may not be written.
const REFUSALS: [&str; 3] = ["Read-only file system", "Permission denied", "Operation not permitted"];
/// Messages about a lock that somebody holds. Any other reason is the file system's.
const HELD: [&str; 4] = ["onflicting lock", "already held", "temporarily unavailable", "Resource unavailable"];
/// Messages about a damaged database: wrong checksums, missing pages, a torn log.
const DAMAGE: [&str; 6] = [
    "Corrupt database file",
    "checksum",
    "Could not read enough bytes",
    "Could not read all bytes",
    "Failure while replaying WAL",
    "Failed to load metadata pointer",
];

/// Options for a new file. DuckDB's default is for readers of version 1.0: statistics are converted whenever the file
/// is opened, and strings take more space. An older file keeps its version.
pub(super) const AS_NEW: &str = "TYPE duckdb, STORAGE_VERSION 'v1.4.0'";

/// Suffix of an unfinished file.
const NEW: &str = ".new";

/// Attaches the file for writing; creates it if there is none.
pub(super) fn attach(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    if files::metadata(path).map_err(LoadError::io("reach", path))?.is_none() {
        create(engine, path)?;
    }
    attach_as(engine, path, CATALOG, "TYPE duckdb")
}

/// Creates the file under another name and renames it. The engine writes the head of a new file in several steps, and
/// refuses what a kill between them leaves.
fn create(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let new = files::beside(path, NEW);
    clear(&new)?;
    attach_file(engine, [&new, path], CATALOG, AS_NEW)?;
    detach(engine, &new)?;
    // A leftover log of a deleted file fits no other.
    remove(&commit_log(path))?;
    replace(&new, path)
}

/// Replaces a file by another, durably. After an error the new file is removed.
pub(super) fn replace(new: &Path, path: &Path) -> Result<(), LoadError> {
    files::replace(new, path).map_err(LoadError::io("replace", path))
}

/// Removes an unfinished database, if there is one.
pub(super) fn clear(path: &Path) -> Result<(), LoadError> {
    remove(path)?;
    remove(&commit_log(path))
}

/// Removes a file, if it is there.
pub(super) fn remove(path: &Path) -> Result<(), LoadError> {
    files::remove(path).map_err(LoadError::io("remove", path))
}

/// Attaches the file read-only.
pub(super) fn attach_read_only(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    attach_as(engine, path, CATALOG, "TYPE duckdb, READ_ONLY")
}

/// Attaches the file under a name.
pub(super) fn attach_as(engine: &Engine, path: &Path, catalog: &str, how: &str) -> Result<(), LoadError> {
    attach_file(engine, [path, path], catalog, how)
}

/// Attaches `file`; an error names `path`.
fn attach_file(engine: &Engine, [file, path]: [&Path; 2], catalog: &str, how: &str) -> Result<(), LoadError> {
    let Some(text) = file.to_str() else {
        return Err(LoadError::NotOurs { path: path.to_owned(), why: "its name is not UTF-8".into() });
    };
    let sql = format!("ATTACH {} AS {catalog} ({how})", quote_text(text));
    engine.connection().execute_batch(&sql).map_err(explain("open the warehouse", path))
}

/// Returns true if a commit log exists: its writer was killed, or is running.
pub(super) fn has_commit_log(path: &Path) -> bool {
    commit_log(path).exists()
}

/// Size of the commit log, in bytes.
pub(super) fn commit_log_bytes(path: &Path) -> u64 {
    commit_log(path).metadata().map_or(0, |log| log.len())
}

/// Path of the commit log.
pub(super) fn commit_log(path: &Path) -> PathBuf {
    files::beside(path, ".wal")
}

/// Closes the file.
pub(super) fn detach(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let sql = format!("DETACH {CATALOG}");
    engine.connection().execute_batch(&sql).map_err(explain("close the warehouse", path))
}

/// Folds the commit log into the file.
pub(super) fn checkpoint(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    engine.hit(DurableStep::DuckDbCheckpointed, path)?;
    let sql = format!("CHECKPOINT {CATALOG}");
    engine.connection().execute_batch(&sql).map_err(explain("write the warehouse", path))
}

/// For `map_err`: an error of the engine about a file, by what the caller can do. The engine has no error codes, so its
/// messages are matched.
pub(in crate::load) fn explain<'a>(
    action: &'a str,
    path: &'a Path,
) -> impl Fn(duckdb::Error) -> LoadError + Copy + use<'a> {
    move |error| explained(error, action, path)
}

fn explained(error: duckdb::Error, action: &str, path: &Path) -> LoadError {
    let message = error.to_string();
    let path = path.to_owned();
    if message.contains("Could not set lock on file") {
        return match HELD.iter().any(|sign| message.contains(sign)) {
            true => LoadError::Locked { path, holder: holder_of(&message) },
            false => LoadError::LockRefused { path, source: io::Error::other(message) },
        };
    }
    if is_full(&message) {
        return LoadError::Full { path, source: io::Error::new(io::ErrorKind::StorageFull, message) };
    }
    if REFUSALS.iter().any(|sign| message.contains(sign)) {
        return LoadError::io("open", &path)(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    if let Some(sign) = DAMAGE.iter().find(|sign| message.contains(**sign)) {
        tracing::debug!(sign, message);
        return LoadError::Damaged { path, why: message };
    }
    if message.contains("not a valid DuckDB database file") {
        return LoadError::NotOurs { path, why: "it is not a DuckDB database".into() };
    }
    if let Some(found) = newer_format(&message) {
        return LoadError::Newer { path, found };
    }
    LoadError::engine(action)(error)
}

/// `PID 4711 (/usr/bin/duckdb)` of "Conflicting lock is held in /usr/bin/duckdb (PID 4711) by user ...".
fn holder_of(message: &str) -> Option<String> {
    let (_, held) = message.split_once("Conflicting lock is held in ")?;
    let (program, rest) = held.split_once(" (PID ")?;
    let (pid, _) = rest.split_once(')')?;
    pid.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("process {pid}, {program}"))
}

/// "Trying to read a database file with version number 68, but we can only read versions between 64 and 67."
fn newer_format(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("database file with version number ")?;
    let version: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some(format!("DuckDB storage version {version}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_named_if_known() {
        let message = "IO Error: Could not set lock on file \"/data/w.duckdb\": Conflicting lock is held in /usr/bin/duckdb \
                       (PID 4711) by user ann. See also https://duckdb.org/docs/stable/connect/concurrency";
        assert_eq!(holder_of(message).as_deref(), Some("process 4711, /usr/bin/duckdb"));
        assert_eq!(holder_of("IO Error: Could not set lock on file \"/data/w.duckdb\": Resource unavailable"), None);
    }

    #[test]
    fn a_lock_refused_by_the_file_system_is_not_held() {
        let explained = |reason: &str| {
            let message = format!("IO Error: Could not set lock on file \"/data/w.duckdb\": {reason}");
            explained(duckdb::Error::DuckDBFailure(duckdb::ffi::Error::new(1), Some(message)), "open", Path::new("w"))
        };
        for refused in [
            "No locks available. See also https://duckdb.org/docs/stable/connect/concurrency",
            "File locks are not supported for this file system, cannot open the file in read-write mode.",
            "Function not implemented",
            "Input/output error",
        ] {
            assert!(matches!(explained(refused), LoadError::LockRefused { .. }), "{refused}");
        }
        for held in [
            "Conflicting lock is held in PID 7",
            "Lock is already held in current process",
            "Resource temporarily unavailable",
        ] {
            assert!(matches!(explained(held), LoadError::Locked { .. }), "{held}");
        }
    }

    #[test]
    fn a_newer_file_format_is_told_from_other_errors() {
        let message =
            "Trying to read a database file with version number 99, but we can only read versions between 64 and 67.";
        assert_eq!(newer_format(message).as_deref(), Some("DuckDB storage version 99"));
        assert_eq!(newer_format("IO Error: Cannot open file"), None);
    }
}
