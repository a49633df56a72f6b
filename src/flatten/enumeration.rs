//! Detects words that the contract of a column does not list. Listed and unlisted words are stored alike.

use super::drift::DriftLog;
use crate::{model::DriftKind, schema::table};

/// The words that the contract of one column lists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enumeration {
    known: &'static [String],
    /// The path of the column's field in a record.
    path: &'static str,
}

impl Enumeration {
    /// Looks up the words that the contract lists for a column. `path` is the path of the column's field in a record.
    pub(super) fn of(table_name: &str, column: &str, path: &'static str) -> Self {
        let column = table(table_name).and_then(|table| table.column(column));
        Self { known: column.map_or(&[], |column| &column.values), path }
    }

    /// Adds `word` to the drift if the contract does not list it. Case is ignored; `None` is no drift.
    pub(super) fn report_unlisted(&self, word: Option<&str>, record: i64, drift: &mut DriftLog) {
        if let Some(word) = word.filter(|word| !self.known.iter().any(|known| known.eq_ignore_ascii_case(word))) {
            drift.add_word(record, self.path, DriftKind::NewEnumValue, word);
        }
    }
}
