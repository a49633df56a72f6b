//! `studysync query`: read-only SQL over the warehouse.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, RecordBatch, StringArray},
    datatypes::{DataType, Field, FieldRef, Schema},
    error::ArrowError,
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
    let no_rows = [RecordBatch::new_empty(result.schema.clone())];
    let batches = if result.batches.is_empty() { no_rows.as_slice() } else { &result.batches };
    for (at, batch) in batches.iter().enumerate() {
        // In memory first: the writer would make a text of the output's error, and a closed pipe could not be told.
        let mut text = Vec::new();
        let mut writer = arrow::csv::WriterBuilder::new().with_header(at == 0).build(&mut text);
        flat(batch).and_then(|batch| writer.write(&batch)).map_err(std::io::Error::other)?;
        drop(writer);
        out.write_all(&text)?;
    }
    Ok(())
}

/// Lists and structs as their text: CSV has no form for them.
fn flat(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let flat_column = |(field, column): (&FieldRef, &ArrayRef)| {
        if !field.data_type().is_nested() {
            return Ok((Arc::clone(field), Arc::clone(column)));
        }
        let formatter = ArrayFormatter::try_new(column.as_ref(), &FormatOptions::default())?;
        let text = |row| column.is_valid(row).then(|| formatter.value(row).try_to_string()).transpose();
        let texts = (0..column.len()).map(text).collect::<Result<StringArray, _>>()?;
        let field = Field::new(field.name(), DataType::Utf8, true);
        Ok((Arc::new(field), Arc::new(texts) as ArrayRef))
    };
    let columns: Vec<_> =
        batch.schema().fields().iter().zip(batch.columns()).map(flat_column).collect::<Result<_, ArrowError>>()?;
    let (fields, columns): (Vec<FieldRef>, Vec<ArrayRef>) = columns.into_iter().unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

fn json(out: &mut dyn std::io::Write, result: &QueryResult) -> std::io::Result<()> {
    for batch in &result.batches {
        let mut text = Vec::new();
        let builder = arrow::json::writer::WriterBuilder::new().with_explicit_nulls(true);
        let mut writer = builder.build::<_, arrow::json::writer::LineDelimited>(&mut text);
        writer.write(batch).and_then(|()| writer.finish()).map_err(std::io::Error::other)?;
        drop(writer);
        out.write_all(&text)?;
    }
    Ok(())
}
