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

/// The text and JSON columns of a table.
pub(super) fn text_columns(table: &'static Table) -> Vec<&'static str> {
    let is_text = |column_type| matches!(column_type, ColumnType::Text | ColumnType::Json);
    table.columns.iter().filter(|column| is_text(column.column_type)).map(|column| column.name.as_str()).collect()
}

/// A column as texts; values of other types are converted to their displayed form.
pub(super) fn as_texts(column: &ArrayRef) -> Result<StringArray, LoadError> {
    let column = match column.data_type() {
        DataType::Utf8 => Arc::clone(column),
        _ => cast(column, &DataType::Utf8).map_err(|error| LoadError::Bug(format!("a column of texts: {error}")))?,
    };
    Ok(column.as_string::<i32>().clone())
}

/// The bytes of all texts of a column.
pub(super) fn bytes_of(texts: &StringArray) -> &[u8] {
    let position = |offset: Option<&i32>| offset.and_then(|offset| usize::try_from(*offset).ok()).unwrap_or(0);
    let offsets = texts.value_offsets();
    texts.value_data().get(position(offsets.first())..position(offsets.last())).unwrap_or_default()
}

/// Which texts of a column mention a person.
pub(super) struct Hits {
    pub is_hit: BooleanArray,
    /// Texts that contain an identifier only inside a longer word, which is no mention.
    pub inside_longer: u64,
}

/// Tests each text of a column. Returns `None` if a test of all bytes together shows that no text mentions a person,
/// which is the usual case.
pub(super) fn hits(texts: &StringArray, matcher: &IdentifierMatcher) -> Option<Hits> {
    if !matcher.may_be_in(bytes_of(texts)) {
        return None;
    }
    let mut inside_longer = 0;
    let hit = |text: Option<&str>| {
        let text = text.unwrap_or_default().as_bytes();
        let may_be = matcher.may_be_in(text);
        let is_hit = may_be && matcher.is_in_text(text);
        inside_longer += u64::from(may_be && !is_hit && matcher.has_bytes_in(text));
        Some(is_hit)
    };
    let is_hit = texts.iter().map(hit).collect();
    Some(Hits { is_hit, inside_longer })
}
