//! What commands print: JSON with the documented keys, only data on stdout, and SQL that is read-only.

use std::{
    io::Read,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{Done, KEY, NOW_MS, Place, Service, days_ago, small};

/// Returns the keys of an object, in order.
fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap_or_else(|| panic!("{value} is no object")).keys().map(String::as_str).collect()
}

/// The keys of a run's JSON. `notes` is there because the sandbox's clock is months behind this machine's.
const RUN_KEYS: [&str; 13] = [
    "run_id",
    "command",
    "outcome",
    "exit_code",
    "started_at",
    "finished_at",
    "notes",
    "streams",
    "requests",
    "time_ms",
    "drift",
    "drift_unlisted",
    "peak_rss_bytes",
];
const STREAM_KEYS: [&str; 13] = [
    "windows",
    "pages",
    "rows_read",
    "inserted",
    "updated",
    "filled_in",
    "unchanged",
    "soft_deleted",
    "vanished",
    "withheld",
    "rejected",
    "collisions",
    "outside_window",
];
const TIME_KEYS: [&str; 7] = ["wall", "network", "told_to_wait", "chose_to_wait", "parse", "write", "idle"];

fn sorted<const N: usize>(mut names: [&str; N]) -> Vec<&str> {
    names.sort_unstable();
    names.to_vec()
}

fn sorted_keys(value: &Value) -> Vec<&str> {
    let mut keys = keys(value);
    keys.sort_unstable();
    keys
}

#[test]
fn run_json_has_the_documented_keys_and_consistent_times() {
    let service = Service::start(small(1500, 20));
    let place = Place::new(&service);
    let mut requests = 0;
    for arguments in [&["sync"][..], &["backfill", "--from", &days_ago(40)], &["sync"]] {
        let report = place.report(arguments, 0);
        requests += report["requests"]["total"].as_u64().unwrap();
        assert_eq!(sorted_keys(&report), sorted(RUN_KEYS));
        assert_eq!(report["command"], arguments[0]);
        assert_eq!((&report["outcome"], &report["exit_code"]), (&json!("done"), &json!(0)));
        assert_eq!(sorted_keys(&report["streams"]), ["responses", "surveys", "themes"]);
        for stream in report["streams"].as_object().unwrap().values() {
            assert_eq!(sorted_keys(stream), sorted(STREAM_KEYS));
            let count = |name: &str| stream[name].as_u64().unwrap();
            assert!(
                count("rows_read") >= count("inserted") + count("updated") + count("filled_in") + count("unchanged"),
                "{stream}"
            );
        }
        assert_eq!(sorted_keys(&report["requests"]), ["by_status", "bytes", "ties_probed", "total"]);
        let by_status: u64 =
            report["requests"]["by_status"].as_object().unwrap().values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(by_status, report["requests"]["total"], "{report}");
        assert_eq!(sorted_keys(&report["time_ms"]), sorted(TIME_KEYS));
        let ms = |name: &str| report["time_ms"][name].as_u64().unwrap();
        let parts: u64 = TIME_KEYS[1..].iter().map(|name| ms(name)).sum();
        assert!(ms("wall").abs_diff(parts) < TIME_KEYS.len() as u64, "the parts make {parts}: {report}");
        assert!(report["peak_rss_bytes"].as_u64().unwrap() > 10_000_000);
        for time in ["started_at", "finished_at"] {
            chrono::DateTime::parse_from_rfc3339(report[time].as_str().unwrap()).unwrap();
        }
    }
    assert_eq!(service.log().len() as u64, requests, "the runs tell of every request");
}

#[test]
fn plan_sends_no_request_and_lists_the_coming_work() {
    let service = Service::start(small(1500, 20));
    let place = Place::new(&service);
    for arguments in
        [&["plan", "--json"][..], &["plan", "--from", &days_ago(20), "--to", &NOW_MS.to_string(), "--json"]]
    {
        let plan = place.run(arguments).expect(0).json();
        let keys = ["command", "disks", "now", "reasons", "requests_per_sec", "streams", "ties", "total", "under_way"];
        assert_eq!(sorted_keys(&plan), keys);
        assert_eq!(sorted_keys(&plan["total"]), ["is_partial", "minutes", "requests", "rows", "windows"]);
        assert_eq!(plan["streams"].as_array().unwrap().len(), 3);
        for stream in plan["streams"].as_array().unwrap() {
            assert_eq!(sorted_keys(stream), ["minutes", "requests", "rows", "stream", "survey_id", "windows"]);
            for window in stream["windows"].as_array().unwrap() {
                assert_eq!(sorted_keys(window), ["reason", "requests", "rows", "window"]);
            }
        }
    }
    place.run(&["plan"]).expect(0);
    assert_eq!(service.log(), [], "plan asked the service");
    assert_eq!(place.files("state"), Vec::<std::path::PathBuf>::new(), "plan wrote checkpoints");

    place.report(&["backfill", "--from", &days_ago(20)], 0);
    service.clear_log();
    let plan = place
        .run(&["plan", "--from", &days_ago(20), "--to", &(NOW_MS - 86_400_000).to_string(), "--json"])
        .expect(0)
        .json();
    for stream in plan["streams"].as_array().unwrap() {
        assert_eq!(stream["windows"], json!([]), "all of it is covered");
    }
    let plan = place.run(&["plan", "--json"]).expect(0).json();
    let responses = plan["streams"].as_array().unwrap().iter().find(|stream| stream["stream"] == "responses").unwrap();
    assert!(responses["rows"].as_u64().unwrap() > 50, "the last three days are looked at again: {responses}");
    assert_eq!(service.log(), []);
}

#[test]
fn status_shows_coverage_lag_and_runs_without_a_request() {
    let service = Service::start(small(600, 20));
    let place = Place::new(&service);
    assert_eq!(place.run(&["status", "--json"]).expect(0).json(), json!({}));
    place.report(&["backfill", "--from", &days_ago(20)], 0);
    service.clear_log();
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(
        sorted_keys(&status),
        [
            "base_url",
            "clock_in_doubt",
            "clock_skew_ms",
            "drift",
            "drift_unlisted",
            "environment",
            "healthy",
            "proofs",
            "reasons",
            "requests_per_sec",
            "running",
            "runs",
            "state",
            "streams",
            "traits",
            "under_way",
            "untrusted"
        ]
    );
    assert_eq!(status["base_url"], service.base_url());
    assert_eq!(status["under_way"], json!([]));
    let responses =
        status["streams"].as_array().unwrap().iter().find(|stream| stream["stream"] == "responses").unwrap();
    assert_eq!(
        sorted_keys(responses),
        ["complete", "in_doubt", "lag_secs", "missing", "oldest_scan", "rows", "stream", "survey_id"]
    );
    assert_eq!(responses["complete"].as_array().unwrap().len(), 1, "{responses}");
    assert_eq!(responses["missing"], json!([]));
    let rows = place.duckdb_tables().count("SELECT count(*) FROM responses");
    assert!(responses["rows"].as_i64().unwrap() >= rows, "{responses}");
    assert_eq!(sorted_keys(&status["runs"][0]), ["command", "exit_code", "outcome", "run_id", "secs", "started"]);
    place.run(&["status"]).expect(0);
    assert_eq!(service.log(), []);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_query_prints_three_formats_and_is_read_only() {
    let service = Service::start(small(600, 20));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let before = std::fs::read(place.duckdb()).unwrap();
    let sql = "SELECT question_type, count(*) AS answers, NULL AS nothing FROM responses GROUP BY 1 ORDER BY 1";
    let wanted = place.duckdb_tables().rows_of(sql);
    for run in [Place::run, Place::run_on_parquet] {
        let run = |arguments: &[&str]| run(&place, arguments);
        let csv = run(&["query", sql, "--format", "csv"]).expect(0);
        let mut lines = csv.stdout.lines();
        assert_eq!(lines.next(), Some("question_type,answers,nothing"));
        let rows: Vec<String> = wanted
            .iter()
            .map(|row| format!("{},{},", row[0].as_deref().unwrap(), row[1].as_deref().unwrap()))
            .collect();
        assert_eq!(lines.collect::<Vec<_>>(), rows);
        let json = run(&["query", sql, "--format", "json"]).expect(0);
        for (line, row) in json.stdout.lines().zip(&wanted) {
            let line: Value = serde_json::from_str(line).unwrap();
            let answers: i64 = row[1].as_deref().unwrap().parse().unwrap();
            assert_eq!(line, json!({"question_type": row[0], "answers": answers, "nothing": null}));
        }
        assert_eq!(json.stdout.lines().count(), wanted.len());
        let table = run(&["query", sql]).expect(0);
        assert!(table.stdout.contains("question_type") && table.stdout.contains(&format!("{} rows", wanted.len())));
        let first = run(&["query", "SELECT * FROM responses", "--rows", "3", "--format", "json"]).expect(0);
        assert_eq!(first.stdout.lines().count(), 3);
        assert!(first.stderr.contains("only the first 3 rows"), "{}", first.stderr);
    }
    std::fs::write(place.path("secret.csv"), "secret\n1\n").unwrap();
    let outside = place.path("secret.csv").to_string_lossy().into_owned();
    for sql in [
        "DELETE FROM responses",
        "DROP TABLE responses",
        "CREATE TABLE t AS SELECT 1",
        "UPDATE responses SET answer_text = 'x'",
        "SELECT 1; DELETE FROM responses",
        "ATTACH 'other.duckdb'",
        "COPY responses TO 'stolen.csv'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "PRAGMA database_list",
        &format!("SELECT * FROM read_csv('{outside}')"),
        &format!("SELECT * FROM '{outside}'"),
        "SELECT * FROM read_text('/etc/hostname')",
        "SELECT * FROM glob('/etc/*')",
        "SELECT getenv('STUDYSYNC_API_KEY')",
        "SELECT no_such_column FROM responses",
        "SELEKT 1",
    ] {
        for done in [place.run(&["query", sql]), place.run_on_parquet(&["query", sql])] {
            assert_eq!(done.code, 1, "{sql}: {} {}", done.stdout, done.stderr);
            assert!(done.stdout.is_empty() && done.stderr.contains("error:"), "{sql}: {}", done.stderr);
            assert!(!done.stderr.contains(KEY), "{sql}");
        }
    }
    assert!(before == std::fs::read(place.duckdb()).unwrap(), "a query wrote to the warehouse");
    assert!(!place.path("stolen.csv").exists() && !place.path("other.duckdb").exists());
}

#[test]
fn check_and_sync_accept_the_file_that_init_writes() {
    let service = Service::start(small(300, 20));
    let place = Place::new(&service).without_config();
    let bare = |arguments: &[&str]| Done::from(place.bare(arguments).output().unwrap());
    let done = bare(&["init", "--full"]).expect(0);
    assert!(done.stdout.contains("studysync.toml"), "{}", done.stdout);
    bare(&["init"]).expect(2);
    let path = place.path("studysync.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("https://api.example.com", &service.base_url())).unwrap();
    bare(&["check"]).expect(0);
    bare(&["sync", "--json"]).expect(0).json();
    let counted = bare(&["query", "SELECT count(*) AS answers FROM responses", "--format", "csv"]).expect(0);
    assert!(counted.stdout.lines().nth(1).unwrap().parse::<u64>().unwrap() > 250, "{}", counted.stdout);
    // Every key in the template is known, and its default is valid.
    let is_shown_key = |line: &&str| {
        let key = line.strip_prefix("# ").and_then(|line| line.split_once(" = ")).map(|(key, _)| key);
        key.is_some_and(|key| key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
    };
    let written = std::fs::read_to_string(&path).unwrap();
    let shown: Vec<&str> = written.lines().filter(is_shown_key).collect();
    assert!(shown.len() > 10, "{shown:?}");
    for line in shown {
        // A list of many values has a line for each of them.
        let (_, rest) = written.split_once(line).unwrap();
        let block = if line.ends_with('[') { rest.split_inclusive("# ]").next().unwrap() } else { "" };
        let setting = format!("{line}{block}");
        let mut text = written.replacen(&setting, &setting.replace("\n# ", "\n")[2..], 1);
        if line.starts_with("# flags") {
            // The template already sets this key to fewer values.
            text = text.replace("flags = [\"with_deleted_responses\"]\n", "");
        }
        std::fs::write(&path, text).unwrap();
        let done = bare(&["plan"]);
        assert_eq!(done.code, 0, "{line}: {}", done.stderr);
    }
}

#[test]
fn stdout_carries_only_data_at_every_log_level() {
    let service = Service::start(small(600, 20));
    let place = Place::new(&service);
    for verbosity in [&[][..], &["-v"], &["-vv"], &["-q"], &["-vv", "--log-format", "json"]] {
        let done = place.run(&[verbosity, &["sync", "--json"]].concat()).expect(0);
        assert_eq!(done.stdout.lines().count(), 1, "{verbosity:?}: {}", done.stdout);
        done.json();
        let done = place.run(&[verbosity, &["sync"]].concat()).expect(0);
        assert_eq!(done.stdout, "", "{verbosity:?}");
        assert_eq!(done.stderr.is_empty(), verbosity == ["-q"], "{verbosity:?}: {}", done.stderr);
    }
    let done = place.run(&["-vv", "--log-format", "json", "sync"]).expect(0);
    let lines: Vec<Value> = done.stderr.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert!(lines.len() > 3 && lines.iter().all(|line| line["level"].is_string()), "{}", done.stderr);
}

#[test]
fn a_closed_pipe_ends_the_output_without_an_error() {
    let service = Service::start(small(3000, 20));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    for arguments in [
        &["query", "SELECT * FROM responses", "--rows", "100000", "--format", "csv"][..],
        &["query", "SELECT * FROM responses", "--rows", "100000", "--format", "json"],
        &["query", "SELECT answer_json FROM responses", "--rows", "100000"],
    ] {
        let mut command: Command = place.command(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 64];
        let mut stdout = child.stdout.take().unwrap();
        stdout.read_exact(&mut first).unwrap();
        drop(stdout);
        let done = Done::from(child.wait_with_output().unwrap());
        assert_eq!((done.code, done.stderr.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn query_prints_lists_in_csv() {
    let service = Service::start(small(600, 20));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let sql = "SELECT selected_indexes FROM responses ORDER BY len(selected_indexes) DESC NULLS LAST, 1 LIMIT 1";
    let wanted = place.duckdb_tables().rows_of(sql)[0][0].clone().unwrap();
    assert!(wanted.contains(", "), "a list of several: {wanted}");
    let csv = place.run(&["query", sql, "--format", "csv"]).expect(0);
    assert_eq!(csv.stdout, format!("selected_indexes\n\"{wanted}\"\n"));
    let none = place
        .run(&["query", "SELECT selected_indexes, 1 AS one FROM responses WHERE false", "--format", "csv"])
        .expect(0);
    assert_eq!(none.stdout, "selected_indexes,one\n");
}

#[test]
fn demo_leaves_a_working_configuration_and_three_commands() {
    let place = Place::at("http://127.0.0.1:1").without_config();
    let folder = place.path("the demo's");
    let mut demo = place.bare(&["demo", "--responses", "2000", "--folder", folder.to_str().unwrap()]);
    // The user's own settings name another warehouse.
    let done =
        Done::from(demo.env("STUDYSYNC_WAREHOUSE_DUCKDB", "/no/such/folder/own.duckdb").output().unwrap()).expect(0);
    // `status` fits a screen, and the answer to the last question is on the last screen.
    let status = done.stdout.split_once("$ studysync status\n").unwrap().1.split_once("\n\nThree questions").unwrap().0;
    assert!(status.starts_with("health    Healthy: ") && status.lines().count() <= 24, "{status}");
    let lines: Vec<&str> = done.stdout.lines().collect();
    let screen = lines[lines.len() - 24..].join("\n");
    assert!(screen.contains("month") && screen.contains(" nps ") && !screen.contains("unknown"), "{screen}");
    let end = done.stdout.split_once("To explore the data, paste:").unwrap().1;
    let lines: Vec<&str> = end.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!(lines.len(), 3, "{end}");
    let shell = std::process::Command::new("/bin/sh").args(["-ec", &lines.join("\n")]).output().unwrap();
    let shell = Done::from(shell).expect(0);
    assert!(shell.stdout.contains("nps_low") && folder.join("report.html").exists(), "{}", shell.stdout);
    // `demo` does not overwrite an existing configuration, neither the user's own nor that of an earlier demo.
    let config = folder.join("studysync.toml");
    std::fs::write(&config, "# mine\n").unwrap();
    let again = place.bare(&["demo", "--folder", folder.to_str().unwrap()]).output().unwrap();
    assert!(Done::from(again).expect(2).stderr.contains("exists already"));
    assert_eq!(std::fs::read_to_string(&config).unwrap(), "# mine\n");
}

#[test]
fn an_error_states_the_cause_first_and_repeats_nothing() {
    let nobody = Place::at("http://127.0.0.1:1");
    let done = nobody.run(&["check"]).expect(1);
    assert!(done.stdout.contains("FAIL service    cannot reach http://127.0.0.1:1/"), "{}", done.stdout);
    let done = nobody.run(&["sync"]).expect(1);
    let error = done.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.starts_with("error: cannot reach http://127.0.0.1:1/") && error.contains("refused"), "{error}");
    assert_eq!(error.matches("refused").count(), 1, "{error}");
    assert!(done.stderr.contains("\nhint: ") && !done.stderr.contains('\u{1b}'), "{}", done.stderr);
    let missing = nobody.run(&["sync", "--api-key-file", "/no/such/key.txt"]).expect(2);
    let error = missing.stderr.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(error.starts_with("error: cannot read the key file /no/such/key.txt: "), "{}", missing.stderr);
}

#[test]
fn the_demo_service_stops_with_the_demo() {
    let place = Place::at("http://127.0.0.1:1").without_config();
    let folder = place.path("demo");
    let mut demo = place.bare(&["demo", "--responses", "2000", "--folder", folder.to_str().unwrap()]);
    let mut demo = demo.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut out = demo.stdout.take().unwrap();
    let mut told = Vec::new();
    let address = loop {
        let mut piece = [0; 256];
        let read = out.read(&mut piece).unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&told));
        told.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&told).into_owned();
        if let Some((_, rest)) = text.split_once("listening on\nhttp://")
            && let Some((address, _)) = rest.split_once(". ")
        {
            break address.to_owned();
        }
    };
    assert!(std::net::TcpStream::connect(&address).is_ok(), "{address}");
    demo.kill().unwrap();
    demo.wait().unwrap();
    let is_there = || std::net::TcpStream::connect(&address).is_ok();
    assert!(
        (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            !is_there()
        }),
        "it is still there"
    );
}
