//! Runs DuckDB inside the process: an in-memory database to which files are attached, with limits, and with Arrow rows
//! as input and output. The engine knows neither tables nor scans.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use arrow::array::RecordBatch;
use duckdb::{Config, Connection};

pub use self::row_visits::Visit;
use self::{arrow_scan::ArrowTables, row_visits::RowVisits};
use super::{LoadError, pseudonyms};
use crate::{
    files::{self, FileError},
    model::{DurableStep, Failpoints},
};

mod arrow_scan;
mod row_visits;

/// Memory that a thread needs to write a row group, in bytes. The engine does not count all of this memory in its
/// limit.
const THREAD_BYTES: u64 = 64 * 1024 * 1024;

/// Bytes of a streamed result that the engine buffers. The engine's default is as small as one batch of wide rows.
const STREAMED_BYTES: u64 = 8 * 1024 * 1024;

/// Prefix of the names of the engine's spill files.
const SPILL_PREFIX: &str = "duckdb_temp_";

/// The least memory of an engine, in bytes. A commit needs four blocks of 256 KiB for each changed column, which is 45
/// MiB for the widest table with its 45 columns. Deletion marks need memory too. Measured with a million answers:
/// transactions of 30,000 to 90,000 edits fail with 62 MiB and succeed with 70 MiB.
pub const ENGINE_BYTES_MIN: u64 = 96 * 1024 * 1024;

/// The memory to which an engine is raised at most if work needs more than its share, in bytes. Enough for
/// 2,048 consecutive texts of 1 MiB: the engine reads and writes so many rows together.
const ENGINE_BYTES_MAX: u64 = 8 << 30;

/// Resources that the engine may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Memory for data, in bytes. Data beyond this limit spills to `temp_directory`.
    pub memory_limit_bytes: u64,
    /// Threads for [`Engine::with_all_threads`], at least 1.
    pub threads: u32,
    /// The spill folder. No other engine may use the folder at the same time. The engine creates the folder when
    /// needed, and removes it when the engine closes. [`StartedEngine::ready`] removes the spill files of a killed
    /// process.
    pub temp_directory: PathBuf,
}

/// A started engine that has not touched a file yet. Starting an engine takes a while, so a run starts the engine
/// before it takes the lease.
pub struct StartedEngine {
    connection: Connection,
    options: EngineOptions,
}

impl StartedEngine {
    /// Starts an engine without attached files.
    pub fn start(options: EngineOptions) -> Result<Self, LoadError> {
        let failed = LoadError::engine("open");
        // The limits are set before a file is attached, because attaching may replay a commit log.
        let config = common_config(Config::default())
            .and_then(|config| config.max_memory(&format!("{}B", options.memory_limit_bytes)))
            .and_then(|config| config.threads(1))
            .and_then(|config| config.with("temp_directory", options.temp_directory.to_string_lossy()))
            .map_err(failed)?;
        Ok(Self { connection: Connection::open_in_memory_with_flags(config).map_err(failed)?, options })
    }

    /// Prepares the engine for work, and removes the spill files of a killed process. [`Engine::hit`] hits these
    /// `failpoints`.
    pub(super) fn ready(self, failpoints: Failpoints) -> Result<Engine, LoadError> {
        remove_spill_files(&self.options.temp_directory)?;
        let arrow_tables = ArrowTables::open(&self.connection).map_err(LoadError::engine("open"))?;
        let row_visits = RowVisits::open(&self.connection).map_err(LoadError::engine("open"))?;
        pseudonyms::register(&self.connection).map_err(LoadError::engine("open"))?;
        let engine =
            Engine { connection: self.connection, arrow_tables, row_visits, failpoints, options: self.options };
        pin_to_utc(&engine.connection)?;
        // Makes an insert compress and write row groups one by one, and not all together at the commit.
        engine.execute("set its buffer", "SET write_buffer_row_group_count = 1")?;
        engine.execute("set its buffer", &format!("SET streaming_buffer_size = '{STREAMED_BYTES}B'"))?;
        // Closing a file without a checkpoint drops the changes since the last one, as a rollback must.
        engine.execute("set its checkpoints", "PRAGMA disable_checkpoint_on_shutdown")?;
        engine.rewrite_at_checkpoint(0)?;
        Ok(engine)
    }
}

/// One in-memory database with one connection. The time zone of the session is UTC. The engine neither downloads nor
/// loads extensions by itself.
///
/// The engine has one thread by default. The rows of a scan are too few to be split. Further threads would spin, which
/// slows down the threads that pull and flatten.
pub struct Engine {
    connection: Connection,
    arrow_tables: ArrowTables,
    row_visits: RowVisits,
    failpoints: Failpoints,
    options: EngineOptions,
}

impl Engine {
    /// Replaces the engine by a new one without attached files. After some errors, such as a full disk, an engine
    /// refuses every statement until it is replaced.
    pub(super) fn restart(&mut self) -> Result<(), LoadError> {
        *self = StartedEngine::start(self.options.clone())?.ready(self.failpoints.clone())?;
        Ok(())
    }

    /// Replaces the engine as [`Engine::restart`] does, by one with twice the memory. Returns false, and does nothing,
    /// at [`ENGINE_BYTES_MAX`] or more.
    pub(super) fn restart_with_more_memory(&mut self) -> Result<bool, LoadError> {
        if self.options.memory_limit_bytes >= ENGINE_BYTES_MAX {
            return Ok(false);
        }
        self.options.memory_limit_bytes = (self.options.memory_limit_bytes * 2).min(ENGINE_BYTES_MAX);
        self.restart()?;
        let mib = self.options.memory_limit_bytes >> 20;
        tracing::warn!("DuckDB needs more memory than memory_limit_mb leaves it, and gets {mib} MiB");
        Ok(true)
    }

    /// Runs `work` with all threads instead of one, for work that reads or writes complete files or tables. If `work`
    /// and the reset of the threads both fail, the error of `work` is returned.
    pub(super) fn with_all_threads<T>(&self, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.use_threads(self.all_threads())?;
        let done = work();
        let reset = self.use_threads(1);
        done.and_then(|value| reset.map(|()| value))
    }

    /// Sets how many groups of neighbouring row groups a checkpoint rewrites in each table, to drop deleted rows.
    pub(super) fn rewrite_at_checkpoint(&self, groups_max: u32) -> Result<(), LoadError> {
        self.execute("set its vacuum", &format!("SET max_vacuum_tasks = {groups_max}"))
    }

    /// Runs an insert that may change the order of its rows. To keep the order, the engine would write with one thread,
    /// unless it has far more memory than the rows need. If `work` and the reset both fail, the error of `work` is
    /// returned.
    pub(super) fn in_any_order<T>(&self, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
        let set_order_kept = |is_kept: bool| {
            self.execute("set the order of its rows", &format!("SET preserve_insertion_order = {is_kept}"))
        };
        set_order_kept(false)?;
        let done = work();
        let reset = set_order_kept(true);
        done.and_then(|value| reset.map(|()| value))
    }

    /// Returns the engine's memory for data, in bytes.
    pub(super) fn memory_limit_bytes(&self) -> u64 {
        self.options.memory_limit_bytes
    }

    /// Returns the number of threads for [`Engine::with_all_threads`]: as many as the options and the memory allow.
    pub(super) fn all_threads(&self) -> u32 {
        let threads_in_memory = u32::try_from(self.options.memory_limit_bytes / THREAD_BYTES).unwrap_or(u32::MAX);
        self.options.threads.min(threads_in_memory).max(1)
    }

    /// Sets the number of the engine's threads. Does nothing if the engine may have only one thread.
    fn use_threads(&self, threads: u32) -> Result<(), LoadError> {
        if self.all_threads() == 1 {
            Ok(())
        } else {
            self.execute("set its threads", &format!("SET threads = {threads}"))
        }
    }

    /// Hits the failpoint of a durable step on the file at `path`. Callers call it before each such step, so that tests
    /// can stop the run there.
    pub(super) fn hit(&self, step: DurableStep, path: &Path) -> Result<(), LoadError> {
        Ok(self.failpoints.hit(step).map_err(FileError::of("write", path))?)
    }

    /// Runs statements without a result. `action` completes the error message "the engine failed to ...".
    pub fn execute(&self, action: &str, sql: &str) -> Result<(), LoadError> {
        tracing::trace!(action, sql);
        self.connection.execute_batch(sql).map_err(LoadError::engine(action))
    }

    /// Inserts rows into the table with this SQL name. All batches must have the same columns. The other columns of the
    /// table become NULL. Does nothing if there are no rows.
    pub(super) fn insert(&self, table: &str, rows: &[RecordBatch]) -> Result<(), duckdb::Error> {
        self.arrow_tables.insert(&self.connection, table, rows)
    }

    /// Runs a statement that reads these rows. `sql` gets the SQL relation of the rows and returns the statement.
    pub(super) fn execute_with_rows(
        &self,
        rows: &[RecordBatch],
        sql: impl FnOnce(&str) -> String,
    ) -> Result<(), duckdb::Error> {
        let registered = self.arrow_tables.register(rows);
        self.connection.execute_batch(&sql(&registered.relation()))
    }

    /// Runs a query that reads these rows, as [`Engine::each_batch`] does. `sql` gets the SQL relation of the rows and
    /// returns the query.
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

    /// Runs a query that returns one row of `N` integers. Fails if one of them is NULL.
    pub fn integers<const N: usize>(&self, action: &str, sql: &str) -> Result<[i64; N], LoadError> {
        tracing::trace!(action, sql);
        let read = |row: &duckdb::Row<'_>| {
            let mut values = [0; N];
            let mut values_by_column = values.iter_mut().enumerate();
            values_by_column.try_for_each(|(column, value)| row.get(column).map(|integer| *value = integer))?;
            Ok(values)
        };
        self.connection.query_row(sql, [], read).map_err(LoadError::engine(action))
    }

    /// Runs a query and calls `take` with batches of its rows, as the engine computes them. An error of `take` ends the
    /// query.
    pub fn each_batch(
        &self,
        action: &str,
        sql: &str,
        mut take: impl FnMut(RecordBatch) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        tracing::trace!(action, sql);
        let failed = LoadError::engine(action);
        let mut statement = self.connection.prepare(sql).map_err(failed)?;
        // The iterator that `stream_arrow` returns panics if the engine fails. `step` reads the same stream and returns
        // the error.
        let _ = statement.stream_arrow([]).map_err(failed)?;
        while let Some(chunk) = statement.step().map_err(failed)? {
            take(RecordBatch::from(&chunk))?;
        }
        Ok(())
    }

    /// Calls `visit` once for each row of a SQL relation, with batches of `columns`, in the threads of the engine.
    /// Fails if a row was not visited.
    pub(super) fn visit_rows(
        &self,
        action: &str,
        relation: &str,
        columns: &[&str],
        visit: &Visit<'_>,
    ) -> Result<(), LoadError> {
        self.row_visits.during(visit, columns, |is_visited| {
            self.integers(action, &format!("SELECT count(*), count(*) FILTER (WHERE {is_visited}) FROM {relation} t"))
        })
    }

    /// Returns the connection, for statements that the other methods do not cover.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Removes the spill files of a killed process, which may contain rows of people who were erased since. Creates the
/// parent of the spill folder, because the engine creates only the spill folder itself.
fn remove_spill_files(folder: &Path) -> Result<(), LoadError> {
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

/// Adds the settings of every engine: it neither downloads nor loads extensions by itself.
pub(super) fn common_config(config: Config) -> Result<Config, duckdb::Error> {
    config.with("autoinstall_known_extensions", "false")?.with("autoload_known_extensions", "false")
}

/// Sets the time zone of the session to UTC. The setting exists only in an engine with the extension `icu`. Without the
/// extension, the engine has no time zones and uses UTC, so the failed statement is ignored.
pub(super) fn pin_to_utc(connection: &Connection) -> Result<(), LoadError> {
    let Err(error) = connection.execute_batch("SET TimeZone = 'UTC'") else { return Ok(()) };
    let has_icu: bool = connection
        .query_row("SELECT count(*) > 0 FROM duckdb_settings() WHERE name = 'TimeZone'", [], |row| row.get(0))
        .map_err(LoadError::engine("read its settings"))?;
    if has_icu { Err(LoadError::engine("pin UTC")(error)) } else { Ok(()) }
}

#[cfg(test)]
pub(super) mod tests;
