//! `studysync schema`: the data dictionary.

use clap::{Args, ValueEnum};

use crate::schema::{dictionary_json, dictionary_markdown, dictionary_sql, parquet_views_sql};

use super::{CommandError, Context};

/// Prints the data dictionary: every table, view and column, with its meaning and where it comes from.
///
/// Exit codes: 0 printed; 1 cannot be printed.
#[derive(Args, Debug)]
pub(super) struct SchemaArgs {
    /// Markdown for people, SQL for an empty warehouse, JSON for programs, or the script that reads Parquet in plain DuckDB
    #[arg(long, value_enum, default_value = "md")]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    Md,
    Sql,
    Json,
    Parquet,
}

pub(super) fn run(args: &SchemaArgs, context: Context) -> Result<u8, CommandError> {
    let text = match args.format {
        Format::Md => dictionary_markdown(),
        Format::Sql => dictionary_sql(),
        Format::Parquet => parquet_views_sql(),
        Format::Json => {
            dictionary_json().map_err(|error| CommandError::failed("cannot print the dictionary", error.into()))?
        }
    };
    context.printer.print(&text)?;
    Ok(0)
}
