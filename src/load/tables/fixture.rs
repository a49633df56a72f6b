//! Builds rows for tests, and shows the rows of a store as text.

use std::collections::BTreeMap;

use arrow::{
    array::{Array as _, RecordBatch},
    util::display::array_value_to_string,
};

use super::cells::{Cell, RowBuilder};
use crate::{
    load::{
        contract::contract,
        store::{BufferedStore, Filter, MemoryStore, Shelf, TableChange},
    },
    schema::ColumnType,
};

/// The values of a row by column name.
pub(in crate::load) type Cells<'a> = [(&'a str, Cell<'a>)];

/// Opens a store in memory with a small buffer, so that tests cover both written and buffered rows. The shelf holds the
/// written rows.
pub(in crate::load) fn memory() -> (Shelf, BufferedStore) {
    let shelf = Shelf::default();
    let store = BufferedStore::new(Box::new(MemoryStore::open(&shelf)), 20_000);
    (shelf, store)
}

/// Builds rows of a table. Columns that a row does not name are NULL, or 0, false or an empty text where NULL is not
/// allowed.
pub(in crate::load) fn rows_of(name: &str, rows: &[&Cells<'_>]) -> RecordBatch {
    let table = contract(name).unwrap();
    let mut builder = RowBuilder::new(table);
    for row in rows {
        let given: BTreeMap<&str, Cell<'_>> = row.iter().copied().collect();
        assert!(given.keys().all(|name| table.column(name).is_some()), "{name}: {row:?}");
        builder
            .add(|name| {
                let column = table.column(name).unwrap();
                given.get(name).copied().unwrap_or(match column.column_type {
                    _ if column.nullable => Cell::Null,
                    ColumnType::Bigint => Cell::Integer(0),
                    ColumnType::Boolean => Cell::Boolean(false),
                    ColumnType::Timestamp => Cell::Moment(0),
                    _ => Cell::Text(""),
                })
            })
            .unwrap();
    }
    builder.finish().unwrap()
}

/// Adds rows to the table `name` of a store.
pub(in crate::load) fn put(store: &mut BufferedStore, name: &str, rows: &[&Cells<'_>]) {
    let mut change = TableChange::new(contract(name).unwrap());
    change.add(rows_of(name, rows));
    store.change(change).unwrap();
}

/// Returns the rows of a table as sorted texts, with ` | ` between two of `columns`.
pub(in crate::load) fn shown(store: &mut BufferedStore, name: &str, columns: &[&str]) -> Vec<String> {
    let mut shown = Vec::new();
    for rows in store.rows(contract(name).unwrap(), columns, &Filter::all()).unwrap() {
        for row in 0..rows.num_rows() {
            let cell = |column| match rows.column(column).is_null(row) {
                true => "NULL".to_owned(),
                false => array_value_to_string(rows.column(column), row).unwrap(),
            };
            shown.push((0..columns.len()).map(cell).collect::<Vec<_>>().join(" | "));
        }
    }
    shown.sort();
    shown
}
