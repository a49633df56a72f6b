//! Which tables and columns a scan fills, and the rows that it writes, with the columns that have the same value in
//! every row of a scan.

use std::sync::Arc;

use arrow::{
    array::{
        ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, StringArray, TimestampMicrosecondArray, new_null_array,
    },
    datatypes::{Field, Schema},
};

use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{TableChange, clamped_us, time_column},
    },
    model::{Flag, Scan, Stream},
    schema::{Column, Origin, Table, TableKind},
};

/// The column of the history with the creation time of the record that won a collision.
pub(super) const WINNER_COLUMN: &str = "collided_with";

/// Returns true if the pages of the scan's stream can contain rows of the table.
pub(super) fn is_filled_by(table: &Table, scan: &Scan) -> bool {
    table.stream.as_deref() == Some(scan.scope.stream.name())
        && matches!(table.kind, TableKind::Base | TableKind::Child | TableKind::Versioned)
}

/// Returns true if the scan returns snapshots of visitors with its records.
pub(super) fn includes_snapshots(scan: &Scan) -> bool {
    scan.flags.contains(Flag::WithSnapshots) && scan.scope.stream == Stream::Responses
}

/// Returns true if the scan requested the fields from which the rows of the child table are built.
pub(super) fn includes_child(scan: &Scan, child: &Table) -> bool {
    child.flag.is_none_or(|flag| scan.flags.contains(flag))
}

/// Returns true if the scan requested the field that the column stores.
pub(super) fn is_requested(scan: &Scan, column: &Column) -> bool {
    column.flag.is_none_or(|flag| scan.flags.contains(flag))
}

/// Returns the start of the scan in epoch microseconds, limited to the times that a warehouse can store.
pub(super) fn started_us(scan: &Scan) -> i64 {
    clamped_us(scan.started_ms.saturating_mul(1000))
}

/// Creates a column with the start of the scan in every row.
pub(super) fn started(scan: &Scan, rows: usize) -> ArrayRef {
    Arc::new(TimestampMicrosecondArray::from_value(started_us(scan), rows))
}

/// Creates a column with one text in every row.
pub(super) fn text(text: &str, rows: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, rows)))
}

/// Creates a column of the type of `column`, with NULL in every row.
pub(super) fn null(column: &Column, rows: usize) -> ArrayRef {
    new_null_array(&column.column_type.arrow(), rows)
}

/// Returns the array for a column that has the same value in every row of the scan; `None` if the value depends on the
/// row. `_vanished_at` is NULL, because a written row has not vanished; `returned_at` is NULL, because a row whose
/// version has just ended has not returned since.
pub(super) fn stamp(scan: &Scan, column: &Column, rows: usize) -> Option<ArrayRef> {
    match column.name.as_str() {
        "_run_id" => Some(text(&scan.run_id.0, rows)),
        "_synced_at" => Some(started(scan, rows)),
        "_flags" => Some(Arc::new(Int64Array::from_value(scan.flags.bits().into(), rows))),
        "_vanished_at" | "returned_at" => Some(null(column, rows)),
        _ => None,
    }
}

/// Builds rows of a table from the array that `column` returns for each column. A column for which `column` returns
/// `None` is left out of the batch, and is stored as NULL.
pub(super) fn rows_of(
    table: &Table,
    rows: usize,
    mut column: impl FnMut(&Column) -> Result<Option<ArrayRef>, LoadError>,
) -> Result<RecordBatch, LoadError> {
    let (mut fields, mut arrays) = (Vec::with_capacity(table.columns.len()), Vec::with_capacity(table.columns.len()));
    for table_column in &table.columns {
        if let Some(array) = column(table_column)? {
            fields.push(Field::new(&table_column.name, array.data_type().clone(), true));
            arrays.push(array);
        }
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), arrays, &options).map_err(invalid_rows(table))
}

/// Converts rows of a page to new rows of a table. Columns that the scan did not request are left out, and are stored
/// as NULL.
pub(super) fn new_rows(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let count = rows.num_rows();
    rows_of(table, count, |column| {
        Ok(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => Some(stamp),
            (None, "_first_seen_at") => Some(started(scan, count)),
            (None, _) if !is_requested(scan, column) => None,
            // A later write, which is not part of a scan, fills this column.
            (None, name) if column.origin == Origin::Load && rows.column_by_name(name).is_none() => None,
            (None, name) => Some(column_of(table, rows, name)?),
        })
    })
}

/// Returns the change that adds stored rows to the history, as versions that end at the start of this scan. A version
/// begins at the row's stored `_synced_at`, but not after its end: the clock can have gone back. The version's own
/// `_run_id` and `_synced_at` are those of this scan. `reason` is the value of the column `reason`.
pub(super) fn ended_versions(
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
            (None, "valid_from") => not_later_than_scan(scan, time_column(rows, "_synced_at")?),
            (None, "valid_to") => started(scan, count),
            (None, "reason") => text(reason, count),
            (None, WINNER_COLUMN) => null(column, count),
            (None, name) => column_of(history, rows, name)?,
        }))
    })?);
    Ok(change)
}

/// Returns the column of a batch with this name. A missing column is a [`LoadError::Bug`].
pub(super) fn column_of(table: &Table, rows: &RecordBatch, name: &str) -> Result<ArrayRef, LoadError> {
    let column = rows.column_by_name(name).map(Arc::clone);
    column.ok_or_else(|| LoadError::Bug(format!("a batch of {} without {name}", table.name)))
}

/// Returns, for each time, the earlier of this time and the start of the scan; the start of the scan for NULL. Scans
/// can be committed in another order than they began, so a stored time can be later than this scan.
pub(super) fn not_later_than_scan(scan: &Scan, times: &TimestampMicrosecondArray) -> ArrayRef {
    let started_us = started_us(scan);
    let earlier = times.iter().map(|time| Some(time.map_or(started_us, |time| time.min(started_us))));
    Arc::new(earlier.collect::<TimestampMicrosecondArray>())
}
