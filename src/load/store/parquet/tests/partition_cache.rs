//! What the partition cache holds while windows are read.

use super::{
    super::{partition_cache::CacheRequest, rows_reader::RowsReader},
    rows::{all_columns, change},
    *,
};
use crate::schema::table;

const NARROW: [&str; 4] = ["response_group_uid", "question_id", "created_at", "_row_hash"];

fn row(key: i64, day: i64) -> Row {
    Row { key, at_us: START_US + day * DAY_US, content: key }
}

fn days(first: i64, end: i64) -> TimeRange {
    TimeRange { start_us: START_US + first * DAY_US, end_us: START_US + end * DAY_US }
}

fn hashes(store: &mut ParquetStore, window: TimeRange) -> Vec<String> {
    contents(store, "responses", &NARROW, &Filter::within(Some(window)))
        .iter()
        .map(|row| row.rsplit(" | ").next().unwrap().to_owned())
        .collect()
}

fn is_cached(store: &mut ParquetStore, name: &str, columns: &[&str], range: TimeRange) -> bool {
    let table = table(name).unwrap();
    let partition = PartitionBy::Month.of(range.start_us);
    store.cache.find(CacheRequest { table, partition, range, columns }).is_some()
}

fn published(rows: &[Row]) -> (TempDir, ParquetStore) {
    let root = new_folder();
    let mut store = open(&root);
    let tables = ["responses", "visitor_snapshots", "themes", "response_choices"];
    commit(&mut store, &tables.map(|table| added(table, rows)));
    store.publish().unwrap();
    (root, store)
}

#[test]
fn p1_reading_a_window_caches_its_month_until_a_file_changes() {
    let (root, mut store) = published(&[row(1, 0), row(2, 2), row(3, 4), row(4, 40)]);
    assert_eq!(hashes(&mut store, days(0, 2)), ["1"]);
    assert!(is_cached(&mut store, "responses", &NARROW, days(0, 31)));
    // The file is not read again.
    let file = root.path().join("responses/created_month=2026-01-01/data.parquet");
    let elsewhere = root.path().join("responses.moved");
    std::fs::rename(&file, &elsewhere).unwrap();
    assert_eq!(hashes(&mut store, days(1, 5)), ["2", "3"]);
    std::fs::rename(&elsewhere, &file).unwrap();
    // Newer layers are applied to cached rows.
    commit(&mut store, &[change("responses", &[row(2, 2)], &[Row { content: 22, ..row(2, 2) }])]);
    store.write(&[change("responses", &[row(3, 4)], &[row(7, 4)])]).unwrap();
    assert_eq!(hashes(&mut store, days(1, 5)), ["22", "7"]);
    store.commit("test").unwrap();
    store.publish().unwrap();
    assert!(!is_cached(&mut store, "responses", &NARROW, days(0, 31)));
    assert_eq!(hashes(&mut store, days(1, 5)), ["22", "7"]);
}

#[test]
fn rows_of_keys_are_found_in_the_cache_and_read_from_the_file() {
    let rows: Vec<_> = (0..40).map(|key| row(key, key % 20)).collect();
    let (_root, mut store) = published(&rows);
    let responses = table("responses").unwrap();
    let keys = KeySet::of(
        vec!["response_group_uid", "question_id"],
        &[batch(responses, &[rows[3], rows[7], rows[19], rows[23]])],
    )
    .unwrap();
    let wanted = Filter::within(Some(days(3, 19))).with_keys(&keys);
    let expected = contents(&mut store, "responses", &all_columns("responses"), &wanted);
    assert_eq!(expected.len(), 3);
    assert!(!is_cached(&mut store, "responses", &NARROW, days(3, 19)), "a look for keys keeps nothing");
    hashes(&mut store, days(3, 19));
    assert!(is_cached(&mut store, "responses", &NARROW, days(0, 20)));
    assert_eq!(contents(&mut store, "responses", &all_columns("responses"), &wanted), expected);
}

#[test]
fn p8_wide_columns_and_too_many_tables_are_not_cached() {
    let (_root, mut store) = published(&[row(1, 0), row(2, 2)]);
    let window = days(0, 2);
    contents(&mut store, "responses", &all_columns("responses"), &Filter::within(Some(window)));
    assert!(!is_cached(&mut store, "responses", &["_row_hash"], window));
    for name in ["responses", "visitor_snapshots", "themes"] {
        contents(&mut store, name, &["_run_id", "_synced_at"], &Filter::within(Some(window)));
        assert!(!is_cached(&mut store, name, &["_synced_at"], window));
        contents(&mut store, name, &["_synced_at"], &Filter::within(Some(window)));
        assert!(is_cached(&mut store, name, &["_synced_at"], window));
    }
    // A further table evicts the least recently used entry.
    assert!(is_cached(&mut store, "responses", &["_synced_at"], window));
    contents(&mut store, "response_choices", &["_synced_at"], &Filter::within(Some(window)));
    assert!(is_cached(&mut store, "responses", &["_synced_at"], window));
    assert!(!is_cached(&mut store, "visitor_snapshots", &["_synced_at"], window));
}

#[test]
fn p8_a_large_month_is_cached_in_slices_of_time() {
    // 30 rows a day.
    let rows: Vec<_> = (0..900).map(|at| row(at, at / 30)).collect();
    let (root, mut store) = published(&rows);
    store.limits.cached_rows_max = 300;
    store.cache = super::super::partition_cache::PartitionCache::new(300);
    let mut looks = Vec::new();
    for day in 0..30 {
        assert_eq!(hashes(&mut store, days(day, day + 1)).len(), 30, "day {day}");
        assert!(is_cached(&mut store, "responses", &NARROW, days(day, day + 1)));
        assert!(!is_cached(&mut store, "responses", &NARROW, days(0, 30)));
        looks.push(is_cached(&mut store, "responses", &NARROW, days(day, day + 2)));
    }
    assert!(looks.iter().filter(|reaches_further| **reaches_further).count() > 15, "{looks:?}");
    // Most of the month has too many rows.
    assert_eq!(hashes(&mut store, days(0, 25)).len(), 750);
    assert!(!is_cached(&mut store, "responses", &NARROW, days(0, 25)));
    let file = root.path().join("responses/created_month=2026-01-01/data.parquet");
    let (table, range) = (table("responses").unwrap(), days(0, 25));
    let wanted = CacheRequest { table, partition: PartitionBy::Month.of(START_US), range, columns: &NARROW };
    assert!(store.cache.insert(&RowsReader::open(&file).unwrap(), wanted).unwrap().is_none());
}

#[test]
fn p8_too_many_rows_of_one_time_are_not_cached() {
    let rows: Vec<_> = (0..900).map(|at| row(at, if at < 10 { at } else { 20 })).collect();
    let (_root, mut store) = published(&rows);
    store.cache = super::super::partition_cache::PartitionCache::new(300);
    assert_eq!(hashes(&mut store, days(20, 21)).len(), 890);
    assert!(!is_cached(&mut store, "responses", &NARROW, days(20, 21)));
    assert_eq!(hashes(&mut store, days(3, 4)).len(), 1);
}

#[test]
fn a_window_in_two_months_caches_the_larger_part() {
    let (_root, mut store) = published(&[row(1, 0), row(2, 30), row(3, 31), row(4, 35)]);
    let edge = TimeRange { start_us: START_US + 31 * DAY_US - 1, end_us: START_US + 34 * DAY_US };
    assert_eq!(hashes(&mut store, edge), ["3"]);
    assert!(is_cached(&mut store, "responses", &NARROW, days(31, 36)));
    assert!(!is_cached(&mut store, "responses", &NARROW, days(0, 1)));
}
