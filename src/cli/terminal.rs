//! The width and the colours of text for people on a terminal.

use clap::builder::Styles;
use unicode_width::UnicodeWidthStr as _;

use crate::wording::{self, wrapped_lines};

/// Columns of a text for people in a pipe, and of paragraphs on a terminal that is wider.
pub(super) const COLUMNS: u16 = 80;

/// Returns the width of the terminal of stdout; `None` without a terminal, and for one that says it has no columns.
pub(super) fn terminal_width() -> Option<u16> {
    comfy_table::Table::new().width().filter(|columns| *columns > 0)
}

/// Wraps the long lines of a text on a terminal.
pub(super) fn wrapped_for_terminal(text: &str) -> String {
    terminal_width().map_or_else(|| text.to_owned(), |columns| wrapped_lines(text, columns.into()))
}

/// Returns the columns of a text for people: [`COLUMNS`], or the width of a terminal that is narrower.
pub(super) fn text_columns() -> usize {
    terminal_width().unwrap_or(COLUMNS).min(COLUMNS).into()
}

/// Wraps a paragraph at [`text_columns`]. `first` is the indent of the first
/// line, and `next` that of the other lines.
pub(super) fn wrapped(text: &str, first: &str, next: &str) -> String {
    wording::wrapped(text, text_columns(), first, next)
}

/// Wraps a paragraph on a terminal. All lines but the first have this indent: less of it on a terminal that is narrower
/// than [`COLUMNS`], so that paths and UUIDs fit.
pub(super) fn hanging_for_terminal(text: &str, indent: usize) -> String {
    let Some(columns) = terminal_width() else { return format!("{text}\n") };
    let indent = if columns < COLUMNS { 2 } else { indent.min(usize::from(columns) / 2) };
    wording::wrapped(text, columns.into(), "", &" ".repeat(indent))
}

/// A table with fixed columns. On a terminal that is narrower, a row is a paragraph that names its cells.
pub(super) struct FixedTable<'a> {
    /// Width of the first column.
    pub name_width: usize,
    /// The heads of the other columns with their widths. Their cells are aligned to the right.
    pub columns: &'a [(&'a str, usize)],
    /// True if the heads are nouns of the numbers in the cells: a paragraph then has `6 windows` and not `windows 6`.
    pub heads_are_nouns: bool,
}

impl FixedTable<'_> {
    /// Returns the heads of the columns.
    pub fn head(&self, name: &str) -> String {
        let heads: Vec<String> = self.columns.iter().map(|(head, _)| (*head).to_owned()).collect();
        match self.fits() {
            true => self.row(name, &heads),
            false if self.heads_are_nouns => String::new(),
            false => format!("{name}\n"),
        }
    }

    /// Returns a row with a text in place of the cells.
    pub fn note(&self, name: &str, text: &str) -> String {
        let width = self.name_width;
        if self.fits() { format!("{name:<width$} {text}\n") } else { wrapped(&format!("{name}: {text}"), "", "  ") }
    }

    pub fn row(&self, name: &str, cells: &[String]) -> String {
        let cells = self.columns.iter().zip(cells);
        if self.fits() {
            let padding = " ".repeat(self.name_width.saturating_sub(name.width()));
            let cells: String = cells.map(|((_, width), cell)| format!(" {cell:>width$}")).collect();
            return format!("{}\n", format!("{name}{padding}{cells}").trim_end());
        }
        let named = |head: &str, cell: &str| match self.heads_are_nouns {
            true if cell == "1" => format!("{cell} {}", head.trim_end_matches('s')),
            true => format!("{cell} {head}"),
            false => format!("{head} {cell}"),
        };
        let cells = cells.filter(|(_, cell)| !cell.is_empty()).map(|((head, _), cell)| named(head, cell));
        let indent = " ".repeat(name.len() - name.trim_start().len() + 2);
        wording::wrapped(
            &format!("{}: {}", name.trim_end(), cells.collect::<Vec<_>>().join(", ")),
            text_columns(),
            "",
            &indent,
        )
    }

    fn fits(&self) -> bool {
        self.name_width + self.columns.iter().map(|(_, width)| width + 1).sum::<usize>() <= text_columns()
    }
}

/// Returns the text in the colours of `error:`.
pub(super) fn styled_error(text: &str) -> String {
    let styles = Styles::styled();
    let error = styles.get_error();
    format!("{error}{text}{error:#}")
}

/// Returns the text in the colours of `hint:`.
pub(super) fn styled_hint(text: &str) -> String {
    let styles = Styles::styled();
    let hint = styles.get_valid();
    format!("{hint}{text}{hint:#}")
}
