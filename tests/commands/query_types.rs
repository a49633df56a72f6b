//! `query` writes every type of the engine in every format: either the right value, or exit code 2 with the column and
//! the cast to use.

use std::collections::BTreeMap;

use duckdb::Connection;
use serde_json::value::RawValue;

use crate::harness::{Done, Place, Service, connect, small};

/// Values besides those of `test_all_types()`, which has the least and the greatest value of each type, and NULL.
const VALUES: &[(&str, &str)] = &[
    ("small_hugeint", "(-1)::HUGEINT"),
    ("digits_38", "(-99999999999999999999999999999999999999)::HUGEINT"),
    ("summed", "sum(1) OVER ()"),
    ("hugeints", "[1::HUGEINT, NULL, (-170141183460469231731687303715884105728)::HUGEINT]"),
    ("uhugeints", "{'big': [340282366920938463463374607431768211455::UHUGEINT], 'small': 7::UHUGEINT}"),
    ("endless_date", "'infinity'::DATE"),
    ("endless", "'infinity'::TIMESTAMP"),
    ("without_begin", "'-infinity'::TIMESTAMP"),
    ("endless_s", "'infinity'::TIMESTAMP_S"),
    ("endless_ms", "'-infinity'::TIMESTAMP_MS"),
    ("endless_ns", "'infinity'::TIMESTAMP_NS"),
    ("endless_tz", "'infinity'::TIMESTAMPTZ"),
    ("bc", "'0044-03-15 (BC) 12:00:00.5'::TIMESTAMP"),
    ("first_year", "'0001-01-01'::DATE"),
    ("usual", "'2026-01-31 10:00:00.123456'::TIMESTAMP"),
    ("usual_ns", "'2026-01-31 10:00:00.123456789'::TIMESTAMP_NS"),
    ("usual_tz", "'2026-01-31 10:00:00.25+02'::TIMESTAMPTZ"),
    ("midnight", "'24:00:00'::TIME"),
    ("noon_elsewhere", "'12:00:00+05:30'::TIMETZ"),
    ("nan", "'NaN'::DOUBLE"),
    ("infinite", "'Infinity'::DOUBLE"),
    ("minus_infinite", "'-Infinity'::FLOAT"),
    ("floats", "{'list': ['NaN'::FLOAT, 1.5::FLOAT, NULL], 'one': '-Infinity'::DOUBLE}"),
    ("waits", "INTERVAL '1 month -2 days 3.5 seconds'"),
    ("waits_inside", "[{'wait': INTERVAL '90 minutes'}]"),
    ("unions", "[union_value(num := 7), union_value(num := NULL)]"),
    ("union_of_texts", "union_value(text := 'a\"b')"),
    ("by_number", "MAP {1: 'one', 2: NULL}"),
    ("by_date", "MAP {DATE '2026-01-31': 1.25}"),
    ("by_list", "MAP {[1, 2]: 'list'}"),
    ("by_struct", "MAP {{'k': 1}: [true]}"),
    ("by_bool", "MAP {true: MAP {7: 'deep'}}"),
    ("by_enum", "MAP {'good'::ENUM('good', 'bad'): 1}"),
    ("enums", "['good'::ENUM('good', 'bad'), NULL]"),
    ("bits", "['0101'::BIT]"),
    ("blobs", "['\\x00\\xFFa'::BLOB]"),
    ("uuids", "['2f1c9d6e-0b7a-4c55-9a40-1d2e3f405162'::UUID]"),
    ("decimals", "[0.00000000000000000000000000000000000001::DECIMAL(38, 38)]"),
    ("bignum", "'123456789012345678901234567890123456789012345678901234567890'::BIGNUM"),
    ("bignums", "['12345678901234567890123456789012345678901234567890'::BIGNUM]"),
    ("array", "[1, 2, NULL]::HUGEINT[3]"),
    ("nothing", "NULL"),
    ("nothings", "[NULL]"),
    ("empty", "[]"),
    ("variant", "{'a': [1, 2]}::VARIANT"),
    ("json", "'{\"a\": [1, null]}'::JSON"),
    ("quoted", "'say \"hi\", ' || chr(10) || 'you'"),
    ("deep", "[{'a': MAP {'k': [{'b': 1::HUGEINT}]}}]"),
];

/// The JSON for values that the engine cannot read back from JSON.
const JSON_VALUES: &[(&str, &str)] = &[
    ("by_list", r#"{"[1, 2]":"list"}"#),
    ("by_struct", r#"{"{'k': 1}":[true]}"#),
    ("bits", r#"["0101"]"#),
    ("blobs", r#"["00ff61"]"#),
    ("bignums", r#"["12345678901234567890123456789012345678901234567890"]"#),
];

struct Types {
    place: Place,
    _service: Service,
    engine: Connection,
}

impl Types {
    fn start() -> Types {
        let service = Service::start(small(50, 3));
        let place = Place::new(&service);
        place.report(&["sync"], 0);
        let engine = connect();
        engine.execute_batch("SET TimeZone = 'UTC'").unwrap();
        let values: Vec<String> = VALUES.iter().map(|(name, sql)| format!("{sql} AS {name}")).collect();
        // All values are in one row, because a second row would need values of the same types.
        engine
            .execute_batch(&format!(
                "CREATE TABLE all_types AS SELECT row_number() OVER () AS n, * FROM test_all_types();
                 CREATE TABLE more_types AS SELECT 1::BIGINT AS n, {}",
                values.join(", ")
            ))
            .unwrap();
        Types { place, _service: service, engine }
    }

    fn try_texts(&self, sql: &str) -> duckdb::Result<Vec<String>> {
        self.engine.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    }

    fn texts(&self, sql: &str) -> Vec<String> {
        self.try_texts(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// Returns the columns of a table that hold values.
    fn columns(&self, table: &str) -> Vec<String> {
        self.texts(&format!("SELECT column_name FROM (DESCRIBE {table}) WHERE column_name <> 'n'"))
    }

    fn write(&self, sql: &str, format: &str) -> Done {
        self.place.run(&["query", sql, "--format", format, "--out", &self.out(), "--rows", "10"])
    }

    fn out(&self) -> String {
        self.place.path("out").display().to_string()
    }

    /// Compares a column of a relation that reads the file with the column of the table. Returns the values that
    /// differ.
    fn wrong(&self, relation: &str, table: &str, column: &str) -> Vec<String> {
        let column_type =
            self.texts(&format!("SELECT column_type FROM (DESCRIBE {table}) WHERE column_name = '{column}'")).remove(0);
        let as_text = "read.v::VARCHAR = value.v::VARCHAR";
        let ways = match column_type.as_str() {
            "BLOB" => vec!["read.v::BLOB = value.v".to_owned(), "unhex(read.v::VARCHAR) = value.v".to_owned()],
            "\"NULL\"" => vec!["read.v IS NULL".to_owned()],
            // The engine cannot parse every type from a text, nor the first and last times with a zone.
            name => vec![
                format!("(TRY_CAST(read.v AS {name}) IS NOT DISTINCT FROM value.v OR {as_text})"),
                as_text.to_owned(),
                "epoch_us(read.v) = epoch_us(value.v)".to_owned(),
                "replace(read.v::VARCHAR, 'T', ' ') = make_timestamp(epoch_us(value.v))::VARCHAR".to_owned(),
            ],
        };
        let wrong = |is_same: &String| {
            let sql = format!(
                "SELECT coalesce(read.v::VARCHAR, 'NULL') || ' for ' || coalesce(value.v::VARCHAR, 'NULL')
                 FROM (SELECT n, \"{column}\" AS v FROM {table}) AS value
                 FULL JOIN ({relation}) AS read ON read.n = value.n
                 WHERE NOT coalesce(
                     CASE WHEN value.v IS NULL OR read.v IS NULL THEN value.v IS NULL AND read.v IS NULL ELSE {is_same} END, false
                 )"
            );
            self.try_texts(&sql).unwrap_or_else(|error| vec![error.to_string()])
        };
        let all: Vec<Vec<String>> = ways.iter().map(wrong).collect();
        if all.iter().any(Vec::is_empty) { Vec::new() } else { all.concat() }
    }

    fn assert_same(&self, what: &str, relation: &str, table: &str, column: &str) {
        let wrong = self.wrong(relation, table, column);
        assert!(wrong.is_empty(), "{what}: {column}: {wrong:?}");
    }

    /// Stores a column of JSON lines as the table `written`. The engine's own JSON reader would round long numbers.
    fn store_json(&self, lines: &str, column: &str) {
        self.engine.execute_batch("CREATE OR REPLACE TABLE written (n BIGINT, raw VARCHAR, text VARCHAR)").unwrap();
        for line in lines.lines() {
            let row: BTreeMap<String, Box<RawValue>> = serde_json::from_str(line).unwrap();
            let (number, raw) = (row["n"].get(), row[column].get());
            let text = serde_json::from_str::<Option<String>>(raw).unwrap_or_else(|_| Some(raw.to_owned()));
            let sql = "INSERT INTO written VALUES (?::BIGINT, ?, ?)";
            self.engine.execute(sql, duckdb::params![number, raw, text]).unwrap();
        }
    }

    /// Returns the relation that reads the CSV file.
    fn csv(&self) -> String {
        format!(
            "read_csv('{}', all_varchar = true, header = true, delim = ',', quote = '\"', escape = '\"', allow_quoted_nulls = false)",
            self.out()
        )
    }
}

/// Returns the SQL of a table's values, because the program's warehouse does not have these tables.
fn sql(table: &str, columns: &[String]) -> String {
    let names: Vec<String> = columns.iter().map(|name| format!("\"{name}\"")).collect();
    let source = match table {
        "all_types" => "(SELECT row_number() OVER () AS n, * FROM test_all_types())".to_owned(),
        _ => {
            let values: Vec<String> = VALUES.iter().map(|(name, sql)| format!("{sql} AS \"{name}\"")).collect();
            format!("(SELECT 1::BIGINT AS n, {})", values.join(", "))
        }
    };
    format!("SELECT n, {} FROM {source}", names.join(", "))
}

const TABLES: [&str; 2] = ["all_types", "more_types"];

/// Writes a table in a format, without the columns that the format refuses. Returns the written and the refused
/// columns. Asserts that the hint for each refused column works.
fn write_what_fits(types: &Types, table: &str, format: &str, relation: &str) -> (Vec<String>, Vec<String>) {
    let (mut columns, mut refused) = (types.columns(table), Vec::new());
    assert!(columns.len() > 40, "{columns:?}");
    loop {
        let done = types.write(&sql(table, &columns), format);
        if done.code == 0 {
            return (columns, refused);
        }
        let done = done.expect(2);
        let (_, rest) = done.stderr.split_once("the column ").unwrap_or_else(|| panic!("{}", done.stderr));
        let name = rest.split(" cannot be written: ").next().unwrap().to_owned();
        assert!(done.stderr.contains(&format!("CAST(\"{name}\" AS VARCHAR)")), "{}", done.stderr);
        let before = columns.len();
        columns.retain(|column| *column != name);
        assert_eq!(columns.len() + 1, before, "{}", done.stderr);
        let one = sql(table, std::slice::from_ref(&name));
        let cast = format!("SELECT n, CAST(\"{name}\" AS VARCHAR) AS \"{name}\" FROM ({one})");
        types.write(&cast, format).expect(0);
        types.assert_same("the cast", &format!("SELECT n, \"{name}\"::VARCHAR AS v FROM {relation}"), table, &name);
        refused.push(name);
    }
}

#[test]
fn p1_csv_has_the_value_of_every_type() {
    let types = Types::start();
    for table in TABLES {
        let csv = types.csv();
        let (columns, refused) = write_what_fits(&types, table, "csv", &csv);
        assert!(refused.is_empty(), "{refused:?}");
        for column in &columns {
            types.assert_same("csv", &format!("SELECT n::BIGINT AS n, \"{column}\" AS v FROM {csv}"), table, column);
        }
    }
}

#[test]
fn p1_json_has_the_value_of_every_type_or_names_a_cast() {
    let types = Types::start();
    let mut all_refused = Vec::new();
    for table in TABLES {
        let any = format!("read_json('{}', format = 'newline_delimited')", types.out());
        let (columns, refused) = write_what_fits(&types, table, "json", &any);
        all_refused.extend(refused);
        let written = std::fs::read_to_string(types.out()).unwrap();
        for column in &columns {
            types.store_json(&written, column);
            // The cell is a JSON value, or the text of a JSON string or number.
            let value = "SELECT n, nullif(raw, 'null')::JSON AS v FROM written";
            if let Some((_, expected)) = JSON_VALUES.iter().find(|(name, _)| name == column) {
                assert_eq!(types.texts("SELECT raw FROM written"), [*expected], "{column}");
            } else if !types.wrong(value, table, column).is_empty() {
                types.assert_same("json", "SELECT n, text AS v FROM written", table, column);
            }
        }
    }
    all_refused.sort();
    assert_eq!(all_refused, ["union", "union_of_texts", "unions", "variant"]);
}

#[test]
fn p1_parquet_has_the_value_of_every_type_or_names_a_cast() {
    let types = Types::start();
    let mut all_refused = Vec::new();
    for table in TABLES {
        let file = format!("read_parquet('{}')", types.out());
        let (columns, refused) = write_what_fits(&types, table, "parquet", &file);
        all_refused.extend(refused);
        for column in &columns {
            types.assert_same("parquet", &format!("SELECT n, \"{column}\" AS v FROM {file}"), table, column);
        }
    }
    let is_refused = |name: &&&str| all_refused.iter().any(|refused| refused == **name);
    let without_form = [
        "interval",
        "union",
        "time_tz",
        "bignum",
        "hugeint",
        "endless",
        "endless_date",
        "midnight",
        "waits_inside",
        "variant",
    ];
    assert_eq!(without_form.iter().filter(|name| !is_refused(name)).collect::<Vec<_>>(), [&""; 0], "{all_refused:?}");
    let with_form = ["date", "timestamp", "digits_38", "by_struct", "nan", "bits", "uuid", "enums", "deep"];
    assert_eq!(with_form.iter().filter(is_refused).collect::<Vec<_>>(), [&""; 0], "{all_refused:?}");
}

#[test]
fn p1_tables_show_the_value_of_every_type() {
    let types = Types::start();
    for table in TABLES {
        let columns = types.columns(table);
        let sql = sql(table, &columns);
        types.write(&sql, "csv").expect(0);
        let csv = types.csv();
        let shown =
            ["table", "lines"].map(|format| types.place.run(&["query", &sql, "--format", format]).expect(0).stdout);
        assert!(shown.iter().all(|shown| !shown.contains("rror")), "{shown:?}");
        for column in &columns {
            // The formats cut longer values, and write control characters as codes.
            let plain =
                format!("SELECT \"{column}\" FROM {csv} WHERE regexp_full_match(\"{column}\", '[ -~]{{1,150}}')");
            for cell in types.texts(&plain) {
                // The table format has a blank between date and time.
                let is_in =
                    |shown: &String| [cell.clone(), cell.replacen('T', " ", 1)].iter().any(|cell| shown.contains(cell));
                assert!(shown.iter().all(is_in), "{column}: {cell} is not in {shown:?}");
            }
        }
    }
}

#[test]
fn p1_fields_without_a_name_get_their_number() {
    let types = Types::start();
    let sql = "SELECT row(1, 'two') AS v";
    types.write(sql, "json").expect(0);
    assert_eq!(std::fs::read_to_string(types.out()).unwrap(), "{\"v\":{\"1\":1,\"2\":\"two\"}}\n");
    types.write(sql, "parquet").expect(0);
    assert_eq!(types.texts(&format!("SELECT v['1'] || v['2'] FROM read_parquet('{}')", types.out())), ["1two"]);
    types.write(sql, "csv").expect(0);
    assert_eq!(std::fs::read_to_string(types.out()).unwrap(), "v\n\"(1, two)\"\n");
}

#[test]
fn a_converted_result_keeps_its_order() {
    let types = Types::start();
    let sql = "SELECT range AS n, to_seconds(range) AS v FROM range(300_000) ORDER BY hash(range)";
    types.place.run(&["query", sql, "--format", "csv", "--out", &types.out()]).expect(0);
    let expected = types.texts("SELECT range::VARCHAR FROM range(300_000) ORDER BY hash(range)");
    let written = std::fs::read_to_string(types.out()).unwrap();
    let numbers: Vec<&str> = written.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert!(numbers == expected, "the order of {} rows differs", numbers.len());
}

#[test]
fn columns_of_one_name_get_different_names_in_json_and_parquet() {
    let types = Types::start();
    let sql = "SELECT 1 AS a, 2 AS a, 3 AS a_1, 4 AS \"A\", 5 AS b";
    for (format, read) in
        [("json", "read_json('OUT', format = 'newline_delimited')"), ("parquet", "read_parquet('OUT')")]
    {
        let done = types.write(sql, format).expect(0);
        assert!(done.stderr.contains("two columns have the name a: one is written as a_2"), "{}", done.stderr);
        let file = read.replace("OUT", &types.out());
        let found = types.texts(&format!("SELECT concat_ws(',', a, a_2, a_1, \"A_3\", b) FROM {file}"));
        assert_eq!(found, ["1,2,3,4,5"], "{format}");
        let names = types.texts(&format!("SELECT column_name FROM (DESCRIBE FROM {file})"));
        assert_eq!(names, ["a", "a_2", "a_1", "A_3", "b"], "{format}");
    }
    let csv = types.write(sql, "csv").expect(0);
    assert!(csv.stderr.is_empty() && std::fs::read_to_string(types.out()).unwrap().starts_with("a,a,a_1,A,b\n"));
}

#[test]
fn an_unknown_ending_of_out_is_refused_with_the_endings() {
    let place = Place::at("http://127.0.0.1:1");
    std::fs::create_dir_all(place.parquet()).unwrap();
    let query = |name: &str, more: &[&str]| {
        let out = place.path(name).display().to_string();
        let parquet = place.parquet().display().to_string();
        let arguments = [&["query", "SELECT 1 AS one", "--parquet", &parquet, "--out", &out], more].concat();
        Done::from(place.bare(&arguments).output().unwrap())
    };
    for name in ["x.xlsx", "x.XLSX", "x.tsv", "x.csv.gz", "x.pq", "x.md", "x.html"] {
        let done = query(name, &[]).expect(2);
        for part in [".csv", ".json", ".ndjson", ".jsonl", ".parquet", "--format"] {
            assert!(done.stderr.contains(part), "{name}: {}", done.stderr);
        }
        assert!(!place.path(name).exists(), "{name}");
        query(name, &["--format", "csv"]).expect(0);
        assert_eq!(std::fs::read_to_string(place.path(name)).unwrap(), "one\n1\n", "{name}");
    }
    for (name, start) in [
        ("x.csv", "one\n"),
        ("x.CSV", "one\n"),
        ("x.jsonl", "{\"one\":1}"),
        ("x.parquet", "PAR1"),
        ("x.txt", ""),
        ("x", ""),
    ] {
        query(name, &[]).expect(0);
        let written = String::from_utf8_lossy(&std::fs::read(place.path(name)).unwrap()).into_owned();
        assert!(written.starts_with(start) && written.len() > 3, "{name}: {written}");
    }
}
