//! DuckDB as a library: an in-memory database with attached files, its limits, and Arrow rows in and out. Knows no
//! contract and no scan.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use arrow::array::RecordBatch;
use duckdb::{Config, Connection};

use self::arrow_scan::ArrowTables;
use super::LoadError;
use crate::{
    files,
    model::{DurableStep, Failpoints},
};

mod arrow_scan;

/// Size at which the engine folds the commit log into the file: large, so that a run does it once, in `publish`.
const CHECKPOINT_THRESHOLD: &str = "1GiB";

/// Memory that a thread takes to write a row group. The engine does not count all of it.
const THREAD_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of a streamed result that wait for their reader. The engine's default holds one batch of wide rows.
const STREAMED_BYTES: u64 = 8 * 1024 * 1024;

/// Prefix of the engine's spill files.
const SPILL_PREFIX: &str = "duckdb_temp_";

/// The least memory of an engine. A commit holds two blocks of 256 KiB for each changed column, and two of its target:
/// 45 MiB for the widest table, which has 45 columns. The deletion marks come on top. Measured with a million answers:
/// transactions of 30,000 to 90,000 edits fail with 62 MiB and succeed from 70 MiB on.
pub const ENGINE_BYTES_MIN: u64 = 96 * 1024 * 1024;

/// Resources that the engine may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Memory for data, in bytes; the rest spills to `temp_directory`.
    pub memory_limit_bytes: u64,
    /// Threads for [`Engine::with_all_threads`], at least 1.
    pub threads: u32,
    /// The spill folder, which no other engine uses at the same time. The engine creates it when needed and removes it
    /// when it closes. Opening an engine removes the spill files of a killed process.
    pub temp_directory: PathBuf,
}

/// A started engine that has touched no file. Starting takes a while, so it happens before the lease is held.
pub struct StartedEngine {
    connection: Connection,
    options: EngineOptions,
}

impl StartedEngine {
    /// Starts an empty engine.
    pub fn start(options: EngineOptions) -> Result<Self, LoadError> {
        let failed = LoadError::engine("open");
        // The limits are set at open: attaching a file may replay a commit log, which must respect them.
        let config = common_config(Config::default())
            .and_then(|config| config.max_memory(&format!("{}B", options.memory_limit_bytes)))
            .and_then(|config| config.threads(1))
            .and_then(|config| config.with("temp_directory", options.temp_directory.to_string_lossy()))
            .and_then(|config| config.with("checkpoint_threshold", CHECKPOINT_THRESHOLD))
            .map_err(failed)?;
        Ok(Self { connection: Connection::open_in_memory_with_flags(config).map_err(failed)?, options })
    }

    /// The resources that it may use.
    pub(super) fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Prepares the engine for work, and removes the spill files of a killed process. `failpoints` are hit before its
    /// durable steps.
    pub(super) fn ready(self, failpoints: Failpoints) -> Result<Engine, LoadError> {
        remove_leftovers(&self.options.temp_directory)?;
        let arrow_tables = ArrowTables::open(&self.connection).map_err(LoadError::engine("open"))?;
        let engine = Engine { connection: self.connection, arrow_tables, failpoints, options: self.options };
        pin_to_utc(&engine.connection)?;
        // Row groups are compressed and written one by one, and not all at the commit.
        engine.execute("set its buffer", "SET write_buffer_row_group_count = 1")?;
        engine.execute("set its buffer", &format!("SET streaming_buffer_size = '{STREAMED_BYTES}B'"))?;
        Ok(engine)
    }
}

/// One in-memory database with its one connection. The session is pinned to UTC, and no extension is ever downloaded.
///
/// The engine has one thread by default. The rows of a scan are a single piece of work, and more threads would wait
/// busily, at the cost of the threads that pull and flatten.
pub struct Engine {
    connection: Connection,
    arrow_tables: ArrowTables,
    failpoints: Failpoints,
    options: EngineOptions,
}

impl Engine {
    /// Starts over with an empty engine. After some errors an engine refuses everything.
    pub(super) fn restart(&mut self) -> Result<(), LoadError> {
        *self = StartedEngine::start(self.options.clone())?.ready(self.failpoints.clone())?;
        Ok(())
    }

    /// Runs work on whole files or tables with all threads.
    pub(super) fn with_all_threads<T>(&self, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.use_threads(self.threads())?;
        let done = work();
        let back = self.use_threads(1);
        // The error of the work comes first.
        done.and_then(|value| back.map(|()| value))
    }

    /// Runs an insert that need not keep the order of its rows. To keep the order, the engine writes with one thread,
    /// unless it has far more memory than the rows take.
    pub(super) fn in_any_order<T>(&self, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
        let set = |is_kept: bool| {
            self.execute("set the order of its rows", &format!("SET preserve_insertion_order = {is_kept}"))
        };
        set(false)?;
        let done = work();
        let back = set(true);
        done.and_then(|value| back.map(|()| value))
    }

    /// Threads for whole files and tables: limited by the memory that each of them takes.
    fn threads(&self) -> u32 {
        let fitting = u32::try_from(self.options.memory_limit_bytes / THREAD_BYTES).unwrap_or(u32::MAX);
        self.options.threads.min(fitting).max(1)
    }

    fn use_threads(&self, threads: u32) -> Result<(), LoadError> {
        if self.threads() == 1 { Ok(()) } else { self.execute("set its threads", &format!("SET threads = {threads}")) }
    }

    /// Must be called before each durable step.
    pub(super) fn hit(&self, step: DurableStep, path: &Path) -> Result<(), LoadError> {
        let failed = |source| LoadError::Io { action: "write", path: path.to_owned(), source };
        self.failpoints.hit(step).map_err(failed)
    }

    /// Runs statements without a result. `action` completes "the engine failed to ...".
    pub fn execute(&self, action: &str, sql: &str) -> Result<(), LoadError> {
        tracing::trace!(action, sql);
        self.connection.execute_batch(sql).map_err(LoadError::engine(action))
    }

    /// Inserts rows into the table with this SQL name. All batches have the same columns; the table's other columns are
    /// NULL.
    pub(super) fn insert(&self, table: &str, rows: &[RecordBatch]) -> Result<(), duckdb::Error> {
        self.arrow_tables.insert(&self.connection, table, rows)
    }

    /// Runs a statement that reads these rows. `sql` gets the relation that stands for the rows.
    pub(super) fn execute_with_rows(
        &self,
        rows: &[RecordBatch],
        sql: impl FnOnce(&str) -> String,
    ) -> Result<(), duckdb::Error> {
        let registered = self.arrow_tables.register(rows);
        self.connection.execute_batch(&sql(&registered.relation()))
    }

    /// As [`Engine::each_batch`], for a query that reads these rows. `sql` gets the relation that stands for the rows.
    pub(super) fn each_batch_with_rows(
        &self,
        action: &str,
        rows: &[RecordBatch],
        sql: impl FnOnce(&str) -> String,
        take: impl FnMut(RecordBatch) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let registered = self.arrow_tables.register(rows);
        self.each_batch(action, &sql(&registered.relation()), take)
    }

    /// Runs a query and collects what `read` returns for each row.
    pub(super) fn query<T, C: FromIterator<T>>(
        &self,
        action: &str,
        sql: &str,
        read: impl FnMut(&duckdb::Row<'_>) -> Result<T, duckdb::Error>,
    ) -> Result<C, LoadError> {
        tracing::trace!(action, sql);
        let failed = LoadError::engine(action);
        let mut statement = self.connection.prepare(sql).map_err(failed)?;
        let rows = statement.query_map([], read).map_err(failed)?;
        rows.collect::<Result<C, _>>().map_err(failed)
    }

    /// Runs a query of one row of integers that are never NULL.
    pub fn integers<const N: usize>(&self, action: &str, sql: &str) -> Result<[i64; N], LoadError> {
        tracing::trace!(action, sql);
        let read = |row: &duckdb::Row<'_>| {
            let mut values = [0; N];
            values.iter_mut().enumerate().try_for_each(|(at, value)| row.get(at).map(|found| *value = found))?;
            Ok(values)
        };
        self.connection.query_row(sql, [], read).map_err(LoadError::engine(action))
    }

    /// Calls `take` with the rows of a query, some thousand at a time.
    pub fn each_batch(
        &self,
        action: &str,
        sql: &str,
        mut take: impl FnMut(RecordBatch) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        tracing::trace!(action, sql);
        let failed = LoadError::engine(action);
        let mut statement = self.connection.prepare(sql).map_err(failed)?;
        // The returned iterator panics where the engine fails. `step` reads the same stream and returns the error.
        let _ = statement.stream_arrow([]).map_err(failed)?;
        while let Some(chunk) = statement.step().map_err(failed)? {
            take(RecordBatch::from(&chunk))?;
        }
        Ok(())
    }

    /// The connection, for anything else.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Removes the spill files of a killed process: they may hold rows of people who were erased since. Creates the parent
/// of the spill folder, which the engine does not.
fn remove_leftovers(folder: &Path) -> Result<(), LoadError> {
    if let Some(parent) = folder.parent() {
        files::create_folders(parent).map_err(LoadError::io("create the folder", parent))?;
    }
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(LoadError::io("read the folder", folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(LoadError::io("read the folder", folder))?;
        if entry.file_name().to_string_lossy().starts_with(SPILL_PREFIX) {
            std::fs::remove_file(entry.path()).map_err(LoadError::io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// Settings of every session: no extension is downloaded or loaded implicitly.
pub(super) fn common_config(config: Config) -> Result<Config, duckdb::Error> {
    config.with("autoinstall_known_extensions", "false")?.with("autoload_known_extensions", "false")
}

/// Sets the session's zone to UTC. Only an engine with the extension `icu` has the setting; the bundled build has no
/// zones and always counts in UTC.
pub(super) fn pin_to_utc(connection: &Connection) -> Result<(), LoadError> {
    let Err(error) = connection.execute_batch("SET TimeZone = 'UTC'") else { return Ok(()) };
    let has_icu: bool = connection
        .query_row("SELECT count(*) > 0 FROM duckdb_settings() WHERE name = 'TimeZone'", [], |row| row.get(0))
        .map_err(LoadError::engine("read its settings"))?;
    if has_icu { Err(LoadError::engine("pin UTC")(error)) } else { Ok(()) }
}

#[cfg(test)]
pub(super) mod tests;
