//! Ways to reach the rows of a store that several tables share.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};

use super::cells::Row;
use crate::{
    load::{
        LoadError,
        store::{BufferedStore, Filter, KeySet, TableChange},
    },
    model::ScanId,
    schema::Table,
};

/// Names the rows in which a column has one of these values.
pub(super) fn keys_of(column: &'static str, values: ArrayRef) -> Result<KeySet, LoadError> {
    let rows = RecordBatch::try_from_iter([(column, values)]);
    KeySet::of(vec![column], &[rows.map_err(|error| LoadError::Contract(format!("{column}: {error}")))?])
}

/// Names the rows of these scans, in a table with the column `scan_id`.
pub(super) fn scan_keys<'a>(scans: impl IntoIterator<Item = &'a ScanId>) -> Result<KeySet, LoadError> {
    let ids = scans.into_iter().map(|scan| scan.0.as_str());
    keys_of("scan_id", Arc::new(StringArray::from_iter_values(ids)))
}

/// Hands over all columns of each row that the filter names.
pub(super) fn each_row(
    store: &mut BufferedStore,
    table: &'static Table,
    filter: &Filter<'_>,
    take: &mut dyn FnMut(Row<'_>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    store.read(table, &all_columns(table), filter, &mut |rows| {
        (0..rows.num_rows()).try_for_each(|at| take(Row { rows: &rows, at }))
    })
}

/// Adds rows in the place of the rows that have the same key.
pub(super) fn put_rows(store: &mut BufferedStore, table: &'static Table, rows: RecordBatch) -> Result<(), LoadError> {
    let mut change = TableChange::new(table);
    change.remove(&rows)?;
    change.add(rows)?;
    store.change(change)
}

/// Adds rows and removes none.
pub(super) fn add_rows(store: &mut BufferedStore, table: &'static Table, rows: RecordBatch) -> Result<(), LoadError> {
    let mut change = TableChange::new(table);
    change.add(rows)?;
    store.change(change)
}

/// The names of all columns.
pub(super) fn all_columns(table: &'static Table) -> Vec<&'static str> {
    table.columns.iter().map(|column| column.name.as_str()).collect()
}

/// Adds the rows of one store that the filter names to another, batch by batch, and returns how many there are.
pub(super) fn copy_rows(
    from: &mut BufferedStore,
    to: &mut BufferedStore,
    table: &'static Table,
    filter: &Filter<'_>,
) -> Result<u64, LoadError> {
    let mut copied = 0;
    from.read(table, &all_columns(table), filter, &mut |rows| {
        copied += rows.num_rows() as u64;
        add_rows(to, table, rows)
    })?;
    Ok(copied)
}
