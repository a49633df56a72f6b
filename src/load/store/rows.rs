//! Finds, selects and renames columns of batches by name.
//!
//! Converts batches to the columns and types of a table contract. Columns are found by name. Columns that a batch lacks
//! become NULL.

use std::sync::Arc;

use arrow::{
    array::{
        Array as _, ArrayRef, AsArray as _, BooleanArray, Int64Array, ListArray, RecordBatch, RecordBatchOptions,
        StringArray, TimestampMicrosecondArray, new_null_array,
    },
    compute::{CastOptions, cast_with_options, concat_batches},
    datatypes::{DataType, Field, FieldRef, Int64Type, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType},
    error::ArrowError,
};

use crate::{load::LoadError, schema::Table};

use super::{invalid, invalid_rows};

/// A callback that receives batches of rows, one after the other. An error of the callback ends the read, which returns
/// this error.
pub(in crate::load) type Take<'a> = dyn FnMut(RecordBatch) -> Result<(), LoadError> + 'a;

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

/// Returns the schema of these columns as a store returns them. Times are UTC and have no zone. All columns are
/// nullable, because a file may be older than a column.
///
/// # Errors
/// [`LoadError::Bug`] for a column that the table does not have.
pub(in crate::load) fn read_schema(table: &Table, columns: &[&str]) -> Result<SchemaRef, LoadError> {
    let field = |name: &&str| {
        let column = table.column(name);
        let column = column.ok_or_else(|| LoadError::Bug(format!("{} has no column {name}", table.name)))?;
        Ok(Field::new(*name, column.column_type.arrow(), true))
    };
    Ok(Arc::new(Schema::new(columns.iter().map(field).collect::<Result<Vec<_>, LoadError>>()?)))
}

/// Converts rows to a schema. Columns are found by name and converted to the schema's types; missing columns are NULL.
/// Fails if a value does not fit its type.
pub(in crate::load) fn fit(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let column = |field: &Arc<Field>| match rows.column_by_name(field.name()) {
        Some(column) => fit_column(column, field),
        None => Ok(new_null_array(field.data_type(), rows.num_rows())),
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// Converts a column to the type of a field. Fails if a value does not fit the type.
pub(in crate::load) fn fit_column(column: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    match (column.data_type(), field.data_type()) {
        (found, wanted) if found == wanted => Ok(Arc::clone(column)),
        // All times are UTC, so only the zone of the type changes and not the values.
        (DataType::Timestamp(TimeUnit::Microsecond, _), DataType::Timestamp(TimeUnit::Microsecond, zone)) => {
            let times = column.as_primitive::<TimestampMicrosecondType>().clone();
            Ok(Arc::new(times.with_timezone_opt(zone.clone())))
        }
        (DataType::List(_), DataType::List(item)) => {
            let list = column.as_list::<i32>();
            let values = fit_column(list.values(), item)?;
            Ok(Arc::new(ListArray::try_new(Arc::clone(item), list.offsets().clone(), values, list.nulls().cloned())?))
        }
        // `safe: true` would turn a value that does not fit into NULL.
        (_, wanted) => cast_with_options(column, wanted, &CastOptions { safe: false, ..CastOptions::default() }),
    }
}
