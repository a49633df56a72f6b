//! `query` cannot open other files, has limits of time and memory, and prints each format.

use std::time::{Duration, Instant};

use crate::harness::{ALL_FLAGS, Done, Place, Service, connect, small};

fn filled() -> (Service, Place) {
    let service = Service::start(small(600, 20));
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}[warehouse]\nmemory_limit_mb = 512\n"));
    place.report(&["sync"], 0);
    (service, place)
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_query_can_open_only_the_warehouse() {
    let (_service, place) = filled();
    std::fs::write(place.path("secret.csv"), "secret\n1\n").unwrap();
    std::fs::write(place.path("secret.json"), "{\"secret\": 1}\n").unwrap();
    let outside = place.root().to_string_lossy().into_owned();
    let before = std::fs::read(place.duckdb()).unwrap();
    let files = place.files("");
    for sql in [
        // Other files, in every way that the engine offers.
        format!("SELECT * FROM read_csv_auto('{outside}/secret.csv')"),
        format!("SELECT * FROM read_json('{outside}/secret.json')"),
        format!("SELECT * FROM read_json_objects('{outside}/secret.json')"),
        format!("SELECT * FROM read_blob('{outside}/secret.csv')"),
        format!("SELECT * FROM sniff_csv('{outside}/secret.csv')"),
        format!("SELECT * FROM parquet_metadata('{outside}/secret.csv')"),
        format!("SELECT * FROM query('SELECT * FROM read_text(''{outside}/secret.csv'')')"),
        format!("SELECT * FROM query_table('{outside}/secret.csv')"),
        format!("SELECT * FROM '{outside}/state/checkpoints.sqlite'"),
        "SELECT * FROM read_text('/proc/self/environ')".to_owned(),
        "SELECT * FROM '/etc/passwd'".to_owned(),
        // The network, and extensions.
        "SELECT * FROM read_csv('https://example.invalid/a.csv')".to_owned(),
        "SELECT * FROM 's3://bucket/a.parquet'".to_owned(),
        "LOAD httpfs".to_owned(),
        "FORCE INSTALL spatial".to_owned(),
        // Statements that write.
        format!("COPY (SELECT 1) TO '{outside}/stolen.parquet'"),
        format!("EXPORT DATABASE '{outside}/stolen'"),
        "WITH gone AS (DELETE FROM responses RETURNING *) SELECT * FROM gone".to_owned(),
        "EXPLAIN ANALYZE DELETE FROM responses".to_owned(),
        "CREATE MACRO f() AS 1".to_owned(),
        "VACUUM".to_owned(),
        "PREPARE p AS DELETE FROM responses".to_owned(),
        // Statements that would lift the restrictions.
        "SET memory_limit = '100GB'".to_owned(),
        "RESET ALL".to_owned(),
        "PRAGMA enable_profiling".to_owned(),
        "PRAGMA memory_limit = '100GB'".to_owned(),
        "CALL enable_logging()".to_owned(),
        "SELECT * FROM enable_logging()".to_owned(),
        "SELECT getenv('HOME')".to_owned(),
        "SELECT 1; SELECT getenv('HOME')".to_owned(),
    ] {
        for done in [place.run(&["query", &sql]), place.run_on_parquet(&["query", &sql])] {
            assert_eq!(done.code, 1, "{sql}: {} {}", done.stdout, done.stderr);
            assert!(
                done.stdout.is_empty() && done.stderr.starts_with("error:"),
                "{sql}: {} {}",
                done.stdout,
                done.stderr
            );
        }
    }
    assert!(before == std::fs::read(place.duckdb()).unwrap(), "a query wrote to the warehouse");
    assert_eq!(place.files(""), files, "a query made a file");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p8_slow_query_limits_time_and_memory() {
    let (_service, place) = filled();
    let began = Instant::now();
    let endless = "SELECT max(hash(range)) FROM range(1_000_000_000_000)";
    let done = place.run(&["query", endless, "--time-limit", "1s"]).expect(1);
    assert!(done.stderr.contains("no answer within 1 s") && done.stderr.contains("--time-limit"), "{}", done.stderr);
    assert!(began.elapsed() < Duration::from_secs(300), "{:?}", began.elapsed());
    // A query that returns rows and then never ends is stopped as well.
    let late = "SELECT range::UBIGINT FROM range(3000) UNION ALL SELECT max(hash(range)) FROM range(1_000_000_000_000)";
    let done = place.run(&["query", late, "--time-limit", "1s", "--rows", "100000", "--format", "csv"]).expect(1);
    assert!(done.stderr.contains("no answer within"), "{}", done.stderr);
    let done = place.run(&["query", "SELECT list(range) FROM range(200_000_000)"]).expect(1);
    assert!(done.stderr.contains("memory_limit_mb"), "{}", done.stderr);
    // The engine's memory limit does not count a single value.
    let done = place.run(&["query", "SELECT length(repeat('x', 4_000_000_000))"]);
    assert!(done.code == 1 && done.stderr.contains("memory"), "{}: {}", done.code, done.stderr);
    place.run(&["query", "SELECT 1", "--time-limit", "0s"]).expect(2);
}

#[test]
fn query_writes_complete_files_and_parquet() {
    let (_service, place) = filled();
    let sql = "SELECT response_group_uid, question_id, created_at, answer_number, selected_indexes, is_skipped, answer_text \
               FROM responses ORDER BY 1, 2";
    let out = place.path("answers.parquet");
    let path = out.to_str().unwrap();
    let whole = &["query", sql, "--format", "parquet", "--rows", "100000"];
    let done = place.run(&[whole, &["--out", path][..]].concat()).expect(0);
    assert_eq!((done.stdout.as_str(), done.stderr.as_str()), ("", ""));
    let connection = connect();
    let attach = format!("ATTACH '{}' AS w (READ_ONLY)", place.duckdb().display());
    connection.execute_batch(&attach).unwrap();
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let columns = "response_group_uid, question_id, created_at::TIMESTAMP, answer_number, selected_indexes, is_skipped, answer_text";
    let difference = format!(
        "SELECT count(*) FROM ((SELECT {columns} FROM '{path}' EXCEPT ALL SELECT {columns} FROM w.responses) \
         UNION ALL (SELECT {columns} FROM w.responses EXCEPT ALL SELECT {columns} FROM '{path}'))"
    );
    assert!(count(&format!("SELECT count(*) FROM '{path}'")) > 500);
    assert_eq!(count(&difference), 0);
    let is_utc = format!(
        "SELECT count(*) FROM parquet_schema('{path}') WHERE name = 'created_at' AND logical_type LIKE '%isAdjustedToUTC=1%'"
    );
    assert_eq!(count(&is_utc), 1, "times say that they are UTC");
    // The same output through a pipe.
    let piped = place.command(whole).output().unwrap();
    assert!(piped.stdout == std::fs::read(&out).unwrap(), "the file and the pipe differ");
    // A query that fails half-way keeps the existing file.
    let late = "SELECT CASE WHEN range = 9000 THEN error('too far') ELSE '1' END FROM range(10_000)";
    for format in ["parquet", "csv", "json", "table"] {
        place.run(&["query", late, "--rows", "100000", "--format", format, "--out", path]).expect(1);
        assert!(piped.stdout == std::fs::read(&out).unwrap(), "{format}: the file was touched");
    }
    assert!(place.files("").iter().all(|path| !path.to_string_lossy().ends_with(".part")));
    let empty = place.path("empty.parquet");
    let none = format!("{sql} LIMIT 0");
    place.run(&["query", &none, "--format", "parquet", "--out", empty.to_str().unwrap()]).expect(0);
    assert_eq!(count(&format!("SELECT count(*) FROM '{}'", empty.display())), 0);
    let done = place.run(&["query", "SELECT 1", "--out", place.path("no/such/folder").to_str().unwrap()]).expect(1);
    assert!(done.stderr.contains("cannot write"), "{}", done.stderr);
}

#[test]
fn a_printed_table_escapes_control_characters() {
    let (_service, place) = filled();
    let run = |sql: &str, more: &[&str]| -> Done { place.run(&[&["query", sql], more].concat()).expect(0) };
    let sql = "SELECT chr(27) || '[2J' || chr(8238) || 'x' AS steers, NULL::BIGINT AS nothing, '日本 é' AS wide, repeat('y', 300) AS long, \
               'two' || chr(10) || 'lines' AS lines, [1, NULL] AS list";
    let table = run(sql, &[]);
    for shown in ["\\u{1b}[2J\\u{202e}x", "NULL", "日本 é", "two\\nlines", "[1, NULL]", "1 row\n"] {
        assert!(table.stdout.contains(shown), "{shown}: {}", table.stdout);
    }
    assert!(!table.stdout.contains('\u{1b}') && !table.stdout.contains(&"y".repeat(201)), "{}", table.stdout);
    assert!(
        table.stdout.ends_with("1 value cut to 200 characters; other formats have all characters\n"),
        "{}",
        table.stdout
    );
    let lines = run(sql, &["--format", "lines"]);
    assert!(lines.stdout.contains("nothing  NULL\n") && lines.stdout.contains("── row 1 ──"), "{}", lines.stdout);
    let whole = run(sql, &["--format", "json"]).json();
    assert_eq!(whole["long"], "y".repeat(300));
    assert_eq!(whole["steers"], "\u{1b}[2J\u{202e}x");
    let none = run("SELECT 1 AS one WHERE false", &[]);
    assert!(none.stdout.contains("one") && none.stdout.ends_with("0 rows\n"), "{}", none.stdout);
}

#[test]
fn query_runs_every_statement_that_only_reads() {
    let (_service, place) = filled();
    let pivot = "PIVOT (SELECT question_type, 1 AS one FROM responses) ON question_type USING sum(one)";
    for sql in [
        pivot,
        "PIVOT (SELECT 'a' AS k, 1 AS v) ON k IN ('a', 'b') USING sum(v)",
        "FROM (PIVOT (SELECT 'a' AS k, 1 AS v) ON k USING sum(v))",
        "UNPIVOT (SELECT 1 AS a, 2 AS b) ON a, b INTO NAME name VALUE value",
        "FROM (SELECT 1 AS a, 2 AS b) UNPIVOT (value FOR name IN (a, b))",
        "EXPLAIN SELECT count(*) FROM responses",
        "explain (FORMAT json) FROM responses",
        "EXPLAIN /* why */ ANALYZE SELECT 1",
        "EXPLAIN PIVOT (SELECT 'a' AS k, 1 AS v) ON k IN ('a') USING sum(v)",
        "SUMMARIZE responses",
        "SUMMARIZE SELECT 1 AS one",
        "DESCRIBE responses",
        "DESCRIBE SELECT 1 AS one",
        "SHOW TABLES",
        "SHOW ALL TABLES",
        "SHOW DATABASES",
        "SHOW responses",
        "FROM responses LIMIT 1",
        "TABLE surveys",
        "VALUES (1), (2)",
        "WITH one AS (SELECT 1 AS n) FROM one -- done",
        "(SELECT 1) UNION ALL (SELECT 2)",
    ] {
        for (format, run) in [
            ("json", Place::run as fn(&Place, &[&str]) -> Done),
            ("parquet", Place::run),
            ("csv", Place::run_on_parquet),
        ] {
            let out = place.path(&format!("rows.{format}")).display().to_string();
            let done = run(&place, &["query", sql, "--out", &out]).expect(0);
            assert!(done.stderr.is_empty() && std::fs::metadata(&out).unwrap().len() > 0, "{sql}: {}", done.stderr);
        }
    }
    let counts = place.run(&["query", pivot, "--format", "json"]).expect(0).json();
    let by_type = "SELECT count(*) FROM responses WHERE question_type = 'NPS'";
    assert_eq!(counts["NPS"].as_i64(), Some(place.duckdb_tables().count(by_type)), "{counts}");
    let plan = place.run(&["query", "EXPLAIN SELECT name FROM surveys WHERE id > 7"]).expect(0).stdout;
    assert!(plan.lines().count() > 5 && plan.contains("┌─") && !plan.contains("\\n"), "{plan}");
}

#[test]
fn no_form_of_a_read_can_write_or_call_a_function() {
    let (_service, place) = filled();
    let before = std::fs::read(place.duckdb()).unwrap();
    for sql in [
        "EXPLAIN DELETE FROM responses",
        "EXPLAIN ANALYZE DELETE FROM responses",
        "EXPLAIN ANALYZE (DELETE FROM responses)",
        "EXPLAIN (FORMAT json) DELETE FROM responses",
        "EXPLAIN (ANALYZE) INSERT INTO responses FROM responses",
        "EXPLAIN EXPLAIN ANALYZE DELETE FROM responses",
        "EXPLAIN ANALYZE COPY responses TO 'stolen.csv'",
        "EXPLAIN ANALYZE SELECT getenv('HOME')",
        "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
        "EXPLAIN SET memory_limit = '100GB'",
        "PIVOT (DELETE FROM responses RETURNING *) ON question_type USING count(*)",
        "PIVOT (SELECT getenv('HOME') AS home) ON home USING count(*)",
        "PIVOT responses ON getenv('HOME') USING count(*)",
        "PIVOT responses ON question_type IN (SELECT getenv('HOME')) USING count(*)",
        "PIVOT 'secret.csv' ON a USING count(*)",
        "UNPIVOT (SELECT getenv('HOME') AS a) ON a",
        "SUMMARIZE SELECT getenv('HOME')",
        "SUMMARIZE 'secret.csv'",
        "DESCRIBE SELECT getenv('HOME')",
        "DESCRIBE FROM read_text('/etc/passwd')",
        "SHOW TABLES; DELETE FROM responses",
        "CREATE TABLE t AS PIVOT responses ON question_type USING count(*)",
        "SHOW TABLES FROM nowhere",
    ] {
        for run in [Place::run, Place::run_on_parquet] {
            let done = run(&place, &["query", sql]).expect(1);
            assert!(
                done.stdout.is_empty() && done.stderr.starts_with("error:"),
                "{sql}: {} {}",
                done.stdout,
                done.stderr
            );
        }
    }
    assert!(before == std::fs::read(place.duckdb()).unwrap(), "a query wrote to the warehouse");
    assert!(!place.path("stolen.csv").exists());
}
