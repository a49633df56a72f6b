//! Writes rows for people: a table, or a line for each column if a table is too wide for the terminal.
//!
//! Control characters, and characters that change the direction of writing, are replaced by their codes, so that data
//! cannot control the terminal. Long values are cut.

use std::io::{self, Write};

use arrow::{
    array::RecordBatch,
    datatypes::DataType,
    util::display::{ArrayFormatter, FormatOptions},
};
use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};

use crate::model::is_display_control;

use super::{formats::RowWriter, moments};

/// Maximum characters of a value. A longer value is cut, because a text can have megabytes.
const CELL_CHARS_MAX: usize = 200;
/// Smallest width to which a column of texts is wrapped on a terminal.
const COLUMN_WIDTH_MIN: usize = 12;
/// Width of the border between two columns: a line, and a blank on either side.
const BORDER_WIDTH: usize = 3;

/// The layout of rows for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// A table as wide as its content.
    Wide,
    /// A table that fits the terminal, or lines if the terminal is too narrow.
    Terminal,
    /// A line for each column.
    Lines,
}

/// Returns the width of the terminal; `None` without a terminal, and for one that does not know its width and says 0.
pub(in crate::cli) fn terminal_width() -> Option<u16> {
    comfy_table::Table::new().width().filter(|columns| *columns > 0)
}

/// Collects all rows, because the width of a column depends on all values of the column.
#[derive(Debug)]
pub(super) struct Table {
    layout: Layout,
    names: Vec<String>,
    /// For each column: true if it has numbers, which are aligned to the right.
    are_numbers: Vec<bool>,
    /// For each column: true if its values may be wrapped (texts, binary values, lists and structs).
    are_wrapped: Vec<bool>,
    rows: Vec<Vec<String>>,
    cut_values: usize,
}

impl Table {
    pub fn new(layout: Layout) -> Self {
        Self {
            layout,
            names: Vec::new(),
            are_numbers: Vec::new(),
            are_wrapped: Vec::new(),
            rows: Vec::new(),
            cut_values: 0,
        }
    }

    /// Returns the table, at most `width_max` terminal columns wide. `None` if the table does not fit into this width.
    /// Without `width_max` the table is as wide as its content.
    fn draw(&self, width_max: Option<u16>) -> Option<String> {
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
        if let Some(width_max) = width_max {
            let needed = self.min_widths();
            let borders = needed.len() * BORDER_WIDTH + 1;
            let width = usize::from(width_max);
            if needed.iter().sum::<usize>() + borders > width && widest(&unwrapped(&table)) > width {
                return None;
            }
            table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width_max);
            for (at, needed) in needed.into_iter().enumerate() {
                let padded = u16::try_from(needed + BORDER_WIDTH - 1).unwrap_or(u16::MAX);
                if let Some(column) = table.column_mut(at) {
                    column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(padded)));
                }
            }
        }
        Some(table.to_string())
    }

    /// Returns the smallest width of each column. A column that may not be wrapped needs its longest value. Wrapping
    /// never splits a number or a time.
    fn min_widths(&self) -> Vec<usize> {
        let min_width = |(at, is_wrapped): (usize, &bool)| {
            let cells = || self.rows.iter().filter_map(move |row| row.get(at));
            let longest = cells().map(|cell| cell.chars().count()).max().unwrap_or(0);
            let numbers = || cells().flat_map(|cell| cell.split_whitespace()).filter(|word| is_number(word));
            let name = self.names.get(at).map_or(0, |name| name.chars().count());
            match is_wrapped {
                false => longest,
                true => numbers().map(str::len).max().unwrap_or(0).max(longest.max(name).min(COLUMN_WIDTH_MIN)),
            }
        };
        self.are_wrapped.iter().enumerate().map(min_width).collect()
    }

    /// Returns the rows with a line for each column.
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

/// Writes the plan of EXPLAIN, which has lines.
#[derive(Debug)]
pub(super) struct Plan;

impl RowWriter for Plan {
    fn write(&mut self, out: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        let Some(column) = batch.columns().last() else { return Ok(()) };
        let formatter = ArrayFormatter::try_new(column, &FormatOptions::default()).map_err(io::Error::other)?;
        for row in 0..batch.num_rows() {
            let text = formatter.value(row).try_to_string().map_err(io::Error::other)?;
            for line in text.lines() {
                writeln!(out, "{}", escaped(line.chars()))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, _: &mut dyn Write) -> io::Result<()> {
        Ok(())
    }
}

impl RowWriter for Table {
    /// Stores the rows of a batch as texts. The first batch sets the names and types of the columns.
    fn write(&mut self, _: &mut dyn Write, batch: &RecordBatch) -> io::Result<()> {
        if self.names.is_empty() {
            let schema = batch.schema();
            self.names = schema.fields().iter().map(|field| displayed(field.name()).0).collect();
            let is_wrapped = |kind: &DataType| kind.is_nested() || kind.is_string() || kind.is_binary();
            self.are_wrapped = schema.fields().iter().map(|field| is_wrapped(field.data_type())).collect();
            self.are_numbers = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        }
        let options = FormatOptions::default().with_null("NULL").with_timestamp_format(Some("%Y-%m-%d %H:%M:%S%.f"));
        let formatters: Vec<ArrayFormatter<'_>> = batch
            .columns()
            .iter()
            .map(|column| moments::formatter(column.as_ref(), &options))
            .collect::<Result<_, _>>()
            .map_err(io::Error::other)?;
        for row in 0..batch.num_rows() {
            let mut cells = Vec::with_capacity(formatters.len());
            for formatter in &formatters {
                let text = formatter.value(row).try_to_string().map_err(io::Error::other)?;
                let (cell, is_cut) = displayed(&text);
                self.cut_values += usize::from(is_cut);
                cells.push(cell);
            }
            self.rows.push(cells);
        }
        Ok(())
    }

    /// Writes the table or the lines, the number of rows, and the number of cut values.
    fn finish(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let drawn = match self.layout {
            Layout::Lines => None,
            Layout::Wide => self.draw(None),
            Layout::Terminal => self.draw(Some(terminal_width().unwrap_or(u16::MAX))),
        };
        match drawn {
            Some(table) => writeln!(out, "{table}")?,
            None => write!(out, "{}", self.lines())?,
        }
        let rows = self.rows.len();
        writeln!(out, "{rows} {}", if rows == 1 { "row" } else { "rows" })?;
        match self.cut_values {
            0 => Ok(()),
            1 => writeln!(out, "1 value is cut to {CELL_CHARS_MAX} characters; other formats have it complete"),
            cut => {
                writeln!(out, "{cut} values are cut to {CELL_CHARS_MAX} characters; other formats have them complete")
            }
        }
    }
}

fn unwrapped(table: &comfy_table::Table) -> String {
    table.clone().set_content_arrangement(ContentArrangement::Disabled).to_string()
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Returns true if a word is a number or a time, with at most two other characters around it.
fn is_number(word: &str) -> bool {
    let bare = word.trim_matches(|letter: char| !letter.is_ascii_digit());
    !bare.is_empty()
        && bare.bytes().all(|byte| byte.is_ascii_digit() || b".,:-".contains(&byte))
        && bare.len() + 3 > word.len()
}

/// Returns a value for display, and true if the value was cut.
fn displayed(text: &str) -> (String, bool) {
    let mut letters = text.chars();
    let mut cell = escaped(letters.by_ref().take(CELL_CHARS_MAX));
    let is_cut = letters.next().is_some();
    if is_cut {
        cell.push('…');
    }
    (cell, is_cut)
}

/// Returns the letters with codes in place of control characters.
fn escaped(letters: impl Iterator<Item = char>) -> String {
    let mut text = String::new();
    for letter in letters {
        match is_display_control(letter) {
            true => text.extend(letter.escape_default()),
            false => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(columns: &[(&str, bool, &[&str])]) -> Table {
        let mut table = Table::new(Layout::Terminal);
        let rows = columns.first().map_or(0, |(.., cells)| cells.len());
        table.rows = vec![Vec::new(); rows];
        for (name, is_wrapped, cells) in columns {
            table.names.push((*name).to_owned());
            table.are_wrapped.push(*is_wrapped);
            table.are_numbers.push(!is_wrapped);
            table.rows.iter_mut().zip(*cells).for_each(|(row, cell)| row.push((*cell).to_owned()));
        }
        table
    }

    #[test]
    fn numbers_keep_their_digits_together_at_80_columns() {
        let words = "many words that need a lot of room and are folded, of course";
        let texts = [words, "17 of 1234567890123456"];
        let more_texts = [words, "short"];
        let one: &[&str] = &["1"];
        let numbers = ["-1234567890.1234567", "2026-01-31 08:00:00.123"];
        for count in 1..=4 {
            let mut columns: Vec<(&str, bool, &[&str])> = Vec::new();
            columns.push(("words", true, texts.as_slice()));
            columns.extend((0..count).map(|_| ("a_rather_long_name_of_a_column", false, numbers.as_slice())));
            columns.push(("more words", true, more_texts.as_slice()));
            let Some(drawn) = table(&columns).draw(Some(80)) else {
                assert!(count > 1, "one number fits");
                continue;
            };
            assert!(widest(&drawn) <= 80, "{drawn}");
            for number in numbers.iter().chain(&["1234567890123456"]) {
                let wanted = if number.len() == 16 { 1 } else { count };
                assert_eq!(drawn.matches(number).count(), wanted, "{number}: {drawn}");
            }
        }
        assert!(table(&[("n", false, one); 30]).draw(Some(80)).is_none(), "30 columns are lines");
        let fits = table(&[("n", false, one); 10]).draw(Some(80)).unwrap();
        assert_eq!(widest(&fits), 41);
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(displayed("a\u{1b}[2Jb\nc\u{202e}d é 日本").0, "a\\u{1b}[2Jb\\nc\\u{202e}d é 日本");
        let (cell, is_cut) = displayed(&"x".repeat(CELL_CHARS_MAX + 1));
        assert!(is_cut && cell.chars().count() == CELL_CHARS_MAX + 1);
        assert!(!displayed(&"é".repeat(CELL_CHARS_MAX)).1);
    }
}
