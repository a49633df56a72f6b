//! Clocks that are wrong or jump. The service's clock decides which range is scanned, and nothing is lost once it is
//! right again. The local clock is used only for timestamps.

use std::{path::Path, process::Command, sync::Arc, sync::Mutex};

use studysync_sandbox::{ChangeRequest, Faults, LogEntry, ServerError, Settings, When};

use crate::harness::{DAY_MS, Done, NOW_MS, Place, Service, assert_warehouses_equal, expected::Expected, small};

use super::{
    assert_live_rows,
    wire::{RawServer, Rewrite},
};

const MINUTE_MS: i64 = 60_000;
const DAYS: u32 = 10;

/// Milliseconds to add to the `Date` header; `None` removes the header.
type Skew = Arc<Mutex<Option<i64>>>;

/// A server that forwards to the service and changes its clock.
fn behind_a_clock(service: &Service, skew: &Skew) -> RawServer {
    let skew = Arc::clone(skew);
    let rewrite: Box<Rewrite> = Box::new(move |answer| {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
        let head = std::str::from_utf8(&answer[..end]).unwrap();
        let lines = head.split("\r\n").filter_map(|line| match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("date") => {
                let right = chrono::DateTime::parse_from_rfc2822(value.trim()).unwrap();
                let shown = right + chrono::TimeDelta::milliseconds((*skew.lock().unwrap())?);
                Some(format!("date: {}", shown.format("%a, %d %b %Y %H:%M:%S GMT")))
            }
            _ => Some(line.to_owned()),
        });
        let mut rewritten = lines.collect::<Vec<_>>().join("\r\n").into_bytes();
        rewritten.extend_from_slice(&answer[end..]);
        rewritten
    });
    RawServer::start(&service.base_url(), Box::new(|_, _| false), rewrite)
}

#[test]
fn p1_p4_jumps_of_the_service_clock_lose_nothing() {
    let service = Service::start(small(900, DAYS));
    let skew: Skew = Arc::new(Mutex::new(Some(0)));
    let server = behind_a_clock(&service, &skew);
    let place = Place::at(server.base_url());
    place.run(&["sync"]).expect(0);
    let far = 3 * 365 * DAY_MS;
    for off_ms in [10 * MINUTE_MS, -10 * MINUTE_MS, far, 0, -far, 0, 10 * MINUTE_MS] {
        *skew.lock().unwrap() = Some(off_ms);
        service.control().advance_clock(20 * MINUTE_MS as u64);
        service.change(&ChangeRequest {
            seed: off_ms.unsigned_abs(),
            new_answers: 30,
            edits: 20,
            within_ms: Some(2 * DAY_MS),
            ..ChangeRequest::default()
        });
        let done = place.run(&["sync"]);
        let code = if off_ms.abs() == far { 3 } else { 0 };
        assert_eq!(done.code, code, "{off_ms} ms off: {}", done.stderr);
    }
    *skew.lock().unwrap() = Some(0);
    service.advance_days(1);
    place.run(&["sync"]).expect(0);
    assert_live_rows(&place, &service, "after the clock came right");
    for (name, tables) in place.warehouses() {
        let vanished = tables.count("SELECT count(*) FROM responses WHERE _vanished_at IS NOT NULL");
        assert_eq!(vanished, 0, "{name}: a clock made rows vanish");
    }
}

#[test]
fn p1_the_local_clock_replaces_a_missing_date_header() {
    let service = Service::start(small(600, DAYS));
    let skew: Skew = Arc::new(Mutex::new(None));
    let server = behind_a_clock(&service, &skew);
    let place = Place::at(server.base_url()).with_config(&format!(
        "{}since = \"2026-01-01\"\n[streams.themes]\nsince = \"2026-01-01\"\n",
        crate::harness::ALL_FLAGS
    ));
    // This machine's clock is later than the service's in these tests, so all rows would count as settled by it.
    assert!(studysync::clock::now_ms() > NOW_MS + DAY_MS);
    place.run(&["sync"]).expect(0);
    for table in ["responses", "themes"] {
        let list = if table == "themes" {
            studysync_sandbox::ListName::Themes
        } else {
            studysync_sandbox::ListName::Responses
        };
        let all = service.truth(list).len() as i64;
        for (name, tables) in place.warehouses() {
            assert_eq!(tables.count(&format!("SELECT count(*) FROM {table}")), all, "{name}: {table}");
        }
    }
}

#[test]
fn p3_a_clock_that_is_weeks_off_is_reported() {
    let now_ms = studysync::clock::now_ms();
    // The youngest row is an hour old: with a clock that is ahead, the run scans rows that are too young by a right
    // clock.
    let hour_ms = 3_600_000;
    let service = Service::start(Settings { now_ms: now_ms - hour_ms, frozen_clock: false, ..small(300, DAYS) });
    service.control().advance_clock(hour_ms as u64);
    for (off_days, words) in [(-40, "40.0 days behind"), (40, "40.0 days ahead"), (-5, "5.0 days behind")] {
        let skew: Skew = Arc::new(Mutex::new(Some(off_days * DAY_MS)));
        let server = behind_a_clock(&service, &skew);
        let place = Place::at(server.base_url()).without_parquet();
        let from = (now_ms - 30 * DAY_MS).to_string();
        let done = place.run(&["backfill", "--from", &from]).expect(3);
        assert!(done.stderr.contains(words), "{off_days}: {}", done.stderr);
        if off_days < 0 {
            let missed = "Not read: responses and themes of ";
            assert!(done.stderr.contains(missed), "what is missing is named: {}", done.stderr);
        }
        let clock = "SELECT count(*) FROM untrusted WHERE reason = 'clock' AND range_end IS NULL";
        assert_eq!(place.duckdb_tables().count(clock), 1, "{off_days}");
        let check = place.run(&["check"]).expect(3);
        assert!(check.stdout.contains("FAIL clock") && check.stdout.contains(words), "{}", check.stdout);
        *skew.lock().unwrap() = Some(0);
        place.run(&["backfill", "--from", &from]).expect(0);
        assert_eq!(place.duckdb_tables().count(clock), 0, "the clock came right");
        assert_live_rows(&place, &service, "after the clock came right");
    }
}

#[test]
fn p3_a_wrong_clock_of_the_service_is_a_lag() {
    let now_ms = studysync::clock::now_ms();
    let hour_ms = 3_600_000;
    let service = Service::start(Settings { now_ms: now_ms - hour_ms, frozen_clock: false, ..small(300, DAYS) });
    service.control().advance_clock(hour_ms as u64);
    let from = (now_ms - 60 * DAY_MS).to_string();
    for (off_days, nights) in [(-40, 1), (40, 2)] {
        let skew: Skew = Arc::new(Mutex::new(Some(off_days * DAY_MS)));
        let server = behind_a_clock(&service, &skew);
        let place = Place::at(server.base_url()).without_parquet().with_env("STUDYSYNC_METRICS_TEXTFILE", "m.prom");
        place.run(&["backfill", "--from", &from]).expect(3);
        // The run scanned everything up to the wrong time, and no answers after it.
        if nights == 2 {
            std::thread::sleep(std::time::Duration::from_secs(2));
            place.run(&["sync"]).expect(3);
        }
        let limit = if nights == 1 { "39d" } else { "1s" };
        let late = place.run(&["status", "--max-lag", limit, "--stream", "responses"]).expect(3).stdout;
        let words = if nights == 1 { "BEHIND  responses: 40 days behind" } else { "BEHIND  responses: " };
        assert!(late.contains(words), "{late}");
        let all = place.run(&["status"]).expect(0).words();
        assert!(all.contains("and may be wrong: lags are by this machine's clock"), "{all}");
        if nights == 1 {
            assert!(all.contains("lag responses 40 days"), "{all}");
            place.run(&["sync"]).expect(3);
            let metrics = std::fs::read_to_string(place.path("m.prom")).unwrap();
            let lag =
                metrics.lines().find(|line| line.starts_with("studysync_lag_seconds") && line.contains("responses"));
            let secs: f64 = lag.unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            assert!(secs >= (40 * DAY_MS / 1000) as f64, "{metrics}");
        }
        *skew.lock().unwrap() = Some(0);
        place.run(&["sync"]).expect(0);
        let well = place.run(&["status", "--max-lag", "1h"]);
        assert_eq!(well.code, 0, "{off_days}: the clock is right again: {}", well.stdout);
    }
}

#[test]
fn p6_a_service_with_old_rows_is_asked_once_for_newer_ones() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service).without_parquet();
    // A refused request proves nothing about the clock: the next run requests it again.
    let first = When { count: 1, path: "/v1/responses".to_owned(), ..When::default() };
    service.set_faults(Faults { server_error: ServerError { when: first, status: 422 }, ..Faults::default() });
    place.run(&["sync"]).expect(0);
    service.clear_log();
    place.run(&["sync"]).expect(0);
    let has = |entry: &LogEntry, name: &str| entry.query.iter().any(|(known, _)| known == name);
    let is_open = |entry: &&LogEntry| has(entry, "start") && !has(entry, "end");
    let newer = |service: &Service| service.log().iter().filter(is_open).count();
    assert_eq!(newer(&service), 1);
    service.clear_log();
    place.run(&["sync"]).expect(0);
    assert_eq!(newer(&service), 0);
}

const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// Runs the program on a machine whose clock is wrong.
fn run_at(place: &Place, offset: &str, arguments: &[&str]) -> Done {
    let mut command: Command = place.command(arguments);
    command.env("LD_PRELOAD", FAKETIME).env("FAKETIME", offset).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    Done::from(command.output().unwrap())
}

fn can_move_this_machine_s_clock() -> bool {
    let can = Path::new(FAKETIME).exists();
    if !can {
        println!(
            "SKIPPED: {FAKETIME} is missing (Debian: apt-get install libfaketime); this machine's clock is not moved"
        );
    }
    can
}

#[test]
fn p1_a_backfill_is_complete_despite_a_late_local_clock() {
    if !can_move_this_machine_s_clock() {
        return;
    }
    let service = Service::start(small(900, DAYS));
    // First the range is entirely in the future by this machine's clock, then partly; or it has no end.
    let (ahead, rest) =
        (["--from", "2026-01-26", "--to", "2026-03-01"], ["--from", "2026-01-01", "--to", "2026-01-26"]);
    for backfills in [&[&ahead[..], &rest[..]][..], &[&["--from", "2026-01-01"][..]][..]] {
        let place = Place::new(&service);
        // This run stores the difference of the clocks, which is wrong for the next runs.
        let first = ["backfill", "--from", "2026-01-22", "--to", "2026-01-23"];
        run_at(&place, "@2026-02-20 12:00:00", &first).expect(0);
        for backfill in backfills {
            run_at(&place, "@2026-01-25 12:00:00", &[&["backfill"], *backfill].concat()).expect(0);
        }
        assert_warehouses_equal(
            &place,
            &Expected::now(&service),
            &format!("{backfills:?} on a machine that was set back"),
        );
    }
}

#[test]
fn p1_p6_a_wrong_local_clock_loses_nothing() {
    if !can_move_this_machine_s_clock() {
        return;
    }
    let service = Service::start(small(900, DAYS));
    let place = Place::new(&service);
    let started = run_at(&place, "-5y", &["sync", "--json"]).expect(0).json();
    assert!(started["started_at"].as_str().unwrap() < "2023", "the clock was not moved: {started}");
    assert_warehouses_equal(&place, &Expected::now(&service), "years behind");
    for offset in ["+7y", "-30y", "+1d", "-1d"] {
        service.advance_days(1);
        service.change(&ChangeRequest { seed: 7, edits: 20, new_answers: 20, ..ChangeRequest::default() });
        let done = run_at(&place, offset, &["sync"]);
        assert_eq!(done.code, 0, "{offset}: {}", done.stderr);
        assert_live_rows(&place, &service, offset);
    }
    // With the clock years ahead, waits have the right length, and nothing is requested twice.
    service.clear_log();
    run_at(&place, "+20y", &["backfill", "--from", "2026-01-25", "--to", "2026-01-29"]).expect(0);
    assert_eq!(service.log(), [], "what is covered was asked for again");
    let state = place.state();
    std::fs::remove_file(&state).unwrap();
    run_at(&place, "-20y", &["sync"]).expect(0);
    assert_live_rows(&place, &service, "rebuilt from ledgers whose scans were stamped by all those clocks");
}

#[test]
fn runs_of_a_clock_that_was_ahead_hide_no_later_failure() {
    if !can_move_this_machine_s_clock() {
        return;
    }
    let service = Service::start(small(60, DAYS));
    let told =
        "[metrics]\ntextfile = \"m.prom\"\n[notify]\ncommand = [\"sh\", \"-c\", \"echo $STUDYSYNC_EVENT >> told\"]\n";
    let place = Place::new(&service).without_parquet().with_config(told);
    let value = |name: &str| {
        let text = std::fs::read_to_string(place.path("m.prom")).unwrap();
        let line = text.lines().find(|line| line.starts_with(&format!("studysync_{name}"))).map(str::to_owned);
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    let done = run_at(&place, "+3650d", &["sync"]).expect(0);
    assert!(done.stderr.contains("days ahead of the service's clock"), "{}", done.stderr);
    // The clock is corrected, and the night fails.
    let mut command = place.command(&["sync"]);
    Done::from(command.env(crate::harness::KEY_VARIABLE, "another").output().unwrap()).expect(4);
    assert_eq!(value("last_run_exit_code"), Some(4.0));
    assert!(value("last_run_timestamp_seconds").unwrap() <= studysync::clock::now_ms() as f64 / 1000.0);
    assert_eq!(value("last_success_timestamp_seconds"), None, "a success in the future proves nothing");
    assert_eq!(std::fs::read_to_string(place.path("told")).unwrap(), "failed\n");
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(status["runs"][0]["exit_code"], 4, "{status:#}");
    // The next success counts again.
    place.run(&["sync"]).expect(0);
    assert_eq!(value("last_run_exit_code"), Some(0.0));
    assert!(value("last_success_timestamp_seconds").is_some());
    assert_eq!(std::fs::read_to_string(place.path("told")).unwrap(), "failed\nrecovered\n");
}
