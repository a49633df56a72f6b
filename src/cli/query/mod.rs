//! `studysync query`: read-only SQL over the warehouse. How rows look is in `table` and `formats`.

mod formats;
mod table;

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    time::Duration,
};

use arrow::array::RecordBatch;
use clap::{Args, ValueEnum};

use crate::{
    files::Access,
    load::{LoadError, Reader, ReaderLimits, in_place, statements},
    model::parse_duration,
    text,
};

use super::{
    CommandError, Context,
    flags::PlaceFlags,
    output::{WriteError, write_to},
};
use formats::{Csv, Json, Parquet};
use table::{Layout, Table};

const ROWS_DEFAULT: usize = 1000;
/// What the program takes beside the engine's data: threads' stacks, the engine's code, rows on their way out.
const OWN_MEMORY_BYTES: u64 = 1 << 30;

/// Runs read-only SQL over the warehouse.
///
/// DuckDB's SQL: one statement, or several with a semicolon after each.
///
/// The DuckDB file is read if one is named, else the Parquet files; with both, Parquet's tables are `parquet.NAME`.
/// Times are UTC. SQL cannot write, and cannot reach other files, the network, the environment or an extension. Memory
/// is bounded by `memory_limit_mb` of the warehouse settings.
///
/// Every statement is checked before the first runs.
/// Their results are printed in order, with an empty line between tables.
///
/// Exit codes: 0 answered; 1 the statement failed or took too long, or the warehouse cannot be read; 2 usage or
/// configuration; 5 a run has the warehouse open.
#[derive(Args, Debug)]
pub(super) struct QueryArgs {
    /// The statements, comments included; '-' reads them from standard input
    #[arg(value_name = "SQL", allow_hyphen_values = true, value_parser = parse_sql)]
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    sql: Option<String>,

    /// Refused. It is taken so that a mistyped flag before a value is named, and not the value
    #[arg(hide = true)]
    surplus: Option<String>,

    /// Read the statements from this file
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    /// How to write the rows [default: as the name of --out ends (.csv, .json, .ndjson, .jsonl, .parquet), else table]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Most rows to write for each result; a notice says when there are more [default: 1000 in a table, else all]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    /// Write to this file, which is replaced atomically. A new file is for you alone; an existing file keeps its mode
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Time limit of a statement: 90s, 30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5m")]
    time_limit: Duration,

    #[command(flatten)]
    place: PlaceFlags,
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

impl Format {
    /// The format that a file's name tells.
    fn of(file: &Path) -> Option<Format> {
        let ending = file.extension()?.to_str()?.to_ascii_lowercase();
        match ending.as_str() {
            "csv" => Some(Format::Csv),
            "json" | "ndjson" | "jsonl" => Some(Format::Json),
            "parquet" => Some(Format::Parquet),
            _ => None,
        }
    }

    fn is_for_people(self) -> bool {
        matches!(self, Format::Table | Format::Lines)
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn rows(self, is_terminal: bool) -> Box<dyn Rows> {
        match self {
            Format::Table if is_terminal => Box::new(Table::new(Layout::Terminal)),
            Format::Table => Box::new(Table::new(Layout::Wide)),
            Format::Lines => Box::new(Table::new(Layout::Lines)),
            Format::Csv => Box::new(Csv::default()),
            Format::Json => Box::new(Json),
            Format::Parquet => Box::new(Parquet::default()),
        }
    }
}

/// A statement may begin with a comment, which looks like a flag. One word in dashes is a flag that there is not.
fn parse_sql(text: &str) -> Result<String, String> {
    match text.starts_with('-') && text.len() > 1 && !text.contains(char::is_whitespace) {
        true => Err(format!("there is no flag {text}")),
        false => Ok(text.to_owned()),
    }
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

/// The engine does not count single values, and one call of `repeat` makes a text of gigabytes:
/// the system refuses such.
fn bound_memory(engine_bytes: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Data);
    let bytes = engine_bytes.saturating_mul(2).saturating_add(OWN_MEMORY_BYTES);
    limit.current = Some(limit.current.map_or(bytes, |held| held.min(bytes)));
    // Where the system knows no such limit there is none.
    setrlimit(Resource::Data, limit).ok();
}

pub(super) fn run(args: &QueryArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.place.given(&context).settings()?;
    settings.require_warehouse().map_err(CommandError::Config)?;
    let is_terminal = args.out.is_none() && context.printer.is_terminal();
    let format = format_of(args);
    if format == Format::Parquet && is_terminal {
        let what = "Parquet is not for a terminal: name a file with --out, or redirect the output";
        return Err(CommandError::Usage(what.to_owned()));
    }
    let script = script_of(args)?;
    let found = statements(&script);
    let asked: Vec<String> = found.iter().map(|statement| in_place(&script, statement)).collect();
    if asked.len() > 1 && format == Format::Parquet {
        let what = format!("a Parquet file holds the answer to one statement, and these are {}", asked.len());
        return Err(CommandError::Usage(what));
    }
    let (duckdb, parquet) = (settings.warehouse.duckdb.as_deref(), settings.warehouse.parquet.as_deref());
    let limits =
        ReaderLimits { memory_bytes: settings.warehouse.query_memory_bytes(), statement_time: args.time_limit };
    bound_memory(limits.memory_bytes);
    let mut reader = Reader::open_limited(duckdb, parquet, limits).map_err(CommandError::Load)?;
    if asked.is_empty() {
        return Err(CommandError::Usage("there is no statement: nothing but blanks and comments".to_owned()));
    }
    for sql in asked.iter().filter(|_| asked.len() > 1) {
        reader.check(sql).map_err(CommandError::Query)?;
    }
    let rows_max = args.rows.unwrap_or(if format.is_for_people() { ROWS_DEFAULT } else { usize::MAX });
    let is_truncated = write_to(args.out.as_deref(), Access::Private, &context.printer, |out| {
        let mut is_truncated = false;
        for (at, sql) in asked.iter().enumerate() {
            if at > 0 && format != Format::Json {
                out.write_all(b"\n")?;
            }
            let mut rows = format.rows(is_terminal);
            let streamed = reader.stream(sql, rows_max, |batch| Ok::<(), WriteError>(rows.take(out, &batch)?))?;
            rows.finish(out)?;
            is_truncated |= streamed.truncated;
        }
        Ok(is_truncated)
    })?;
    if is_truncated {
        notice(&format!("only the first {rows_max} rows are shown; --rows N shows more"));
    }
    Ok(0)
}

/// What --format says, else what the name of the file tells. Where they disagree, that is said.
fn format_of(args: &QueryArgs) -> Format {
    let told = args.out.as_deref().and_then(Format::of);
    if let (Some(format), Some(told), Some(out)) = (args.format, told, &args.out)
        && format != told
    {
        let (name, format) = (out.display(), format.name());
        notice(&format!("{name} gets {format}, as --format says, and not {}, as its name does", told.name()));
    }
    args.format.or(told).unwrap_or(Format::Table)
}

fn script_of(args: &QueryArgs) -> Result<String, CommandError> {
    if let Some(surplus) = &args.surplus {
        return Err(CommandError::Usage(format!("unexpected argument '{surplus}': write the SQL in quotes")));
    }
    match (&args.file, args.sql.as_deref()) {
        (Some(file), _) if file.as_os_str() != "-" => File::open(file)
            .and_then(text::read)
            .map_err(|source| CommandError::failed(format!("cannot read {}", file.display()), source)),
        (None, Some(sql)) if sql != "-" => Ok(text::without_mark(sql).to_owned()),
        _ => text::read(std::io::stdin()).map_err(|source| CommandError::failed("cannot read standard input", source)),
    }
}

fn notice(text: &str) {
    // When stderr is gone, the answer has to do.
    std::io::stderr().write_all(format!("{text}\n").as_bytes()).ok();
}
