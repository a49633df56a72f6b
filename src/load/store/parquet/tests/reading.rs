//! Reads cost by their range: files and row groups outside of it are not opened, and wide columns are decoded only for
//! picked rows.

use std::fs;

use super::{rows::all_columns, *};
use crate::schema::table;

fn row(key: i64, day: i64) -> Row {
    Row { key, at_us: START_US + day * DAY_US, content: key }
}

fn day(day: i64) -> Filter<'static> {
    let start_us = START_US + day * DAY_US;
    Filter::within(Some(TimeRange { start_us, end_us: start_us + DAY_US }))
}

#[test]
fn files_and_parts_outside_the_range_are_not_opened() {
    let root = new_folder();
    let mut store = open(&root);
    for (key, day) in [(1, 3), (2, 40), (3, 70)] {
        commit(&mut store, &[added("responses", &[row(key, day)])]);
    }
    store.publish().unwrap();
    for (key, day) in [(4, 4), (5, 41), (6, 71)] {
        commit(&mut store, &[rows::change("responses", &[row(9, day)], &[row(key, day)])]);
    }
    // Files outside of the range are made unreadable.
    let spared = [
        "responses/created_month=2026-01-01/data.parquet",
        "responses/created_month=2026-03-01/data.parquet",
        ".studysync/parts/000000000004-test/0000.responses.2026-01-01.parquet",
        ".studysync/parts/000000000004-test/0000.responses.removed.parquet",
        ".studysync/parts/000000000006-test/0000.responses.2026-03-01.parquet",
        ".studysync/parts/000000000006-test/0000.responses.removed.parquet",
    ];
    for file in spared {
        fs::write(root.path().join(file), "torn").unwrap();
    }
    let february = Filter::within(Some(TimeRange { start_us: START_US + 31 * DAY_US, end_us: START_US + 59 * DAY_US }));
    assert_eq!(contents(&mut store, "responses", &["_row_hash"], &february), ["2", "5"]);
    assert_eq!(contents(&mut store, "responses", &["_row_hash"], &day(41)), ["5"]);
    let torn = store.read(table("responses").unwrap(), &["_row_hash"], &Filter::all(), &mut |_| Ok(()));
    assert!(matches!(torn, Err(LoadError::Damaged { .. })), "{torn:?}");
}

#[test]
fn row_groups_outside_the_range_are_not_read() {
    let root = new_folder();
    let mut store = open(&root);
    // One survey, so that the file is in the order of time; two row groups.
    let rows: Vec<_> = (0..125_000).map(|at| Row { key: at * 20, at_us: START_US + at, content: at }).collect();
    commit(&mut store, &[added("responses", &rows)]);
    let path = root.path().join(".studysync/parts/000000000001-test/0000.responses.2026-01-01.parquet");
    let reader = super::super::rows_reader::RowsReader::open(&path).unwrap();
    let responses = table("responses").unwrap();
    let groups = |start: i64, end: i64| {
        let range = TimeRange { start_us: START_US + start, end_us: START_US + end };
        reader.may_be_within(responses, range).groups.iter().map(|group| group.index).collect::<Vec<_>>()
    };
    assert_eq!(groups(0, 10), [0]);
    assert_eq!(groups(124_000, 124_001), [1]);
    assert_eq!(groups(122_879, 122_881), [0, 1]);
    assert_eq!(groups(125_000, 125_001), [0; 0]);
    let range = Some(TimeRange { start_us: START_US + 122_870, end_us: START_US + 122_890 });
    assert_eq!(contents(&mut store, "responses", &["_row_hash"], &Filter::within(range)).len(), 20);
}

#[test]
fn rows_come_as_asked_for_with_plain_times() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[row(1, 0), row(2, 1)])]);
    for _ in 0..2 {
        let asked = ["_synced_at", "survey_id", "created_at"];
        let expected =
            ["2026-01-01T00:00:00 | 1 | 2026-01-01T00:00:00", "2026-01-01T00:00:00 | 2 | 2026-01-02T00:00:00"];
        assert_eq!(contents(&mut store, "responses", &asked, &Filter::all()), expected);
        assert_eq!(contents(&mut store, "responses", &asked, &day(1)), expected[1..]);
        // Without columns: the number of rows.
        let mut rows = 0;
        let mut count = |batch: arrow::array::RecordBatch| {
            rows += batch.num_rows();
            Ok(())
        };
        store.read(table("responses").unwrap(), &[], &Filter::all(), &mut count).unwrap();
        assert_eq!(rows, 2);
        store.publish().unwrap();
    }
}

#[test]
fn no_keys_are_no_rows() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[row(1, 0)])]);
    let none = KeySet::new(vec!["response_group_uid"]);
    let filter = Filter::all().with_keys(&none);
    let mut batches = 0;
    let responses = table("responses").unwrap();
    store
        .read(responses, &["_row_hash"], &filter, &mut |_| {
            batches += 1;
            Ok(())
        })
        .unwrap();
    assert_eq!(batches, 0);
}

#[test]
fn files_older_than_a_column_are_read_with_nulls() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[row(1, 0), row(2, 1)])]);
    store.publish().unwrap();
    drop(store);
    let path = root.path().join("responses/created_month=2026-01-01/data.parquet");
    let without = format!(
        "COPY (SELECT * EXCLUDE (url, updated_at, selected_indexes) FROM read_parquet('{0}', hive_partitioning = false) \
         ORDER BY created_at DESC) TO '{0}.old' (FORMAT parquet, KV_METADATA {{'studysync.applied_part': '1'}})",
        path.display()
    );
    duckdb::Connection::open_in_memory().unwrap().execute_batch(&without).unwrap();
    fs::rename(format!("{}.old", path.display()), &path).unwrap();

    let mut store = open(&root);
    let columns = ["_row_hash", "url", "updated_at", "selected_indexes"];
    assert_eq!(
        contents(&mut store, "responses", &columns, &Filter::all()),
        ["1 | NULL | NULL | NULL", "2 | NULL | NULL | NULL"]
    );
    // The footer names no order, so the file is sorted before it is merged.
    commit(&mut store, &[added("responses", &[row(4, 2)])]);
    let expected = contents(&mut store, "responses", &all_columns("responses"), &Filter::all());
    store.publish().unwrap();
    assert_eq!(contents(&mut store, "responses", &all_columns("responses"), &Filter::all()), expected);
    assert_eq!(contents(&mut store, "responses", &columns, &day(2)), ["4 | NULL | NULL | [4, NULL]"]);
    let order: Vec<_> = file_rows(&path).iter().map(|row| row.split(" | ").next().unwrap().to_owned()).collect();
    assert_eq!(order, ["response_group_uid-4", "response_group_uid-1", "response_group_uid-2"]);
}
