//! `studysync query`: read-only SQL over the warehouse.

use arrow::{
    array::RecordBatch,
    util::display::{ArrayFormatter, FormatOptions},
};
use clap::{Args, ValueEnum};

use crate::load::{QueryResult, Reader};

use super::{
    CommandError, Context,
    flags::{EffortFlags, SharedFlags},
};

const ROWS_DEFAULT: usize = 1000;

/// Runs one read-only SQL statement over the warehouse (DuckDB's SQL).
///
/// The DuckDB file is read if one is named, else the Parquet files. Times are UTC. SQL cannot write, and cannot reach other
/// files or the network.
///
/// Exit codes: 0 answered; 1 the statement failed or the warehouse cannot be read; 2 usage or configuration; 5 a run has the
/// warehouse open.
#[derive(Args, Debug)]
pub(super) struct QueryArgs {
    /// The statement; '-' reads it from standard input
    #[arg(value_name = "SQL")]
    sql: String,

    /// How to print the rows
    #[arg(long, value_enum, default_value = "table")]
    format: Format,

    /// Rows to print at most; a notice says when there are more
    #[arg(long, value_name = "N", default_value_t = ROWS_DEFAULT)]
    rows: usize,

    #[command(flatten)]
    shared: SharedFlags,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
}

pub(super) fn run(args: &QueryArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.shared.settings(&EffortFlags::default(), &context)?;
    settings.require_warehouse().map_err(CommandError::Config)?;
    let sql = match args.sql.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|source| CommandError::failed("cannot read standard input", source))?,
        sql => sql.to_owned(),
    };
    let (duckdb, parquet) = (settings.warehouse.duckdb.as_deref(), settings.warehouse.parquet.as_deref());
    let mut reader = Reader::open(duckdb, parquet).map_err(CommandError::Load)?;
    let result = reader.query(&sql, args.rows).map_err(CommandError::Query)?;
    context.printer.write(|out| match args.format {
        Format::Table => writeln!(out, "{}", table(&result)),
        Format::Csv => csv(out, &result),
        Format::Json => json(out, &result),
    })?;
    if result.truncated {
        let notice = format!("only the first {} rows are shown; --rows N shows more\n", args.rows);
        std::io::Write::write_all(&mut std::io::stderr(), notice.as_bytes()).ok();
    }
    Ok(0)
}

/// A table as wide as it needs to be; a terminal cuts or folds it as its owner likes.
pub(super) fn table(result: &QueryResult) -> String {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header(result.schema.fields().iter().map(|field| field.name().clone()));
    for batch in &result.batches {
        for row in 0..batch.num_rows() {
            table.add_row(cells(batch, row));
        }
    }
    let rows = result.rows();
    format!("{table}\n{rows} {}", if rows == 1 { "row" } else { "rows" })
}

fn cells(batch: &RecordBatch, row: usize) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL").with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
    let cell = |column: &arrow::array::ArrayRef| match ArrayFormatter::try_new(column.as_ref(), &options) {
        Ok(formatter) => formatter.value(row).to_string(),
        Err(error) => format!("({error})"),
    };
    batch.columns().iter().map(cell).collect()
}

fn csv(out: &mut dyn std::io::Write, result: &QueryResult) -> std::io::Result<()> {
    let mut writer = arrow::csv::WriterBuilder::new().with_header(true).build(out);
    if result.batches.is_empty() {
        return writer.write(&RecordBatch::new_empty(result.schema.clone())).map_err(std::io::Error::other);
    }
    result.batches.iter().try_for_each(|batch| writer.write(batch).map_err(std::io::Error::other))
}

fn json(out: &mut dyn std::io::Write, result: &QueryResult) -> std::io::Result<()> {
    let builder = arrow::json::writer::WriterBuilder::new().with_explicit_nulls(true);
    let mut writer = builder.build::<_, arrow::json::writer::LineDelimited>(out);
    result.batches.iter().try_for_each(|batch| writer.write(batch).map_err(std::io::Error::other))?;
    writer.finish().map_err(std::io::Error::other)
}
