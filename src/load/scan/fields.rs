//! Compares the fields of records, wherever rows store them: in a column of their own, or in the JSON of fields
//! without a column.
//!
//! A new version of the program can give a field a column. Rows that an earlier version stored still have the field
//! in the JSON. Both rows have the same content. So fields are compared by their names at the service, and by the
//! values that their columns make of them.

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

/// The fields of the rows of a batch.
pub(super) struct FieldRows<'t> {
    /// Columns that store one field, by its path at the service.
    columns: BTreeMap<&'t str, (&'t Column, ArrayRef)>,
    /// Columns that store, as JSON, the fields below a path that have no column.
    rests: Vec<(&'t Column, ArrayRef)>,
    /// Paths of objects that have at least one field with a column.
    objects: BTreeSet<&'t str>,
}

/// The value of a field.
#[derive(Debug, PartialEq)]
enum Value<'a> {
    Text(Cow<'a, str>),
    Integer(i64),
    Number(f64),
    Boolean(bool),
    /// Epoch microseconds.
    Moment(i64),
    Integers(Vec<i64>),
    /// The JSON text of a value that does not fit its column.
    Other(&'a str),
}

impl<'t> FieldRows<'t> {
    /// Reads the columns among these that contain fields.
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

    /// Whether a row has the same fields as a row of another batch with the same columns. Only columns for which
    /// `counts` returns true are compared.
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
            // Where a column cannot hold the complete value, the JSON text decides.
            let differ = raw.zip(other_raw).is_some_and(|(raw, other)| raw != other);
            let value = cell(column, values, row).or_else(|| read(column, raw?));
            let other_cell = other.columns.get(*path).and_then(|(_, values)| cell(column, values, other_row));
            if differ || value != other_cell.or_else(|| read(column, other_raw?)) {
                return false;
            }
        }
        rest.iter().filter(|(path, _)| !self.columns.contains_key(path.as_str())).eq(&other_rest)
    }

    /// The fields of a row without a column, or with a value that does not fit it: their JSON texts by path.
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

/// The value that the column makes of the field's JSON text; `None` for null.
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
