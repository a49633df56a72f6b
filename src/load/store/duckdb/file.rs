//! Creates, attaches and detaches the DuckDB file, and turns the engine's errors into [`LoadError`]s.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

use duckdb::Connection;

use super::{
    claims::Claim,
    names::{CATALOG, qualified},
};
use crate::{
    files,
    load::{
        LoadError,
        engine::Engine,
        error::{TOO_MANY_FILES, is_full, is_out_of_memory, too_many_files},
    },
    model::DurableStep,
    schema::quote_text,
};

/// Texts in engine messages that mean that the user may not write the file.
const ACCESS_DENIED: [&str; 3] = ["Read-only file system", "Permission denied", "Operation not permitted"];
/// Texts in engine messages that mean that somebody holds the lock. Other messages about a lock mean that the file
/// system refuses locks.
const LOCK_HELD: [&str; 4] = ["onflicting lock", "already held", "temporarily unavailable", "Resource unavailable"];
/// Texts in engine messages about a damaged database: wrong checksums, missing pages, a truncated log.
const DAMAGE: [&str; 6] = [
    "Corrupt database file",
    "checksum",
    "Could not read enough bytes",
    "Could not read all bytes",
    "Failure while replaying WAL",
    "Failed to load metadata pointer",
];

/// Options of ATTACH for a new file. DuckDB's default is the format of version 1.0. With that format, each open
/// converts the statistics, and strings take more space. An existing file keeps its format.
pub(super) const NEW_FILE_OPTIONS: &str = "TYPE duckdb, STORAGE_VERSION 'v1.4.0'";

/// A table with fewer rows is not vacuumed.
const VACUUMED_ROWS_MIN: i64 = 500_000;
/// A table is vacuumed if at least `1 / DELETED_DIVISOR` of its rows are deleted.
const DELETED_DIVISOR: i64 = 3;

/// Rows of a full row group.
const ROW_GROUP_ROWS: i64 = 122_880;
/// Each commit adds a row group to each table with new rows, and the least is a block of 256 KiB. A table may have this
/// many more than its rows fill.
const SMALL_ROW_GROUPS_MAX: i64 = 16;
/// Added rows of a transaction as a night has it.
const SMALL_TRANSACTION_ROWS: usize = 20_000;

/// Options of ATTACH for writing. Without a commit log, a checkpoint makes all changes since the last one durable
/// together. With a log, the engine would write the rows of small transactions twice.
const WRITE_OPTIONS: &str = "TYPE duckdb, RECOVERY_MODE 'no_wal_writes'";

/// The number of rows that a transaction adds to each table.
pub(super) type AddedRows = BTreeMap<&'static str, usize>;

/// Suffix of a file that is being created.
const NEW_SUFFIX: &str = ".new";

/// Attaches the file for writing; creates the file if there is none.
pub(super) fn attach(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    if files::metadata(path).map_err(LoadError::io("reach", path))?.is_none() {
        create(engine, path)?;
    }
    attach_as(engine, path, CATALOG, WRITE_OPTIONS)
}

/// Creates the file under another name, and gives it its name unless another process has created the file meanwhile.
/// The engine writes the header of a new file in several steps. After a kill between these steps the engine could not
/// open the file.
fn create(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let new = files::with_suffix(path, NEW_SUFFIX);
    remove_database(&new)?;
    attach_file(engine, [&new, path], CATALOG, NEW_FILE_OPTIONS)?;
    detach(engine, &new)?;
    // If an earlier file at this path was deleted, its commit log may be left, which does not fit the new file.
    if files::metadata(path).map_err(LoadError::io("reach", path))?.is_none() {
        remove(&commit_log(path))?;
    }
    files::name_new(&new, path).map_err(|source| match source.kind() {
        // Another process makes the file, and has removed this one.
        io::ErrorKind::NotFound => LoadError::Locked { path: path.to_owned(), holder: None },
        _ => LoadError::io("create", path)(source),
    })
}

/// Replaces the file at `path` by the file `new`, atomically and durably. After an error `new` is removed.
pub(super) fn replace(new: &Path, path: &Path) -> Result<(), LoadError> {
    files::replace(new, path).map_err(LoadError::io("replace", path))
}

/// Removes a database file and its commit log, if they exist.
pub(super) fn remove_database(path: &Path) -> Result<(), LoadError> {
    remove(path)?;
    remove(&commit_log(path))
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) -> Result<(), LoadError> {
    files::remove(path).map_err(LoadError::io("remove", path))
}

/// Attaches the file read-only.
pub(super) fn attach_read_only(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    attach_as(engine, path, CATALOG, "TYPE duckdb, READ_ONLY")
}

/// Attaches the file as `catalog`. `options` are those of the SQL statement ATTACH.
pub(super) fn attach_as(engine: &Engine, path: &Path, catalog: &str, options: &str) -> Result<(), LoadError> {
    attach_file(engine, [path, path], catalog, options)
}

/// Attaches `file` as `catalog`. An error names `path`, which is the final path of a file that is created under another
/// name.
fn attach_file(engine: &Engine, [file, path]: [&Path; 2], catalog: &str, options: &str) -> Result<(), LoadError> {
    let Some(text) = file.to_str() else {
        return Err(LoadError::NotOurs { path: path.to_owned(), why: "its name is not UTF-8".into() });
    };
    let sql = format!("ATTACH {} AS {catalog} ({options})", quote_text(text));
    engine.connection().execute_batch(&sql).map_err(explain("open the warehouse", path))
}

/// Returns true if the file has a commit log (WAL): another program or an earlier version of this one was killed, or
/// has the file open. Attaching the file applies the log, and the next checkpoint removes it.
pub(in crate::load) fn has_commit_log(path: &Path) -> bool {
    commit_log(path).exists()
}

/// Returns the path of the commit log (WAL) of a database file.
pub(super) fn commit_log(path: &Path) -> PathBuf {
    files::with_suffix(path, ".wal")
}

/// Detaches the warehouse's file, which closes it.
pub(super) fn detach(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let sql = format!("DETACH {CATALOG}");
    engine.connection().execute_batch(&sql).map_err(explain("close the warehouse", path))
}

/// Makes all committed changes durable.
pub(super) fn checkpoint(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    engine.hit(DurableStep::DuckDbCheckpointed, path)?;
    let sql = format!("CHECKPOINT {CATALOG}");
    engine.connection().execute_batch(&sql).map_err(explain("write the warehouse", path))
}

/// Returns true if the next checkpoint should merge row groups. `added` has the tables to which the open transaction
/// adds rows, and how many.
pub(super) fn is_vacuum_due(engine: &Engine, has_removals: bool, added: &AddedRows) -> Result<bool, LoadError> {
    Ok((has_removals && has_many_deleted_rows(engine)?) || has_small_row_groups(engine, added)?)
}

/// Returns true if at least a third of the rows of a large table are deleted, and logs each such table. The engine can
/// drop deleted rows only by merging neighbouring row groups, and a smaller share would save no row group.
fn has_many_deleted_rows(engine: &Engine) -> Result<bool, LoadError> {
    let mut is_due = false;
    for (table, stored) in estimated_sizes(engine)?.into_iter().filter(|(_, stored)| *stored >= VACUUMED_ROWS_MIN) {
        let [rows] = engine.integers("count deleted rows", &format!("SELECT count(*) FROM {}", qualified(&table)))?;
        let deleted = stored - rows;
        if deleted * DELETED_DIVISOR >= stored {
            tracing::info!(
                table,
                rows,
                deleted,
                "rewrites row groups of the table, because many of its rows are deleted"
            );
            is_due = true;
        }
    }
    Ok(is_due)
}

/// Returns true if a table to which a small transaction adds rows has many row groups that are not full. Without a
/// merge, the file would grow by a block for each of them: by 2 MB in a night. Large tables and transactions are left
/// out, because listing their row groups takes longer, and small ones are few beside them.
fn has_small_row_groups(engine: &Engine, added: &AddedRows) -> Result<bool, LoadError> {
    if added.values().sum::<usize>() > SMALL_TRANSACTION_ROWS {
        return Ok(false);
    }
    let sizes = estimated_sizes(engine)?.into_iter();
    let is_small = |(table, rows): &(String, i64)| *rows < VACUUMED_ROWS_MIN && added.contains_key(table.as_str());
    for (table, rows) in sizes.filter(is_small) {
        let name = quote_text(&qualified(&table));
        let sql = format!("SELECT count(DISTINCT row_group_id) FROM pragma_storage_info({name})");
        let [groups] = engine.integers("count row groups", &sql)?;
        if groups > rows / ROW_GROUP_ROWS + SMALL_ROW_GROUPS_MAX {
            tracing::debug!(table, rows, groups, "merges row groups of the table");
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the number of rows of each table of the file. Deleted rows that are still in the file count.
fn estimated_sizes(engine: &Engine) -> Result<Vec<(String, i64)>, LoadError> {
    let sql = format!(
        "SELECT table_name, estimated_size FROM duckdb_tables() WHERE database_name = '{CATALOG}' AND schema_name = 'main'"
    );
    engine.query("list the tables", &sql, |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Attaches a file to the engine of a reader, read-only. The claim keeps this process from opening the file for
/// writing.
///
/// # Errors
/// `Missing` if there is no file; `Locked` while another process or this process has the file open for writing.
pub(in crate::load) fn attach_for_reading(
    connection: &Connection,
    path: &Path,
    catalog: &str,
) -> Result<Claim, LoadError> {
    // Attaching a missing file read-only fails too, but its error does not say that the file is missing.
    LoadError::require_file(path)?;
    let claim = Claim::for_reading(path)?;
    let name = quote_text(&path.to_string_lossy());
    connection
        .execute_batch(&format!("ATTACH {name} AS {catalog} (TYPE duckdb, READ_ONLY)"))
        .map_err(explain("open the warehouse", path))?;
    Ok(claim)
}

/// Returns a closure for `map_err` that turns an engine error about the file at `path` into a [`LoadError`]. Its
/// variant tells the user what to do. The engine has no error codes, so its messages are matched. `action` says what
/// failed, for an error that is none of the known ones.
pub(in crate::load) fn explain<'a>(
    action: &'a str,
    path: &'a Path,
) -> impl Fn(duckdb::Error) -> LoadError + Copy + use<'a> {
    move |error| explained(error, action, path)
}

/// Returns the [`LoadError`] for an engine error about the file at `path`. Known texts in the message mean a lock, a
/// full disk, missing access rights, damage, a file that is no DuckDB database, or a newer format. Any other error
/// becomes [`LoadError::Engine`] with `action`.
fn explained(error: duckdb::Error, action: &str, path: &Path) -> LoadError {
    let message = error.to_string();
    let path = path.to_owned();
    if message.contains("Could not set lock on file") {
        let is_held = LOCK_HELD.iter().any(|sign| message.contains(sign));
        return if is_held {
            LoadError::Locked { path, holder: holder_of(&message) }
        } else {
            LoadError::LockRefused { path, source: io::Error::other(message) }
        };
    }
    if is_full(&message) {
        return LoadError::Full { path, source: io::Error::new(io::ErrorKind::StorageFull, message) };
    }
    if ACCESS_DENIED.iter().any(|sign| message.contains(sign)) {
        return LoadError::io("open", &path)(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    // Before the signs of damage: without a free file handle the engine cannot read a commit log, which is no damage.
    if message.contains(TOO_MANY_FILES) {
        return LoadError::io("open", &path)(too_many_files());
    }
    // Also while it replays the commit log, which is no damage either.
    if is_out_of_memory(&message) {
        return LoadError::engine(action)(error);
    }
    if let Some(sign) = DAMAGE.iter().find(|sign| message.contains(**sign)) {
        tracing::debug!(sign, message);
        return LoadError::Damaged { path, why: message };
    }
    if message.contains("not a valid DuckDB database file") {
        return LoadError::NotOurs { path, why: "it is not a DuckDB database".into() };
    }
    match other_format(&message) {
        Some(OtherFormat::Newer(found)) => return LoadError::Newer { path, found },
        // This program never wrote such a file.
        Some(OtherFormat::Older(found)) => {
            return LoadError::NotOurs { path, why: format!("it has {found}, of an old version of DuckDB") };
        }
        None => {}
    }
    LoadError::engine(action)(error)
}

/// Reads the holder of a lock from the engine's message: `process 4711, /usr/bin/duckdb` for "Conflicting lock is held
/// in /usr/bin/duckdb (PID 4711) by user ...". Returns `None` if the message does not name a process.
fn holder_of(message: &str) -> Option<String> {
    let (_, held) = message.split_once("Conflicting lock is held in ")?;
    let (program, rest) = held.split_once(" (PID ")?;
    let (pid, _) = rest.split_once(')')?;
    pid.bytes().all(|byte| byte.is_ascii_digit()).then(|| format!("process {pid}, {program}"))
}

/// A storage version that the engine cannot read, in words.
#[derive(Debug, PartialEq, Eq)]
enum OtherFormat {
    Newer(String),
    Older(String),
}

/// Reads the version of the file from the engine's message "Trying to read a database file with version number 68, but
/// we can only read versions between 64 and 67". Returns `None` for any other message.
fn other_format(message: &str) -> Option<OtherFormat> {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().ok();
    let (_, rest) = message.split_once("database file with version number ")?;
    let version = number(rest)?;
    let found = format!("DuckDB storage version {version}");
    let oldest = rest.split_once("between ").and_then(|(_, rest)| number(rest));
    Some(if oldest.is_some_and(|oldest| version < oldest) {
        OtherFormat::Older(found)
    } else {
        OtherFormat::Newer(found)
    })
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
    fn another_file_format_is_told_from_other_errors() {
        let read = |version| {
            other_format(&format!(
                "Trying to read a database file with version number {version}, but we can only read versions between 64 and 67."
            ))
        };
        assert_eq!(read(99), Some(OtherFormat::Newer("DuckDB storage version 99".to_owned())));
        assert_eq!(read(39), Some(OtherFormat::Older("DuckDB storage version 39".to_owned())));
        assert_eq!(other_format("IO Error: Cannot open file"), None);
    }
}
