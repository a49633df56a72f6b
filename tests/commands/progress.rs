//! What a terminal shows while a run works or waits.

use std::process::Command;

use serde_json::json;

use crate::harness::{Place, Service, days_ago, small};

/// Runs a command in a terminal of this width, and returns everything that the terminal was sent. Returns `None`
/// without the program `script`.
pub(super) fn on_terminal(place: &Place, arguments: &[&str], columns: usize) -> Option<String> {
    shown_by(&place.command(arguments), place, columns)
}

/// Runs a command as [`on_terminal`] does.
pub(super) fn shown_by(run: &Command, place: &Place, columns: usize) -> Option<String> {
    let quoted = |text: &std::ffi::OsStr| format!("'{}'", text.to_string_lossy().replace('\'', "'\\''"));
    let line = std::iter::once(run.get_program()).chain(run.get_args()).map(quoted).collect::<Vec<_>>().join(" ");
    let mut command = Command::new("script");
    command.args(["-qec", &format!("stty cols {columns} rows 24; {line}"), "/dev/null"]).current_dir(place.root());
    for (name, value) in run.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let output = command.env("TERM", "xterm").stdin(std::process::Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn a_terminal_shows_why_a_run_waits() {
    let place = Place::at("http://127.0.0.1:1").without_parquet();
    let Some(shown) = on_terminal(&place, &["sync", "--deadline", "10s"], 80) else { return };
    assert!(shown.contains("configuration: studysync.toml"), "{shown}");
    assert!(shown.contains("0s  0%  0 windows  0 rows"), "{shown}");
    assert!(shown.contains("0 rows  backing off (connection refused): waits 1s"), "{shown}");
    let service = Service::start(small(300, 6));
    for (fault, expected) in [
        (json!({"server_error": {"status": 503, "when": {"every": 1}}}), "backing off (503): waits "),
        (
            json!({"too_many_requests": {"when": {"every": 1}, "retry_after": {"form": "seconds", "wait_ms": 2000}}}),
            "rate limited (429): waits ",
        ),
    ] {
        service.control().merge_faults(fault).unwrap();
        let place = Place::new(&service).without_parquet();
        let shown = on_terminal(&place, &["sync", "--deadline", "10s"], 80).unwrap();
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    // A log has a first line before a reader takes the run for dead.
    let limited = Service::start(small(300, 6));
    let refused = json!({"when": {"every": 1}, "retry_after": {"form": "seconds", "wait_ms": 2000}});
    limited.control().merge_faults(json!({"too_many_requests": refused})).unwrap();
    let logged = Place::new(&limited).without_parquet().run(&["sync", "--deadline", "9s"]).stderr;
    assert!(logged.contains("progress elapsed_secs="), "{logged}");
}

#[test]
fn the_time_left_includes_a_wait() {
    let service = Service::start(small(4_000, 60));
    let refused = json!({"when": {"count": 1, "skip": 30}, "retry_after": {"form": "seconds", "wait_ms": 8000}});
    service.control().merge_faults(json!({"latency": {"ms": 300}, "too_many_requests": refused})).unwrap();
    let place = Place::new(&service).without_parquet().with_config("[streams.responses]\npage_rows = 200\n");
    let Some(shown) = on_terminal(&place, &["backfill", "--from", &days_ago(60)], 100) else { return };
    let secs = |line: &str, before: &str, after: &str| -> Option<u64> {
        line.split_once(before)?.1.trim_start().split_once(after)?.0.split(' ').next_back()?.parse().ok()
    };
    let waits: Vec<(u64, u64)> = shown
        .split(['\r', '\n'])
        .filter(|line| line.contains("(429): waits "))
        .filter_map(|line| Some((secs(line, "waits", "s")?, secs(line, "waits", "s left")?)))
        .collect();
    assert!(!waits.is_empty(), "{shown}");
    assert!(waits.iter().all(|(wait, left)| left >= wait), "{waits:?}");
}

#[test]
fn progress_counts_rows_and_time_from_the_first_second() {
    let service = Service::start(small(4_000, 60));
    service.control().merge_faults(json!({"latency": {"ms": 150}})).unwrap();
    let place = Place::new(&service).without_parquet().with_config("[streams.responses]\npage_rows = 200\n");
    let Some(shown) = on_terminal(&place, &["backfill", "--from", &days_ago(60)], 80) else { return };
    let lines: Vec<&str> = shown.split(['\r', '\n']).filter(|line| line.contains(" windows  ")).collect();
    let first = lines.first().unwrap_or_else(|| panic!("{shown}"));
    assert!(first.contains("0s  0%  ") && first.contains(" rows"), "{first}");
    assert!(lines.iter().any(|line| line.contains("k rows  ")), "{shown}");
    // The number of all windows is marked as an estimate.
    assert!(lines.iter().any(|line| line.contains("/~")), "{shown}");
    // The share counts what was fetched, also before the first commit, and never falls.
    let percents: Vec<u32> = lines.iter().filter_map(|line| percent(line)).collect();
    assert!(percents.is_sorted() && percents.iter().all(|percent| *percent <= 100), "{percents:?}");
    let before = lines.iter().filter(|line| line.contains("%  0 windows")).filter_map(|line| percent(line));
    assert!(before.max() > Some(0), "{shown}");
    let parts = shown.split(['\r', '\n', '\u{1b}']).map(|part| part.trim_start_matches("[2K").trim_end());
    let wide: Vec<&str> = parts.filter(|part| part.contains(" windows  ") && part.chars().count() > 80).collect();
    assert!(wide.is_empty(), "{wide:#?}");
}

fn percent(line: &str) -> Option<u32> {
    line.split_once('%')?.0.split_whitespace().next_back()?.parse().ok()
}

#[test]
fn the_end_phases_of_a_run_and_a_replay_are_named() {
    let service = Service::start(small(300, 6));
    let config = "[warehouse]\npublish = 'copy.duckdb'\n";
    let place = Place::new(&service).with_config(config);
    let done = place.run(&["backfill", "--from", &days_ago(6), "-v"]).expect(0);
    for phase in ["publishing", "writing the copy for readers"] {
        assert!(done.stderr.contains(phase), "{phase}: {}", done.stderr);
    }
    let done = place.run(&["replay"]).expect(0);
    for phase in ["publishing", "replacing the warehouses", "writing the copy for readers"] {
        assert!(done.stderr.contains(phase), "{phase}: {}", done.stderr);
    }
}
