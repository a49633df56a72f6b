//! Helpers to read and write rows of a store, used for several tables.

use std::{collections::HashSet, hash::Hash, sync::Arc};

use arrow::array::{RecordBatch, StringArray};

use super::cells::{Cell, Row, RowBuilder};
use crate::{
    load::{
        LoadError,
        store::{BufferedStore, Filter, KeySet, TableChange},
    },
    model::ScanId,
    schema::Table,
};

/// Creates a key set that selects the rows of these scans in tables with the column `scan_id`.
pub(super) fn scan_keys<'a>(scans: impl IntoIterator<Item = &'a ScanId>) -> Result<KeySet, LoadError> {
    let ids = scans.into_iter().map(|scan| scan.0.as_str());
    KeySet::of_values("scan_id", Arc::new(StringArray::from_iter_values(ids)))
}

/// Passes each row that the filter selects, with all columns, to `take`.
pub(super) fn each_row(
    store: &mut BufferedStore,
    table: &'static Table,
    filter: &Filter<'_>,
    take: &mut dyn FnMut(Row<'_>) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    store.read(table, &table.column_names(), filter, &mut |rows| {
        (0..rows.num_rows()).try_for_each(|index| take(Row { rows: &rows, index }))
    })
}

/// Converts each row that the filter selects to a record, and returns the records in no particular order.
pub(super) fn records_in<R>(
    store: &mut BufferedStore,
    table: &'static Table,
    filter: &Filter<'_>,
    record: impl Fn(Row<'_>) -> Result<R, LoadError>,
) -> Result<Vec<R>, LoadError> {
    let mut records = Vec::new();
    each_row(store, table, filter, &mut |row| {
        records.push(record(row)?);
        Ok(())
    })?;
    Ok(records)
}

/// Adds a row for each record, and removes the stored row with the same key, if there is one. If several records have
/// one id, the last is used. `id` returns the id of a record, `cell` the value of a column for a record.
pub(super) fn upsert_records<'r, R, I: Eq + Hash + 'r>(
    store: &mut BufferedStore,
    table: &'static Table,
    records: &'r [R],
    id: impl Fn(&'r R) -> &'r I,
    cell: impl Fn(&str, &'r R) -> Cell<'r>,
) -> Result<(), LoadError> {
    let mut rows = RowBuilder::new(table);
    let mut seen = HashSet::new();
    for record in records.iter().rev().filter(|record| seen.insert(id(record))) {
        rows.add(|column| cell(column, record))?;
    }
    let rows = rows.finish()?;
    let mut change = TableChange::new(table);
    change.remove(&rows)?;
    change.add(rows);
    store.change(change)
}

/// Adds rows to a table.
pub(super) fn add_rows(store: &mut BufferedStore, table: &'static Table, rows: RecordBatch) -> Result<(), LoadError> {
    let mut change = TableChange::new(table);
    change.add(rows);
    store.change(change)
}

/// Copies the rows that the filter selects from one store to another, batch by batch. Returns the number of copied
/// rows.
pub(super) fn copy_rows(
    from: &mut BufferedStore,
    to: &mut BufferedStore,
    table: &'static Table,
    filter: &Filter<'_>,
) -> Result<u64, LoadError> {
    let mut copied = 0;
    from.read(table, &table.column_names(), filter, &mut |rows| {
        copied += rows.num_rows() as u64;
        add_rows(to, table, rows)
    })?;
    Ok(copied)
}

/// Defines `cell`, which returns the value of a column for a record (NULL for an unknown column), and `read_record`,
/// which reads a record from a row. Each field has its kind, its column, and if need be a second column with the same
/// value.
macro_rules! record_columns {
    ($record:ident { $($field:ident: $kind:ident $column:literal $(and $second:literal)?,)* }) => {
        fn cell<'a>(column: &str, record: &'a $record) -> Cell<'a> {
            match column {
                $($column $(| $second)? => record_columns!(@cell $kind record.$field),)*
                _ => Cell::Null,
            }
        }

        fn read_record(row: Row<'_>) -> Result<$record, LoadError> {
            Ok($record { $($field: row.$kind($column)?.into(),)* })
        }
    };
    (@cell run_id $value:expr) => { Cell::Text(&$value.0) };
    (@cell text $value:expr) => { Cell::Text(&$value) };
    (@cell integer $value:expr) => { Cell::Integer($value) };
    (@cell integer_or_null $value:expr) => { Cell::integer_or_null($value) };
    (@cell moment_ms $value:expr) => { Cell::at_ms($value) };
    (@cell moment_ms_or_null $value:expr) => { $value.map_or(Cell::Null, Cell::at_ms) };
}
pub(super) use record_columns;
