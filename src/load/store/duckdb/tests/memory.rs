//! Work that the least memory is enough for.

use std::sync::Arc;

use arrow::{
    array::{ArrayRef, BooleanArray, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray, new_null_array},
    datatypes::{DataType, FieldRef},
};

use super::{super::names::qualified, *};
use crate::{
    load::{
        engine::ENGINE_BYTES_MIN,
        store::{Store as _, TableChange, with_column},
    },
    schema::{Column, Table, children_of, table},
};

fn full_rows(table: &Table, numbers: &[i64], text: &str) -> RecordBatch {
    let schema = table.full_schema();
    let column = |field: &FieldRef| -> ArrayRef {
        let numbers = || numbers.iter().copied();
        match field.data_type() {
            DataType::Utf8 => {
                Arc::new(StringArray::from_iter_values(numbers().map(|number| format!("{number}{text}"))))
            }
            DataType::Timestamp(..) => Arc::new(TimestampMicrosecondArray::from_iter_values(numbers())),
            DataType::Int64 => Arc::new(Int64Array::from_iter_values(numbers())),
            DataType::Boolean => Arc::new(BooleanArray::from_iter(numbers().map(|number| Some(number % 2 == 0)))),
            other => new_null_array(other, numbers().count()),
        }
    };
    RecordBatch::try_new(Arc::clone(&schema), schema.fields().iter().map(column).collect()).unwrap()
}

/// Rows of a table with the keys of [`full_rows`], made by the engine.
fn fill_with_keys(store: &DuckDbStore, table: &Table, rows: i64) {
    let value = |column: &Column| match column.column_type.duckdb() {
        _ if column.nullable && !table.key.contains(&column.name) => "NULL".to_owned(),
        "VARCHAR" => "range::VARCHAR".to_owned(),
        "TIMESTAMP" => "make_timestamp(range)".to_owned(),
        other => format!("range::{other}"),
    };
    let columns: Vec<String> = table.columns.iter().map(value).collect();
    let target = qualified(&table.name);
    let sql = format!("INSERT INTO {target} SELECT {} FROM range({rows})", columns.join(", "));
    store.engine.execute("fill", &sql).unwrap();
}

#[test]
fn p8_long_texts_are_written_in_time_or_beyond_the_memory() {
    let folder = TempDir::new().unwrap();
    let options = EngineOptions { memory_limit_bytes: ENGINE_BYTES_MIN, ..options(folder.path()) };
    let path = folder.path().join("w.duckdb");
    let mut store = open_store(&path, &identity("test"), &options).unwrap();
    let responses = table("responses").unwrap();
    let text_columns = 2;
    let text = "words that differ ".repeat((1 << 20) / 18);
    let mut bytes = 0;
    // A checkpoint rewrites the last rows of a table: in the end 120 MiB in a column, with 96 MiB of memory.
    for number in 0..120 {
        let mut change = TableChange::new(responses);
        let rows = full_rows(responses, &[number], "");
        let long: ArrayRef = Arc::new(StringArray::from(vec![format!("{number}{text}")]));
        let rows = with_column(&rows, "answer_text", &long).unwrap();
        change.add(with_column(&rows, "answer_json", &long).unwrap());
        store.write(&[change]).unwrap();
        bytes += text.len() * text_columns;
        assert_eq!(store.should_compact(false), bytes as u64 >= ENGINE_BYTES_MIN / 4, "{bytes}");
        if store.should_compact(false) {
            store.commit("long texts").unwrap();
            store.publish().unwrap();
            bytes = 0;
        }
    }
    store.commit("long texts").unwrap();
    store.publish().unwrap();
    let mut reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    let rows = "SELECT 1 FROM responses WHERE length(answer_text) > 1048000 AND answer_json = answer_text";
    assert_eq!(reader.query(rows, 200).unwrap().rows(), 120);
}

#[test]
fn p8_many_edits_are_committed_in_the_least_memory() {
    let folder = TempDir::new().unwrap();
    let options = EngineOptions { threads: 16, memory_limit_bytes: ENGINE_BYTES_MIN, ..options(folder.path()) };
    let path = folder.path().join("w.duckdb");
    let mut store = open_store(&path, &identity("test"), &options).unwrap();
    let (responses, history) = (table("responses").unwrap(), table("response_history").unwrap());
    let tables: Vec<&'static Table> = std::iter::once(responses).chain(children_of("responses")).collect();
    tables.iter().for_each(|table| fill_with_keys(&store, table, 1_000_000));
    // As a re-scan does: some thousand edits at a time, spread over the tables.
    let numbers: Vec<i64> = (0..1_000_000).step_by(30).collect();
    let text = format!(" edited {}", "at some length".repeat(8));
    for numbers in numbers.chunks(3000) {
        let mut edits: Vec<TableChange> = tables.iter().map(|table| TableChange::new(table)).collect();
        for edit in &mut edits {
            edit.remove(&full_rows(edit.table, numbers, "")).unwrap();
            edit.add(full_rows(edit.table, numbers, &text));
        }
        let mut ended = TableChange::new(history);
        ended.add(full_rows(history, numbers, &text));
        edits.push(ended);
        store.write(&edits).unwrap();
        if store.should_compact(false) {
            store.commit("edits").unwrap();
            store.publish().unwrap();
        }
    }
    store.commit("edits").unwrap();
    store.publish().unwrap();
    let mut reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    let mut rows = |sql: &str| reader.query(sql, 2_000_000).unwrap().rows();
    assert_eq!(rows("SELECT 1 FROM responses WHERE url LIKE '% edited %'"), numbers.len());
    assert_eq!(rows("SELECT 1 FROM responses"), 1_000_000);
}

#[test]
fn p8_deleted_rows_leave_the_file_once_they_are_many() {
    let folder = TempDir::new().unwrap();
    let options = EngineOptions { memory_limit_bytes: ENGINE_BYTES_MIN, ..options(folder.path()) };
    let mut store = open_store(&folder.path().join("w.duckdb"), &identity("test"), &options).unwrap();
    let themes = table("themes").unwrap();
    fill_with_keys(&store, themes, 600_000);
    store.checkpoint().unwrap();
    let mut remove = |numbers: &mut dyn Iterator<Item = i64>| {
        let mut change = TableChange::new(themes);
        change.remove(&full_rows(themes, &numbers.collect::<Vec<_>>(), "")).unwrap();
        store.write(&[change]).unwrap();
        store.commit("removals").unwrap();
        store.publish().unwrap();
        store.attach().unwrap();
        let stored = "SELECT estimated_size FROM duckdb_tables() WHERE table_name = 'themes'";
        let live = format!("SELECT count(*) FROM {}", qualified("themes"));
        [stored, &live].map(|sql| store.engine.integers::<1>("count", sql).unwrap()[0])
    };
    // Every fourth row, which is too few; then two of each four.
    assert_eq!(remove(&mut (0..600_000).step_by(4)), [600_000, 450_000]);
    let [stored, live] = remove(&mut (1..600_000).step_by(4));
    assert!(stored < 400_000 && live == 300_000, "{stored} rows in the file, {live} of them live");
}

#[test]
fn p2_a_rollback_or_a_kill_drops_what_was_committed_in_memory() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    let open = || open_store(&path, &identity("test"), &options(folder.path())).unwrap();
    let themes = table("themes").unwrap();
    let write = |store: &mut DuckDbStore| {
        let mut added = TableChange::new(themes);
        added.add(full_rows(themes, &[1, 2, 3], ""));
        let mut removed = TableChange::new(themes);
        // The removal ends the transaction of the added rows.
        removed.remove(&full_rows(themes, &[2], "")).unwrap();
        store.write(&[added, removed]).unwrap();
    };
    let rows = |store: &mut DuckDbStore| {
        store.attach().unwrap();
        let [rows] = store.engine.integers("count", &format!("SELECT count(*) FROM {}", qualified("themes"))).unwrap();
        rows
    };
    let mut store = open();
    write(&mut store);
    assert_eq!(rows(&mut store), 2);
    store.rollback();
    assert_eq!(rows(&mut store), 0);
    write(&mut store);
    drop(store);
    let mut store = open();
    assert_eq!(rows(&mut store), 0);
    write(&mut store);
    store.commit("rows").unwrap();
    drop(store);
    assert_eq!(rows(&mut open()), 2);
}
