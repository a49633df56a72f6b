//! The columns of a table that identify a person.

use arrow::array::{Array as _, Int64Array, RecordBatch, StringArray};

use super::{
    identifier_set::{IdentifierSet, LowercaseBuffer, is_visitor},
    record_matcher::RecordMatcher,
};
use crate::{
    load::{
        LoadError,
        store::{number_column, text_column},
    },
    model::{IdentifierKind, WrittenIdentifier, is_email_attribute},
    person::{any_email, identifying_columns},
    schema::{ColumnType, Identifies, Table},
};

/// A column that stores an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdentifierColumn {
    /// The name of the column.
    pub column: &'static str,
    /// The kind of identifier that the column stores.
    pub kind: IdentifierKind,
    value_type: ValueType,
    /// For a column with values of attributes: the column with the name of the attribute. A value is an identifier only
    /// if the name of its attribute means an email address. `None` for any other column.
    named_by: Option<&'static str>,
}

/// The type of the values of an identifier column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    Texts,
    Numbers,
    /// JSON objects, whose members with a name such as `email` are mail addresses.
    Objects,
}

/// Returns the columns of a table that store identifiers. JSON columns of streams are left out, because their values
/// are also in rows of a child table.
pub(super) fn identifier_columns(table: &'static Table) -> Vec<IdentifierColumn> {
    let id_column = |(column, kind): (&'static crate::schema::Column, IdentifierKind)| {
        let value_type = match column.column_type {
            ColumnType::Text => ValueType::Texts,
            // The number of a visitor is the only numeric identifier.
            ColumnType::Bigint if is_visitor(kind) => ValueType::Numbers,
            ColumnType::Json if table.stream.is_none() && kind == IdentifierKind::Email => ValueType::Objects,
            _ => return None,
        };
        Some(IdentifierColumn { column: &column.name, kind, value_type, named_by: column.named_by.as_deref() })
    };
    identifying_columns(table).filter_map(id_column).collect()
}

/// Returns the columns of a table that store the JSON text of a complete record, whose fields may identify a person.
pub(super) fn record_columns(table: &'static Table) -> Vec<&'static str> {
    let is_record = |column: &&crate::schema::Column| {
        matches!(column.identifies, Some(Identifies::Record | Identifies::RecordInBase64))
    };
    table.columns.iter().filter(is_record).map(|column| column.name.as_str()).collect()
}

/// Returns the names of the columns to read for these identifier columns, each once. Besides the identifier columns,
/// the list has the columns with the names of attributes.
pub(super) fn columns_to_read(id_columns: &[IdentifierColumn]) -> Vec<&'static str> {
    let mut columns = Vec::new();
    for column in id_columns.iter().flat_map(|id_column| [Some(id_column.column), id_column.named_by]).flatten() {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

impl IdentifierColumn {
    /// Returns true if the type and kind of the column allow one of the wanted identifiers.
    pub fn may_contain(&self, wanted: &IdentifierSet) -> bool {
        match self.value_type {
            ValueType::Texts | ValueType::Objects => wanted.has_any_of(self.kind),
            ValueType::Numbers => wanted.has_numbers(),
        }
    }

    /// Returns the values of the column in a batch. Fails if the batch lacks a column of [`columns_to_read`].
    pub fn values<'a>(&self, rows: &'a RecordBatch) -> Result<IdentifierValues<'a>, LoadError> {
        let values = match self.value_type {
            ValueType::Texts => Values::Texts(text_column(rows, self.column)?),
            ValueType::Numbers => Values::Numbers(number_column(rows, self.column)?),
            ValueType::Objects => Values::Objects(text_column(rows, self.column)?),
        };
        let names = self.named_by.map(|name| text_column(rows, name)).transpose()?;
        Ok(IdentifierValues { kind: self.kind, values, names })
    }
}

/// The values of an identifier column in a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdentifierValues<'a> {
    kind: IdentifierKind,
    values: Values<'a>,
    /// The names of the attributes, if the values are those of attributes; `None` otherwise.
    names: Option<&'a StringArray>,
}

/// The values of an identifier column, by [`ValueType`].
#[derive(Clone, Copy, Debug)]
enum Values<'a> {
    Texts(&'a StringArray),
    Numbers(&'a Int64Array),
    Objects(&'a StringArray),
}

impl IdentifierValues<'_> {
    /// Returns true if the value of a row is one of the wanted identifiers. `lowercase` is a buffer that callers reuse.
    pub fn is_wanted(&self, row: usize, wanted: &IdentifierSet, lowercase: &mut LowercaseBuffer) -> bool {
        let is_wanted = match self.values {
            Values::Texts(texts) => texts.is_valid(row) && wanted.contains_text(self.kind, texts.value(row), lowercase),
            Values::Numbers(numbers) => numbers.is_valid(row) && wanted.contains_number(numbers.value(row)),
            Values::Objects(objects) => {
                objects.is_valid(row)
                    && any_email(objects.value(row), &mut |written| wanted.contains(&written.identifier))
            }
        };
        // The name of the attribute is checked last, because few values are wanted.
        is_wanted && self.is_identifier(row)
    }

    /// Returns the identifier of a row with its spelling, or `None` if the value is NULL, no identifier, or an object.
    pub fn read(&self, row: usize) -> Option<WrittenIdentifier> {
        if !self.is_identifier(row) {
            return None;
        }
        match self.values {
            Values::Texts(texts) if texts.is_valid(row) => WrittenIdentifier::read(self.kind, texts.value(row)),
            Values::Numbers(numbers) if numbers.is_valid(row) => {
                WrittenIdentifier::read(self.kind, &numbers.value(row).to_string())
            }
            _ => None,
        }
    }

    /// Adds the identifiers of a row with their spellings; an object can have several.
    pub fn read_into(&self, row: usize, found: &mut Vec<WrittenIdentifier>) {
        match self.values {
            Values::Objects(objects) if objects.is_valid(row) => {
                any_email(objects.value(row), &mut |written| {
                    found.push(written);
                    false
                });
            }
            _ => found.extend(self.read(row)),
        }
    }

    /// Returns false for the value of an attribute whose name does not mean an email address. Returns true for any
    /// other value.
    fn is_identifier(&self, row: usize) -> bool {
        self.names.is_none_or(|names| names.is_valid(row) && is_email_attribute(names.value(row)))
    }
}

/// Returns for each row whether an identifier column or a stored record contains a wanted identifier. `records` are the
/// names of the columns with stored records.
pub(super) fn matching_rows(
    rows: &RecordBatch,
    id_columns: &[IdentifierColumn],
    records: &[&str],
    matcher: &RecordMatcher<'_>,
) -> Result<Vec<bool>, LoadError> {
    let (mut matches, mut lowercase) = (vec![false; rows.num_rows()], LowercaseBuffer::default());
    for id_column in id_columns {
        let values = id_column.values(rows)?;
        for (row, is_match) in matches.iter_mut().enumerate() {
            *is_match = *is_match || values.is_wanted(row, matcher.wanted, &mut lowercase);
        }
    }
    for column in records {
        let texts = text_column(rows, column)?;
        for (text, is_match) in texts.iter().zip(&mut matches) {
            *is_match = *is_match || text.is_some_and(|text| matcher.matches(text));
        }
    }
    Ok(matches)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tables;

    #[test]
    fn every_identifying_column_is_listed_or_json_of_a_stream() {
        for table in tables() {
            let id_columns = identifier_columns(table);
            for (column, _) in identifying_columns(table) {
                let is_listed = id_columns.iter().any(|id_column| id_column.column == column.name);
                let is_of_child_table = column.column_type == ColumnType::Json && table.stream.is_some();
                assert_eq!(is_listed, !is_of_child_table, "{}.{}", table.name, column.name);
                // The rows of the child table have the values of the JSON column by name.
                let is_named = |child: &Table| {
                    child.stream == table.stream && child.columns.iter().any(|column| column.named_by.is_some())
                };
                assert!(is_listed || tables().iter().any(is_named), "{}.{}", table.name, column.name);
            }
            for column in record_columns(table) {
                assert_eq!(table.column(column).unwrap().column_type, ColumnType::Text, "{}.{column}", table.name);
            }
        }
    }
}
