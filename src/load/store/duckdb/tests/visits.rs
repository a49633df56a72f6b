//! A visit passes each stored row once, with the changes of the open transaction.

use std::{ops::Range, sync::Mutex};

use arrow::{
    array::{AsArray as _, RecordBatch},
    datatypes::Int64Type,
};

use super::*;
use crate::{
    load::{
        store::{Store as _, TableChange},
        tables::{Cell, fixture::rows_of},
    },
    schema::table,
};

fn surveys(ids: Range<i64>) -> RecordBatch {
    let cells: Vec<_> = ids.map(|id| [("id", Cell::Integer(id))]).collect();
    rows_of("surveys", &cells.iter().map(<[_; 1]>::as_slice).collect::<Vec<_>>())
}

fn change(removed: Range<i64>, added: Range<i64>) -> TableChange {
    let mut change = TableChange::new(table("surveys").unwrap());
    change.remove(&surveys(removed)).unwrap();
    change.add(surveys(added));
    change
}

fn visited(store: &mut DuckDbStore) -> Vec<i64> {
    let found = Mutex::new(Vec::new());
    let visit = |rows: RecordBatch| {
        found.lock().unwrap().extend_from_slice(rows.column(0).as_primitive::<Int64Type>().values());
        Ok(())
    };
    store.visit(table("surveys").unwrap(), &["id"], &visit).unwrap();
    let mut found = found.into_inner().unwrap();
    found.sort_unstable();
    found
}

#[test]
fn p9_a_visit_passes_each_row_of_the_transaction_once() {
    for threads in [1, 2] {
        let folder = TempDir::new().unwrap();
        let options = EngineOptions { threads, ..options(folder.path()) };
        let mut store = open_store(&folder.path().join("w.duckdb"), &identity("test"), &options).unwrap();
        store.write(&[change(0..0, 0..5000)]).unwrap();
        store.commit("test").unwrap();
        store.write(&[change(1000..2000, 5000..6000)]).unwrap();
        // Removes stored rows and rows of the open transaction.
        store.write(&[change(4900..5100, 0..0)]).unwrap();
        let expected: Vec<i64> = (0..1000).chain(2000..4900).chain(5100..6000).collect();
        assert_eq!(visited(&mut store), expected, "{threads} threads");
        store.commit("test").unwrap();
        assert_eq!(visited(&mut store), expected, "{threads} threads");
    }
}
