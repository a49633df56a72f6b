//! Ties at page boundaries (P3), through the real program: lost ties are recovered, a service that keeps ties costs few
//! additional requests, and a change of its behaviour is noticed.

use serde_json::{Value, json};
use studysync::{
    model::{Scope, Stream, Ties, behaviour_names},
    state::State,
};
use studysync_sandbox::{ChangeRequest, LogEntry, Settings};

use crate::harness::{ALL_FLAGS, DAY_MS, Place, Service, assert_warehouses_equal, days_ago, expected::Expected, small};

mod kills;

const DAYS: u32 = 24;

/// Small pages, so that there are many page boundaries.
fn paged(page_rows: u32) -> String {
    format!("{ALL_FLAGS}page_rows = {page_rows}\n[streams.surveys]\npage_rows = 7\n")
}

fn service(responses: u64, ties_per_ms: u32, faults: Value) -> Service {
    let service = Service::start(Settings { ties_per_ms, ..small(responses, DAYS) });
    service.control().merge_faults(faults).unwrap();
    service
}

fn backfill(place: &Place, exit_code: i32) -> Value {
    place.report(&["backfill", "--from", &days_ago(i64::from(DAYS) + 1)], exit_code)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn known_ties(place: &Place) -> Option<Ties> {
    let state = State::open_read_only(&place.state()).unwrap().unwrap();
    state.behaviour::<Ties>(behaviour_names::TIES).unwrap().map(|(ties, _)| ties)
}

fn limit(entry: &LogEntry) -> Option<u32> {
    entry.query.iter().find(|(name, _)| name == "limit").map(|(_, value)| value.parse().unwrap())
}

/// Counts the requests of a measurement, which reads the rows of one millisecond in pages of a few rows.
fn measuring(log: &[LogEntry]) -> usize {
    log.iter()
        .filter(|entry| entry.path == Stream::Responses.path() && limit(entry).is_some_and(|rows| rows < 7))
        .count()
}

fn notes(report: &Value) -> String {
    report["notes"].to_string()
}

#[test]
fn p3_lost_ties_are_recovered_in_every_order() {
    is_read_whole(700);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_lost_ties_of_a_larger_service_are_recovered() {
    is_read_whole(1500);
}

fn is_read_whole(responses: u64) {
    for (ties_per_ms, page_rows, order) in
        [(2, 40, "newest_first"), (3, 25, "oldest_first"), (5, 40, "shuffled"), (7, 30, "newest_first")]
    {
        let when = format!("{ties_per_ms} rows a millisecond, {order}");
        let service = service(responses, ties_per_ms, json!({"ties": "lost", "order": order, "default_page_rows": 10}));
        let place = Place::new(&service).with_config(&paged(page_rows));
        let report = backfill(&place, 0);
        assert_warehouses_equal(&place, &Expected::now(&service), &when);
        assert_eq!(known_ties(&place), Some(Ties::Lost), "{when}");
        let pages = number(&report["streams"]["responses"]["pages"]) + number(&report["streams"]["themes"]["pages"]);
        let probed = number(&report["requests"]["ties_probed"]);
        assert!(probed > pages / 2 && probed < pages + 30, "{when}: {probed} for {pages} pages");
        assert_eq!(number(&report["requests"]["total"]), service.log().len() as u64);
    }
}

#[test]
fn p3_a_repeated_page_does_not_hide_lost_ties() {
    // The second page of the measurement repeats the first one; the next answer is a 404, which ends the list.
    let twice = json!({"rows": 4, "when": {"count": 1, "path": Stream::Responses.path()}});
    let faults = json!({
        "ties": "lost", "default_page_rows": 10, "repeated_rows": twice, "not_found_when_empty": true, "order": "oldest_first"
    });
    let service = service(160, 4, faults);
    let place = Place::new(&service).with_config(&paged(10));
    place.report(&["backfill", "--from", &days_ago(i64::from(DAYS) + 1), "--concurrency", "1"], 0);
    let struck = service.log().into_iter().find(|entry| entry.fault.as_deref() == Some("repeated_rows")).unwrap();
    assert!(measuring(&[struck]) == 1, "the fault is to meet the measure");
    assert_ne!(known_ties(&place), Some(Ties::Repeated));
    assert_warehouses_equal(&place, &Expected::now(&service), "a page twice");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_p4_slow_three_nights_recover_lost_ties() {
    let service = service(1200, 4, json!({"ties": "lost", "default_page_rows": 10}));
    let place = Place::new(&service).with_config(&paged(13));
    place.report(&["sync"], 0);
    let mut held = Expected::now(&service);
    assert_warehouses_equal(&place, &held, "the first sync");
    for night in 1..=3 {
        service.advance_days(1);
        service.change(&ChangeRequest {
            seed: night,
            new_answers: 120,
            edits: 40,
            soft_deletes: 10,
            vanish_visitors: 2,
            late: 10,
            new_themes: 5,
            within_ms: Some(20 * DAY_MS),
            ..ChangeRequest::default()
        });
        service.clear_log();
        let report = place.report(&["sync"], 0);
        held = held.next_morning(Expected::now(&service));
        assert_warehouses_equal(&place, &held, &format!("night {night}"));
        assert_eq!(measuring(&service.log()), 0, "night {night}: what is known was measured again");
        assert!(number(&report["requests"]["ties_probed"]) > 20, "{report}");
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_services_without_lost_ties_need_few_probes() {
    for (ties, found) in [("kept", Ties::Kept), ("repeated", Ties::Repeated)] {
        let service = service(3000, 3, json!({"ties": ties}));
        let place = Place::new(&service).with_config(&paged(10));
        let report = backfill(&place, 0);
        assert_warehouses_equal(&place, &Expected::now(&service), ties);
        assert_eq!(known_ties(&place), Some(found));
        assert!((1..=10).contains(&measuring(&service.log())), "{ties}: {} requests", measuring(&service.log()));
        assert_cheap(&report, ties);
        service.advance_days(1);
        service.change(&ChangeRequest { new_answers: 200, ..ChangeRequest::default() });
        service.clear_log();
        let report = place.report(&["sync"], 0);
        assert_eq!(measuring(&service.log()), 0, "{ties}: measured again");
        assert!(number(&report["requests"]["ties_probed"]) >= 1, "{ties}: at least one sample a run");
        assert_cheap(&report, ties);
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_pending_tie_probes_survive_an_interrupted_scan() {
    // One row per page, two rows per millisecond: no page shows a tie, and every second page boundary hides a row.
    for (ties, found) in [("lost", Ties::Lost), ("kept", Ties::Kept)] {
        let service = service(160, 2, json!({ "ties": ties }));
        let place = Place::new(&service).with_config(&paged(1));
        let from = days_ago(i64::from(DAYS) + 1);
        let (mut runs, mut probed) = (0, 0);
        loop {
            let done =
                place.run(&["backfill", "--from", &from, "--concurrency", "2", "--max-requests", "12", "--json"]);
            probed += number(&done.json()["requests"]["ties_probed"]);
            runs += 1;
            if done.code == 0 {
                break;
            }
            assert!(runs < 100, "{ties}: {}", done.stderr);
        }
        assert!(runs > 8, "{ties}: {runs} runs are too few to have stopped everywhere");
        assert_eq!(known_ties(&place), Some(found));
        assert_warehouses_equal(&place, &Expected::now(&service), ties);
        let pages: Vec<_> = service.log().into_iter().filter(|entry| limit(entry) == Some(1)).collect();
        let mut asked: Vec<String> = pages.iter().map(|entry| format!("{} {:?}", entry.path, entry.query)).collect();
        let total = asked.len();
        asked.sort_unstable();
        asked.dedup();
        // Repeated requests: a page that was in flight when a run ended, and the measurement, which has the same page
        // size.
        assert!(
            total - asked.len() <= 2 * runs,
            "{ties}: {} of {total} pages were asked for again",
            total - asked.len()
        );
        assert!(ties == "lost" || probed < 40, "{ties}: {probed} looks, although nothing is lost");
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_a_run_that_ends_before_its_tie_probes_loses_no_row() {
    // One window, one row per page, two rows per millisecond: the next run repairs what a run with this many requests
    // leaves.
    let service = service(16, 2, json!({"ties": "lost"}));
    let command = ["backfill", "--from", &days_ago(i64::from(DAYS) + 1), "--stream", "responses", "--json"];
    let expected = Expected::now(&service).rows("responses").len() as i64;
    for requests in 1.. {
        let place = Place::new(&service).with_config(&paged(1));
        let budget = requests.to_string();
        let stopped = place.run(&[&command[..], &["--max-requests", &budget]].concat());
        place.run(&command).expect(0);
        assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM responses"), expected, "{requests} requests");
        if stopped.code == 0 {
            assert!(requests > 16, "{requests} requests are too few");
            break;
        }
    }
}

/// Asserts that the run sends at most a twentieth more requests than there are pages, plus a few.
fn assert_cheap(report: &Value, when: &str) {
    let pages: u64 = report["streams"].as_object().unwrap().values().map(|stream| number(&stream["pages"])).sum();
    let total = number(&report["requests"]["total"]);
    assert!(pages > 200, "{when}: {pages} pages prove nothing");
    assert!(total <= pages * 105 / 100 + 15, "{when}: {total} requests for {pages} pages");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_a_sample_detects_newly_lost_ties() {
    let service = service(2400, 6, json!({"ties": "kept", "default_page_rows": 10}));
    let place = Place::new(&service).with_config(&paged(25));
    place.report(&["sync"], 0);
    assert_eq!(known_ties(&place), Some(Ties::Kept));
    let held = Expected::now(&service);
    service.advance_days(1);
    service.control().merge_faults(json!({"ties": "lost"})).unwrap();
    service.change(&ChangeRequest { seed: 3, new_answers: 200, edits: 50, ..ChangeRequest::default() });
    let report = place.report(&["sync"], 3);
    assert!(notes(&report).contains("loses rows that share a millisecond"), "{}", notes(&report));
    assert_eq!(known_ties(&place), Some(Ties::Lost));
    let report = place.report(&["sync"], 0);
    assert!(!notes(&report).contains("millisecond"), "{}", notes(&report));
    assert_warehouses_equal(&place, &held.next_morning(Expected::now(&service)), "the run after the change");
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert!(!status.to_string().contains("\"in_doubt\":[{"), "{status}");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_an_oversized_millisecond_is_complete_or_reported() {
    // More ties than the largest page can have.
    let kept = service(2200, 1100, json!({"ties": "kept"}));
    let place = Place::new(&kept).with_config(&paged(500));
    backfill(&place, 0);
    let responses = Expected::now(&kept).rows("responses").len() as i64;
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM responses"), responses, "kept");
    let lost = service(2200, 1100, json!({"ties": "lost"}));
    let place = Place::new(&lost).with_config(&paged(500));
    for command in ["the first backfill", "the second"] {
        let report = backfill(&place, 3);
        let told = notes(&report);
        assert!(told.contains("may lack rows") && told.contains("more than a page holds"), "{command}: {told}");
        let missed = Expected::now(&lost).rows("responses");
        let at_ms = missed.iter().map(|row| row["created_at"].as_deref().unwrap().parse::<i64>().unwrap() / 1000);
        assert!(at_ms.into_iter().any(|at_ms| told.contains(&at_ms.to_string())), "no millisecond in {told}");
        let vanished = place.duckdb_tables().count("SELECT count(*) FROM responses WHERE _vanished_at IS NOT NULL");
        assert_eq!(vanished, 0, "{command}: what a scan may have lost has not vanished");
    }
    let state = State::open_read_only(&place.state()).unwrap().unwrap();
    let in_doubt = state.coverage(Scope::all(Stream::Responses)).unwrap();
    assert!(in_doubt.iter().any(|held| held.scanned_ms == studysync::model::NEEDS_RECHECK_MS), "{in_doubt:?}");
}
