//! The fields of a record, wherever a row has them: in columns of their own, or in the JSON of fields without one.
//!
//! A field moves from that JSON into a column when a new version knows it, and rows that an earlier version stored have
//! it where it was. They say the same as a record that has it in its column. So fields are compared by their names at
//! the service, and by the values that their columns make of them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, RecordBatch},
    datatypes::{Float64Type, Int64Type, TimestampMicrosecondType},
};

use crate::{
    json::{
        Shape, moments::read_timestamp, read_boolean, read_entries, read_integer, read_integers, read_number,
        read_text, shape,
    },
    schema::{Column, ColumnType, Origin},
};

/// Rows of a table, as far as they hold fields of records.
pub(super) struct FieldRows<'t> {
    /// Columns that hold one field, by its path at the service.
    columns: BTreeMap<&'t str, (&'t Column, ArrayRef)>,
    /// Columns that hold the fields below a path that have none of their own.
    rests: Vec<(&'t Column, ArrayRef)>,
    /// Paths of objects of which some field has a column.
    objects: BTreeSet<&'t str>,
}

/// What a field says.
#[derive(Debug, PartialEq)]
enum Value<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    Number(f64),
    Boolean(bool),
    /// Microseconds.
    Moment(i64),
    Integers(Vec<i64>),
    /// The text of a value that its column cannot hold.
    Other(&'a str),
}

impl<'t> FieldRows<'t> {
    /// The rows, in those of these columns that hold fields.
    pub fn of(columns: impl IntoIterator<Item = &'t Column>, rows: &RecordBatch) -> Self {
        let mut fields = Self { columns: BTreeMap::new(), rests: Vec::new(), objects: BTreeSet::new() };
        for column in columns {
            let Some(values) = rows.column_by_name(&column.name).cloned() else { continue };
            if column.rest_of.is_some() {
                fields.rests.push((column, values));
            } else if let Some(path) = column.json.as_deref().filter(|_| column.origin == Origin::Wire) {
                fields.objects.extend(path.match_indices('.').filter_map(|(at, _)| path.get(..at)));
                fields.columns.insert(path, (column, values));
            }
        }
        fields
    }

    /// Whether a row has the fields of a row of others, which have the same columns.
    /// Only what these columns hold counts.
    pub fn are_same(
        &self,
        row: usize,
        other: &FieldRows<'_>,
        other_row: usize,
        counts: impl Fn(&Column) -> bool,
    ) -> bool {
        let (rest, mut other_rest) = (self.rest(row, &counts), other.rest(other_row, &counts));
        for (path, (column, values)) in self.columns.iter().filter(|(_, (column, _))| counts(column)) {
            let (raw, other_raw) = (rest.get(*path).copied(), other_rest.remove(*path));
            // Where a column cannot hold all of a value, the text beside it says the rest.
            let differ = raw.zip(other_raw).is_some_and(|(raw, other)| raw != other);
            let value = cell(column, values, row).or_else(|| read(column, raw?));
            let other_cell = other.columns.get(*path).and_then(|(_, values)| cell(column, values, other_row));
            if differ || value != other_cell.or_else(|| read(column, other_raw?)) {
                return false;
            }
        }
        rest.iter().filter(|(path, _)| !self.columns.contains_key(path.as_str())).eq(&other_rest)
    }

    /// The fields of a row that have no column, or do not fit it: their texts by path.
    fn rest(&self, row: usize, counts: impl Fn(&Column) -> bool) -> BTreeMap<String, &str> {
        let mut fields = BTreeMap::new();
        for (column, values) in self.rests.iter().filter(|(column, values)| counts(column) && values.is_valid(row)) {
            let path = column.rest_of.as_deref().unwrap_or_default();
            self.add_fields(path, values.as_string::<i32>().value(row), &mut fields);
        }
        fields
    }

    fn add_fields<'a>(&self, path: &str, object: &'a str, fields: &mut BTreeMap<String, &'a str>) {
        let mut entries = Vec::new();
        if read_entries(object, &mut entries).is_none() {
            fields.insert(path.to_owned(), object);
        }
        for entry in entries {
            let field = if path.is_empty() { entry.key.to_owned() } else { format!("{path}.{}", entry.key) };
            match self.objects.contains(field.as_str()) && shape(entry.value) == Shape::Object {
                true => self.add_fields(&field, entry.value, fields),
                false => drop(fields.insert(field, entry.value)),
            }
        }
    }
}

fn cell<'a>(column: &Column, values: &'a ArrayRef, row: usize) -> Option<Value<'a>> {
    if values.is_null(row) {
        return None;
    }
    Some(match column.column_type {
        ColumnType::Text | ColumnType::Json => Value::Text(Cow::Borrowed(values.as_string::<i32>().value(row))),
        ColumnType::Bigint => Value::Integer(values.as_primitive::<Int64Type>().value(row)),
        ColumnType::Double => Value::Number(values.as_primitive::<Float64Type>().value(row)),
        ColumnType::Boolean => Value::Boolean(values.as_boolean().value(row)),
        ColumnType::Timestamp => Value::Moment(values.as_primitive::<TimestampMicrosecondType>().value(row)),
        ColumnType::BigintList => {
            let items = values.as_list::<i32>().value(row);
            Value::Integers(items.as_primitive::<Int64Type>().values().to_vec())
        }
    })
}

/// The value that the column makes of the field.
fn read<'a>(column: &Column, raw: &'a str) -> Option<Value<'a>> {
    if shape(raw) == Shape::Null {
        return None;
    }
    let value = match column.column_type {
        ColumnType::Json => Some(Value::Text(Cow::Borrowed(raw))),
        ColumnType::Text => read_text(raw).map(|text| Value::Text(text.text)),
        ColumnType::Bigint => read_integer(raw).map(Value::Integer),
        ColumnType::Double => read_number(raw).map(Value::Number),
        ColumnType::Boolean => read_boolean(raw).map(Value::Boolean),
        ColumnType::Timestamp => read_timestamp(raw).map(Value::Moment),
        ColumnType::BigintList => {
            let mut integers = Vec::new();
            read_integers(raw, &mut integers).map(|()| Value::Integers(integers))
        }
    };
    Some(value.unwrap_or(Value::Other(raw)))
}
