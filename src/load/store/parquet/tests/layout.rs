//! The folder belongs to one service, layout and writer, and its files are what readers expect.

use std::{fs, os::unix::fs::PermissionsExt};

use duckdb::Connection;
use parquet::{
    basic::Compression,
    file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader},
};

use super::*;
use crate::schema::{ColumnType, table, tables};

fn open_error(root: &Path, identity: &Identity, options: &ParquetOptions) -> LoadError {
    match ParquetStore::open_on(Disk::default(), root, identity, options) {
        Err(error) => error,
        Ok(_) => panic!("the folder was opened"),
    }
}

const ROW: Row = Row { key: 1, at_us: START_US, content: 1 };

#[test]
fn p10_another_service_environment_or_cut_is_refused() {
    let root = new_folder();
    let mistyped = Identity { base_url: "https://mistyped.example".into(), ..identity() };
    let mut store = ParquetStore::open_on(Disk::default(), root.path(), &mistyped, &options()).unwrap();
    commit(&mut store, &[added("sync_runs", &[ROW]), added("sync_windows", &[ROW])]);
    drop(store);
    // A folder without rows of a service may change its service, also if rows about its runs are not published yet.
    let mut store = open(&root);
    assert!(contents(&mut store, "sync_runs", &["run_id"], &Filter::all()).is_empty());
    commit(&mut store, &[added("responses", &[ROW])]);
    drop(store);
    let other = Identity { environment: "development".into(), ..identity() };
    let error = open_error(root.path(), &other, &options());
    assert!(matches!(error, LoadError::OtherIdentity { .. }), "{error}");
    assert!(error.to_string().contains("production") && error.to_string().contains("development"), "{error}");
    let error = ParquetStore::open_to_compare(root.path(), &other, &options()).err().unwrap();
    assert!(matches!(error, LoadError::OtherIdentity { .. }), "{error}");
    let by_day = ParquetOptions { partition_by: PartitionBy::Day, ..options() };
    let error = open_error(root.path(), &identity(), &by_day);
    assert!(matches!(&error, LoadError::OtherPartition { found, wanted, .. } if found == "month" && wanted == "day"));
    let mut store = open(&root);
    store.rebind(&other).unwrap();
    store.publish().unwrap();
    drop(store);
    drop(ParquetStore::open_on(Disk::default(), root.path(), &other, &options()).unwrap());
    assert!(matches!(open_error(root.path(), &identity(), &options()), LoadError::OtherIdentity { .. }));
}

#[test]
fn a_second_writer_is_refused_with_the_name_of_the_first() {
    let root = new_folder();
    let store = open(&root);
    match open_error(root.path(), &identity(), &options()) {
        LoadError::Locked { holder, .. } => {
            assert_eq!(holder, Some(format!("process {}, studysync", std::process::id())))
        }
        error => panic!("{error}"),
    }
    let error = ParquetStore::open_to_compare(root.path(), &identity(), &options()).err().unwrap();
    assert!(matches!(error, LoadError::Locked { .. }), "{error}");
    drop(store);
    let compared = ParquetStore::open_to_compare(root.path(), &identity(), &options()).unwrap();
    assert!(matches!(open_error(root.path(), &identity(), &options()), LoadError::Locked { .. }));
    drop(compared);
    open(&root);
}

#[test]
fn other_folders_and_newer_formats_are_refused() {
    let root = new_folder();
    fs::write(root.path().join("thesis.txt"), "mine").unwrap();
    let error = open_error(root.path(), &identity(), &options());
    assert!(matches!(error, LoadError::NotOurs { .. }), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing was written");
    let error = open_error(&root.path().join("a[b]"), &identity(), &options());
    assert!(matches!(&error, LoadError::NotOurs { why, .. } if why.contains("pattern")), "{error}");

    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[ROW])]);
    drop(store);
    let later = |path: &Path, version: &str| {
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(version));
        fs::write(path, text.replace(version, "\"format_version\": 9, \"new\": 0")).unwrap();
        let error = open_error(root.path(), &identity(), &options());
        assert!(matches!(&error, LoadError::Newer { found, .. } if found == "format 9"), "{error}");
        fs::write(path, text).unwrap();
    };
    later(&root.path().join(".studysync/parts/000000000001-test/part.json"), "\"format_version\": 2");
    let path = root.path().join(".studysync/warehouse.json");
    later(&path, "\"format_version\": 1");
    fs::remove_file(&path).unwrap();
    let error = open_error(root.path(), &identity(), &options());
    assert!(matches!(error, LoadError::Damaged { .. }), "{error}");
}

#[test]
fn files_that_were_lost_are_noticed() {
    for lost in [
        "sync_windows/data.parquet",
        "surveys/data.parquet",
        "responses/created_month=2026-01-01/data.parquet",
        ".studysync/parts/000000000002-test/0000.responses.2026-01-01.parquet",
    ] {
        let root = new_folder();
        let mut store = open(&root);
        commit(&mut store, &[added("responses", &[ROW])]);
        store.publish().unwrap();
        commit(&mut store, &[added("responses", &[Row { key: 2, ..ROW }])]);
        drop(store);
        fs::remove_file(root.path().join(lost)).unwrap();
        let error = open_error(root.path(), &identity(), &options());
        let name = lost.split('/').find(|name| tables().iter().any(|table| table.name == *name));
        let name = name.unwrap_or("responses");
        assert!(matches!(&error, LoadError::Damaged { why, .. } if why.contains(name)), "{lost}: {error}");
    }
}

fn footer(path: &Path) -> ParquetMetaData {
    ParquetMetaDataReader::new()
        .with_page_index_policy(PageIndexPolicy::Required)
        .parse_and_finish(&fs::File::open(path).unwrap())
        .unwrap()
}

#[test]
fn every_table_has_a_folder_and_unpartitioned_ones_a_file() {
    let root = new_folder();
    drop(open(&root));
    for table in tables() {
        let files = data_files(&root.path().join(&table.name));
        assert_eq!(files.len(), usize::from(table.partition.is_none()), "{}", table.name);
    }
}

#[test]
fn footers_describe_files_for_readers() {
    let root = new_folder();
    let mut store = open(&root);
    let rows: Vec<_> = (0..50).map(|key| Row { key, at_us: START_US + key * 1000, content: key }).collect();
    // The first file is a moved run, the second one is merged.
    for rows in rows.chunks(25) {
        commit(&mut store, &[added("responses", rows)]);
        store.publish().unwrap();
        let path = root.path().join("responses/created_month=2026-01-01/data.parquet");
        let footer = footer(&path);
        let notes = footer.file_metadata().key_value_metadata().unwrap();
        let note = |key: &str| notes.iter().find(|note| note.key == key).and_then(|note| note.value.clone());
        let part = if rows[0].key == 0 { "1" } else { "2" };
        assert_eq!(note("studysync.applied_part").as_deref(), Some(part));
        assert_eq!(note("studysync.table").as_deref(), Some("responses"));
        assert_eq!(note("studysync.environment").as_deref(), Some("production"));
        assert_eq!(note("studysync.base_url").as_deref(), Some("https://feedback.example"));
        assert_eq!(note("studysync.run_id").as_deref(), Some("run"));
        let group = footer.row_group(0);
        assert!(group.columns().iter().all(|column| matches!(column.compression(), Compression::ZSTD(_))));
        let has_dictionary = |name: &str| {
            let column = group.columns().iter().find(|column| column.column_path().string() == name).unwrap();
            column.dictionary_page_offset().is_some()
        };
        assert!(has_dictionary("answer_text") && has_dictionary("_run_id"));
        assert!(!has_dictionary("_row_hash") && !has_dictionary("created_at") && !has_dictionary("response_group_uid"));
        let sorting: Vec<i32> = group.sorting_columns().unwrap().iter().map(|column| column.column_idx).collect();
        let table = table("responses").unwrap();
        let sort: Vec<&str> = sorting.iter().map(|at| table.columns[*at as usize].name.as_str()).collect();
        assert_eq!(sort, ["survey_id", "created_at", "response_group_uid", "question_id"]);
        assert!(footer.column_index().is_some() && footer.offset_index().is_some());
        assert_types_are_for_readers(&path);
    }
}

fn assert_types_are_for_readers(path: &Path) {
    let reader = Connection::open_in_memory().unwrap();
    let described = format!("DESCRIBE FROM read_parquet('{}', hive_partitioning = false)", path.display());
    let mut statement = reader.prepare(&described).unwrap();
    let types = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
    let types: Vec<(String, String)> = types.map(Result::unwrap).collect();
    let expected = |column: &crate::schema::Column| match column.column_type {
        ColumnType::Timestamp => "TIMESTAMP WITH TIME ZONE".to_owned(),
        other => other.duckdb().to_owned(),
    };
    let columns = &table("responses").unwrap().columns;
    let expected: Vec<_> = columns.iter().map(|column| (column.name.clone(), expected(column))).collect();
    assert_eq!(types, expected);
}

#[test]
fn partitions_can_be_days_and_cover_all_times() {
    let root = new_folder();
    let by_day = ParquetOptions { partition_by: PartitionBy::Day, ..options() };
    let mut store = open_with(root.path(), &by_day);
    let year_1 = -62_135_596_800_000_000;
    let year_9999 = 253_402_300_799_000_000;
    let moments =
        [year_1, START_US + 31 * DAY_US - 1, START_US + 31 * DAY_US, year_9999, year_9999 + 1_000_000 * DAY_US];
    let rows: Vec<_> = (0..).zip(moments).map(|(key, at_us)| Row { key, at_us, content: 1 }).collect();
    commit(&mut store, &[added("responses", &rows)]);
    let last = Filter::within(Some(TimeRange { start_us: year_9999, end_us: i64::MAX }));
    assert_eq!(contents(&mut store, "responses", &["_row_hash"], &last).len(), 2);
    store.publish().unwrap();
    assert_eq!(contents(&mut store, "responses", &["_row_hash"], &last).len(), 2);
    let files = data_files(&root.path().join("responses"));
    let days: Vec<&str> =
        files.iter().map(|path| path.parent().unwrap().file_name().unwrap().to_str().unwrap()).collect();
    let expected = ["0001-01-01", "2026-01-31", "2026-02-01", "9999-12-31"].map(|day| format!("created_date={day}"));
    assert_eq!(days, expected);
    let reader = Connection::open_in_memory().unwrap();
    let sql = format!("SELECT count(*) FROM read_parquet('{}/responses/**/*.parquet')", root.path().display());
    assert_eq!(reader.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap(), 5);
}

#[test]
fn a_file_that_is_replaced_keeps_its_access() {
    let root = new_folder();
    let mut store = open(&root);
    commit(&mut store, &[added("responses", &[ROW])]);
    store.publish().unwrap();
    let path = root.path().join("responses/created_month=2026-01-01/data.parquet");
    let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode() & 0o077, 0, "a new file is for its user alone");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    commit(&mut store, &[added("responses", &[Row { key: 2, ..ROW }])]);
    store.publish().unwrap();
    assert_eq!(mode(), 0o640);
}
