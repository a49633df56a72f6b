//! Finds identifiers in columns of text.

use std::sync::Arc;

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, BooleanArray, StringArray},
    compute::cast,
    datatypes::DataType,
};

use crate::{
    load::LoadError,
    person::IdentifierMatcher,
    schema::{ColumnType, Table},
};

/// Returns the names of the text and JSON columns of a table.
pub(super) fn text_columns(table: &'static Table) -> Vec<&'static str> {
    let is_text = |column_type| matches!(column_type, ColumnType::Text | ColumnType::Json);
    table.columns.iter().filter(|column| is_text(column.column_type)).map(|column| column.name.as_str()).collect()
}

/// Returns a column converted to texts. Values of other types become the texts in which Arrow displays them.
pub(super) fn as_texts(column: &ArrayRef) -> Result<StringArray, LoadError> {
    let column = match column.data_type() {
        DataType::Utf8 => Arc::clone(column),
        _ => cast(column, &DataType::Utf8).map_err(|error| LoadError::Bug(format!("a column of texts: {error}")))?,
    };
    Ok(column.as_string::<i32>().clone())
}

/// Returns the bytes of all texts of a column, one text directly after the other.
pub(super) fn bytes_of(texts: &StringArray) -> &[u8] {
    let position = |offset: Option<&i32>| offset.and_then(|offset| usize::try_from(*offset).ok()).unwrap_or(0);
    let offsets = texts.value_offsets();
    texts.value_data().get(position(offsets.first())..position(offsets.last())).unwrap_or_default()
}

/// Which texts of a column mention a person.
pub(super) struct Hits {
    /// For each text, true if it mentions a person.
    pub is_hit: BooleanArray,
    /// Number of texts that contain an identifier only inside a longer word. An identifier inside a longer word does
    /// not count as a mention.
    pub inside_longer: u64,
}

/// Finds the texts of a column that mention a person. Tests the bytes of all texts together first. Returns `None` if
/// these bytes contain no identifier, which is the usual case.
pub(super) fn hits(texts: &StringArray, matcher: &IdentifierMatcher) -> Option<Hits> {
    if !matcher.may_be_in(bytes_of(texts)) {
        return None;
    }
    let mut inside_longer = 0;
    let hit = |text: Option<&str>| {
        let text = text.unwrap_or_default().as_bytes();
        let may_be_hit = matcher.may_be_in(text);
        let is_hit = may_be_hit && matcher.is_in_text(text);
        inside_longer += u64::from(may_be_hit && !is_hit && matcher.has_bytes_in(text));
        Some(is_hit)
    };
    let is_hit = texts.iter().map(hit).collect();
    Some(Hits { is_hit, inside_longer })
}
