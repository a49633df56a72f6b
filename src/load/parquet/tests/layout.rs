//! The folder belongs to one service, one layout and one writer, and its files are what readers expect.

use std::fs;

use duckdb::Connection;
use parquet::{
    basic::Compression,
    file::{metadata::ParquetMetaData, metadata::ParquetMetaDataReader},
};

use super::*;
use crate::schema::ColumnType;

fn open_error(root: &Path, identity: &Identity, options: &ParquetOptions) -> LoadError {
    match ParquetDestination::open(root, identity, options) {
        Err(error) => error,
        Ok(_) => panic!("the folder was opened"),
    }
}

#[test]
fn p10_another_service_environment_or_cut_is_refused() {
    let root = new_folder();
    let mistyped = Identity { base_url: "https://mistyped.example".into(), ..identity() };
    drop(ParquetDestination::open(root.path(), &mistyped, &options()).unwrap());
    drop(open(&root));
    let other = Identity { environment: "development".into(), ..identity() };
    let stored = root.path().join("responses/data.parquet");
    fs::create_dir_all(stored.parent().unwrap()).unwrap();
    fs::write(&stored, "rows").unwrap();
    let error = open_error(root.path(), &other, &options());
    assert!(matches!(error, LoadError::OtherIdentity { .. }), "{error}");
    assert!(error.to_string().contains("production") && error.to_string().contains("development"), "{error}");
    let by_day = ParquetOptions { partition_by: PartitionBy::Day, ..options() };
    let error = open_error(root.path(), &identity(), &by_day);
    assert!(matches!(&error, LoadError::OtherPartition { found, wanted, .. } if found == "month" && wanted == "day"));
    fs::remove_file(&stored).unwrap();
    open(&root);
}

#[test]
fn a_second_writer_is_refused_and_told_who_holds_the_folder() {
    let root = new_folder();
    let warehouse = open(&root);
    match open_error(root.path(), &identity(), &options()) {
        LoadError::Locked { holder, .. } => {
            assert_eq!(holder, Some(format!("process {}, studysync", std::process::id())))
        }
        error => panic!("{error}"),
    }
    drop(warehouse);
    open(&root);
}

#[test]
fn folders_that_are_not_a_warehouse_and_later_formats_are_refused() {
    let root = new_folder();
    fs::write(root.path().join("thesis.txt"), "mine").unwrap();
    let error = open_error(root.path(), &identity(), &options());
    assert!(matches!(error, LoadError::NotOurs { .. }), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1, "nothing was written");

    let root = new_folder();
    drop(open(&root));
    let path = root.path().join(".studysync/warehouse.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"format_version\": 1", "\"format_version\": 2, \"new\": 0")).unwrap();
    let error = open_error(root.path(), &identity(), &options());
    assert!(matches!(error, LoadError::Newer { .. }), "{error}");
    fs::remove_file(&path).unwrap();
    let error = open_error(root.path(), &identity(), &options());
    assert!(matches!(error, LoadError::Damaged { .. }), "{error}");
}

#[test]
fn a_lost_ledger_is_noticed() {
    let root = new_folder();
    drop(open(&root));
    fs::remove_file(root.path().join("sync_windows/data.parquet")).unwrap();
    let error = open_error(root.path(), &identity(), &options());
    assert!(matches!(&error, LoadError::Damaged { why, .. } if why.contains("sync_windows")), "{error}");
}

fn footer(path: &Path) -> ParquetMetaData {
    ParquetMetaDataReader::new()
        .with_page_index_policy(parquet::file::metadata::PageIndexPolicy::Required)
        .parse_and_finish(&fs::File::open(path).unwrap())
        .unwrap()
}

#[test]
fn every_table_has_a_folder_and_every_table_that_is_not_cut_a_file() {
    let root = new_folder();
    drop(open(&root));
    for table in crate::schema::tables() {
        let files = data_files(&root.path().join(&table.name));
        assert_eq!(files.len(), usize::from(table.partition.is_none()), "{}", table.name);
    }
}

#[test]
fn files_say_what_they_hold_and_are_laid_out_for_readers() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let mut commit = Commit::new(0);
    for key in 0..50 {
        commit.change("responses").upserts.push(answer(key, START_US + key * 1000, key));
    }
    commit.apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    let path = root.path().join("responses/created_month=2026-01-01/data.parquet");
    let footer = footer(&path);
    let notes = footer.file_metadata().key_value_metadata().unwrap();
    let note = |key: &str| notes.iter().find(|note| note.key == key).and_then(|note| note.value.clone());
    assert_eq!(note("studysync.applied_part").as_deref(), Some("1"));
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
    assert!(has_dictionary("question_type") && has_dictionary("_run_id"));
    assert!(!has_dictionary("_row_hash") && !has_dictionary("created_at") && !has_dictionary("response_group_uid"));
    let sorting: Vec<i32> = group.sorting_columns().unwrap().iter().map(|column| column.column_idx).collect();
    let table = table("responses").unwrap();
    let sort: Vec<&str> = sorting.iter().map(|at| table.columns[*at as usize].name.as_str()).collect();
    assert_eq!(sort, ["survey_id", "created_at", "response_group_uid", "question_id"]);
    assert!(footer.column_index().is_some() && footer.offset_index().is_some());

    let reader = Connection::open_in_memory().unwrap();
    let described = format!("DESCRIBE FROM read_parquet('{}', hive_partitioning = false)", path.display());
    let mut statement = reader.prepare(&described).unwrap();
    let types = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))).unwrap();
    let types: Vec<(String, String)> = types.map(Result::unwrap).collect();
    let expected = |column: &crate::schema::Column| match column.column_type {
        ColumnType::Timestamp => "TIMESTAMP WITH TIME ZONE".to_owned(),
        other => other.duckdb().to_owned(),
    };
    let expected: Vec<_> = table.columns.iter().map(|column| (column.name.clone(), expected(column))).collect();
    assert_eq!(types, expected);
    let sorted = format!(
        "SELECT list(_row_hash) = list(_row_hash ORDER BY survey_id NULLS FIRST, created_at) FROM read_parquet('{}')",
        path.display()
    );
    assert!(reader.query_row(&sorted, [], |row| row.get::<_, bool>(0)).unwrap());
}

#[test]
fn days_can_be_the_partitions_and_times_at_the_edge_of_the_calendar_have_one() {
    let root = new_folder();
    let by_day = ParquetOptions { partition_by: PartitionBy::Day, ..options() };
    let mut warehouse = ParquetDestination::open(root.path(), &identity(), &by_day).unwrap();
    let mut commit = Commit::new(0);
    let moments =
        ["'0001-01-01'", "'2026-01-31 23:59:59.999999'", "'2026-02-01'", "'9999-12-31 23:59:59'", "'12000-05-05'"];
    for (key, moment) in moments.iter().enumerate() {
        let mut row = answer(key as i64, 0, 1);
        row.retain(|(name, _)| *name != "created_at");
        row.push(("created_at", format!("TIMESTAMP {moment}")));
        commit.change("responses").upserts.push(row);
    }
    commit.apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
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
fn files_that_are_older_than_a_column_are_read_with_nulls() {
    let root = new_folder();
    let mut warehouse = open(&root);
    let mut commit = Commit::new(0);
    commit.change("responses").upserts.push([answer(1, START_US, 1), vec![("url", "'u'".into())]].concat());
    commit.apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    drop(warehouse);
    let path = root.path().join("responses/created_month=2026-01-01/data.parquet");
    let without = format!(
        "COPY (SELECT * EXCLUDE (url) FROM read_parquet('{0}', hive_partitioning = false)) TO '{0}.old' \
         (FORMAT parquet, KV_METADATA {{'studysync.applied_part': '1'}})",
        path.display()
    );
    Connection::open_in_memory().unwrap().execute_batch(&without).unwrap();
    fs::rename(format!("{}.old", path.display()), &path).unwrap();

    let mut warehouse = open(&root);
    let mut commit = Commit::new(1);
    commit.change("responses").upserts.push([answer(2, START_US, 2), vec![("url", "'v'".into())]].concat());
    commit.apply(&mut warehouse).unwrap();
    let relation = warehouse.targets().relation(table("responses").unwrap(), None).unwrap();
    let urls = "SELECT list(url ORDER BY _row_hash)::VARCHAR FROM";
    let read = |connection: &Connection, from: &str| {
        connection.query_row(&format!("{urls} {from}"), [], |row| row.get::<_, String>(0)).unwrap()
    };
    assert_eq!(read(warehouse.engine.connection(), &relation), "[NULL, v]");
    warehouse.publish().unwrap();
    let tree = format!("read_parquet('{}')", path.display());
    assert_eq!(read(&Connection::open_in_memory().unwrap(), &tree), "[NULL, v]");
}

#[test]
fn a_path_may_hold_quotes_but_no_patterns() {
    let folder = new_folder();
    let odd = folder.path().join("o'hara \"1\" ü");
    let mut warehouse = ParquetDestination::open(&odd, &identity(), &options()).unwrap();
    let mut scenario = Scenario::new(5, 10);
    let (first, second) = (scenario.next(), scenario.next());
    first.apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    second.apply(&mut warehouse).unwrap();
    warehouse.publish().unwrap();
    assert!(!data_files(&odd.join("responses")).is_empty());
    assert_eq!(warehouse.ledger().unwrap().len(), 2);
    let error = open_error(&folder.path().join("a[b]"), &identity(), &options());
    assert!(matches!(&error, LoadError::NotOurs { why, .. } if why.contains("pattern")), "{error}");
}
