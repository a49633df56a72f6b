//! `query` accepts what people type: comments, several statements, files, formats by name. An error shows the position.
//! Each command rejects flags that it does not use.

use std::{io::Write, process::Stdio};

use serde_json::{Value, json};

use crate::harness::{Done, Place, Service, connect, days_ago, small};

fn filled() -> (Service, Place) {
    let service = Service::start(small(1500, 20));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    (service, place)
}

#[test]
fn query_accepts_comments_several_statements_and_files() {
    let (_service, place) = filled();
    let csv = |arguments: &[&str]| place.run(&[&["query", "--format", "csv"], arguments].concat()).expect(0).stdout;
    assert_eq!(csv(&["-- how many?\nSELECT 1 AS one"]), "one\n1\n");
    assert_eq!(csv(&["--how many?\nSELECT 1 AS one;"]), "one\n1\n");
    assert_eq!(csv(&["/* a; b */ SELECT ';' AS one -- done;"]), "one\n;\n");
    assert_eq!(csv(&["SELECT 1 AS one; -- then\n SELECT 'a' AS two, 2 AS three;\n"]), "one\n1\n\ntwo,three\na,2\n");
    let lines = place.run(&["query", "SELECT 1 AS a; SELECT 2 AS b", "--format", "json"]).expect(0).stdout;
    assert_eq!(lines, "{\"a\":1}\n{\"b\":2}\n");
    let questions = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/questions.sql");
    let from_file = place.run(&["query", "--file", questions]).expect(0).stdout;
    let answers = from_file.lines().filter(|line| line.ends_with(" rows") || *line == "1 row").count();
    let asked = std::fs::read_to_string(questions).unwrap().lines().filter(|line| line.ends_with(';')).count();
    assert!(asked >= 10 && answers == asked, "{answers} answers to {asked}: {from_file}");
    assert_eq!(place.run(&["query", "-f", questions]).expect(0).stdout, from_file);
    for arguments in [&["query"][..], &["query", "-"], &["query", "--file", "-"]] {
        let mut piped = place.command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        piped.stdin.take().unwrap().write_all(&std::fs::read(questions).unwrap()).unwrap();
        assert_eq!(Done::from(piped.wait_with_output().unwrap()).expect(0).stdout, from_file, "{arguments:?}");
    }
    std::fs::write(place.path("bom.sql"), "\u{feff}SELECT 1 AS one").unwrap();
    assert_eq!(csv(&["--file", "bom.sql"]), "one\n1\n");
    let wide: Vec<u8> = "\u{feff}SELECT 'é' AS one".encode_utf16().flat_map(u16::to_le_bytes).collect();
    std::fs::write(place.path("wide.sql"), wide).unwrap();
    assert_eq!(csv(&["--file", "wide.sql"]), "one\né\n");

    for (arguments, code, said) in [
        (&["query", "-- nothing"][..], 2, "no statement"),
        (&["query", ""], 2, "no statement"),
        (&["query"], 2, "no statement"),
        (&["query", "SELECT 1", "--file", "bom.sql"], 2, "cannot be used with"),
        (&["query", "--file", "no-such.sql"], 1, "no-such.sql"),
        (&["query", "--formatt", "csv", "SELECT 1"], 2, "--formatt"),
        (&["query", "SELECT 1", "--formatt", "csv"], 2, "--formatt"),
        (&["query", "SELECT 1; SELECT 2", "--out", "x.parquet"], 2, "one statement"),
        (&["query", "SELECT 1; DROP TABLE responses"], 1, "only SELECT"),
        (&["query", "SELECT 1; SELECT no_such_column FROM responses"], 1, "no_such_column"),
    ] {
        let done = place.run(arguments).expect(code);
        assert!(done.stderr.contains(said) && done.stdout.is_empty(), "{arguments:?}: {}{}", done.stdout, done.stderr);
    }
}

#[test]
fn a_sql_error_shows_its_line_and_column() {
    let (_service, place) = filled();
    for (sql, line, at) in [
        ("SELECT 1;\n-- then\nSELECT no_such_column\nFROM responses", "LINE 3: SELECT no_such_column", "no_such"),
        ("SELECT 1\nFROM responses\nWHER survey_id = 1 AND 'x", "LINE 3: ", ""),
        ("SELEKT 1", "LINE 1: SELEKT 1", "SELEKT"),
        ("SELECT * FROM no_such_table", "LINE 1: SELECT * FROM no_such_table", "no_such_table"),
        ("SELECT 1,\n  count(*) FROM responses GROUP BY 1 ORDER BY nowhere", "LINE 2: ", "nowhere"),
        ("SELECT 'é' AS é, no_such_column FROM responses", "LINE 1: SELECT 'é' AS é, no_such", "no_such"),
    ] {
        let done = place.run(&["query", sql]).expect(1);
        let lines: Vec<&str> = done.stderr.lines().collect();
        let Some(shown) = lines.iter().position(|text| text.contains(line)) else { panic!("{sql}: {}", done.stderr) };
        let caret = lines[shown + 1].chars().position(|letter| letter == '^');
        let caret = caret.unwrap_or_else(|| panic!("{sql}: {}", done.stderr));
        let below: String = lines[shown].chars().skip(caret).collect();
        assert!(below.starts_with(at), "{sql}: {}", done.stderr);
    }
}

#[test]
fn file_extension_sets_the_format_and_only_tables_are_limited() {
    let (_service, place) = filled();
    let count = place.duckdb_tables().count("SELECT count(*) FROM responses");
    assert!(count > 1000);
    let sql = "SELECT response_group_uid, question_id FROM responses";
    let out = |name: &str, more: &[&str]| {
        let done = place.run(&[&["query", sql, "--out", name], more].concat()).expect(0);
        (std::fs::read(place.path(name)).unwrap(), done.stderr)
    };
    let lines = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().lines().count() as i64;
    let (csv, said) = out("a.csv", &[]);
    assert!(csv.starts_with(b"response_group_uid,question_id\n") && said.is_empty(), "{said}");
    assert_eq!(lines(&csv), count + 1);
    let (array, said) = out("a.JSON", &[]);
    let array: Vec<Value> = serde_json::from_slice(&array).unwrap();
    assert!(array.len() as i64 == count && array[0]["question_id"].is_i64() && said.is_empty(), "{said}");
    let empty = place.run(&["query", "SELECT 1 AS a WHERE false", "--format", "json-array"]).expect(0).stdout;
    assert_eq!(empty, "[]\n");
    let (_, said) = out("lines.json", &["--format", "json"]);
    assert!(said.contains("lines.json is written as json because of --format"), "{said}");
    for name in ["lines.json", "a.ndjson", "a.JSONL"] {
        let rows = if name == "lines.json" { std::fs::read(place.path(name)).unwrap() } else { out(name, &[]).0 };
        assert_eq!(lines(&rows), count, "{name}");
        let first: Value = serde_json::from_slice(rows.split(|byte| *byte == b'\n').next().unwrap()).unwrap();
        assert!(first["question_id"].is_i64());
    }
    out("a.parquet", &[]);
    let path = place.path("a.parquet");
    let read = format!("SELECT count(*) FROM '{}'", path.display());
    assert_eq!(connect().query_row(&read, [], |row| row.get::<_, i64>(0)).unwrap(), count);
    for name in ["a.txt", "noending"] {
        let (table, said) = out(name, &[]);
        assert!(
            String::from_utf8(table).unwrap().ends_with("1000 rows\n") && said.contains("first 1000 rows"),
            "{name}: {said}"
        );
    }
    // A flag wins over the file's ending, and the program reports the contradiction.
    let (rows, said) = out("b.parquet", &["--format", "csv"]);
    assert!(rows.starts_with(b"response_group_uid,") && said.contains("b.parquet") && said.contains("csv"), "{said}");
    let (rows, said) = out("b.csv", &["--rows", "3"]);
    assert!(lines(&rows) == 4 && said.contains("only the first 3 rows"), "{said}");
    let stdout = place.run(&["query", sql, "--format", "json"]).expect(0);
    assert_eq!(stdout.stdout.lines().count() as i64, count);
}

#[test]
fn a_file_for_one_result_refuses_two() {
    let (_service, place) = filled();
    for name in ["two.csv", "two.json", "two.parquet"] {
        let refused = place.run(&["query", "SELECT 1 AS a; SELECT 2 AS b, 3 AS c", "--out", name]).expect(2);
        let expected = "has the result of one statement, and these are 2: write a file for each";
        assert!(refused.stderr.contains(expected) && !place.path(name).exists(), "{name}: {}", refused.stderr);
    }
    for name in ["two.ndjson", "two.txt"] {
        place.run(&["query", "SELECT 1 AS a; SELECT 2 AS b, 3 AS c", "--out", name]).expect(0);
    }
}

#[test]
fn each_command_rejects_flags_that_it_does_not_use() {
    let (_service, place) = filled();
    for arguments in [
        &["query", "SELECT 1", "--survey", "1"][..],
        &["query", "SELECT 1", "--stream", "responses"],
        &["report", "--stream", "responses"],
        &["report", "--max-requests", "1"],
        &["replay", "--survey", "1"],
        &["erase", "--user-id", "a", "--survey", "1"],
        &["users", "pull", "--stream", "users"],
        &["users", "push", "x.csv", "--survey", "1"],
        &["check", "--stream", "themes"],
        &["status", "--deadline", "1h"],
        &["plan", "--concurrency", "2"],
    ] {
        let flag = arguments.iter().rev().find(|word| word.starts_with("--")).unwrap();
        let done = place.run(arguments).expect(2);
        assert!(done.stderr.contains(&format!("has no {flag}")), "{arguments:?}: {}", done.stderr);
    }
    let bare = |arguments: &[&str]| Done::from(place.bare(arguments).output().unwrap());
    let done = bare(&["sync", "--no-such-flag"]).expect(2);
    assert!(!done.stderr.contains("has no"), "{}", done.stderr);
    // These flags apply without a range too.
    let streams = |more: &[&str]| -> Vec<Value> {
        let status = place.run(&[&["status", "--json"], more].concat()).expect(0).json();
        status["streams"].as_array().unwrap().iter().map(|stream| stream["stream"].clone()).collect()
    };
    assert_eq!(streams(&[]).len(), 3);
    assert_eq!(streams(&["--stream", "themes"]), [json!("themes")]);
    let done = place.run(&["sync", "--stream", "surveys", "--survey", "1"]).expect(2);
    assert!(done.stderr.contains("--survey"), "{}", done.stderr);
    let done = place.run(&["verify", "--from", &days_ago(3), "--stream", "users"]).expect(2);
    assert!(done.stderr.contains("does not compare users"), "{}", done.stderr);
}

#[test]
fn every_command_accepts_every_global_flag() {
    let place = Place::at("http://127.0.0.1:1");
    let bare = |arguments: &[&str]| Done::from(place.bare(arguments).output().unwrap());
    let config = place.path("studysync.toml").to_string_lossy().into_owned();
    let overview = bare(&["--help"]).expect(0).stdout;
    let commands: Vec<&str> = overview
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .map_while(|line| line.strip_prefix("  "))
        .filter_map(|line| line.split(' ').next().filter(|name| !["", "help"].contains(name)))
        .collect();
    assert!(commands.len() > 20 && commands.contains(&"completions"), "{overview}");
    for command in commands {
        for flags in [&["--config", &config][..], &["--log-format", "json"], &["-vv"], &["-q"]] {
            let before = bare(&[flags, &[command, "--help"]].concat()).expect(0);
            let after = bare(&[&[command], flags, &["--help"]].concat()).expect(0);
            assert!(before.stdout == after.stdout && before.stdout.contains("Usage:"), "{command} {flags:?}");
        }
    }
    // Commands that read no configuration also work if the file does not exist.
    for config in [&config, "no/such/file.toml"] {
        let with = |arguments: &[&str]| bare(&[&["--config", config][..], arguments].concat()).expect(0).stdout;
        assert!(with(&["schema", "responses", "--format", "text"]).starts_with("responses: "));
        assert!(with(&["completions", "bash"]).contains("studysync"));
    }
    let folder = place.path("man");
    std::fs::create_dir(&folder).unwrap();
    bare(&["completions", "--man", folder.to_str().unwrap()]).expect(0);
    for (page, words) in
        [("studysync.1", "backfill"), ("studysync-sync.1", "Exit codes"), ("studysync-users-pull.1", "users")]
    {
        let page = std::fs::read_to_string(folder.join(page)).unwrap();
        assert!(page.contains(".TH studysync") && page.contains(words), "{page}");
    }
    bare(&["completions", "--man", "no/such/folder"]).expect(1);
    // Both commands accept the flag and fail later: at an address of another machine, and at a folder below a file.
    let folder = format!("{config}/demo");
    for command in [&["sandbox", "--listen", "192.0.2.1:1"][..], &["demo", "--responses", "10", "--folder", &folder]] {
        bare(&[command, &["--config", &config]].concat()).expect(1);
    }
}
