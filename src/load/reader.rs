//! Runs read-only SQL queries of a warehouse. A query can read only the files of the warehouse, and cannot change
//! anything.
//!
//! While a run writes the DuckDB file, opening a reader reads the copy for readers, waits, or fails, as [`WhileLocked`]
//! says. A run cannot write a DuckDB file that a reader has open, so the reader should be closed after the query.

mod answer_range;
mod columns;
mod pivot;
mod script;
mod seal;
mod timer;
mod zoned_views;

use std::{
    cell::Cell,
    path::Path,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch},
    datatypes::{DataType, Field, FieldRef, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType},
};
use duckdb::{Config, Connection};

use super::{
    LoadError, LockPatience, WhileLocked,
    engine::{common_config, pin_to_utc},
    open::{Attached, attach, catalog},
    table_views::TableViews,
};
use crate::{
    files,
    model::{Location, WarehouseKind, WarehouseLocations, format_ms},
    schema::quote_text,
};
pub use answer_range::AnswerRange;
pub use columns::{RowFormat, RowsQuery};
pub use script::{in_place, statements};
use seal::check_reads_only;
use timer::StatementTimer;
use zoned_views::ZonedViews;

/// Default of [`ReaderLimits::statement_time`].
const STATEMENT_TIME: Duration = Duration::from_secs(300);

/// Limits of one statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderLimits {
    /// Memory of the engine, in bytes. A query that needs more fails, because nothing spills to disk.
    pub memory_bytes: u64,
    /// Memory for the rows that a caller collects, in bytes.
    pub results_bytes: usize,
    /// Time that the engine may work on one statement, without the time in which the caller handles its rows.
    pub statement_time: Duration,
}

impl ReaderLimits {
    /// Creates limits with this memory for the engine, none for collected rows, and 5 minutes for a statement.
    pub fn new(memory_bytes: u64) -> Self {
        ReaderLimits { memory_bytes, results_bytes: 0, statement_time: STATEMENT_TIME }
    }
}

/// A read-only connection to a warehouse.
pub struct Reader {
    connection: Connection,
    limits: ReaderLimits,
    /// The warehouses to open again, and how long to wait for them; `None` if the engine uses one thread.
    reopening: Option<(WarehouseLocations, LockPatience)>,
    zoned: ZonedViews,
    /// The answers that statements of [`Reader::stream`] see.
    answers: AnswerRange,
    /// Dropped after the connection, because fields are dropped in their order.
    attached: Vec<Attached>,
}

/// The first rows of a result.
#[derive(Clone, Debug)]
pub struct QueryResult {
    /// The schema of the result. Times are UTC and have no zone.
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
    /// True if the result has more rows than the limit.
    pub truncated: bool,
}

/// How much of a result was streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streamed {
    /// Number of rows that were passed to the caller.
    pub rows: usize,
    /// True if the result has more rows than the limit.
    pub truncated: bool,
}

impl Reader {
    /// Opens a warehouse with 1 GiB of memory.
    #[cfg(test)]
    pub fn open(locations: &WarehouseLocations) -> Result<Reader, LoadError> {
        Reader::open_limited(locations, ReaderLimits { results_bytes: 1 << 30, ..ReaderLimits::new(1 << 30) })
    }

    /// Opens warehouses for queries. Queries use tables and views of the first warehouse by their plain names, and of
    /// the Parquet warehouse also as `parquet.NAME`. Without a warehouse, queries have no tables.
    ///
    /// # Errors
    /// `Locked` while another process or this process has the DuckDB file open for writing; `Missing` if the file or
    /// folder does not exist.
    pub fn open_limited(locations: &WarehouseLocations, limits: ReaderLimits) -> Result<Reader, LoadError> {
        Reader::open_while_locked(locations, limits, &WhileLocked::default())
    }

    /// Opens warehouses as [`Reader::open_limited`] does, also while another process has the DuckDB file open for
    /// writing. A log line then says what the reader waits for or reads.
    ///
    /// # Errors
    /// As [`Reader::open_limited`]; `Locked` only when the wait is over.
    pub fn open_while_locked(
        locations: &WarehouseLocations,
        limits: ReaderLimits,
        while_locked: &WhileLocked,
    ) -> Result<Reader, LoadError> {
        let mut locations = locations.clone();
        let reader = Reader::open_engine(&mut locations, limits, None, while_locked)?;
        Ok(Reader { reopening: Some((locations, while_locked.patience.clone())), ..reader })
    }

    /// Opens warehouses. `threads` is the number of threads of the engine; `None` means its default. A location
    /// becomes that of the copy if the copy is opened.
    fn open_engine(
        locations: &mut WarehouseLocations,
        limits: ReaderLimits,
        threads: Option<i64>,
        while_locked: &WhileLocked,
    ) -> Result<Reader, LoadError> {
        let failed = LoadError::engine("open");
        let config = common_config(Config::default())
            .and_then(|config| config.max_memory(&format!("{}B", limits.memory_bytes)))
            .and_then(|config| threads.into_iter().try_fold(config, Config::threads))
            // Without this setting, the engine would spill into a folder in the working directory.
            .and_then(|config| config.with("temp_directory", ""))
            .map_err(failed)?;
        let connection = Connection::open_in_memory_with_flags(config).map_err(failed)?;
        pin_to_utc(&connection)?;
        let mut attached = Vec::new();
        if let Some(first) = locations.keys().next().map(|kind| catalog(*kind)) {
            for (kind, location) in locations.iter_mut().rev() {
                let copy = while_locked.copy.as_deref().filter(|_| *kind == WarehouseKind::DuckDb);
                let opened = match attach(*kind, location, &connection, first) {
                    Err(LoadError::Locked { .. }) => {
                        match copy.and_then(|copy| attach_copy(copy, location, &connection, first)) {
                            Some(opened) => Ok(opened),
                            None => while_locked.patience.until_free(|| attach(*kind, location, &connection, first)),
                        }
                    }
                    opened => opened,
                };
                attached.push(opened?);
            }
            connection.execute_batch(&format!("USE {first}.main")).map_err(failed)?;
        }
        let is_file = locations.keys().next() == Some(&WarehouseKind::DuckDb);
        let zoned = if is_file { ZonedViews::of_file(&connection) } else { ZonedViews::default() };
        // From here on the engine can read only the attached file and the files in the folder.
        let mut folders = Vec::new();
        for views in table_views(&attached) {
            folders.extend(views.folders(&connection)?.iter().map(|folder| quote_text(folder)));
        }
        let seal = "SET enable_external_access = false; SET lock_configuration = true";
        let sealed = format!("SET allowed_directories = [{}]; {seal}", folders.join(", "));
        connection.execute_batch(&sealed).map_err(failed)?;
        Ok(Reader { connection, limits, reopening: None, zoned, answers: AnswerRange::default(), attached })
    }

    /// Narrows the views of answers to a range, in the statements of [`Reader::stream`] from now on.
    pub fn narrow(&mut self, answers: AnswerRange) {
        self.answers = answers;
    }

    /// Returns how many rows of this size a caller may collect.
    pub fn rows_max(&self, row_bytes: usize) -> usize {
        self.limits.results_bytes / row_bytes.max(1)
    }

    /// Runs one read-only statement and returns at most `rows_max` rows.
    ///
    /// # Errors
    /// `Engine`, with the engine's message, unless `sql` is exactly one valid SELECT statement; `TimedOut` if the
    /// statement exceeds its time limit.
    pub fn query(&mut self, sql: &str, rows_max: usize) -> Result<QueryResult, LoadError> {
        let mut kept: Vec<RecordBatch> = Vec::new();
        let mut schema = None;
        let streamed = self.stream(sql, rows_max, |batch| {
            schema.get_or_insert_with(|| batch.schema());
            if batch.num_rows() > 0 {
                kept.push(batch);
            }
            Ok::<(), LoadError>(())
        })?;
        let schema = schema.unwrap_or_else(|| SchemaRef::new(Schema::empty()));
        Ok(QueryResult { schema, batches: kept, truncated: streamed.truncated })
    }

    /// Checks that a statement only reads, and that the tables, columns and functions that it names exist. Returns the
    /// statement as the format needs it. Does not run the statement, except for the values of a PIVOT that lists none.
    ///
    /// # Errors
    /// The errors of [`Reader::query`]; `Column` for a column that the format cannot hold.
    pub fn plan(&self, sql: &str, format: RowFormat) -> Result<RowsQuery, LoadError> {
        check_reads_only(&self.connection, sql)?;
        let timer = self.timer()?;
        let planned = timer.during(|| self.with_views(sql, || RowsQuery::new(&self.connection, sql, format)));
        if timer.is_used_up() { Err(self.timed_out()) } else { planned }
    }

    /// Runs a planned statement, as [`Reader::stream`] does. The batches have what the format can hold.
    ///
    /// # Errors
    /// As [`Reader::stream`]; `Column` for a value that the format does not have.
    pub fn stream_planned<E: From<LoadError>>(
        &mut self,
        query: &RowsQuery,
        rows_max: usize,
        mut take: impl FnMut(RecordBatch) -> Result<(), E>,
    ) -> Result<Streamed, E> {
        self.run(&query.sql, rows_max, |batch| take(query.present(&batch)?))
    }

    /// Runs one read-only statement and calls `take` with batches of its result, at most `rows_max` rows in total. The
    /// first batch is empty and has the schema. The memory for a result does not grow with its number of rows.
    ///
    /// # Errors
    /// The errors of `take`, and the errors of [`Reader::query`]. An error can occur after some batches were passed.
    pub fn stream<E: From<LoadError>>(
        &mut self,
        sql: &str,
        rows_max: usize,
        take: impl FnMut(RecordBatch) -> Result<(), E>,
    ) -> Result<Streamed, E> {
        let sql = self.answers.over(sql);
        check_reads_only(&self.connection, &sql)?;
        self.run(&sql, rows_max, take)
    }

    /// Creates the views over Parquet files that a statement names, and plans it. If that fails, the statement may name
    /// a view in another way, so all views are created and it is planned again.
    fn with_views<T>(&self, sql: &str, plan: impl Fn() -> Result<T, LoadError>) -> Result<T, LoadError> {
        self.zoned.create_named(&self.connection, sql)?;
        let Some(views) = table_views(&self.attached).next() else { return plan() };
        views.create_named(&self.connection, sql)?;
        match plan() {
            Err(_) if matches!(views.create_all(&self.connection), Ok(true)) => plan(),
            planned => planned,
        }
    }

    fn timer(&self) -> Result<StatementTimer, LoadError> {
        StatementTimer::new(self.connection.interrupt_handle(), self.limits.statement_time)
            .map_err(|source| LoadError::Engine { action: "run the query".into(), source: source.into() })
    }

    fn timed_out(&self) -> LoadError {
        LoadError::TimedOut { limit: self.limits.statement_time }
    }

    /// Runs a checked statement, as [`Reader::stream`] does. If the engine runs out of memory before it returns a row,
    /// runs the statement again with one thread, which needs less.
    fn run<E: From<LoadError>>(
        &mut self,
        sql: &str,
        rows_max: usize,
        mut take: impl FnMut(RecordBatch) -> Result<(), E>,
    ) -> Result<Streamed, E> {
        let (mut has_schema, has_rows) = (false, Cell::new(false));
        let mut take = |batch: RecordBatch| {
            has_rows.set(has_rows.get() || batch.num_rows() > 0);
            if std::mem::replace(&mut has_schema, true) && batch.num_rows() == 0 { Ok(()) } else { take(batch) }
        };
        let streamed = self.run_once(sql, rows_max, &mut take);
        if !matches!(&streamed, Err(error) if error.is_out_of_memory()) || has_rows.get() {
            return streamed?;
        }
        let Some((mut locations, patience)) = self.reopening.take() else { return streamed? };
        tracing::debug!("the engine ran out of memory: the query runs again with one thread");
        // Closes the file before it is opened again: closing it later would drop the lock of the new engine, too.
        self.connection = Connection::open_in_memory().map_err(LoadError::engine("close the warehouse"))?;
        self.attached.clear();
        let while_locked = WhileLocked { copy: None, patience };
        let reopened = Reader::open_engine(&mut locations, self.limits, Some(1), &while_locked)?;
        *self = Reader { answers: self.answers, ..reopened };
        self.run_once(sql, rows_max, &mut take)?
    }

    /// Runs a checked statement. The inner error is that of `take`.
    fn run_once<E>(
        &self,
        sql: &str,
        rows_max: usize,
        take: &mut dyn FnMut(RecordBatch) -> Result<(), E>,
    ) -> Result<Result<Streamed, E>, LoadError> {
        let timer = self.timer()?;
        let failed = |source| {
            if timer.is_used_up() { self.timed_out() } else { LoadError::engine("run the query")(source) }
        };
        let prepare = || self.connection.prepare(sql).map_err(failed);
        let mut statement = timer.during(|| self.with_views(sql, prepare))?;
        // The iterator that `stream_arrow` returns panics if the engine fails. `step` reads the same stream and returns
        // the error.
        timer.during(|| statement.stream_arrow([]).map(drop)).map_err(failed)?;
        if let Err(error) = take(without_zones(RecordBatch::new_empty(statement.schema()))) {
            return Ok(Err(error));
        }
        let mut rows_left = rows_max;
        while let Some(rows) = timer.during(|| statement.step()).map_err(failed)? {
            let batch = without_zones(RecordBatch::from(&rows));
            let kept = batch.num_rows().min(rows_left);
            rows_left -= kept;
            if kept > 0
                && let Err(error) = take(batch.slice(0, kept))
            {
                return Ok(Err(error));
            }
            if batch.num_rows() > kept {
                return Ok(Ok(Streamed { rows: rows_max, truncated: true }));
            }
        }
        // The stream of an interrupted statement may end without an error.
        if timer.is_used_up() {
            return Err(self.timed_out());
        }
        Ok(Ok(Streamed { rows: rows_max - rows_left, truncated: false }))
    }
}

/// Attaches the copy for readers in place of the locked DuckDB file at `location`, which becomes that of the copy.
/// Returns `None` if the copy cannot be read, as before the first run and after an erasure.
fn attach_copy(copy: &Path, location: &mut Location, connection: &Connection, first: &'static str) -> Option<Attached> {
    // The copy has the modification time of its original.
    let found = files::metadata(copy).ok().flatten().filter(|found| found.len() > 0)?;
    let attached = attach(WarehouseKind::DuckDb, &copy.into(), connection, first)
        .inspect_err(|error| tracing::warn!(%error, "cannot read the copy for readers"))
        .ok()?;
    let since_epoch = found.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
    let changed = format_ms(i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX));
    let (locked, copy_shown) = (location.to_string(), copy.display());
    tracing::warn!(
        "{locked} is held open by another process; reading the copy {copy_shown}, last changed at {changed}"
    );
    *location = copy.into();
    Some(attached)
}

fn table_views(attached: &[Attached]) -> impl Iterator<Item = &TableViews> {
    attached.iter().filter_map(|attached| match attached {
        Attached::Views(views) => Some(&**views),
        Attached::DuckDb { .. } => None,
    })
}

/// Removes the zones from the types of time columns. The times stay the same, because the zone of the session is UTC.
fn without_zones(batch: RecordBatch) -> RecordBatch {
    let is_zoned = |field: &Field| matches!(field.data_type(), DataType::Timestamp(TimeUnit::Microsecond, Some(_)));
    let schema = batch.schema();
    if !schema.fields().iter().any(|field| is_zoned(field)) {
        return batch;
    }
    let plain = |(field, column): (&FieldRef, &ArrayRef)| {
        if is_zoned(field) {
            let times = column.as_primitive::<TimestampMicrosecondType>().clone().with_timezone_opt(None::<Arc<str>>);
            (Arc::new(Field::new(field.name(), times.data_type().clone(), true)), Arc::new(times) as ArrayRef)
        } else {
            (Arc::clone(field), Arc::clone(column))
        }
    };
    let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) =
        schema.fields().iter().zip(batch.columns()).map(plain).unzip();
    // Cannot fail: the schema was made from the columns, and all columns have the same length.
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap_or(batch)
}

impl QueryResult {
    /// Returns the number of rows in `batches`.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

#[cfg(test)]
mod tests;
