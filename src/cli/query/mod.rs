//! `studysync query`: runs read-only SQL over the warehouse. `table` and `formats` write the rows.

mod formats;
mod hints;
mod moments;
mod table;

use std::{
    fs::File,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::{Args, ValueEnum};

use crate::{
    files::Access,
    load::{LoadError, ReaderLimits, RowFormat, RowsQuery, in_place, statements},
    model::parse_duration,
    pipeline::Memory,
    text,
};

use super::{
    CommandError, Context,
    flags::{LocationArgs, TimeZoneArgs},
    printer::{WriteError, counted, write_stderr, write_to},
    terminal::styled_hint,
    warehouse::open_reader,
};
use formats::RowWriter;
use formats::{Csv, Json, JsonArray, Parquet};
use table::{Layout, Plan, Table};

const ROWS_DEFAULT: usize = 1000;
/// The extensions of files that have a format.
const EXTENSIONS: &str = ".csv, .json (an array), .ndjson, .jsonl, .parquet or .txt (a table)";
/// Addresses that the process reserves besides the data of DuckDB: stacks of threads, buffers of allocators, and rows
/// that are being written. No share of the memory limit, because most of them are never used.
const RESERVED_BYTES: u64 = 1 << 30;

/// Runs read-only SQL over the warehouse.
///
/// DuckDB's SQL: one statement, or several with a semicolon after each.
///
/// The command reads the DuckDB file if one is configured, else the Parquet files. With both, the tables in Parquet are
/// `parquet.NAME`. Times are UTC. SQL cannot write, and cannot access other files, the network, the environment or
/// extensions. `memory_limit_mb` under `[warehouse]` limits the memory.
///
/// While a run writes the DuckDB file, the command reads the copy of `publish` under `[warehouse]`. Without a copy it
/// waits up to `lock_wait_secs`.
///
/// All statements are checked before the first one runs.
/// The results are printed in order, with an empty line between tables. A file of CSV, of Parquet or with a JSON array
/// has one result.
///
/// Exit codes: 0 done; 1 the statement failed or took too long, or the warehouse cannot be read; 2 usage or
/// configuration; 5 a run has locked the warehouse.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync query \"FROM nps_by_week ORDER BY week\"
  studysync query -f examples/questions.sql
  studysync query \"FROM current_responses\" --out answers.parquet")]
pub(super) struct QueryArgs {
    /// The statements, comments included [default: those of --file, else of standard input]
    #[arg(value_name = "SQL", allow_hyphen_values = true, value_parser = parse_sql, conflicts_with = "file")]
    sql: Option<String>,

    /// Always refused. With this argument, the error can name a mistyped flag instead of the flag's value
    #[arg(hide = true)]
    surplus: Option<String>,

    /// Read the statements from this file
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,

    /// Format of the rows [default: by the extension of --out (csv, json, ndjson, jsonl, parquet, txt), else table]
    #[arg(long, value_enum)]
    format: Option<Format>,

    /// Limit of the rows of each result; a notice reports a cut result [default: 1000 in a table, else all]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,

    /// File to write; it is replaced atomically. Only you can read a new file, an existing file keeps its mode
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Time limit of a statement: 90s, 30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "5m")]
    time_limit: Duration,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    time_zone: TimeZoneArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people; if the terminal is too narrow, a line for each column
    Table,
    /// A line for each column, for people
    Lines,
    /// CSV with a header
    Csv,
    /// One JSON object per line
    Json,
    /// One JSON array with an object for each row
    JsonArray,
    /// A Parquet file
    Parquet,
}

impl Format {
    /// Returns the format of a file by its extension; `None` if the file has no extension.
    ///
    /// # Errors
    /// `Usage` if the extension is unknown.
    fn of_file(file: &Path) -> Result<Option<Format>, CommandError> {
        let Some(extension) = file.extension() else { return Ok(None) };
        match extension.to_string_lossy().to_ascii_lowercase().as_str() {
            "csv" => Ok(Some(Format::Csv)),
            "json" => Ok(Some(Format::JsonArray)),
            "ndjson" | "jsonl" => Ok(Some(Format::Json)),
            "parquet" => Ok(Some(Format::Parquet)),
            "txt" => Ok(Some(Format::Table)),
            unknown => Err(CommandError::Usage(format!(
                "cannot write {}: no format has the extension .{unknown}: use {EXTENSIONS}, or name a format with --format",
                file.display()
            ))),
        }
    }

    fn rows(self) -> RowFormat {
        match self {
            Format::Table | Format::Lines | Format::Csv => RowFormat::Text,
            Format::Json | Format::JsonArray => RowFormat::Json,
            Format::Parquet => RowFormat::Parquet,
        }
    }

    fn is_for_people(self) -> bool {
        matches!(self, Format::Table | Format::Lines)
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    fn writer(self, is_terminal: bool, is_plan: bool) -> Box<dyn RowWriter> {
        match self {
            Format::Table | Format::Lines if is_plan => Box::new(Plan),
            Format::Table if is_terminal => Box::new(Table::new(Layout::Terminal)),
            Format::Table => Box::new(Table::new(Layout::Wide)),
            Format::Lines => Box::new(Table::new(Layout::Lines)),
            Format::Csv => Box::new(Csv::default()),
            Format::Json => Box::new(Json),
            Format::JsonArray => Box::new(JsonArray::default()),
            Format::Parquet => Box::new(Parquet::default()),
        }
    }
}

/// Accepts a statement, which may begin with a comment (`--`). A single word that begins with a dash is refused as an
/// unknown flag.
fn parse_sql(text: &str) -> Result<String, String> {
    match text.starts_with('-') && text.len() > 1 && !text.contains(char::is_whitespace) {
        true => Err(format!("there is no flag {text}")),
        false => Ok(text.to_owned()),
    }
}

impl From<LoadError> for WriteError {
    fn from(error: LoadError) -> Self {
        WriteError::Data(CommandError::Query(error))
    }
}

/// Limits the memory of the process to twice `engine_bytes`, which is the limit of DuckDB, plus [`RESERVED_BYTES`].
/// DuckDB's limit does not include single values, and one call of `repeat` can create a text of gigabytes.
fn limit_memory(engine_bytes: u64) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Data);
    let bytes = engine_bytes.saturating_mul(2).saturating_add(RESERVED_BYTES);
    limit.current = Some(limit.current.map_or(bytes, |current| current.min(bytes)));
    // A system without this limit runs the query unlimited.
    setrlimit(Resource::Data, limit).ok();
}

/// Runs the statements and writes their rows. All statements are checked before the first one runs, if there are
/// several.
pub(super) fn run(args: &QueryArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.locations.settings(&context).only_reads().time_zone(&args.time_zone).build()?;
    settings.require_warehouse()?;
    let is_terminal = args.out.is_none() && context.printer.is_terminal();
    let format = format_of(args)?;
    if format == Format::Parquet && is_terminal {
        let problem = "Parquet is not for a terminal: name a file with --out, or redirect the output";
        return Err(CommandError::Usage(problem.to_owned()));
    }
    let script = script_of(args)?;
    let statements: Vec<String> = statements(&script).iter().map(|statement| in_place(&script, statement)).collect();
    require_one_result(format, args.out.is_some(), statements.len())?;
    let limits = ReaderLimits { statement_time: args.time_limit, ..Memory::of(&settings.warehouse).reader_limits() };
    limit_memory(limits.memory_bytes);
    let mut reader = open_reader(&settings, limits)?;
    if statements.is_empty() {
        return Err(CommandError::Usage("there is no statement, only blanks and comments".to_owned()));
    }
    let plan = |sql: &String| reader.plan(sql, format.rows()).map_err(CommandError::Query);
    let queries: Vec<RowsQuery> = statements.iter().map(plan).collect::<Result<_, _>>()?;
    for (name, new_name) in queries.iter().flat_map(|query| &query.renamed) {
        write_stderr(&format!("two columns have the name {name}: one is written as {new_name}\n"));
    }
    let rows_max = args.rows.unwrap_or(if format.is_for_people() { ROWS_DEFAULT } else { usize::MAX });
    let mut rows_of = Vec::new();
    let is_truncated = write_to(args.out.as_deref(), Access::Private, &context.printer, |out| {
        let mut is_truncated = false;
        for (at, query) in queries.iter().enumerate() {
            if at > 0 && format != Format::Json {
                out.write_all(b"\n")?;
            }
            let mut writer = format.writer(is_terminal, query.is_plan);
            let write = |batch| Ok::<(), WriteError>(writer.write(out, &batch)?);
            let streamed = reader.stream_planned(query, rows_max, write)?;
            writer.finish(out)?;
            is_truncated |= streamed.truncated;
            rows_of.push(streamed.rows);
        }
        Ok(is_truncated)
    })?;
    if is_truncated {
        write_stderr(&format!("only the first {} shown; --rows N shows more\n", counted(rows_max as u64, "row")));
    }
    for (statement, rows) in statements.iter().zip(rows_of) {
        for hint in hints::hints(&mut reader, statement, rows) {
            write_stderr(&format!("{} {hint}\n", styled_hint("hint:")));
        }
    }
    Ok(0)
}

/// Checks that the output can have the results of all statements.
///
/// # Errors
/// `Usage` if there are several results, and readers of the format expect the columns of one.
fn require_one_result(format: Format, is_file: bool, statements: usize) -> Result<(), CommandError> {
    let output = match format {
        Format::Parquet => "a Parquet file",
        Format::JsonArray => "a JSON array",
        Format::Csv if is_file => "a CSV file",
        Format::Table | Format::Lines | Format::Csv | Format::Json => return Ok(()),
    };
    if statements <= 1 {
        return Ok(());
    }
    Err(CommandError::Usage(format!(
        "{output} has the result of one statement, and these are {statements}: write a file for each, or all into one \
         .txt (tables) or .ndjson"
    )))
}

/// Returns the format of --format, else the format of the file's extension, else a table. A message reports if the two
/// formats differ.
///
/// # Errors
/// `Usage` if there is no --format, and the extension is unknown.
fn format_of(args: &QueryArgs) -> Result<Format, CommandError> {
    let of_file = match (args.out.as_deref().map(Format::of_file), args.format) {
        (Some(Err(error)), None) => return Err(error),
        (of_file, _) => of_file.and_then(Result::ok).flatten(),
    };
    if let (Some(format), Some(of_file), Some(out)) = (args.format, of_file, &args.out)
        && format != of_file
    {
        let (name, format, of_file) = (out.display(), format.name(), of_file.name());
        write_stderr(&format!(
            "{name} is written as {format} because of --format, despite its extension for {of_file}\n"
        ));
    }
    Ok(args.format.or(of_file).unwrap_or(Format::Table))
}

/// Reads the statements from the argument, the file or standard input.
fn script_of(args: &QueryArgs) -> Result<String, CommandError> {
    if let Some(surplus) = &args.surplus {
        return Err(CommandError::Usage(format!("unexpected argument '{surplus}': write the SQL in quotes")));
    }
    match (&args.file, args.sql.as_deref()) {
        (Some(file), _) if file.as_os_str() != "-" => File::open(file)
            .and_then(text::read)
            .map_err(CommandError::failed(format!("cannot read {}", file.display()))),
        (None, Some(sql)) if sql != "-" => Ok(text::without_mark(sql).to_owned()),
        (None, None) if std::io::stdin().is_terminal() => {
            let problem =
                "there is no statement: write one in quotes, name a file with -f, or pipe one into the command";
            Err(CommandError::Usage(problem.to_owned()))
        }
        _ => text::read(std::io::stdin()).map_err(CommandError::failed("cannot read standard input")),
    }
}
