//! `studysync query`: read-only SQL over the warehouse. How rows look is in `table` and `formats`.

mod formats;
mod table;

use std::{io::Write, path::PathBuf, time::Duration};

use arrow::array::RecordBatch;
use clap::{Args, ValueEnum};

use crate::{
    load::{LoadError, Reader, ReaderLimits},
    model::parse_length,
};

use super::{
    CommandError, Context,
    flags::{EffortFlags, SharedFlags},
    output::{WriteError, write_to},
};
use formats::{Csv, Json, Parquet};
use table::{Layout, Table};

const ROWS_DEFAULT: usize = 1000;
/// What the program takes beside the engine's data: threads' stacks, the engine's code, rows on their way out.
const OWN_MEMORY_BYTES: u64 = 1 << 30;

/// Runs one read-only SQL statement over the warehouse (DuckDB's SQL).
///
/// The DuckDB file is read if one is named, else the Parquet files; with both, Parquet's tables are `parquet.NAME`. Times are UTC.
/// SQL cannot write, and cannot reach other files, the network, the environment or an extension. Memory is bounded by
/// `memory_limit_mb` of the warehouse settings.
///
/// Exit codes: 0 answered; 1 the statement failed or took too long, or the warehouse cannot be read; 2 usage or configuration; 5 a
/// run has the warehouse open.
#[derive(Args, Debug)]
pub(super) struct QueryArgs {
    /// The statement; '-' reads it from standard input
    #[arg(value_name = "SQL")]
    sql: String,

    /// How to write the rows
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    /// Rows to write at most; a notice says when there are more
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT)]
    rows: usize,

    /// Write to this file, which is put in place when it is whole
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Time that the engine may work on the statement: 90s, 30m
    #[arg(long, value_name = "TIME", value_parser = parse_length, default_value = "5m")]
    time_limit: Duration,

    #[command(flatten)]
    shared: SharedFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people; on a terminal that is too narrow, a line for each column
    Table,
    /// For people: a line for each column
    Lines,
    /// With a header
    Csv,
    /// One object a line
    Json,
    /// A Parquet file
    Parquet,
}

/// One way to write rows.
trait Rows {
    /// Takes the next rows. The first batch is empty and tells the columns.
    fn take(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> std::io::Result<()>;
    /// Writes what is left.
    fn finish(&mut self, out: &mut dyn Write) -> std::io::Result<()>;
}

impl From<LoadError> for WriteError {
    fn from(error: LoadError) -> Self {
        WriteError::Made(CommandError::Query(error))
    }
}

/// The engine does not count single values, and one call of `repeat` makes a text of gigabytes: the system refuses such.
fn bound_memory(engine_bytes: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Data);
    let bytes = engine_bytes.saturating_mul(2).saturating_add(OWN_MEMORY_BYTES);
    limit.current = Some(limit.current.map_or(bytes, |held| held.min(bytes)));
    // Where the system knows no such limit there is none.
    setrlimit(Resource::Data, limit).ok();
}

pub(super) fn run(args: &QueryArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.shared.settings(&EffortFlags::default(), &context)?;
    settings.require_warehouse().map_err(CommandError::Config)?;
    let is_terminal = args.out.is_none() && context.printer.is_terminal();
    if args.format == Format::Parquet && is_terminal {
        let what = "Parquet is not for a terminal: name a file with --out, or redirect the output";
        return Err(CommandError::Usage(what.to_owned()));
    }
    let sql = match args.sql.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|source| CommandError::failed("cannot read standard input", source))?,
        sql => sql.to_owned(),
    };
    let (duckdb, parquet) = (settings.warehouse.duckdb.as_deref(), settings.warehouse.parquet.as_deref());
    let limits = ReaderLimits { memory_bytes: settings.warehouse.memory_limit_bytes, statement_time: args.time_limit };
    bound_memory(limits.memory_bytes);
    let mut reader = Reader::open_limited(duckdb, parquet, limits).map_err(CommandError::Load)?;
    let mut rows: Box<dyn Rows> = match args.format {
        Format::Table if is_terminal => Box::new(Table::new(Layout::Terminal)),
        Format::Table => Box::new(Table::new(Layout::Wide)),
        Format::Lines => Box::new(Table::new(Layout::Lines)),
        Format::Csv => Box::new(Csv::default()),
        Format::Json => Box::new(Json),
        Format::Parquet => Box::new(Parquet::default()),
    };
    let streamed = write_to(args.out.as_deref(), &context.printer, |out| {
        let streamed = reader.stream(&sql, args.rows, |batch| Ok::<(), WriteError>(rows.take(out, &batch)?))?;
        rows.finish(out)?;
        Ok(streamed)
    })?;
    if streamed.truncated {
        let notice = format!("only the first {} rows are shown; --rows N shows more\n", args.rows);
        std::io::stderr().write_all(notice.as_bytes()).ok();
    }
    Ok(0)
}
