//! Finds, selects and renames columns of batches by name.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, AsArray as _, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray},
    compute::concat_batches,
    datatypes::{Field, FieldRef, Int64Type, Schema, SchemaRef, TimestampMicrosecondType},
};

use super::{super::LoadError, fit, invalid, invalid_rows};
use crate::schema::Table;

fn missing(name: &str) -> LoadError {
    LoadError::Bug(format!("a batch without {name}"))
}

/// Returns the column with this name. Fails if the column is missing or does not contain integers.
pub(in crate::load) fn number_column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a Int64Array, LoadError> {
    let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>());
    column.ok_or_else(|| missing(name))
}

/// Returns the column with this name. Fails if the column is missing or does not contain times.
pub(in crate::load) fn time_column<'a>(
    rows: &'a RecordBatch,
    name: &str,
) -> Result<&'a TimestampMicrosecondArray, LoadError> {
    let column = rows.column_by_name(name).and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    column.ok_or_else(|| missing(name))
}

/// Returns the column with this name. Fails if the column is missing or does not contain texts.
pub(in crate::load) fn text_column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a StringArray, LoadError> {
    rows.column_by_name(name).and_then(|column| column.as_string_opt::<i32>()).ok_or_else(|| missing(name))
}

/// Returns the column with this name. Fails if the column is missing or does not contain booleans.
pub(in crate::load) fn boolean_column<'a>(rows: &'a RecordBatch, name: &str) -> Result<&'a BooleanArray, LoadError> {
    rows.column_by_name(name).and_then(|column| column.as_boolean_opt()).ok_or_else(|| missing(name))
}

/// Returns the rows with only these columns, in this order. Fails if a column is missing.
pub(in crate::load) fn project(rows: &RecordBatch, columns: &[&str]) -> Result<RecordBatch, LoadError> {
    let schema = rows.schema();
    let indices: Result<Vec<usize>, _> = columns.iter().map(|name| schema.index_of(name)).collect();
    let projected = indices.and_then(|indices| rows.project(&indices));
    projected.map_err(invalid("columns of a batch"))
}

/// Returns the rows with only `columns`, in this order, renamed to `names`. Fails if a column is missing.
pub(in crate::load) fn renamed(rows: &RecordBatch, columns: &[&str], names: &[&str]) -> Result<RecordBatch, LoadError> {
    let rows = project(rows, columns)?;
    let field = |(name, column): (&&str, &ArrayRef)| Field::new(*name, column.data_type().clone(), true);
    let fields: Vec<Field> = names.iter().zip(rows.columns()).map(field).collect();
    let renamed = RecordBatch::try_new(Arc::new(Schema::new(fields)), rows.columns().to_vec());
    renamed.map_err(invalid("columns of a batch"))
}

/// Returns the rows with other values of one column.
pub(in crate::load) fn with_column(
    rows: &RecordBatch,
    name: &str,
    values: &ArrayRef,
) -> Result<RecordBatch, LoadError> {
    let schema = rows.schema();
    let column = |(field, column): (&FieldRef, &ArrayRef)| match field.name() == name {
        true => (Arc::new(Field::new(name, values.data_type().clone(), true)), Arc::clone(values)),
        false => (Arc::clone(field), Arc::clone(column)),
    };
    let (fields, columns): (Vec<FieldRef>, _) = schema.fields().iter().zip(rows.columns()).map(column).unzip();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(invalid("columns of a batch"))
}

/// Returns the rows with exactly the columns and types of the schema. Columns are found by name; missing columns are
/// NULL.
pub(in crate::load) fn with_columns(
    table: &Table,
    schema: &SchemaRef,
    rows: &RecordBatch,
) -> Result<RecordBatch, LoadError> {
    fit(rows, schema).map_err(invalid_rows(table))
}

/// Returns all rows as one batch with exactly the columns and types of the schema; missing columns are NULL.
pub(in crate::load) fn concat_rows(
    table: &Table,
    schema: &SchemaRef,
    batches: &[RecordBatch],
) -> Result<RecordBatch, LoadError> {
    let batches = batches.iter().map(|batch| with_columns(table, schema, batch)).collect::<Result<Vec<_>, _>>()?;
    concat_batches(schema, &batches).map_err(invalid_rows(table))
}
