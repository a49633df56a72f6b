//! The warehouse compared with the service, row by row and column by column, for each service behaviour and most
//! faults.

use serde_json::{Value, json};
use studysync_sandbox::{ListName, Settings};

use crate::harness::{
    ALL_FLAGS, DAY_MS, NOW_MS, Place, Service, assert_covers_every_case, assert_warehouses_equal, days_ago,
    expected::{Expected, Seen, settled_ms},
    small,
};

const DAYS: u32 = 30;

/// A configuration with small pages, so that each window has many.
fn paged(page_rows: u32) -> String {
    let pages = ["responses", "surveys"].map(|stream| format!("[streams.{stream}]\npage_rows = {page_rows}\n"));
    let [responses, surveys] = pages;
    format!("{ALL_FLAGS}{}{surveys}", responses.replace("[streams.responses]\n", ""))
}

fn backfill(place: &Place, days: i64, exit_code: i32) -> Value {
    place.report(&["backfill", "--from", &days_ago(days)], exit_code)
}

/// Returns the sum of a count over all streams of a report.
fn total(report: &Value, count: &str) -> u64 {
    report["streams"].as_object().unwrap().values().map(|stream| stream[count].as_u64().unwrap()).sum()
}

#[test]
fn p1_a_backfill_equals_the_service_in_every_column() {
    equals_the_truth(8000);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_a_large_backfill_equals_the_service_in_every_column() {
    equals_the_truth(30_000);
}

fn equals_the_truth(generated: u64) {
    let service = Service::start(small(generated, 90));
    let place = Place::new(&service);
    let report = backfill(&place, 92, 0);
    let expected = Expected::now(&service);
    assert_covers_every_case(&expected);
    let responses = expected.rows("responses").len();
    assert!(responses as u64 > generated * 299 / 300, "{responses}: only the last minutes are left out");
    assert!(expected.rows("responses").iter().any(|row| row["deleted_at"].is_some()), "nothing is soft-deleted");
    assert_warehouses_equal(&place, &expected, "after the backfill");
    assert_eq!(
        total(&report, "inserted"),
        (responses + expected.rows("themes").len() + expected.rows("surveys").len()) as u64
    );
    assert_eq!(total(&report, "vanished") + total(&report, "withheld") + total(&report, "updated"), 0, "{report}");
}

#[test]
fn p1_unrequested_fields_are_null_and_others_equal_the_service() {
    let service = Service::start(small(3000, DAYS));
    let place = Place::new(&service).with_config("[streams.responses]\nflags = []\n");
    backfill(&place, 31, 0);
    let expected = Expected::of(&service, Seen { until_ms: settled_ms(NOW_MS), with_flags: false });
    assert!(expected.rows("visitor_snapshots").is_empty());
    let all = Expected::now(&service).rows("responses").len();
    assert!(expected.rows("responses").len() < all, "soft-deleted answers are not sent without their flag");
    assert_warehouses_equal(&place, &expected, "without flags");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p1_slow_hostile_rows_land_in_a_table_or_in_rejects() {
    let service = Service::start(Settings { hostile_share: 0.2, ..small(6000, DAYS) });
    let rejects = [
        (
            r#"{"createdAt":"yesterday","questionId":1,"responseGroupUid":"g-1","response":"an unreadable time"}"#,
            "createdAt",
        ),
        (r#"{"createdAt":"2026-01-20T10:00:00.000Z","questionId":1,"response":"no session"}"#, "responseGroupUid"),
        (
            r#"{"createdAt":"2026-01-20T10:00:00.000Z","questionId":"one","responseGroupUid":"g-3","response":"é 😀"}"#,
            "questionId",
        ),
    ];
    for (record, _) in rejects {
        service.control().plant(ListName::Responses, record, Some(NOW_MS - 10 * DAY_MS)).unwrap();
    }
    let place = Place::new(&service);
    let report = backfill(&place, 31, 3);
    assert_eq!(report["outcome"], "needs_a_look");
    assert_eq!(report["streams"]["responses"]["rejected"], 3, "{report}");

    let placeable =
        service.truth(ListName::Responses).into_iter().filter(|record| rejects.iter().all(|(raw, _)| raw != record));
    let expected = Expected::of_records(
        placeable,
        service.truth(ListName::Themes),
        service.truth(ListName::Surveys),
        Seen { until_ms: settled_ms(NOW_MS), with_flags: true },
    );
    let collisions = expected.collisions("responses");
    assert!(!collisions.is_empty(), "no two hostile rows share a key, so collisions are not tested");
    assert!(
        expected.rows("responses").iter().filter(|row| row["extra"].is_some()).count() > 100,
        "hostile rows are rare"
    );
    assert_warehouses_equal(&place, &expected, "hostile rows");
    let lost: usize = collisions.iter().map(|key| expected.bases["responses"][*key].len() - 1).sum();
    assert_eq!(report["streams"]["responses"]["collisions"], lost, "{report}");
    for (name, tables) in place.warehouses() {
        let kept = tables.count("SELECT count(*) FROM response_history WHERE reason = 'collision'");
        assert_eq!(kept, lost as i64, "{name}: the records that lost a collision are kept");
        let mut found: Vec<(String, String)> = tables
            .rows("rejects")
            .into_iter()
            .map(|row| (row["raw"].clone().unwrap(), row["field"].clone().unwrap()))
            .collect();
        let mut wanted = rejects.map(|(raw, field)| (raw.to_owned(), field.to_owned())).to_vec();
        found.sort();
        wanted.sort();
        assert_eq!(found, wanted, "{name}");
    }
    // A second backfill sends no request. It reports findings only if it scans them itself.
    let again = place.run(&["backfill", "--from", &days_ago(31), "--json"]).expect(0).json();
    assert_eq!(again["requests"]["total"], 0);
}

/// Plants two answers on each side of every midnight, where windows meet.
fn plant_at_the_edges(service: &Service) {
    let record = service
        .truth(ListName::Responses)
        .into_iter()
        .find(|record| record.contains(r#""questionType":"MATRIX""#))
        .unwrap();
    let value: Value = serde_json::from_str(&record).unwrap();
    let text = |name: &str| value[name].as_str().unwrap().to_owned();
    for day in 1..i64::from(DAYS) {
        let midnight_ms = NOW_MS.div_euclid(DAY_MS) * DAY_MS - day * DAY_MS;
        for (at_ms, side) in [(midnight_ms - 1, "before"), (midnight_ms, "after")] {
            let time =
                chrono::DateTime::from_timestamp_millis(at_ms).unwrap().format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string();
            let planted = record.replace(&text("responseGroupUid"), &format!("edge-{side}-{day:02}"));
            let planted = planted.replacen(&text("createdAt"), &time, 1);
            service.control().plant(ListName::Responses, &planted, None).unwrap();
        }
    }
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p3_slow_every_service_behaviour_gives_the_same_tables() {
    let service = Service::start(small(1500, DAYS));
    plant_at_the_edges(&service);
    let expected = Expected::now(&service);
    assert_covers_every_case(&expected);
    let habits = [
        json!({"order": "oldest_first"}),
        json!({"order": "shuffled", "end_mark": "missing"}),
        json!({"end_mark": "empty", "exclusive_start": true}),
        json!({"order": "oldest_first", "exclusive_end": true, "not_found_when_empty": true}),
        json!({"exclusive_start": true, "exclusive_end": true, "trailing_empty_page": true, "gzip": true}),
        json!({"order": "shuffled", "repeated_rows": {"rows": 7, "when": {"every": 2}}, "empty_page": {"when": {"every": 5}}}),
    ];
    for habit in habits {
        service.set_faults(Default::default());
        service.control().merge_faults(habit.clone()).unwrap();
        service.clear_log();
        // The range begins long before the first answer: its first windows are empty.
        let place = Place::new(&service).with_config(&paged(40));
        let report = backfill(&place, 60, 0);
        assert_warehouses_equal(&place, &expected, &habit.to_string());
        if habit["not_found_when_empty"] == true {
            assert!(service.log().iter().any(|entry| entry.status == 404), "no window was empty");
        }
        assert!(report["streams"]["responses"]["pages"].as_u64().unwrap() > 30, "{report}");
    }
}

#[test]
fn p3_ties_at_page_edges_are_neither_lost_nor_duplicated() {
    for order in ["newest_first", "oldest_first"] {
        let service = Service::start(Settings { ties_per_ms: 6, ..small(1500, DAYS) });
        service.control().merge_faults(json!({"ties": "repeated", "order": order})).unwrap();
        let place = Place::new(&service).with_config(&paged(40));
        let report = backfill(&place, 31, 0);
        let expected = Expected::now(&service);
        let read = report["streams"]["responses"]["rows_read"].as_u64().unwrap() as usize;
        assert!(read > expected.rows("responses").len(), "no row was sent twice, so this proves nothing");
        assert_warehouses_equal(&place, &expected, order);
    }
}

#[test]
fn p2_p5_tables_equal_the_service_despite_faults() {
    is_thrown_at(700, 13);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p2_p5_slow_tables_equal_the_service_despite_many_faults() {
    is_thrown_at(2000, 29);
}

fn is_thrown_at(responses: u64, dead_token_every: u64) {
    let service = Service::start(small(responses, DAYS));
    service
        .control()
        .merge_faults(json!({
            "too_many_requests": {"when": {"every": 9}, "retry_after": {"form": "fraction", "wait_ms": 60}},
            "server_error": {"when": {"every": 14}},
            "unavailable": {"when": {"every": 23}, "retry_after": {"form": "absent"}},
            "cut_body": {"when": {"every": 17}},
            "html": {"when": {"every": 31}},
            "no_data": {"when": {"every": 37}},
            "dead_tokens": {"when": {"every": dead_token_every}, "status": 410}
        }))
        .unwrap();
    let place = Place::new(&service).with_config(&paged(50));
    let report = backfill(&place, 31, 0);
    assert_warehouses_equal(&place, &Expected::now(&service), "faults of all kinds");
    let struck: std::collections::BTreeSet<_> = service.log().into_iter().filter_map(|entry| entry.fault).collect();
    for fault in ["too_many_requests", "server_error", "cut_body", "html", "dead_tokens"] {
        assert!(struck.contains(fault), "{fault} never struck: {struck:?}");
    }
    assert!(report["time_ms"]["told_to_wait"].as_u64().unwrap() > 0, "{report}");
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p5_slow_a_backfill_keeps_a_real_rate_limit() {
    let service = Service::start(small(1500, DAYS));
    service
        .control()
        .merge_faults(json!({"rate_limit": {"per_second": 15.0, "burst": 5, "form": "fraction", "min_wait_ms": 600}}))
        .unwrap();
    let place = Place::new(&service).with_config(&paged(20));
    backfill(&place, 31, 0);
    assert_warehouses_equal(&place, &Expected::now(&service), "a rate limit");
    let log = service.log();
    let refused = log.iter().filter(|entry| entry.status == 429).count();
    assert!(refused >= 1 && log.len() > 60, "the limit was never met: {refused} of {}", log.len());
    assert!(refused * 5 < log.len(), "{refused} of {} requests were refused", log.len());
    crate::gate::assert_obeyed(&log, "a rate limit");
}

#[test]
fn p1_a_single_warehouse_without_archive_equals_the_service() {
    let service = Service::start(small(2500, DAYS));
    let expected = Expected::now(&service);
    let alone = [
        (
            "Parquet by day",
            Place::new(&service)
                .without_duckdb()
                .with_config(&format!("{ALL_FLAGS}[warehouse]\nparquet_partition = \"day\"\n")),
        ),
        ("DuckDB, no archive", Place::new(&service).without_parquet().without_archive()),
    ];
    for (name, place) in alone {
        backfill(&place, 31, 0);
        assert_warehouses_equal(&place, &expected, name);
        assert_eq!(place.warehouses().len(), 1);
    }
}
