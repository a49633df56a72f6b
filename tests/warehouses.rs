//! Warehouses that are added or left out get the missing rows (P1, P2). Rows that seem deleted at the service are
//! rechecked before they are marked (P4).

use std::{
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::json;
use studysync_sandbox::{ChangeRequest, Faults};

use crate::harness::{DAY_MS, Place, Service, Tables, days_ago, expected::Expected, notes, small};

const DAYS: u32 = 60;

/// Asserts that both warehouses have the service's content. The times at which rows were written differ.
fn assert_both_hold(place: &Place, service: &Service, when: &str) {
    let settled = Expected::now(service);
    let expected = |table: &str| settled.rows(table).len() as i64;
    for (name, tables) in place.warehouses() {
        for table in ["responses", "response_choices", "themes", "surveys"] {
            let live = if table == "response_choices" { "true" } else { "_vanished_at IS NULL" };
            let held = tables.count(&format!("SELECT count(*) FROM {table} WHERE {live}"));
            assert_eq!(held as i64, expected(table), "{when}: {table} of {name}");
        }
    }
    for table in ["responses", "themes", "surveys", "response_history"] {
        let sql = format!("SELECT count(*), bit_xor(_row_hash) FROM {table}");
        let content = |tables: &Tables| tables.rows_of(&sql);
        assert_eq!(content(&place.duckdb_tables()), content(&place.parquet_tables()), "{when}: {table}");
    }
}

#[test]
fn p1_a_warehouse_left_out_of_a_run_catches_up() {
    let service = Service::start(small(3000, DAYS));
    let place = Place::new(&service);
    let (recent, all) = (days_ago(10), days_ago(i64::from(DAYS)));
    place.report(&["backfill", "--from", &recent], 0);
    place.run_on_parquet(&["backfill", "--from", &all]).expect(0);
    let report = place.report(&["backfill", "--from", &all], 0);
    assert!(!notes(&report).is_empty(), "{report}");
    assert_both_hold(&place, &service, "after both took part again");

    // A night with Parquet only: its edits reach DuckDB the next time.
    service.advance_days(1);
    service.change(&ChangeRequest { edits: 30, within_ms: Some(20 * DAY_MS), ..ChangeRequest::default() });
    place.run_on_parquet(&["sync"]).expect(0);
    place.report(&["sync"], 0);
    for (name, tables) in place.warehouses() {
        assert_eq!(tables.count("SELECT count(*) FROM response_history WHERE reason = 'edited'"), 30, "{name}");
    }
    assert_both_hold(&place, &service, "after a night that one of them saw alone");
}

#[test]
fn parquet_readers_see_rows_soon_after_a_backfill_begins() {
    let service = Service::start(small(6000, DAYS));
    service.control().merge_faults(json!({"latency": {"ms": 700}})).unwrap();
    let place = Place::new(&service).with_config("[streams.responses]\npage_rows = 100\n");
    let mut run = place.spawn(&["backfill", "--from", &days_ago(i64::from(DAYS))]);
    let deadline = Instant::now() + Duration::from_secs(60);
    let count = || -> i64 {
        let sql = "SELECT count(*) FROM responses";
        let done = place.run_on_parquet(&["query", sql, "--format", "csv"]);
        done.stdout.lines().last().and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    let mut seen = 0;
    while seen == 0 {
        assert!(
            run.try_wait().unwrap().is_none() && Instant::now() < deadline,
            "the run ended before readers saw rows"
        );
        sleep(Duration::from_millis(300));
        seen = count();
    }
    assert!(seen < 3000, "the first rows, and not those of the end: {seen}");
    run.kill().unwrap();
    run.wait().unwrap();
    service.control().merge_faults(json!({"latency": {"ms": 0}})).unwrap();
    place.report(&["backfill", "--from", &days_ago(i64::from(DAYS))], 0);
    assert_both_hold(&place, &service, "after a kill");
}

#[test]
fn p1_sync_fills_a_warehouse_added_later() {
    let service = Service::start(small(3000, DAYS));
    let place = Place::new(&service);
    place.run_on_parquet(&["backfill", "--from", &days_ago(i64::from(DAYS))]).expect(0);
    let report = place.report(&["sync"], 0);
    let all = place.parquet_tables().count("SELECT count(*) FROM responses");
    assert_eq!(report["streams"]["responses"]["inserted"], all, "{report}");
    assert_both_hold(&place, &service, "after a sync with a new warehouse");
}

#[test]
fn p4_a_doubt_stays_until_a_scan_resolves_it() {
    let service = Service::start(small(3000, DAYS));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(i64::from(DAYS))], 0);
    service.advance_days(10);
    let now_ms = service.control().now_ms();
    let window = (now_ms - 50 * DAY_MS, now_ms - 20 * DAY_MS);
    let gone = service.change(&ChangeRequest { vanish_window_ms: Some(window), ..ChangeRequest::default() }).vanished;
    let withheld = |report: &serde_json::Value| report["streams"]["responses"]["withheld"].as_u64().unwrap() as usize;
    // The run stops between the first scan and the recheck: the window still needs the recheck.
    place.run(&["sync", "--stream", "responses", "--concurrency", "1", "--max-requests", "3"]).expect(6);
    for night in ["the first", "the next", "and the next"] {
        let report = place.report(&["sync"], 3);
        assert_eq!(withheld(&report), gone.len(), "{night} run: {report}");
    }
    let status = place.run(&["status"]).expect(0).stdout;
    assert!(status.contains("RECHECK"), "{status}");
    let report = place.report(&["sync", "--accept-vanished"], 0);
    assert_eq!(report["streams"]["responses"]["vanished"].as_u64().unwrap() as usize, gone.len(), "{report}");
    let report = place.report(&["sync"], 0);
    assert_eq!(withheld(&report), 0);
    assert!(!place.run(&["status"]).expect(0).stdout.contains("RECHECK"));
    for (name, tables) in place.warehouses() {
        let vanished = tables.count("SELECT count(*) FROM responses WHERE _vanished_at IS NOT NULL");
        assert_eq!(vanished as usize, gone.len(), "{name}");
    }
}

#[test]
fn p4_a_night_of_empty_lists_deletes_no_row() {
    let service = Service::start(small(400, 5));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    service.set_faults(Faults { not_found_when_empty: true, ..Faults::default() });
    let window = (0, i64::MAX);
    service.advance_days(1);
    let gone = service.change(&ChangeRequest { vanish_window_ms: Some(window), ..ChangeRequest::default() }).vanished;
    let report = place.report(&["sync"], 3);
    assert_eq!(report["streams"]["responses"]["vanished"], 0, "{report}");
    assert_eq!(report["streams"]["responses"]["withheld"].as_u64().unwrap() as usize, gone.len(), "{report}");
}
