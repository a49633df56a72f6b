//! `status` on a terminal of 80 columns and 24 lines: what it says first, and that it fits.

use serde_json::json;

use crate::harness::{DAY_MS, Done, KEY_VARIABLE, NOW_MS, Place, Service, days_ago, small};

/// Asserts that the text fits a terminal with a line for the prompt, and returns its lines.
fn screen(done: &Done) -> Vec<&str> {
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(lines.len() <= 23, "{} lines:\n{}", lines.len(), done.stdout);
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", done.stdout);
    lines
}

/// Asserts that the lines begin with these labels, in this order.
fn assert_order(lines: &[&str], labels: &[&str]) {
    let places: Vec<_> = labels.iter().map(|label| lines.iter().position(|line| line.starts_with(label))).collect();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{places:?} of {labels:?}: {lines:#?}");
}

#[test]
fn status_answers_health_lag_runs_and_coverage_in_order() {
    let service = Service::start(small(600, 20));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(20)], 0);
    let done = place.run(&["status"]).expect(0);
    let lines = screen(&done);
    assert!(lines[0].starts_with("health    Healthy: "), "{lines:#?}");
    assert_order(
        &lines,
        &["health", "service", "lag", "last runs", "next run", "coverage", "  responses", "  surveys"],
    );
    assert!(
        lines.iter().any(|line| line.starts_with("lag       responses ") && line.contains("; themes ")),
        "{lines:#?}"
    );
    assert!(!done.stdout.contains("behaviour") && !done.stdout.contains("learned rate"), "{}", done.stdout);
    let json = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!((&json["healthy"], &json["reasons"]), (&json!(true), &json!([])), "{json}");
    assert!(json["traits"].as_array().unwrap().len() > 20, "{json}");
}

#[test]
fn status_begins_with_the_reason_and_the_hint_of_a_failure() {
    let service = Service::start(small(300, 20));
    let place = Place::new(&service).with_env(KEY_VARIABLE, "not-the-key");
    place.run(&["sync"]).expect(4);
    let done = place.run(&["status"]).expect(0);
    let lines = screen(&done);
    assert!(lines[0].starts_with("health    FAILING: the service refused the key"), "{lines:#?}");
    assert!(lines[1..4].iter().any(|line| line.starts_with("          hint: ")), "{lines:#?}");
    let json = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!((&json["healthy"], &json["reasons"][0]["code"]), (&json!(false), &json!("key_refused")), "{json}");
    assert_eq!(done.stdout.matches("the service refused the key").count(), 1, "{}", done.stdout);
}

#[test]
fn status_of_a_damaged_or_missing_warehouse_is_failing() {
    let service = Service::start(small(300, 20));
    let place = Place::new(&service).without_parquet();
    place.report(&["sync"], 0);
    std::fs::write(place.duckdb(), "no database").unwrap();
    let done = place.run(&["status"]).expect(0);
    let lines = screen(&done);
    assert!(lines[0].starts_with("health    FAILING: the duckdb warehouse failed:"), "{lines:#?}");
    assert!(done.stdout.contains("hint: name another path; or, if it was a warehouse"), "{}", done.stdout);
    assert!(done.stdout.contains(", rows unknown\n"), "{}", done.stdout);
    let json = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!((&json["healthy"], &json["reasons"][0]["code"]), (&json!(false), &json!("configuration")), "{json}");
    std::fs::remove_file(place.duckdb()).unwrap();
    let missing = place.run(&["status"]).expect(0).stdout;
    assert!(missing.starts_with("health    FAILING: there is no duckdb warehouse at"), "{missing}");
    assert!(
        missing.split_whitespace().collect::<Vec<_>>().join(" ").contains("rows not counted (the warehouse is missing")
    );
    assert!(!missing.contains("bucket"), "{missing}");
}

#[test]
fn status_of_many_gaps_surveys_and_failures_fits_a_screen() {
    let service = Service::start(small(900, 60));
    let place = Place::new(&service);
    let surveys = service.truth(studysync_sandbox::ListName::Surveys);
    let survey_id = |text: &String| serde_json::from_str::<serde_json::Value>(text).unwrap()["id"].to_string();
    for (nth, survey) in surveys.iter().take(8).map(survey_id).enumerate() {
        let range = [days_ago(4 + 4 * nth as i64), days_ago(3 + 4 * nth as i64)];
        place.report(&["backfill", "--from", &range[0], "--to", &range[1]], 0);
        place.report(&["backfill", "--from", &days_ago(2), "--survey", &survey, "--stream", "responses"], 0);
    }
    place.run(&["backfill", "--from", &days_ago(60), "--max-requests", "5"]).expect(6);
    service
        .control()
        .merge_faults(json!({"too_many_requests": {"when": {"count": 1}, "retry_after": {"form": "seconds", "wait_ms": 90_000_000}}}))
        .unwrap();
    place.run(&["sync"]).expect(6);
    let done = place.run(&["status"]).expect(0);
    let lines = screen(&done);
    assert_order(&lines, &["health", "lag", "last runs", "coverage", "  responses", "    MISSING", "  and "]);
    assert!(
        done.stdout.contains("    MISSING 7 ranges, the first 20") && done.stdout.contains("rate limited: "),
        "{}",
        done.stdout
    );
    let json = place.run(&["status", "--json"]).expect(0).json();
    assert!(json["streams"][0]["missing"].as_array().unwrap().len() > 2, "{json}");
}

#[test]
fn status_says_that_themes_begin_later() {
    let service = Service::start(small(900, 40));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let status = || place.run(&["status"]).expect(0);
    assert!(!status().stdout.contains("LATER"), "{}", status().stdout);
    place.report(&["backfill", "--from", &days_ago(40), "--stream", "responses"], 0);
    let done = status();
    let lines = screen(&done);
    let json = place.run(&["status", "--json"]).expect(0).json();
    let day = json["streams"][0]["complete"][0]["start"].as_str().unwrap().get(..10).unwrap();
    let advice = format!("    LATER than responses: studysync backfill --from {day} --stream themes");
    assert!(lines.contains(&&*advice), "{advice}: {lines:#?}");
    place.report(&["backfill", "--from", day, "--stream", "themes"], 0);
    assert!(!status().stdout.contains("LATER"), "{}", status().stdout);
}

#[test]
fn status_with_max_lag_lists_late_streams_first() {
    let service = Service::start(small(300, 20));
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(20), "--to", &(NOW_MS - 5 * DAY_MS).to_string()], 0);
    let done = place.run(&["status", "--max-lag", "26h"]).expect(3);
    let lines = screen(&done);
    assert!(lines[0].starts_with("BEHIND  responses: 5 days behind, limit 26 h"), "{lines:#?}");
    let health = lines.iter().find(|line| line.starts_with("health")).unwrap();
    assert!(health.starts_with("health    FAILING: a stream is further behind"), "{lines:#?}");
    let json = place.run(&["status", "--max-lag", "26h", "--json"]).expect(3).json();
    assert_eq!((&json["healthy"], &json["reasons"][0]["code"]), (&json!(false), &json!("behind")), "{json}");
}
