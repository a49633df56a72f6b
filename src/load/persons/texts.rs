//! Identifiers in texts of others.

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

/// The columns of a table that hold texts.
pub(super) fn text_columns(table: &'static Table) -> Vec<&'static str> {
    let is_text = |column_type| matches!(column_type, ColumnType::Text | ColumnType::Json);
    table.columns.iter().filter(|column| is_text(column.column_type)).map(|column| column.name.as_str()).collect()
}

/// A column as texts: whatever is no text is searched as it is shown.
pub(super) fn as_texts(column: &ArrayRef) -> Result<StringArray, LoadError> {
    let column = match column.data_type() {
        DataType::Utf8 => Arc::clone(column),
        _ => cast(column, &DataType::Utf8).map_err(|error| LoadError::Bug(format!("a column of texts: {error}")))?,
    };
    Ok(column.as_string::<i32>().clone())
}

/// The bytes of all texts.
pub(super) fn bytes_of(texts: &StringArray) -> &[u8] {
    let place = |offset: Option<&i32>| offset.and_then(|offset| usize::try_from(*offset).ok()).unwrap_or(0);
    let offsets = texts.value_offsets();
    texts.value_data().get(place(offsets.first())..place(offsets.last())).unwrap_or_default()
}

/// Texts that mention somebody.
pub(super) struct Hits {
    pub is_hit: BooleanArray,
    /// Texts in which the bytes of an identifier are part of something longer, which is no mention.
    pub inside_longer: u64,
}

/// Looks through the texts of a column; `None` if no text can mention anybody, which is nearly always found out at once for all of them.
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
