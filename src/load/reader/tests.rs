//! Which statements a reader runs, and which it refuses.

use std::path::PathBuf;

use arrow::{array::AsArray, datatypes::Int64Type, util::pretty::pretty_format_batches};
use duckdb::Connection;
use tempfile::TempDir;

use super::*;
use crate::{
    load::{conformance::opened_duckdb, table_views::PARQUET_FILE},
    model::WarehouseKind,
    schema::{self, quote_identifier},
};

fn warehouse() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("w.duckdb");
    opened_duckdb(&path).publish().unwrap();
    (folder, path)
}

fn text(result: &QueryResult) -> String {
    pretty_format_batches(&result.batches).unwrap().to_string()
}

#[test]
fn every_kind_of_question_can_be_asked() {
    let (_folder, path) = warehouse();
    let mut reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    for sql in [
        "SELECT count(*) FROM responses",
        "FROM responses",
        "-- how many?\nSELECT 1;",
        "WITH RECURSIVE t(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM t WHERE x < 5) SELECT * FROM t",
        "VALUES (1), (2)",
        "DESCRIBE responses",
        "SHOW TABLES",
        "SUMMARIZE responses",
        "SELECT table_name, comment FROM duckdb_tables()",
        "SELECT survey_id, unnest(selected_indexes) FROM responses ORDER BY ALL LIMIT 3",
        "SELECT row_number() OVER (PARTITION BY survey_id ORDER BY created_at) FROM responses QUALIFY true",
    ] {
        if let Err(error) = reader.query(sql, 10) {
            panic!("{sql}: {error:?}");
        }
    }
}

#[test]
fn nothing_can_be_changed_and_nothing_else_can_be_read() {
    let (folder, path) = warehouse();
    let before = std::fs::read(&path).unwrap();
    let secret = folder.path().join("secret.csv");
    std::fs::write(&secret, "a,b\n1,2\n").unwrap();
    let secret = secret.display();
    let mut reader = Reader::open(&WarehouseKind::DuckDb.at(&path)).unwrap();
    for sql in [
        "DELETE FROM responses".to_owned(),
        "INSERT INTO surveys (id) VALUES (1)".to_owned(),
        "DROP TABLE responses".to_owned(),
        "CREATE TABLE t AS SELECT 1".to_owned(),
        "CREATE TABLE memory.main.t AS SELECT 1".to_owned(),
        "CREATE TEMP TABLE t AS SELECT 1".to_owned(),
        "SELECT 1; DROP TABLE responses".to_owned(),
        "SELECT 1; SELECT 2".to_owned(),
        "SET threads = 1".to_owned(),
        "SET lock_configuration = false".to_owned(),
        "RESET enable_external_access".to_owned(),
        "PRAGMA database_list".to_owned(),
        "CALL pragma_version()".to_owned(),
        "INSTALL httpfs".to_owned(),
        "LOAD icu".to_owned(),
        "BEGIN".to_owned(),
        "CHECKPOINT".to_owned(),
        "DETACH warehouse".to_owned(),
        "USE memory".to_owned(),
        format!("ATTACH '{secret}.db'"),
        format!("COPY responses TO '{secret}.out'"),
        format!("SELECT * FROM read_csv('{secret}')"),
        format!("SELECT * FROM '{secret}'"),
        format!("SELECT * FROM read_text('{secret}')"),
        format!("SELECT * FROM glob('{}/*')", folder.path().display()),
        "".to_owned(),
        "SELEC 1".to_owned(),
    ] {
        assert!(reader.query(&sql, 10).is_err(), "{sql}");
    }
    drop(reader);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no file was made");
}

#[test]
fn p8_a_query_without_enough_memory_runs_again_with_one_thread() {
    let (_folder, path) = warehouse();
    let limits = ReaderLimits::new(64 << 20);
    let mut reader = Reader::open_limited(&WarehouseKind::DuckDb.at(&path), limits).unwrap();
    let threads = |reader: &mut Reader| {
        let result =
            reader.query("SELECT current_setting('threads')::BIGINT AS n, count(*) FROM responses", 1).unwrap();
        result.batches[0].column(0).as_primitive::<Int64Type>().value(0)
    };
    let at_first = threads(&mut reader);
    let too_much =
        "SELECT sum(length(text)) FROM (SELECT list(repeat('x', 1000000) || range) AS text FROM range(1000))";
    let error = reader.query(too_much, 1).unwrap_err();
    assert!(error.is_out_of_memory(), "{error:?}");
    assert!(threads(&mut reader) == 1 && at_first >= 1);
    assert!(reader.query("SELECT 1; SELECT 2", 1).is_err() && reader.query("SET threads = 4", 1).is_err());
}

#[test]
fn p8_no_more_rows_than_asked_for_are_kept() {
    let mut reader = Reader::open(&WarehouseLocations::new()).unwrap();
    // The results do not fit into memory: they are streamed.
    let endless = "SELECT range AS at, repeat('x', 1000) AS text FROM range(10_000_000_000)";
    let result = reader.query(endless, 3000).unwrap();
    assert!(result.truncated);
    assert_eq!(result.rows(), 3000);
    let last = result.batches.last().unwrap();
    assert_eq!(last.column(0).as_primitive::<Int64Type>().value(last.num_rows() - 1), 2999);
    let exact = reader.query("SELECT * FROM range(5000)", 5000).unwrap();
    assert!(!exact.truncated);
    assert_eq!(exact.rows(), 5000);
    let none = reader.query("SELECT 1 AS one", 0).unwrap();
    assert!(none.truncated && none.rows() == 0);
    assert_eq!(none.schema.field(0).name(), "one");
    let empty = reader.query("SELECT 1 AS one WHERE false", 10).unwrap();
    assert!(!empty.truncated && empty.schema.fields().len() == 1);
}

#[test]
fn an_error_in_the_middle_of_a_result_is_an_error() {
    let mut reader = Reader::open(&WarehouseLocations::new()).unwrap();
    let late = "SELECT CASE WHEN range = 9000 THEN error('too far') ELSE '1' END FROM range(10_000)";
    assert!(reader.query(late, 100_000).is_err());
    assert_eq!(reader.query("SELECT 1", 1).unwrap().rows(), 1, "and the reader goes on");
}

#[test]
fn p7_times_are_utc() {
    let mut reader = Reader::open(&WarehouseLocations::new()).unwrap();
    let sql =
        "SELECT (TIMESTAMPTZ '2026-01-01 00:00:00+00')::VARCHAR AS zoned, TIMESTAMP '2026-01-01 00:00:00' AS plain,
        (TIMESTAMPTZ '2026-01-01 00:00:00+00')::TIMESTAMP AS cast";
    let shown = text(&reader.query(sql, 1).unwrap());
    assert!(shown.contains("| 2026-01-01 00:00:00+00 | 2026-01-01T00:00:00 | 2026-01-01T00:00:00 |"), "{shown}");
}

#[test]
fn a_parquet_tree_reads_like_the_tables() {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("tree");
    let month = root.join("responses/created_month=2026-03-01");
    std::fs::create_dir_all(&month).unwrap();
    let table = schema::table("responses").unwrap();
    let row: Vec<String> = table
        .columns
        .iter()
        .map(|column| {
            let value = match (column.column_type, column.nullable) {
                (schema::ColumnType::Timestamp, _) => "TIMESTAMPTZ '2026-03-01 12:00:00+00'".to_owned(),
                (other, true) => format!("NULL::{}", other.duckdb()),
                (other, false) => format!("(1)::{}", other.duckdb()),
            };
            format!("{value} AS {}", quote_identifier(&column.name))
        })
        .collect();
    let writer = Connection::open_in_memory().unwrap();
    pin_to_utc(&writer).unwrap();
    let write =
        format!("COPY (SELECT {}) TO '{}' (FORMAT parquet)", row.join(", "), month.join(PARQUET_FILE).display());
    writer.execute_batch(&write).unwrap();

    let mut reader = Reader::open(&WarehouseKind::Parquet.at(&root)).unwrap();
    let shown = text(
        &reader
            .query("SELECT response_group_uid, created_at, date_trunc('day', created_at) FROM responses", 10)
            .unwrap(),
    );
    assert!(shown.contains("| 1                  | 2026-03-01T12:00:00 | 2026-03-01T00:00:00"), "{shown}");
    assert_eq!(reader.query("FROM surveys", 10).unwrap().rows(), 0, "a table without files is empty");
    let names: Vec<String> =
        reader.query("FROM responses", 1).unwrap().schema.fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, table.columns.iter().map(|column| column.name.clone()).collect::<Vec<_>>());

    let beside = folder.path().join("beside.parquet");
    writer.execute_batch(&format!("COPY (SELECT 1) TO '{}' (FORMAT parquet)", beside.display())).unwrap();
    assert!(reader.query(&format!("FROM '{}'", beside.display()), 10).is_err());
    assert!(reader.query(&format!("FROM '{}/../beside.parquet'", root.display()), 10).is_err());
}

#[test]
fn zone_aware_times_are_handed_over_as_utc() {
    let mut reader = Reader::open(&WarehouseLocations::new()).unwrap();
    let shown = text(
        &reader.query("SELECT TIMESTAMPTZ '2026-01-01 01:00:00+01' AS zoned, NULL::TIMESTAMPTZ AS none", 1).unwrap(),
    );
    assert!(shown.contains("| 2026-01-01T00:00:00 |"), "{shown}");
}

/// Table functions of the engine without side effects. A function that is neither here nor refused is new: decide which
/// it is.
const ANSWERING: &[&str] = &[
    "all_profiling_output",
    "check_peg_parser",
    "collations",
    "database_list",
    "database_size",
    "extension_versions",
    "functions",
    "generate_series",
    "glob",
    "histogram",
    "histogram_values",
    "icu_calendar_names",
    "json_each",
    "json_tree",
    "metadata_info",
    "pg_timezone_names",
    "platform",
    "query_table",
    "range",
    "repeat",
    "repeat_row",
    "seq_scan",
    "show",
    "show_databases",
    "show_tables",
    "show_tables_expanded",
    "sniff_csv",
    "sql_auto_complete",
    "storage_info",
    "summary",
    "table_info",
    "test_all_types",
    "test_vector_types",
    "unnest",
    "user_agent",
    "version",
    "which_secret",
];
/// Prefixes of more such functions.
const ANSWERING_BEGINNINGS: &[&str] = &["duckdb_", "parquet_", "pragma_", "read_"];

#[test]
fn every_table_function_is_known_or_refused() {
    let mut reader = Reader::open(&WarehouseLocations::new()).unwrap();
    let sql = "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type IN ('table', 'pragma')";
    let result = reader.query(sql, 10_000).unwrap();
    assert!(result.rows() > 50);
    for batch in &result.batches {
        for name in batch.column(0).as_string::<i32>().iter().flatten() {
            let answers = ANSWERING.contains(&name) || ANSWERING_BEGINNINGS.iter().any(|begin| name.starts_with(begin));
            assert_ne!(answers, seal::is_refused(name), "{name}");
        }
    }
    for sql in [
        "SELECT * FROM enable_logging(storage := 'file', storage_path := '/tmp')",
        "SELECT * FROM (SELECT * FROM Force_Checkpoint())",
        "WITH t AS (SELECT write_log('x')) FROM t",
        "SELECT * FROM query('SELECT 1')",
        "SELECT (SELECT count(*) FROM disable_optimizer())",
    ] {
        let refusal = format!("{:?}", reader.query(sql, 1).unwrap_err());
        assert!(refusal.contains("is not for a question"), "{sql}: {refusal}");
    }
}

/// Returns the number of views that exist in the catalog of the Parquet files.
fn views_over_parquet(reader: &Reader) -> i64 {
    let sql = "SELECT count(*) FROM duckdb_views() WHERE database_name = 'parquet' AND NOT internal";
    reader.connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn a_query_creates_only_the_views_over_parquet_that_it_names() {
    let folder = TempDir::new().unwrap();
    let mut reader = Reader::open(&WarehouseKind::Parquet.at(folder.path())).unwrap();
    for (sql, exist) in
        [("SELECT 1", 0), ("FROM responses", 1), ("FROM surveys, Responses", 2), ("FROM current_responses", 3)]
    {
        reader.query(sql, 10).unwrap();
        assert_eq!(views_over_parquet(&reader), exist, "{sql}");
    }
}

#[test]
fn every_spelling_of_a_view_over_parquet_finds_it() {
    let (_duckdb_folder, duckdb) = warehouse();
    let folder = TempDir::new().unwrap();
    let all = (schema::tables().len()
        + schema::views().iter().filter(|view| view.kind == schema::ViewKind::View).count()) as i64;
    let parquet = WarehouseKind::Parquet.at(folder.path());
    let both = parquet.clone().into_iter().chain(WarehouseKind::DuckDb.at(duckdb)).collect();
    for paths in [parquet, both] {
        for sql in [
            "SELECT count(*) FROM parquet.figures",
            "SELECT count(*) FROM PARQUET.main.\"Figures\"",
            "SELECT count(*) FROM query_table('parquet.figures')",
            "SELECT count(*) FROM query_table('par' || 'quet.fig' || 'ures')",
        ] {
            let mut reader = Reader::open(&paths).unwrap();
            assert_eq!(reader.query(sql, 10).unwrap().rows(), 1, "{sql}");
            assert_eq!(reader.query(sql, 10).unwrap().rows(), 1, "{sql}");
        }
        for sql in ["SHOW ALL TABLES", "SELECT * FROM duckdb_views()", "SELECT * FROM information_schema.tables"] {
            let mut reader = Reader::open(&paths).unwrap();
            assert!(reader.query(sql, 10_000).unwrap().rows() as i64 >= all, "{sql}");
            assert_eq!(views_over_parquet(&reader), all, "{sql}");
        }
    }
    let mut reader = Reader::open(&WarehouseKind::Parquet.at(folder.path())).unwrap();
    let error = reader.query("FROM figure", 10).unwrap_err();
    assert!(format!("{error:?}").contains("Did you mean \\\"figures\\\"?"), "{error:?}");
}
