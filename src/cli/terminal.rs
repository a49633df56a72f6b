//! The width and the colours of text for people on a terminal.

use clap::builder::Styles;

use crate::wrapping::{self, wrapped_lines};

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

/// Wraps a paragraph at [`COLUMNS`], or at the width of a terminal that is narrower. `first` is the indent of the first
/// line, and `next` that of the other lines.
pub(super) fn wrapped(text: &str, first: &str, next: &str) -> String {
    wrapping::wrapped(text, terminal_width().unwrap_or(COLUMNS).min(COLUMNS).into(), first, next)
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
