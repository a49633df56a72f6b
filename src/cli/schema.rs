//! `studysync schema`: prints the data dictionary.

use clap::{Args, ValueEnum};
use comfy_table::{ColumnConstraint, ContentArrangement, Table as Grid, Width, presets};

use crate::{
    model::TimeZone,
    schema::{Column, Dictionary, parquet_views_sql, set_report_time_zone},
    wording::{wrapped, wrapped_lines},
};

use super::{
    CommandError, Context,
    terminal::{COLUMNS, terminal_width},
};

/// Prints the data dictionary: tables, views and columns.
///
/// Prints the meaning and the origin of each column, for all tables and views or for the named ones.
///
/// Exit codes: 0 printed; 1 cannot be printed; 2 no such table or view.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync schema responses
  studysync schema --format json")]
pub(super) struct SchemaArgs {
    /// Only these tables and views
    #[arg(value_name = "TABLE")]
    names: Vec<String>,

    /// Format
    #[arg(long, value_enum, default_value = "text")]
    format: Format,

    /// Time zone of days and weeks in the views, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<TimeZone>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text for people: the list of tables and views; with names, their columns
    Text,
    /// Markdown
    Md,
    /// DuckDB DDL of an empty warehouse, with comments
    Sql,
    /// One JSON object
    Json,
    /// SQL script that reads the Parquet warehouse in plain DuckDB
    Parquet,
}

/// Prints the dictionary in the requested format.
pub(super) fn run(args: &SchemaArgs, context: Context) -> Result<u8, CommandError> {
    if let Some(zone) = args.time_zone {
        set_report_time_zone(zone);
    }
    let format = args.format;
    if format == Format::Parquet && !args.names.is_empty() {
        return Err(CommandError::Usage("--format parquet prints one script for all tables: name no table".to_owned()));
    }
    let dictionary = Dictionary::of(&args.names).map_err(CommandError::Usage)?;
    let text = match format {
        Format::Text if args.names.is_empty() => wrapped_lines(&overview(&dictionary), width().into()),
        Format::Text => wrapped_lines(&details(&dictionary), width().into()),
        Format::Md => dictionary.markdown(),
        Format::Sql => dictionary.sql(),
        Format::Parquet => parquet_views_sql(),
        Format::Json => dictionary.json().map_err(CommandError::failed("cannot print the dictionary"))?,
    };
    context.printer.print(&text)?;
    Ok(0)
}

fn width() -> u16 {
    terminal_width().unwrap_or(COLUMNS)
}

/// Returns a line for each table and view.
fn overview(dictionary: &Dictionary) -> String {
    let tables = grid(dictionary.tables().iter().map(|table| [&*table.name, &*table.grain]), width());
    let views = grid(dictionary.views().iter().map(|view| [&*view.name, &*view.comment]), width());
    format!("Tables, and the meaning of one row:\n{tables}\n\nViews:\n{views}\n\nColumns: studysync schema TABLE\n")
}

/// Returns the columns of each table and view.
fn details(dictionary: &Dictionary) -> String {
    let mut text = String::new();
    for table in dictionary.tables() {
        text.push_str(&format!(
            "{}: {}\nOne row: {}. Key: {}.\n",
            table.name,
            table.comment,
            table.grain,
            table.key.join(", ")
        ));
        let columns = table.columns.iter().map(|column| [column.name.clone(), type_of(column), column.comment.clone()]);
        text.push_str(&format!("{}\n\n", grid(columns, width())));
    }
    for view in dictionary.views() {
        text.push_str(&format!("{}{}: {}\n{}\n", view.name, view.call(), view.comment, view.notes.join("\n")));
        let columns = view.parameters.iter().chain(&view.columns).map(|column| [&*column.name, &*column.comment]);
        text.push_str(&format!("{}\n\n", grid(columns, width())));
    }
    text
}

/// Returns the DuckDB type of a column, with `NOT NULL` if the column has no NULLs.
fn type_of(column: &Column) -> String {
    let null = if column.nullable { "" } else { " NOT NULL" };
    format!("{}{null}", column.column_type.duckdb())
}

/// Width of the narrowest terminal for which columns wrap: a name, and some words.
const WRAPPED_COLUMNS_MIN: u16 = 48;

/// Returns the rows as columns, of which the first is never narrower than a name and the last is wrapped. On a terminal
/// that is very narrow, the last cell of a row is a paragraph of its own.
fn grid<const N: usize>(rows: impl Iterator<Item = [impl AsRef<str>; N]>, terminal_columns: u16) -> String {
    let rows = rows.map(|row| row.map(|cell| cell.as_ref().to_owned()));
    if terminal_columns < WRAPPED_COLUMNS_MIN {
        let paragraph = |row: [String; N]| {
            let (last, heads) = row.split_last()?;
            let text = wrapped(last, terminal_columns.into(), "    ", "    ");
            Some(format!("{}\n{}", heads.join("  "), text.trim_end()))
        };
        return rows.filter_map(paragraph).collect::<Vec<_>>().join("\n");
    }
    let mut grid = Grid::new();
    grid.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(terminal_columns);
    grid.set_constraints([ColumnConstraint::LowerBoundary(Width::Fixed(24))]);
    grid.add_rows(rows).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_width_of_a_terminal_gives_a_readable_grid() {
        let text = |columns| {
            let rows = [["responses", "one answered question of a person"], ["a_name_of_24_characters_", "b"]];
            grid(rows.into_iter(), columns)
        };
        assert_eq!(text(WRAPPED_COLUMNS_MIN - 1).lines().count(), 4, "too narrow for columns");
        for columns in 1..200 {
            assert!(text(columns).contains("responses"), "{columns}");
        }
    }
}
