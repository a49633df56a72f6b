//! Detects words that the contract of a column does not list. Every word is stored, known or not.

use super::drift::DriftLog;
use crate::{model::DriftKind, schema::table};

/// The words of one column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enumeration {
    known: &'static [String],
    /// The path of its field in a record.
    place: &'static str,
}

impl Enumeration {
    /// The words that the contract of a column lists.
    pub(super) fn of(table_name: &str, column: &str, place: &'static str) -> Self {
        let column = table(table_name).and_then(|table| table.column(column));
        Self { known: column.map_or(&[], |column| &column.values), place }
    }

    /// Notes a word that is not listed, in any case.
    pub(super) fn note_new(&self, word: Option<&str>, record: i64, drift: &mut DriftLog) {
        if let Some(word) = word.filter(|word| !self.known.iter().any(|known| known.eq_ignore_ascii_case(word))) {
            drift.note_word(record, self.place, DriftKind::NewEnumValue, word);
        }
    }
}
