//! The columns of a table that say whose a row is.

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
    model::{IdentifierKind, Spelled, names_an_email},
    person::identifies,
    schema::{ColumnType, Identifies, Table},
};

/// A column that holds an identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdentifierColumn {
    pub column: &'static str,
    pub kind: IdentifierKind,
    value_type: ValueType,
    /// The value counts only in rows where this column holds the name of an attribute for mail addresses.
    named_by: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    Texts,
    Numbers,
}

/// The columns of a table that hold an identifier. JSON columns are none: what is in them has rows of its own in a child.
pub(super) fn identifier_columns(table: &'static Table) -> Vec<IdentifierColumn> {
    let mark = |(column, kind): (&'static crate::schema::Column, IdentifierKind)| {
        let value_type = match column.column_type {
            ColumnType::Text => ValueType::Texts,
            // Of all identifiers the number of a visitor alone is a number.
            ColumnType::Bigint if is_visitor(kind) => ValueType::Numbers,
            _ => return None,
        };
        Some(IdentifierColumn { column: &column.name, kind, value_type, named_by: column.named_by.as_deref() })
    };
    identifies(table).filter_map(mark).collect()
}

/// The columns of a table that hold the text of a whole record, whose own fields identify somebody.
pub(super) fn record_columns(table: &'static Table) -> Vec<&'static str> {
    let is_record = |column: &&crate::schema::Column| column.identifies == Some(Identifies::Record);
    table.columns.iter().filter(is_record).map(|column| column.name.as_str()).collect()
}

/// The columns that have to be read for these marks, each once.
pub(super) fn columns_to_read(marks: &[IdentifierColumn]) -> Vec<&'static str> {
    let mut columns = Vec::new();
    for column in marks.iter().flat_map(|mark| [Some(mark.column), mark.named_by]).flatten() {
        if !columns.contains(&column) {
            columns.push(column);
        }
    }
    columns
}

impl IdentifierColumn {
    /// Whether the column may hold one of the wanted identifiers.
    pub fn may_hold(&self, wanted: &IdentifierSet) -> bool {
        match self.value_type {
            ValueType::Texts => wanted.has_any_of(self.kind),
            ValueType::Numbers => wanted.has_numbers(),
        }
    }

    /// The column of a batch.
    pub fn values<'a>(&self, rows: &'a RecordBatch) -> Result<IdentifierValues<'a>, LoadError> {
        let values = match self.value_type {
            ValueType::Texts => Values::Texts(text_column(rows, self.column)?),
            ValueType::Numbers => Values::Numbers(number_column(rows, self.column)?),
        };
        let names = self.named_by.map(|name| text_column(rows, name)).transpose()?;
        Ok(IdentifierValues { kind: self.kind, values, names })
    }
}

/// What a batch has in the column of a mark.
#[derive(Clone, Copy, Debug)]
pub(super) struct IdentifierValues<'a> {
    kind: IdentifierKind,
    values: Values<'a>,
    /// Names of attributes: the value of a row counts only beside one for mail addresses.
    names: Option<&'a StringArray>,
}

#[derive(Clone, Copy, Debug)]
enum Values<'a> {
    Texts(&'a StringArray),
    Numbers(&'a Int64Array),
}

impl IdentifierValues<'_> {
    /// Whether a row has one of the wanted identifiers here.
    pub fn contains_text(&self, row: usize, wanted: &IdentifierSet, lowercase: &mut LowercaseBuffer) -> bool {
        let is_wanted = match self.values {
            Values::Texts(texts) => texts.is_valid(row) && wanted.contains_text(self.kind, texts.value(row), lowercase),
            Values::Numbers(numbers) => numbers.is_valid(row) && wanted.contains_number(numbers.value(row)),
        };
        // The name is looked at last: hardly any value gets so far.
        is_wanted && self.counts(row)
    }

    /// The identifier that a row has here, and how it is written.
    pub fn read(&self, row: usize) -> Option<Spelled> {
        if !self.counts(row) {
            return None;
        }
        match self.values {
            Values::Texts(texts) if texts.is_valid(row) => Spelled::read(self.kind, texts.value(row)),
            Values::Numbers(numbers) if numbers.is_valid(row) => {
                Spelled::read(self.kind, &numbers.value(row).to_string())
            }
            _ => None,
        }
    }

    fn counts(&self, row: usize) -> bool {
        self.names.is_none_or(|names| names.is_valid(row) && names_an_email(names.value(row)))
    }
}

/// For each row, whether it has one of the wanted identifiers in one of these columns, or holds a record that has.
pub(super) fn matching_rows(
    rows: &RecordBatch,
    marks: &[IdentifierColumn],
    records: &[&str],
    test: &RecordMatcher<'_>,
) -> Result<Vec<bool>, LoadError> {
    let (mut found, mut lowercase) = (vec![false; rows.num_rows()], LowercaseBuffer::default());
    for mark in marks {
        let values = mark.values(rows)?;
        for (row, is_found) in found.iter_mut().enumerate() {
            *is_found = *is_found || values.contains_text(row, test.wanted, &mut lowercase);
        }
    }
    for column in records {
        let texts = text_column(rows, column)?;
        for (text, is_found) in texts.iter().zip(&mut found) {
            *is_found = *is_found || text.is_some_and(|text| test.matches(text));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::tables;

    #[test]
    fn every_identifying_column_is_a_mark_or_json() {
        for table in tables() {
            let marks = identifier_columns(table);
            for (column, _) in identifies(table) {
                let is_mark = marks.iter().any(|mark| mark.column == column.name);
                assert_eq!(is_mark, column.column_type != ColumnType::Json, "{}.{}", table.name, column.name);
            }
            for column in record_columns(table) {
                assert_eq!(table.column(column).unwrap().column_type, ColumnType::Text, "{}.{column}", table.name);
            }
        }
    }
}
