//! Compares the fields of two rows. A field can have its own column in one row, and be in the JSON column for fields
//! without a column in the other row.
//!
//! A new version of the program can give a field a column. Rows that an earlier version of the program stored still
//! have the field in the JSON column. So fields are compared by their paths in the service's JSON, and by the values
//! that their columns would store.

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
        Shape, is_same_value, moments::read_timestamp, read_boolean, read_entries, read_integer, read_integers,
        read_number, read_text, shape, unescaped,
    },
    schema::{Column, ColumnType, Origin},
};

/// The fields of the rows of a batch.
pub(super) struct FieldRows<'t> {
    /// The columns that store one field each, by the field's path in the service's JSON.
    columns: BTreeMap<&'t str, (&'t Column, ArrayRef)>,
    /// The JSON columns. Each stores, below one path, the fields that have no column of their own and the values that
    /// do not fit their column.
    rest_columns: Vec<(&'t Column, ArrayRef)>,
    /// Paths of the JSON objects of which at least one field has a column. The other fields of such an object are
    /// compared one by one.
    split_objects: BTreeSet<&'t str>,
}

/// The value of a field, with the type of its column.
#[derive(Debug)]
enum Value<'a> {
    Text(Cow<'a, str>),
    /// The text of a JSON value.
    Json(&'a str),
    Integer(i64),
    Number(f64),
    Boolean(bool),
    /// Epoch microseconds.
    Moment(i64),
    Integers(Vec<i64>),
    /// The JSON text of a value that does not fit the type of its column.
    Other(&'a str),
}

impl Value<'_> {
    /// Returns true if both are the same value. JSON may be spelled differently. `column` is the column of the field.
    fn is_same(&self, other: &Value<'_>, column: &Column) -> bool {
        match (self, other) {
            (Value::Text(one), Value::Text(other)) => one == other,
            (Value::Integer(one), Value::Integer(other)) | (Value::Moment(one), Value::Moment(other)) => one == other,
            (Value::Number(one), Value::Number(other)) => one == other,
            (Value::Boolean(one), Value::Boolean(other)) => one == other,
            (Value::Integers(one), Value::Integers(other)) => one == other,
            (Value::Json(one), Value::Json(other)) | (Value::Other(one), Value::Other(other)) => {
                is_same_value(one, other, &column.signed_links)
            }
            _ => false,
        }
    }
}

impl<'t> FieldRows<'t> {
    /// Collects the fields of the batch `rows`. Columns that the batch lacks, or that the program computes, contain no
    /// field.
    pub fn of(columns: impl IntoIterator<Item = &'t Column>, rows: &RecordBatch) -> Self {
        let mut fields = Self { columns: BTreeMap::new(), rest_columns: Vec::new(), split_objects: BTreeSet::new() };
        for column in columns {
            let Some(values) = rows.column_by_name(&column.name).cloned() else { continue };
            if column.rest_of.is_some() {
                fields.rest_columns.push((column, values));
            } else if let Some(path) = column.json.as_deref().filter(|_| column.origin == Origin::Wire) {
                fields.split_objects.extend(path.match_indices('.').filter_map(|(dot, _)| path.get(..dot)));
                fields.columns.insert(path, (column, values));
            }
        }
        fields
    }

    /// Returns true if a row has the same fields as a row of another batch with the same columns. Only columns for
    /// which `is_compared` returns true are compared.
    pub fn are_same(
        &self,
        row: usize,
        other: &FieldRows<'_>,
        other_row: usize,
        is_compared: impl Fn(&Column) -> bool,
    ) -> bool {
        let (rest, mut other_rest) = (self.rest(row, &is_compared), other.rest(other_row, &is_compared));
        for (path, (column, values)) in self.columns.iter().filter(|(_, (column, _))| is_compared(column)) {
            let (raw, other_raw) = (rest.get(*path).copied(), other_rest.remove(*path));
            // A field with a column is also in the JSON column if its own column cannot store the complete value.
            let texts_differ = raw.zip(other_raw).is_some_and(|(raw, other)| !is_same_value(raw, other, &[]));
            let value = stored_value(column, values, row).or_else(|| parsed_value(column, raw?));
            let other_cell = other.columns.get(*path).and_then(|(_, values)| stored_value(column, values, other_row));
            let is_same = match (value, other_cell.or_else(|| parsed_value(column, other_raw?))) {
                (Some(value), Some(other)) => value.is_same(&other, column),
                (value, other) => value.is_none() && other.is_none(),
            };
            if texts_differ || !is_same {
                return false;
            }
        }
        let is_same =
            |(one, other): ((&String, &&str), (&String, &&str))| one.0 == other.0 && is_same_value(one.1, other.1, &[]);
        let rest: Vec<_> = rest.iter().filter(|(path, _)| !self.columns.contains_key(path.as_str())).collect();
        rest.len() == other_rest.len() && rest.into_iter().zip(&other_rest).all(is_same)
    }

    /// Returns the fields of a row that are in a JSON column, as JSON texts by path. A field is in a JSON column if it
    /// has no column of its own, or if its value does not fit its column.
    fn rest(&self, row: usize, is_compared: impl Fn(&Column) -> bool) -> BTreeMap<String, &str> {
        let mut fields = BTreeMap::new();
        let is_filled = |column: &Column, values: &ArrayRef| is_compared(column) && values.is_valid(row);
        for (column, values) in self.rest_columns.iter().filter(|(column, values)| is_filled(column, values)) {
            let path = column.rest_of.as_deref().unwrap_or_default();
            self.flatten_object(path, values.as_string::<i32>().value(row), &mut fields);
        }
        fields
    }

    /// Adds the fields of the JSON object at `path` to `fields`, each under its dotted path, so that fields can be
    /// compared with columns. A nested object is split only if one of its fields has a column. Text that is not an
    /// object is added as one field.
    fn flatten_object<'a>(&self, path: &str, object: &'a str, fields: &mut BTreeMap<String, &'a str>) {
        let mut entries = Vec::new();
        if read_entries(object, &mut entries).is_none() {
            fields.insert(path.to_owned(), object);
        }
        for entry in entries {
            let name = unescaped(entry.key).text;
            let field = if path.is_empty() { name.into_owned() } else { format!("{path}.{name}") };
            if self.split_objects.contains(field.as_str()) && shape(entry.value) == Shape::Object {
                self.flatten_object(&field, entry.value, fields);
            } else {
                fields.insert(field, entry.value);
            }
        }
    }
}

/// Returns the value that a column stores in a row; `None` for NULL.
fn stored_value<'a>(column: &Column, values: &'a ArrayRef, row: usize) -> Option<Value<'a>> {
    if values.is_null(row) {
        return None;
    }
    Some(match column.column_type {
        ColumnType::Text => Value::Text(Cow::Borrowed(values.as_string::<i32>().value(row))),
        ColumnType::Json => Value::Json(values.as_string::<i32>().value(row)),
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

/// Returns the value that the column would store for the field's JSON text: [`Value::Other`] if the text does not fit
/// the column; `None` for a JSON null.
fn parsed_value<'a>(column: &Column, raw: &'a str) -> Option<Value<'a>> {
    if shape(raw) == Shape::Null {
        return None;
    }
    let value = match column.column_type {
        ColumnType::Json => Some(Value::Json(raw)),
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
