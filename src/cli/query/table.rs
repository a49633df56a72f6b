//! Writes rows for people: a table, or a line for each column if a table is too wide for the terminal.
//!
//! Numbers are rounded to what they mean: a score of NPS to one decimal, a share to a per cent. Other formats have all
//! digits. Control characters, and characters that change the direction of writing, are replaced by their codes, so
//! that data cannot control the terminal. Long values are cut.

use std::io::{self, Write};

use arrow::{
    array::RecordBatch,
    datatypes::DataType,
    util::display::{ArrayFormatter, FormatOptions},
};
use comfy_table::{ColumnConstraint, ContentArrangement, Width, presets};

use crate::model::is_display_control;

use super::{
    super::{
        printer::counted,
        terminal::{hanging_for_terminal, terminal_width, wrapped_for_terminal},
    },
    formats::RowWriter,
    moments,
};

/// Maximum characters of a value. A longer value is cut, because a text can have megabytes.
const CELL_CHARS_MAX: usize = 200;
/// Smallest width to which a column of texts is wrapped on a terminal.
const COLUMN_WIDTH_MIN: usize = 12;
/// Longest word of a text that is never broken: a UUID.
const WORD_CHARS_MAX: usize = 36;
/// Decimals of numbers that are neither scores nor shares.
const DECIMALS: usize = 4;
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

/// Collects all rows, because the width of a column depends on all values of the column.
#[derive(Debug)]
pub(super) struct Table {
    layout: Layout,
    names: Vec<String>,
    /// For each column: true if it has numbers, which are aligned to the right.
    are_numbers: Vec<bool>,
    /// For each column: true if its values may be wrapped (texts, binary values, lists and structs).
    are_wrapped: Vec<bool>,
    /// For each column: true if it has numbers with decimals, which are rounded.
    are_rounded: Vec<bool>,
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
            are_rounded: Vec::new(),
            rows: Vec::new(),
            cut_values: 0,
        }
    }

    /// Returns the table, at most `width_max` terminal columns wide. `None` if the table does not fit into this width.
    /// Without `width_max` the table is as wide as its content.
    fn draw(&self, width_max: Option<u16>) -> Option<String> {
        let mut table = self.grid(presets::UTF8_FULL_CONDENSED, self.names.clone());
        let Some(width_max) = width_max else { return Some(table.to_string()) };
        let width = usize::from(width_max);
        let natural = table.to_string();
        if widest(&natural) <= width {
            return Some(natural);
        }
        let needed = self.min_widths();
        let borders = needed.len() * BORDER_WIDTH + 1;
        if needed.iter().sum::<usize>() + borders > width {
            return self.draw_narrow(width);
        }
        table.set_header(self.broken_names(&needed));
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width_max);
        for (at, needed) in needed.into_iter().enumerate() {
            let padded = u16::try_from(needed + BORDER_WIDTH - 1).unwrap_or(u16::MAX);
            if let Some(column) = table.column_mut(at) {
                column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(padded)));
            }
        }
        Some(table.to_string())
    }

    /// Returns the table without lines between columns, and with long names on several lines. `None` if it does not fit
    /// into `width_max`.
    fn draw_narrow(&self, width_max: usize) -> Option<String> {
        let mut table = self.grid(presets::NOTHING, self.broken_names(&self.min_widths()));
        for column in table.column_iter_mut() {
            column.set_padding((0, 1));
        }
        let drawn: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        let drawn = drawn.join("\n");
        (widest(&drawn) <= width_max).then_some(drawn)
    }

    /// Returns the names and rows as a table that is as wide as its content.
    fn grid(&self, preset: &str, names: Vec<String>) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_preset(preset).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(names);
        for (column, is_number) in self.are_numbers.iter().enumerate() {
            if let (true, Some(column)) = (*is_number, table.column_mut(column)) {
                column.set_cell_alignment(comfy_table::CellAlignment::Right);
            }
        }
        for row in &self.rows {
            table.add_row(row);
        }
        table
    }

    /// Returns the names, with line breaks after underscores where a name is longer than its column.
    fn broken_names(&self, widths: &[usize]) -> Vec<String> {
        let broken = |(name, width): (&String, &usize)| {
            let (mut text, mut used) = (String::new(), 0);
            for part in name.split_inclusive('_') {
                let length = part.chars().count();
                if used > 0 && used + length > *width {
                    text.push('\n');
                    used = 0;
                }
                text.push_str(part);
                used += length;
            }
            text
        };
        self.names.iter().zip(widths).map(broken).collect()
    }

    /// Returns the smallest width of each column, in which no number, time, or word of usual length is broken. A column
    /// that may not be wrapped needs its longest value. A name may be broken after an underscore.
    fn min_widths(&self) -> Vec<usize> {
        let min_width = |(at, is_wrapped): (usize, &bool)| {
            let cells = || self.rows.iter().filter_map(move |row| row.get(at));
            let longest = cells().map(|cell| cell.chars().count()).max().unwrap_or(0);
            let lengths = |word: &str| {
                let length = word.chars().count();
                if is_number(word) { length } else { length.min(WORD_CHARS_MAX) }
            };
            let words = cells().flat_map(|cell| cell.split_whitespace()).map(lengths).max().unwrap_or(0);
            let name = self.names.get(at).map_or("", String::as_str);
            let part = name.split_inclusive('_').map(|part| part.chars().count()).max().unwrap_or(0);
            match is_wrapped {
                false => longest.max(part),
                true => words.max(part).max(longest.min(COLUMN_WIDTH_MIN)),
            }
        };
        self.are_wrapped.iter().enumerate().map(min_width).collect()
    }

    /// Rounds the numbers with decimals.
    fn round(&mut self) {
        let are_scores = self.names.iter().any(|name| is_score(name));
        let are_shares = self.names.iter().any(|name| is_share(name));
        for at in (0..self.names.len()).filter(|at| self.are_rounded.get(*at) == Some(&true)) {
            let name = self.names.get(at).map_or("", String::as_str);
            let is_error = name.ends_with("error");
            let mut cells: Vec<(&mut String, f64)> = self
                .rows
                .iter_mut()
                .filter_map(|row| {
                    let cell = row.get_mut(at)?;
                    let number = cell.parse::<f64>().ok().filter(|number| number.is_finite())?;
                    Some((cell, number))
                })
                .collect();
            // A column of this name in a query may be in another unit.
            let is_fraction = cells.iter().all(|(_, number)| (0.0..=1.0).contains(number));
            let is_per_cent = is_fraction && (is_share(name) || (is_error && are_shares && !are_scores));
            for (cell, number) in &mut cells {
                **cell = if is_per_cent {
                    format!("{:.1} %", *number * 100.0)
                } else if is_score(name) || (is_error && are_scores) {
                    rounded(*number, 1)
                } else {
                    trimmed(*number, cell)
                };
            }
        }
    }

    /// Returns the rows with a line for each column. Long lines are wrapped on a terminal.
    fn lines(&self) -> String {
        let widths = self.names.iter().map(|name| name.chars().count());
        let width = widths.max().unwrap_or(0);
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            text.push_str(&format!("── row {} ──\n", at + 1));
            for (name, value) in self.names.iter().zip(row) {
                text.push_str(&hanging_for_terminal(&format!("{name:<width$}  {value}"), width + 2));
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
            self.are_rounded = schema.fields().iter().map(|field| field.data_type().is_floating()).collect();
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
        self.round();
        let drawn = match self.layout {
            Layout::Lines => None,
            Layout::Wide => self.draw(None),
            Layout::Terminal => self.draw(Some(terminal_width().unwrap_or(u16::MAX))),
        };
        match drawn {
            Some(table) => writeln!(out, "{table}")?,
            None => write!(out, "{}", self.lines())?,
        }
        writeln!(out, "{}", counted(self.rows.len() as u64, "row"))?;
        match self.cut_values {
            0 => Ok(()),
            cut => {
                let cut = counted(cut as u64, "value");
                let note = format!("{cut} cut to {CELL_CHARS_MAX} characters; other formats have all characters\n");
                write!(out, "{}", wrapped_for_terminal(&note))
            }
        }
    }
}

/// Returns true for a column with a score of NPS, from -100 to 100.
fn is_score(name: &str) -> bool {
    name == "nps" || name.starts_with("nps_") || name.ends_with("_nps")
}

/// Returns true for a column with a share from 0 to 1.
fn is_share(name: &str) -> bool {
    name == "share" || name.ends_with("_share") || name.ends_with("_rate")
}

/// Returns a number with this many decimals, without a sign before zero.
fn rounded(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    let is_zero = text.bytes().all(|byte| b"-0.".contains(&byte));
    if is_zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// Returns a number with at most [`DECIMALS`] decimals. A number that is shorter or very small stays as it is.
fn trimmed(number: f64, text: &str) -> String {
    let short = rounded(number, DECIMALS);
    if text.len() <= short.len() || number.abs() < 0.001 {
        return text.to_owned();
    }
    let short = short.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
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
            table.are_rounded.push(!is_wrapped);
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
        assert!(table(&[("n", false, one); 60]).draw(Some(80)).is_none(), "60 columns are lines");
        let fits = table(&[("n", false, one); 10]).draw(Some(80)).unwrap();
        assert_eq!(widest(&fits), 41);
    }

    #[test]
    fn nps_by_week_fits_80_columns_without_a_broken_word() {
        let numbers: &[&str] = &["15.680473372781066", "-0.04", "NULL"];
        let counts: &[&str] = &["338", "1", "12345"];
        let weeks: &[&str] = &["2026-05-11", "2026-05-18", "2026-05-25"];
        let mut columns = vec![("week", false, weeks)];
        columns.extend(["responses", "promoters", "passives", "detractors"].map(|name| (name, false, counts)));
        columns.extend(["nps", "standard_error", "nps_low", "nps_high"].map(|name| (name, false, numbers)));
        let mut table = table(&columns);
        table.round();
        let drawn = table.draw(Some(80)).unwrap();
        assert!(widest(&drawn) <= 80, "{drawn}");
        for word in
            ["responses", "promoters", "detractors", "standard_", "error", "low", "2026-05-18", " 15.7", " 0.0", "NULL"]
        {
            assert!(drawn.contains(word), "{word}: {drawn}");
        }
        assert!(!drawn.contains("15.68"), "{drawn}");
    }

    #[test]
    fn numbers_are_rounded_to_what_they_mean() {
        let cells = |columns: &[(&str, bool, &[&str])]| {
            let mut table = table(columns);
            table.round();
            table.rows.concat().join(" | ")
        };
        assert_eq!(cells(&[("share", false, &["0.12345"]), ("standard_error", false, &["0.01234"])]), "12.3 % | 1.2 %");
        assert_eq!(cells(&[("share", false, &["45.25"]), ("mean", false, &["4.333333333333333"])]), "45.25 | 4.3333");
        assert_eq!(
            cells(&[("mean", false, &["4.99999999", "0.00001234567", "7.0", "NaN"])]),
            "5.0 | 0.00001234567 | 7.0 | NaN"
        );
        assert_eq!(cells(&[("nps_change", false, &["-12.3456"])]), "-12.3");
    }

    #[test]
    fn no_word_of_usual_length_is_broken() {
        let text: &[&str] = &["considerations about administration 3fa1c0de-0000-4000-8000-000000000001"];
        let other: &[&str] = &["a short text"];
        for columns in [40, 60, 80] {
            let table = table(&[("text", true, text), ("another_text", true, other), ("url", true, other)]);
            let Some(drawn) = table.draw(Some(columns)) else { continue };
            for word in text.iter().flat_map(|text| text.split(' ')) {
                assert!(drawn.contains(word), "{columns}, {word}: {drawn}");
            }
            assert!(widest(&drawn) <= usize::from(columns), "{drawn}");
        }
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(displayed("a\u{1b}[2Jb\nc\u{202e}d é 日本").0, "a\\u{1b}[2Jb\\nc\\u{202e}d é 日本");
        let (cell, is_cut) = displayed(&"x".repeat(CELL_CHARS_MAX + 1));
        assert!(is_cut && cell.chars().count() == CELL_CHARS_MAX + 1);
        assert!(!displayed(&"é".repeat(CELL_CHARS_MAX)).1);
    }
}
