//! Finds identifiers in columns of text.

use std::sync::Arc;

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, BooleanArray, RecordBatch, StringArray},
    compute::cast,
    datatypes::DataType,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    load::{LoadError, error::invalid_rows},
    person::{IdentifierMatcher, text_of_bytes},
    schema::{ColumnType, Identifies, Table},
};

/// Returns the names of the text and JSON columns of a table.
pub(super) fn text_columns(table: &'static Table) -> Vec<&'static str> {
    let is_text = |column_type| matches!(column_type, ColumnType::Text | ColumnType::Json);
    table.columns.iter().filter(|column| is_text(column.column_type)).map(|column| column.name.as_str()).collect()
}

/// Returns true if the column contains texts in Base64.
fn is_base64(table: &Table, column: &str) -> bool {
    table.column(column).is_some_and(|column| column.identifies == Some(Identifies::RecordInBase64))
}

/// Returns the rows with the texts in Base64 decoded. A text that is not Base64 stays.
pub(super) fn decoded(table: &Table, rows: RecordBatch) -> Result<RecordBatch, LoadError> {
    map_texts(
        table,
        rows,
        |column| is_base64(table, column),
        |_, text| match STANDARD.decode(text) {
            Ok(bytes) => text_of_bytes(&bytes).into_owned(),
            Err(_) => text.to_owned(),
        },
    )
}

/// The column that repeats another column in capitals, in which a user id is not recognized.
const CAPITALS: &str = "export_question_type";
/// The column that [`CAPITALS`] repeats.
const REPEATED_IN_CAPITALS: &str = "question_type";

/// Returns the rows with identifiers replaced in these columns. Other columns, and texts without an identifier, stay
/// unchanged.
pub(super) fn redacted(
    table: &Table,
    rows: RecordBatch,
    columns: &[&str],
    matcher: &IdentifierMatcher,
) -> Result<RecordBatch, LoadError> {
    let redacted = map_texts(
        table,
        rows,
        |column| columns.contains(&column),
        |column, text| {
            let bytes = if is_base64(table, column) { STANDARD.decode(text).ok() } else { None };
            let replaced = match bytes {
                Some(bytes) => matcher.redacted_bytes(&bytes).map(|bytes| STANDARD.encode(bytes)),
                None => matcher.redacted(text),
            };
            replaced.unwrap_or_else(|| text.to_owned())
        },
    )?;
    repeat_in_capitals(table, redacted)
}

/// Fills the column [`CAPITALS`] again, because the text that it repeats may have changed.
fn repeat_in_capitals(table: &Table, rows: RecordBatch) -> Result<RecordBatch, LoadError> {
    let schema = rows.schema();
    let (Some((index, _)), Some(repeated)) =
        (schema.column_with_name(CAPITALS), rows.column_by_name(REPEATED_IN_CAPITALS))
    else {
        return Ok(rows);
    };
    let capitals: StringArray = as_texts(repeated)?.iter().map(|text| text.map(str::to_uppercase)).collect();
    let mut columns = rows.columns().to_vec();
    if let Some(column) = columns.get_mut(index) {
        *column = Arc::new(capitals);
    }
    RecordBatch::try_new(schema, columns).map_err(invalid_rows(table))
}

/// Returns the rows with each text in the selected columns replaced by the result of `map`, which gets the name of the
/// column and the text.
fn map_texts(
    table: &Table,
    rows: RecordBatch,
    is_selected: impl Fn(&str) -> bool,
    map: impl Fn(&str, &str) -> String,
) -> Result<RecordBatch, LoadError> {
    let schema = rows.schema();
    if !schema.fields().iter().any(|field| is_selected(field.name())) {
        return Ok(rows);
    }
    let mapped = schema.fields().iter().zip(rows.columns()).map(|(field, column)| {
        let name = field.name();
        if !is_selected(name) {
            return Ok(Arc::clone(column));
        }
        let texts = as_texts(column)?;
        Ok(Arc::new(texts.iter().map(|text| Some(map(name, text?))).collect::<StringArray>()) as ArrayRef)
    });
    let mapped = mapped.collect::<Result<Vec<_>, LoadError>>()?;
    RecordBatch::try_new(schema, mapped).map_err(invalid_rows(table))
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
