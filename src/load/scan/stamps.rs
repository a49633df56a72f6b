//! Rows of pages and of the store as rows to be written: with the columns that are filled the same way for every row of a scan.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray, new_null_array,
    },
    datatypes::{Field, Schema},
};

use super::tables::was_asked_for;
use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{TableChange, written_us},
    },
    model::Scan,
    schema::{Column, Origin, Table},
};

/// A moment in every row.
pub(super) fn moment(at_ms: i64, rows: usize) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_value(written_us(at_ms.saturating_mul(1000)), rows))
}

/// A text in every row.
pub(super) fn text(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}

/// NULL in every row.
pub(super) fn null(column: &Column, rows: usize) -> ArrayRef {
    new_null_array(&column.column_type.arrow(), rows)
}

/// What the scan writes into a column of every row; `None`: that depends on the row.
pub(super) fn stamp(scan: &Scan, column: &Column, rows: usize) -> Option<ArrayRef> {
    match column.name.as_str() {
        "_run_id" => Some(text(&scan.run_id.0, rows)),
        "_synced_at" => Some(moment(scan.started_ms, rows)),
        "_flags" => Some(Arc::new(Int64Array::from_value(scan.flags.bits().into(), rows))),
        "_vanished_at" => Some(null(column, rows)),
        _ => None,
    }
}

/// One array a column of the table; columns without one are left out, and so NULL.
pub(super) fn rows_of(
    table: &Table,
    rows: usize,
    mut column: impl FnMut(&Column) -> Result<Option<ArrayRef>, LoadError>,
) -> Result<RecordBatch, LoadError> {
    let (mut fields, mut arrays) = (Vec::with_capacity(table.columns.len()), Vec::with_capacity(table.columns.len()));
    for of in &table.columns {
        if let Some(array) = column(of)? {
            fields.push(Field::new(&of.name, array.data_type().clone(), true));
            arrays.push(array);
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(invalid_rows(table))
}

/// Rows of a page as new rows of a table. What the scan did not ask for is left out.
pub(super) fn new_rows(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let count = rows.num_rows();
    rows_of(table, count, |column| {
        Ok(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => Some(stamp),
            (None, "_first_seen_at") => Some(moment(scan.started_ms, count)),
            (None, _) if !was_asked_for(scan, column) => None,
            // Filled later, by what is no scan.
            (None, name) if column.origin == Origin::Load && rows.column_by_name(name).is_none() => None,
            (None, name) => Some(column_of(table, rows, name)?),
        })
    })
}

/// Adds stored rows to the table of their earlier versions: they end with this scan.
pub(super) fn ended(
    history: &'static Table,
    scan: &Scan,
    rows: &RecordBatch,
    reason: &str,
) -> Result<TableChange, LoadError> {
    let count = rows.num_rows();
    let mut change = TableChange::new(history);
    change.add(rows_of(history, count, |column| {
        Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => stamp,
            (None, "valid_from") => column_of(history, rows, "_synced_at")?,
            (None, "valid_to") => moment(scan.started_ms, count),
            (None, "reason") => text(reason, count),
            (None, name) => column_of(history, rows, name)?,
        }))
    })?);
    Ok(change)
}

/// A column of a batch.
pub(super) fn column_of(table: &Table, rows: &RecordBatch, name: &str) -> Result<ArrayRef, LoadError> {
    let column = rows.column_by_name(name).map(Arc::clone);
    column.ok_or_else(|| LoadError::Bug(format!("a batch of {} without {name}", table.name)))
}

/// The earlier of each moment and this one: scans are committed in another order than they begin.
pub(super) fn earlier(moments: &TimestampMicrosecondArray, at_ms: i64) -> ArrayRef {
    let at_us = written_us(at_ms.saturating_mul(1000));
    let earlier = moments.iter().map(|moment| Some(moment.map_or(at_us, |moment| moment.min(at_us))));
    Arc::new(earlier.collect::<TimestampMicrosecondArray>())
}
