//! Converts batches to the columns and types of a table contract. Columns are found by name. Columns that a batch lacks
//! become NULL.

use std::sync::Arc;

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, ListArray, RecordBatch, RecordBatchOptions, new_null_array},
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit, TimestampMicrosecondType},
    error::ArrowError,
};

use crate::{load::LoadError, schema::Table};

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
