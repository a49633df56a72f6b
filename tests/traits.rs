//! The traits of a service: what `check --traits` measures against every habit that the sandbox has, what runs learn by the way,
//! and what they make of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use studysync::sandbox::{LogEntry, Settings};

use crate::harness::{Place, Service, days_ago, small};

/// The most requests of a measure, with the two that `check` itself makes.
const REQUESTS_MAX: usize = 62;

fn service(settings: Settings, faults: Value) -> Service {
    let service = Service::start(settings);
    service.control().merge_faults(faults).unwrap();
    service
}

/// 1,500 answers in 20 days, four to a millisecond.
fn plain() -> Settings {
    Settings { ties_per_ms: 4, ..small(1500, 20) }
}

fn measured_at(place: &Place, service: &Service) -> BTreeMap<String, Value> {
    service.clear_log();
    let json = place.run(&["check", "--traits", "--json"]).expect(0).json();
    assert!(json["findings"].as_array().unwrap().iter().all(|finding| finding["is_well"] == true), "{json}");
    let traits = json["traits"].as_array().unwrap_or_else(|| panic!("no traits in {json}"));
    assert_eq!(traits.len(), 13, "{json}");
    let log = service.log();
    assert!(log.len() <= REQUESTS_MAX, "{} requests", log.len());
    let told: u64 = traits.iter().map(|one| one["requests"].as_u64().unwrap()).sum();
    // The others are about the key, the clock, and whether each list answers: a 404 is asked about twice more.
    let others = if log.iter().any(|entry| entry.status == 404) { 8 } else { 4 };
    assert!(
        (told as usize) < log.len() && told as usize + others >= log.len(),
        "{told} of {} requests are told",
        log.len()
    );
    assert!(traits.iter().all(|one| !one["how"].as_str().unwrap().is_empty()), "{json}");
    traits.iter().map(|one| (one["trait"].as_str().unwrap().to_owned(), one["value"].clone())).collect()
}

fn measured(settings: Settings, faults: Value) -> BTreeMap<String, Value> {
    let service = service(settings, faults);
    let place = Place::new(&service).without_parquet();
    measured_at(&place, &service)
}

/// Asserts some of the traits that are measured under these faults.
fn assert_measures(settings: &Settings, faults: Value, expected: Value) {
    let found = measured(settings.clone(), faults.clone());
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name} under {faults}: {found:?}");
    }
}

#[test]
fn each_order_and_each_fate_of_ties_is_measured() {
    assert_measures(&plain(), json!({}), json!({"order": "newest_first", "ties": "kept", "page_rows": 1000}));
    assert_measures(
        &plain(),
        json!({"order": "oldest_first", "ties": "lost"}),
        json!({"order": "oldest_first", "ties": "lost"}),
    );
    assert_measures(
        &plain(),
        json!({"order": "shuffled", "ties": "repeated"}),
        json!({"order": "none", "ties": "repeated"}),
    );
    assert_measures(&Settings { ties_per_ms: 900, ..plain() }, json!({"ties": "lost"}), json!({"ties": "lost"}));
    assert_measures(&small(1500, 20), json!({"ties": "lost"}), json!({"ties": null, "order": "newest_first"}));
}

#[test]
fn each_kind_of_range_and_each_end_of_a_list_is_measured() {
    let ends = |start: bool, end: bool| json!({"start_inclusive": start, "end_inclusive": end});
    assert_measures(&plain(), json!({}), ends(true, true));
    assert_measures(&plain(), json!({"exclusive_start": true, "not_found_when_empty": true}), ends(false, true));
    assert_measures(&plain(), json!({"exclusive_end": true, "order": "oldest_first"}), ends(true, false));
    assert_measures(&plain(), json!({"exclusive_start": true, "exclusive_end": true}), ends(false, false));
    let list = |style, trailing: bool, not_found: bool| json!({"end_style": style, "trailing_empty_page": trailing, "not_found_when_empty": not_found});
    assert_measures(&plain(), json!({"end_mark": "null"}), list("null", false, false));
    assert_measures(&plain(), json!({"end_mark": "missing"}), list("missing", false, false));
    let empty_and_404 = json!({"end_mark": "empty", "not_found_when_empty": true});
    assert_measures(&plain(), empty_and_404, list("empty_text", false, true));
    assert_measures(
        &plain(),
        json!({"trailing_empty_page": true, "end_mark": "missing"}),
        list("missing", true, false),
    );
    let both = json!({"trailing_empty_page": true, "not_found_when_empty": true});
    assert_measures(&plain(), both, list("not_found", true, true));
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_the_page_sizes_are_measured() {
    let slow = |above_rows, status| json!({"slow_pages": {"above_rows": above_rows, "wait_ms": 1, "status": status}});
    assert_measures(&plain(), slow(400, 504), json!({"page_rows": 250}));
    assert_measures(&small(300, 20), slow(300, 500), json!({"page_rows": 250}));
    assert_measures(&small(300, 20), json!({}), json!({"page_rows": null}));
    assert_measures(&plain(), json!({"default_page_rows": 13}), json!({"themes_page_rows": 13}));
    assert_measures(&small(300, 20), json!({"default_page_rows": 900}), json!({"themes_page_rows": null}));
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_the_form_of_a_refusal_is_told_when_one_was_seen() {
    let forms = [
        ("absent", "absent"),
        ("seconds", "seconds"),
        ("fraction", "fraction"),
        ("http_date", "http_date"),
        ("zero", "useless"),
        ("negative", "useless"),
        ("past_date", "useless"),
        ("garbage", "useless"),
    ];
    for (sent, told) in forms {
        let refusal = json!({"too_many_requests": {"when": {"count": 1, "skip": 4}, "retry_after": {"form": sent, "wait_ms": 1200}}});
        // An HTTP date is one by a clock that runs.
        assert_measures(&Settings { frozen_clock: false, ..plain() }, refusal, json!({"retry_after": told}));
    }
    assert_measures(&plain(), json!({}), json!({"retry_after": null}));
}

#[test]
fn an_empty_service_leaves_all_unknown_and_that_is_no_error() {
    for faults in [json!({}), json!({"not_found_when_empty": true})] {
        let mut found = measured(Settings { responses: 0, ..plain() }, faults);
        // It has surveys.
        let surveys = ["survey_status_form", "surveys_listed_whole"].map(|name| found.remove(name));
        assert_eq!(surveys, [Some(json!("comma")), Some(json!(true))]);
        assert!(found.values().all(Value::is_null), "{found:?}");
    }
}

#[test]
fn what_is_measured_is_remembered_shown_and_used() {
    let service = service(
        plain(),
        json!({"ties": "lost", "default_page_rows": 20, "slow_pages": {"above_rows": 100, "wait_ms": 1}}),
    );
    let place = Place::new(&service).without_parquet();
    let before = place.run(&["status"]).expect(0).stdout;
    assert!(before.contains("Nothing was synced yet"), "{before}");
    measured_at(&place, &service);
    let table = place.run(&["check", "--traits"]).expect(0).stdout;
    assert!(table.contains("page_rows") && table.contains("newest_first") && table.contains("requests"), "{table}");
    let status = place.run(&["status"]).expect(0).stdout;
    assert!(status.contains("traits of the service") && status.contains("newest_first"), "{status}");
    let status = place.run(&["status", "--json"]).expect(0).json();
    let value = |name: &str| {
        let traits = status["traits"].as_array().unwrap();
        let one = traits.iter().find(|one| one["trait"] == name).unwrap_or_else(|| panic!("no {name} in {status}"));
        assert!(one["value"].is_null() || one["measured_ms"].as_i64().unwrap() > 0, "{one}");
        one["value"].clone()
    };
    assert_eq!([value("ties"), value("page_rows"), value("retry_after")], [json!("lost"), json!(100), json!(null)]);
    service.clear_log();
    place.report(&["sync"], 0);
    let log = service.log();
    let limit = |entry: &LogEntry| entry.query.iter().find(|(name, _)| name == "limit").map(|(_, rows)| rows.clone());
    let is_page = |entry: &&LogEntry| entry.path == "/v1/responses" && !is_of_one_millisecond(entry);
    let sizes: Vec<_> = log.iter().filter(is_page).filter_map(limit).collect();
    assert!(!sizes.is_empty() && sizes.iter().all(|rows| rows == "100"), "too large pages were tried again: {sizes:?}");
    // A day later everything is due again; what the plan says is about what it takes.
    service.advance_days(1);
    let plan = place.run(&["plan", "--json"]).expect(0).json();
    assert_eq!(plan["ties"], "lost");
    let streams = plan["streams"].as_array().unwrap();
    let responses = streams.iter().find(|stream| stream["stream"] == "responses").unwrap();
    let (rows, requests) = (responses["rows"].as_u64().unwrap(), responses["requests"].as_u64().unwrap());
    assert!(requests * 10 >= rows * 10 / 100 * 18 / 10, "{requests} requests for {rows} rows leave the edges out");
}

fn is_of_one_millisecond(entry: &LogEntry) -> bool {
    let number = |name: &str| entry.query.iter().find(|(key, _)| key == name)?.1.parse::<i64>().ok();
    number("start").zip(number("end")).is_some_and(|(start, end)| end - start == 2)
}

#[test]
fn runs_learn_by_the_way() {
    let faults = json!({
        "order": "oldest_first", "end_mark": "missing", "not_found_when_empty": true,
        "too_many_requests": {"when": {"count": 1}, "retry_after": {"form": "fraction", "wait_ms": 50}}
    });
    let service = service(plain(), faults);
    let place = Place::new(&service).without_parquet();
    // From long before the first answer: those windows are empty.
    place.report(&["backfill", "--from", &days_ago(60)], 0);
    let status = place.run(&["status", "--json"]).expect(0).json();
    let traits = status["traits"].as_array().unwrap().iter();
    let found: BTreeMap<&str, &Value> = traits.map(|one| (one["trait"].as_str().unwrap(), &one["value"])).collect();
    for (name, value) in [
        ("order", json!("oldest_first")),
        ("end_style", json!("missing")),
        ("trailing_empty_page", json!(false)),
        ("not_found_when_empty", json!(true)),
        ("ties", json!("kept")),
        ("retry_after", json!("fraction")),
        ("start_inclusive", json!(null)),
    ] {
        assert_eq!(found[name], &value, "{name}: {found:?}");
    }
    assert_eq!(service.log().iter().filter(|entry| entry.status == 429).count(), 1);
}

#[test]
fn each_end_of_a_measure_has_its_exit_code() {
    let service = service(plain(), json!({}));
    let place = Place::new(&service).without_parquet().with_env(crate::harness::KEY_VARIABLE, "wrong");
    place.run(&["check", "--traits"]).expect(4);
    let place = Place::new(&service).without_parquet();
    let allowance = place.run(&["check", "--traits", "--json", "--max-requests", "8"]).expect(0).json();
    let unknown = |one: &&Value| one["how"].as_str().unwrap().contains("allowance of 8 requests");
    assert!(allowance["traits"].as_array().unwrap().iter().filter(unknown).count() >= 2, "{allowance}");
    let refusal = json!({"too_many_requests": {"when": {"count": 1, "skip": 5}, "retry_after": {"form": "seconds", "wait_ms": 90_000_000}}});
    service.control().merge_faults(refusal).unwrap();
    let told = place.run(&["check", "--traits"]).expect(6).stdout;
    assert!(told.contains("as the service told"), "{told}");
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert!(status["traits"].to_string().contains("\"seconds\""), "what was seen up to then stays: {status}");
    service.stop();
    place.run(&["check", "--traits"]).expect(6);
    place.run(&["check", "--traits", "--ignore-rate-limit"]).expect(1);
}

#[test]
fn a_service_with_studies_alone_gives_its_surveys() {
    let service = service(small(60, 3), json!({"surveys_at": "studies"}));
    let place = Place::new(&service);
    place.run(&["check"]).expect(0);
    let report = place.report(&["backfill", "--from", &days_ago(4), "--stream", "studies", "--stream", "responses"], 0);
    let surveys = report["streams"]["surveys"]["inserted"].as_u64().unwrap();
    assert_eq!(surveys as usize, service.truth(studysync::sandbox::ListName::Surveys).len());
    service.clear_log();
    place.report(&["sync"], 0);
    let log = service.log();
    assert!(log.iter().any(|entry| entry.path == "/v1/studies"), "{log:?}");
    assert!(log.iter().all(|entry| entry.path != "/v1/surveys"), "the name that answers is remembered");
    service.control().merge_faults(json!({"surveys_at": "surveys"})).unwrap();
    let again = place.report(&["sync"], 0);
    assert_eq!(again["streams"]["surveys"]["vanished"], 0, "{again}");
}
