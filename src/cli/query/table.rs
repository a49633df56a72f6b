//! Rows for people: a table, or a line for each column where a table would be too wide.
//!
//! What is shown can do nothing to a terminal: control characters, and those that turn the direction of writing, are shown as
//! their code. Long values are cut; the other formats have them whole.

use std::io::{self, Write};

use arrow::{
    array::RecordBatch,
    util::display::{ArrayFormatter, FormatOptions},
};
use comfy_table::{ContentArrangement, presets};

use crate::model::steers_display;

use super::Rows;

/// A longer value is cut: a text can have megabytes.
const CELL_CHARS_MAX: usize = 200;
/// On a terminal a table is folded down to so many columns of text for each column of the result, and no further.
const COLUMN_WIDTH_MIN: usize = 12;

/// How a table fits where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// As wide as it needs to be.
    Wide,
    /// As wide as the terminal; in lines, if that is too narrow.
    Terminal,
    /// A line for each column.
    Lines,
}

/// Gathers the rows: the width of a column is known when all of it was seen.
#[derive(Debug)]
pub(super) struct Table {
    layout: Layout,
    names: Vec<String>,
    are_numbers: Vec<bool>,
    rows: Vec<Vec<String>>,
    cut: usize,
}

impl Table {
    pub fn new(layout: Layout) -> Self {
        Self { layout, names: Vec::new(), are_numbers: Vec::new(), rows: Vec::new(), cut: 0 }
    }

    fn drawn(&self, layout: Layout) -> Option<String> {
        let mut table = comfy_table::Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED);
        table.set_header(&self.names);
        for (column, is_number) in self.are_numbers.iter().enumerate() {
            if let (true, Some(column)) = (*is_number, table.column_mut(column)) {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
        }
        for row in &self.rows {
            table.add_row(row);
        }
        if layout == Layout::Terminal {
            let width = usize::from(table.width().unwrap_or(u16::MAX));
            table.set_content_arrangement(ContentArrangement::Dynamic);
            if self.names.len() * COLUMN_WIDTH_MIN > width && widest(&self.plain(&table)) > width {
                return None;
            }
        }
        Some(table.to_string())
    }

    /// The table as wide as it needs to be.
    fn plain(&self, table: &comfy_table::Table) -> String {
        table.clone().set_content_arrangement(ContentArrangement::Disabled).to_string()
    }

    fn lines(&self) -> String {
        let widths = self.names.iter().map(|name| name.chars().count());
        let width = widths.max().unwrap_or(0);
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            text.push_str(&format!("── row {} ──\n", at + 1));
            for (name, value) in self.names.iter().zip(row) {
                text.push_str(&format!("{name:<width$}  {value}\n"));
            }
        }
        text
    }
}

impl Rows for Table {
    fn take(&mut self, _: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        if self.names.is_empty() {
            let schema = batch.schema();
            self.names = schema.fields().iter().map(|field| shown(field.name()).0).collect();
            self.are_numbers = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        }
        let options = FormatOptions::default().with_null("NULL").with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
        let formatters: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options))
            .collect::<Result<_, _>>()
            .map_err(io::Error::other)?;
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(formatters.len());
            for formatter in &formatters {
                let text = formatter.value(row).try_to_string().map_err(io::Error::other)?;
                let (cell, is_cut) = shown(&text);
                self.cut += usize::from(is_cut);
                cells.push(cell);
            }
            self.rows.push(cells);
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let drawn = if self.layout == Layout::Lines { None } else { self.drawn(self.layout) };
        match drawn {
            Some(table) => writeln!(out, "{table}")?,
            None => write!(out, "{}", self.lines())?,
        }
        let rows = self.rows.len();
        writeln!(out, "{rows} {}", if rows == 1 { "row" } else { "rows" })?;
        match self.cut {
            0 => Ok(()),
            1 => writeln!(out, "1 value is cut to {CELL_CHARS_MAX} characters; the other formats have it whole"),
            cut => {
                writeln!(out, "{cut} values are cut to {CELL_CHARS_MAX} characters; the other formats have them whole")
            }
        }
    }
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// A value as it is shown, and whether it was cut.
fn shown(text: &str) -> (String, bool) {
    let mut letters = text.chars();
    let mut cell = String::new();
    for letter in letters.by_ref().take(CELL_CHARS_MAX) {
        match steers_display(letter) {
            true => cell.extend(letter.escape_default()),
            false => cell.push(letter),
        }
    }
    let is_cut = letters.next().is_some();
    if is_cut {
        cell.push('…');
    }
    (cell, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_shown() {
        assert_eq!(shown("a\u{1b}[2Jb\nc\u{202e}d é 日本").0, "a\\u{1b}[2Jb\\nc\\u{202e}d é 日本");
        let (cell, is_cut) = shown(&"x".repeat(CELL_CHARS_MAX + 1));
        assert!(is_cut && cell.chars().count() == CELL_CHARS_MAX + 1);
        assert!(!shown(&"é".repeat(CELL_CHARS_MAX)).1);
    }
}
