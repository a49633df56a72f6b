//! Compares the cost that `plan` estimates with the cost of the run.

use serde_json::Value;
use studysync_sandbox::{Rough, Settings};

use crate::harness::{Place, Service, days_ago, small};

fn planned(place: &Place, arguments: &[&str]) -> Value {
    place.run(&[&["plan", "--json"], arguments].concat()).expect(0).json()
}

/// Asserts that an estimate is within a factor of two of the actual value.
fn assert_is_close(what: &str, estimate: &Value, actual: &Value) {
    let (estimate, actual) = (estimate.as_u64().unwrap() as f64, actual.as_u64().unwrap() as f64);
    assert!(estimate <= 2.0 * actual && actual <= 2.0 * estimate, "{what}: planned {estimate}, came to {actual}");
}

/// Runs a backfill and returns its report. Rough data has records that need a look, so exit code 3 is allowed.
fn backfilled(place: &Place, days: i64) -> Value {
    let done = place.run(&["backfill", "--json", "--from", &days_ago(days)]);
    assert!([0, 3].contains(&done.code), "{}", done.stderr);
    done.json()
}

fn services() -> [Settings; 2] {
    let smooth = small(24_000, 120);
    let rough = Settings { rough: Some(Rough::default()), ..small(24_000, 120) };
    // A page has few rows, so that there are hundreds of pages.
    [smooth, rough]
}

const SMALL_PAGES: &str = "[streams.responses]\npage_rows = 60\n[streams.themes]\npage_rows = 60\n";

#[test]
fn a_backfill_plan_is_within_a_factor_of_two_of_the_cost() {
    for settings in services() {
        let data = if settings.rough.is_some() { "rough" } else { "smooth" };
        let service = Service::start(settings);
        let place = Place::new(&service).without_parquet().with_config(SMALL_PAGES);
        let unknown = planned(&place, &["--from", &days_ago(122)]);
        assert!(unknown["total"]["requests"].is_null() && unknown["total"]["is_partial"] == true, "{unknown}");
        assert_eq!(service.log().len(), 0, "a plan sends nothing");
        // The last month predicts the months before.
        assert!([0, 3].contains(&place.run(&["sync"]).code));
        let plan = planned(&place, &["--from", &days_ago(122)]);
        assert!(plan["total"]["minutes"].as_f64().unwrap() > 0.0 && plan["speed_from"] == "earlier_run", "{plan}");
        let text = place.run(&["plan", "--from", &days_ago(122)]).expect(0).stdout;
        assert!(text.contains(" would send\nabout "), "{text}");
        assert!(text.lines().all(|line| line.len() <= 80) && !text.contains(".. "), "{text}");
        let windows = plan["total"]["windows"].as_u64().unwrap() as usize;
        let days = place.run(&["plan", "--days", "--from", &days_ago(122)]).expect(0).stdout;
        assert_eq!(days.matches(" .. ").count(), windows, "{days}");
        let report = backfilled(&place, 122);
        assert_is_close(&format!("requests, {data}"), &plan["total"]["requests"], &report["requests"]["total"]);
        let read = |stream: &str| report["streams"][stream]["rows_read"].as_u64().unwrap();
        let records: Value = (read("responses") + read("surveys") + read("themes")).into();
        assert_is_close(&format!("records, {data}"), &plan["total"]["rows"], &records);
    }
}

#[test]
fn a_few_probe_requests_estimate_a_first_backfill() {
    let small_pages = services().map(|settings| (settings, SMALL_PAGES, 122));
    // A window of few rows needs one request, so the number of windows counts.
    for (settings, config, days) in small_pages.into_iter().chain([(small(3_000, 360), "", 362)]) {
        let data = if settings.rough.is_some() { "rough" } else { "smooth" };
        let service = Service::start(settings);
        let place = Place::new(&service).without_parquet().with_config(config);
        let plan = planned(&place, &["--probe", "--from", &days_ago(days)]);
        let sent = service.log().len() as u64;
        assert_eq!(plan["probe_requests"].as_u64(), Some(sent));
        assert!(sent > 0 && sent <= 60, "{sent} requests for a sample");
        assert!(!place.state().exists() && !place.duckdb().exists(), "a sample is kept nowhere");
        let report = backfilled(&place, days);
        assert_is_close(&format!("requests, {data}"), &plan["total"]["requests"], &report["requests"]["total"]);
        assert_eq!(plan["speed_from"], "probe");
    }
    // If no sample finds a row, the plan does not say that the range is empty.
    let service = Service::start(small(300, 10));
    let place = Place::new(&service).without_parquet();
    let plan = planned(&place, &["--probe", "--from", "2016-01", "--stream", "responses"]);
    assert!(plan["total"]["requests"].is_null() && plan["total"]["is_partial"] == true, "{plan}");
    let nobody = Place::at("http://127.0.0.1:1");
    let failed = nobody.run(&["plan", "--probe", "--from", &days_ago(10)]).expect(1);
    assert!(failed.stderr.contains("127.0.0.1:1") && failed.stdout.is_empty(), "{}", failed.stderr);
}

#[test]
fn a_plan_estimates_the_bytes_of_new_records() {
    for settings in services() {
        let service = Service::start(settings);
        let place = Place::new(&service);
        assert!([0, 3].contains(&place.run(&["sync"]).code));
        let bytes = || -> u64 {
            let files = ["state", "archive", "parquet"].iter().flat_map(|folder| place.files(folder));
            files.chain([place.duckdb()]).map(|file| std::fs::metadata(file).unwrap().len()).sum()
        };
        let before = bytes();
        let plan = planned(&place, &["--from", &days_ago(122)]);
        let estimate = plan["disks"][0]["bytes"].as_u64().unwrap();
        backfilled(&place, 122);
        let grown = bytes() - before;
        assert!(grown <= 2 * estimate && estimate <= 5 * grown, "planned {estimate}, grown by {grown}");
        // What was read needs no more space.
        assert_eq!(planned(&place, &["--from", &days_ago(122)])["disks"], serde_json::json!([]));
    }
}

#[test]
fn the_waits_of_an_earlier_run_do_not_lower_the_planned_speed() {
    let service = Service::start(small(3_000, 30));
    let place = Place::new(&service).without_parquet().with_config(SMALL_PAGES);
    // The service refuses requests before the run has measured a rate.
    let refused = serde_json::json!({"when": {"count": 3, "skip": 3}, "retry_after": {"wait_ms": 2000}});
    service.control().merge_faults(serde_json::json!({"too_many_requests": refused})).unwrap();
    let report = place.report(&["sync"], 0);
    let time = |part: &str| report["time_ms"][part].as_u64().unwrap();
    assert!(report["requests"]["by_status"]["429"] == 3 && time("told_to_wait") >= 5_900, "{report}");
    let status = place.run(&["status"]).expect(0).stdout;
    assert!(!status.contains("learned rate"), "{status}");
    let plan = planned(&place, &["--from", &days_ago(122)]);
    assert_eq!(plan["speed_from"], "earlier_limited_run", "{plan}");
    let answered = report["requests"]["total"].as_u64().unwrap() - 3;
    let active_ms = time("wall") - time("told_to_wait") - time("chose_to_wait");
    let speed = answered as f64 * 1000.0 / active_ms as f64;
    assert!((plan["requests_per_sec"].as_f64().unwrap() - speed).abs() < 0.001, "{speed}: {plan}");
    let text = place.run(&["plan"]).expect(0).stdout;
    assert!(text.contains("the speed of an earlier run, which met a rate limit\n"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
}

#[test]
fn plan_refuses_another_service() {
    let (first, second) = (Service::start(small(300, 10)), Service::start(small(300, 10)));
    let mut place = Place::new(&first).without_parquet();
    place.report(&["sync"], 0);
    place.set_base_url(second.base_url());
    let refused = place.run(&["plan"]).expect(2);
    assert!(refused.stderr.contains("belongs to base_url"), "{}", refused.stderr);
}

#[test]
fn plan_and_check_name_a_missing_warehouse() {
    let service = Service::start(small(2_000, 40));
    let place = Place::new(&service).without_parquet();
    assert!(planned(&place, &[])["reasons"].as_array().unwrap().is_empty(), "no run has filled a warehouse");
    place.run(&["check"]).expect(0);
    place.run(&["backfill", "--from", &days_ago(40)]).expect(0);
    let place = place.with_parquet();
    let status = place.run(&["status", "--json"]).expect(0).json();
    let reason = &status["reasons"][0];
    assert_eq!(reason["code"], "warehouse_missing", "{status}");
    let plan = planned(&place, &[]);
    assert_eq!(plan["reasons"][0], *reason, "one fact in one place");
    let text = place.run(&["plan"]).expect(0).stdout;
    assert!(text.starts_with("there is no parquet warehouse at "), "{text}");
    assert!(text.find("`studysync replay`").unwrap() < text.find(" would send\n").unwrap(), "{text}");
    let check = place.run(&["check"]).expect(1).stdout;
    assert!(check.contains("FAIL warehouse") && check.contains(reason["text"].as_str().unwrap()), "{check}");
    assert!(check.contains("`studysync replay`") && !check.contains("can create"), "{check}");
    let report = place.run(&["sync", "--json"]).json();
    assert_is_close("requests", &plan["total"]["requests"], &report["requests"]["total"]);
    std::fs::remove_file(place.duckdb()).unwrap();
    let plan = planned(&place, &[]);
    assert!(plan["reasons"][0]["text"].as_str().unwrap().contains("duckdb"), "{plan}");
    place.run(&["replay"]).expect(0);
    let plan = planned(&place, &[]);
    assert!(plan["reasons"].as_array().unwrap().is_empty() && plan["total"]["requests"].as_u64() < Some(10), "{plan}");
    // Without an archive only a sync can fill the warehouse.
    std::fs::remove_file(place.duckdb()).unwrap();
    let place = place.without_archive();
    let text = place.run(&["plan"]).expect(0).stdout;
    assert!(text.contains("there is no archive") && !text.contains("run `studysync replay`"), "{text}");
}
