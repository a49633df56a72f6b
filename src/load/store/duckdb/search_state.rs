//! The state of the search index, read from the file's metadata.
//!
//! DuckDB's extension `fts` does not update an index. So a transaction that changes answers also marks the index as
//! old, and the end of a run makes a new index. To mark an index as old is to remove the key [`CURRENT_KEY`] from the
//! file's metadata, so a kill does not lose the mark.

use std::collections::BTreeMap;

use super::names::{META_TABLE, qualified};
use crate::schema::quote_text;

/// The schema of the index. `fts` derives it from the name of the table.
pub(super) const INDEX_SCHEMA: &str = "fts_main__studysync_texts";
/// Metadata key whose value names the version of the index and the last scan that the index contains.
pub(super) const INDEX_KEY: &str = "search_index";
/// Metadata key that exists while the index contains every answer. The first transaction that changes answers removes
/// it.
pub(super) const CURRENT_KEY: &str = "search_index_current";
/// Version of the index. Each change to how the index is made or read must change the version.
const VERSION: &str = "2";
/// Tables whose rows are indexed.
const INDEXED_TABLES: [&str; 2] = ["responses", "response_media"];

/// State of the search index of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum IndexState {
    /// The file has no index.
    #[default]
    Missing,
    /// Answers changed since the index was made, or another version of this program made the index.
    Old,
    /// The index contains every answer of the file.
    Current,
}

impl IndexState {
    /// Returns the state of the index according to the file's metadata. `is_macro_current` is true if the macro
    /// `search_answers` is that of this program version. An index with a macro of another version counts as old: an
    /// earlier program version may have changed answers, and earlier versions do not mark the index as old.
    pub fn of(meta: &BTreeMap<String, String>, is_macro_current: bool) -> Self {
        if !meta.contains_key(INDEX_KEY) {
            IndexState::Missing
        } else if is_readable(meta) && is_macro_current && meta.contains_key(CURRENT_KEY) {
            IndexState::Current
        } else {
            IndexState::Old
        }
    }
}

/// Returns true if the file has an index that this version's macro can read, current or old.
pub(super) fn is_readable(meta: &BTreeMap<String, String>) -> bool {
    meta.get(INDEX_KEY).and_then(|value| value.split(' ').next()) == Some(VERSION)
}

/// Returns true if the index contains rows of this table, so that a change of the table makes the index old.
pub(super) fn is_indexed(table: &str) -> bool {
    INDEXED_TABLES.contains(&table)
}

/// Returns the SQL statement that marks the search index as old, so that the end of the run makes a new one.
pub(super) fn mark_old_sql() -> String {
    format!("DELETE FROM {} WHERE key = '{CURRENT_KEY}'", qualified(META_TABLE))
}

/// Returns the SQL statements that mark the index as current. `scan` is the last scan that the index contains.
pub(super) fn mark_current_sql(scan: Option<&str>) -> String {
    let value = quote_text(&format!("{VERSION} made after scan {}", scan.unwrap_or("none")));
    let meta = qualified(META_TABLE);
    format!("{}; INSERT INTO {meta} VALUES ('{INDEX_KEY}', {value}), ('{CURRENT_KEY}', 'true')", forget_sql())
}

/// Returns the SQL statement that removes all metadata of the index.
pub(super) fn forget_sql() -> String {
    format!("DELETE FROM {} WHERE {}", qualified(META_TABLE), is_of_index())
}

/// Returns the SQL condition that selects the metadata rows of the index.
pub(super) fn is_of_index() -> String {
    format!("key IN ('{INDEX_KEY}', '{CURRENT_KEY}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(keys: &[(&str, &str)], is_macro_current: bool) -> IndexState {
        let meta = keys.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        IndexState::of(&meta, is_macro_current)
    }

    #[test]
    fn an_index_is_current_only_with_mark_version_and_macro() {
        let (ours, mark) = ((INDEX_KEY, "2 made after scan x"), (CURRENT_KEY, "true"));
        assert_eq!(state(&[], true), IndexState::Missing);
        assert_eq!(state(&[mark], true), IndexState::Missing);
        assert_eq!(state(&[ours, mark], true), IndexState::Current);
        assert_eq!(state(&[ours], true), IndexState::Old);
        assert_eq!(state(&[ours, mark], false), IndexState::Old);
        assert_eq!(state(&[(INDEX_KEY, "1 made after scan x"), mark], true), IndexState::Old);
    }
}
