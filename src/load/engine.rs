//! DuckDB as a library: an in-memory database to which files are attached, its limits, and Arrow rows in and out. It
//! knows no contract and no scan.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use arrow::array::RecordBatch;
use duckdb::{Config, Connection};

use self::handed::Counter;
use super::LoadError;
use crate::{
    files,
    model::{DurableStep, Steps},
};

mod handed;

/// A commit log longer than this is folded into the database file: high, so that a run does it once, in `publish`.
const CHECKPOINT_THRESHOLD: &str = "1GiB";

/// A thread that writes a row group takes about so much, some of which the engine does not count.
const THREAD_BYTES: u64 = 64 * 1024 * 1024;

/// How much of a result that is read batch by batch may wait for its reader.
/// The engine's own default holds one batch of wide rows.
const STREAMED_BYTES: u64 = 8 * 1024 * 1024;

/// How the names of the engine's spill files begin.
const SPILL_PREFIX: &str = "duckdb_temp_";

/// The least memory of an engine. To commit changes of a table, it holds two blocks of 256 KiB for each column of what
/// changes, and two of where they go: 45 MiB for a table of 45 columns, which the largest has. Beside them are the
/// marks of rows that went. Measured with a million answers:
/// transactions of 30,000 to 90,000 edits fail with 62 MiB, and succeed from 70 on.
pub const ENGINE_BYTES_MIN: u64 = 96 * 1024 * 1024;

/// What the engine may use of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineOptions {
    /// Memory for data, in bytes; what does not fit goes to `temp_directory`.
    pub memory_limit_bytes: u64,
    /// Threads for what gains by them, at least 1: see [`Engine::with_all_threads`].
    pub threads: u32,
    /// Where to spill: a folder that no other engine uses at the same time. It is created when needed and removed when
    /// the engine closes; what a killed process left in it is removed when an engine opens.
    pub temp_directory: PathBuf,
}

/// An engine that has touched no file yet:
/// to start one takes a while, and can be done before it is known whether it may.
pub struct StartedEngine {
    connection: Connection,
    options: EngineOptions,
}

impl StartedEngine {
    /// Starts an empty engine.
    pub fn start(options: EngineOptions) -> Result<Self, LoadError> {
        let failed = |source| LoadError::engine("open", source);
        // The limits are set at open: set later, they come too late for what attaching a file may have to replay.
        let config = common_config(Config::default())
            .and_then(|config| config.max_memory(&format!("{}B", options.memory_limit_bytes)))
            .and_then(|config| config.threads(1))
            .and_then(|config| config.with("temp_directory", options.temp_directory.to_string_lossy()))
            .and_then(|config| config.with("checkpoint_threshold", CHECKPOINT_THRESHOLD))
            .map_err(failed)?;
        Ok(Self { connection: Connection::open_in_memory_with_flags(config).map_err(failed)?, options })
    }

    /// What it may use.
    pub(super) fn options(&self) -> &EngineOptions {
        &self.options
    }

    /// Makes it ready for work, and removes what a killed one spilled.
    pub fn ready(self) -> Result<Engine, LoadError> {
        remove_leftovers(&self.options.temp_directory)?;
        let counter = Counter::open(&self.connection).map_err(|source| LoadError::engine("open", source))?;
        let engine = Engine {
            connection: self.connection,
            counter,
            steps: Steps::default(),
            threads: threads_of(&self.options),
        };
        pin_to_utc(&engine.connection)?;
        // Rows are compressed and written as they come, a row group at a time, and not all at the commit.
        engine.execute("set its buffer", "SET write_buffer_row_group_count = 1")?;
        engine.execute("set its buffer", &format!("SET streaming_buffer_size = '{STREAMED_BYTES}B'"))?;
        Ok(engine)
    }
}

/// The threads for whole files and tables, as far as there is memory for what each of them writes.
fn threads_of(options: &EngineOptions) -> u32 {
    let fitting = u32::try_from(options.memory_limit_bytes / THREAD_BYTES).unwrap_or(u32::MAX);
    options.threads.min(fitting).max(1)
}

/// One in-memory database and the one connection to it. Its session is pinned: UTC, no extension is ever downloaded.
///
/// One thread works for it, beside those that pull and flatten: the rows of a scan are a single piece of work for the
/// engine, and its other threads would only wait for each other, busily.
pub struct Engine {
    connection: Connection,
    counter: Counter,
    steps: Steps,
    threads: u32,
}

impl Engine {
    /// An empty engine.
    pub fn open(options: &EngineOptions) -> Result<Self, LoadError> {
        StartedEngine::start(options.clone())?.ready()
    }

    /// The same engine, with somebody who watches the durable steps taken through it.
    #[must_use]
    pub(super) fn watched(self, steps: Steps) -> Self {
        Self { steps, ..self }
    }

    /// Runs what has enough to do for all threads: whole files and tables.
    pub(super) fn with_all_threads<T>(&self, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.use_threads(self.threads)?;
        let done = work();
        let back = self.use_threads(1);
        // The work's error is the one to tell.
        done.and_then(|value| back.map(|()| value))
    }

    /// Runs an insert for which the order of the rows says nothing. In order, the engine writes with one thread alone
    /// unless it has far more memory than the rows that it holds back.
    pub(super) fn in_any_order<T>(&self, work: impl FnOnce() -> Result<T, LoadError>) -> Result<T, LoadError> {
        let set = |is_kept: bool| {
            self.execute("set the order of its rows", &format!("SET preserve_insertion_order = {is_kept}"))
        };
        set(false)?;
        let done = work();
        let back = set(true);
        done.and_then(|value| back.map(|()| value))
    }

    fn use_threads(&self, threads: u32) -> Result<(), LoadError> {
        if self.threads == 1 { Ok(()) } else { self.execute("set its threads", &format!("SET threads = {threads}")) }
    }

    /// To be called before each durable step.
    pub(super) fn reach(&self, step: DurableStep, path: &Path) -> Result<(), LoadError> {
        let failed = |source| LoadError::Io { action: "write", path: path.to_owned(), source };
        self.steps.reach(step).map_err(failed)
    }

    /// Runs statements that return nothing of interest. `action` completes "the engine failed to ...".
    pub fn execute(&self, action: &str, sql: &str) -> Result<(), LoadError> {
        tracing::trace!(action, sql);
        self.connection.execute_batch(sql).map_err(|source| LoadError::engine(action, source))
    }

    /// Adds rows to a table, whose name is SQL: to the columns that the batches have, all of them the same.
    /// The others are NULL.
    pub(super) fn insert(&self, table: &str, rows: &[RecordBatch]) -> Result<(), duckdb::Error> {
        self.counter.insert(&self.connection, table, rows)
    }

    /// Runs a statement that reads these rows. `sql` makes it, given how it is to name them.
    pub(super) fn execute_with_rows(
        &self,
        rows: &[RecordBatch],
        sql: impl FnOnce(&str) -> String,
    ) -> Result<(), duckdb::Error> {
        let handed = self.counter.hand_over(rows);
        self.connection.execute_batch(&sql(&handed.relation()))
    }

    /// As [`Engine::each_batch`], of a query that reads these rows. `sql` makes it, given how it is to name them.
    pub(super) fn each_batch_with_rows(
        &self,
        action: &str,
        rows: &[RecordBatch],
        sql: impl FnOnce(&str) -> String,
        take: impl FnMut(RecordBatch) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let handed = self.counter.hand_over(rows);
        self.each_batch(action, &sql(&handed.relation()), take)
    }

    /// Runs a query of one row of integers that are never NULL.
    pub fn integers<const N: usize>(&self, action: &str, sql: &str) -> Result<[i64; N], LoadError> {
        tracing::trace!(action, sql);
        self.connection
            .query_row(sql, [], |row| {
                let mut values = [0; N];
                for (at, value) in values.iter_mut().enumerate() {
                    *value = row.get(at)?;
                }
                Ok(values)
            })
            .map_err(|source| LoadError::engine(action, source))
    }

    /// Hands over the rows of a query, some thousand at a time.
    pub fn each_batch(
        &self,
        action: &str,
        sql: &str,
        mut take: impl FnMut(RecordBatch) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        tracing::trace!(action, sql);
        let failed = |source| LoadError::engine(action, source);
        let mut statement = self.connection.prepare(sql).map_err(failed)?;
        // The iterator that this returns panics where the engine fails;
        // `step` below reads the same stream and reports it.
        let _ = statement.stream_arrow([]).map_err(failed)?;
        while let Some(chunk) = statement.step().map_err(failed)? {
            take(RecordBatch::from(&chunk))?;
        }
        Ok(())
    }

    /// The connection, for what the methods above do not do.
    pub fn connection(&self) -> &Connection {
        &self.connection
    }
}

/// Removes what a killed process spilled: rows of people who may have asked to be forgotten since. Makes sure that
/// there is a folder to make the folder in, which the engine does not do.
fn remove_leftovers(folder: &Path) -> Result<(), LoadError> {
    let io = |action, path: &Path| {
        let path = path.to_owned();
        move |source| LoadError::io(action, &path, source)
    };
    if let Some(parent) = folder.parent() {
        files::create_folders(parent).map_err(io("create the folder", parent))?;
    }
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(io("read the folder", folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(io("read the folder", folder))?;
        if entry.file_name().to_string_lossy().starts_with(SPILL_PREFIX) {
            std::fs::remove_file(entry.path()).map_err(io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// What every session has: no extension is ever downloaded, or loaded without being asked for.
pub(super) fn common_config(config: Config) -> Result<Config, duckdb::Error> {
    config.with("autoinstall_known_extensions", "false")?.with("autoload_known_extensions", "false")
}

/// Times in zone-aware columns are shown and cast as UTC. Only an engine with the `icu` extension knows zones; one
/// without it (the bundled build) always counts in UTC and has no such setting.
pub(super) fn pin_to_utc(connection: &Connection) -> Result<(), LoadError> {
    let Err(error) = connection.execute_batch("SET TimeZone = 'UTC'") else { return Ok(()) };
    let has_icu: bool = connection
        .query_row("SELECT count(*) > 0 FROM duckdb_settings() WHERE name = 'TimeZone'", [], |row| row.get(0))
        .map_err(|source| LoadError::engine("read its settings", source))?;
    if has_icu { Err(LoadError::engine("pin UTC", error)) } else { Ok(()) }
}

#[cfg(test)]
pub(super) mod tests;
