//! The service profile: what `check --service-profile` measures for each behaviour of the sandbox, what ordinary runs
//! measure, and how runs use it.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use studysync_sandbox::{ListName, LogEntry, Settings};

use crate::harness::{Place, Service, days_ago, small};

/// The maximum number of requests of a measurement, including the two requests of `check` itself.
const REQUESTS_MAX: usize = 62;

fn service(settings: Settings, faults: Value) -> Service {
    let service = Service::start(settings);
    service.control().merge_faults(faults).unwrap();
    service
}

/// 1,500 answers in 20 days, four per millisecond.
fn plain() -> Settings {
    Settings { ties_per_ms: 4, ..small(1500, 20) }
}

fn measured_at(place: &Place, service: &Service) -> BTreeMap<String, Value> {
    service.clear_log();
    let json = place.run(&["check", "--service-profile", "--json"]).expect(0).json();
    assert!(json["findings"].as_array().unwrap().iter().all(|finding| finding["is_well"] == true), "{json}");
    let traits = json["traits"].as_array().unwrap_or_else(|| panic!("no traits in {json}"));
    assert_eq!(traits.len(), 23, "{json}");
    let log = service.log();
    assert!(log.len() <= REQUESTS_MAX, "{} requests", log.len());
    let told: u64 = traits.iter().map(|one| one["requests"].as_u64().unwrap()).sum();
    // The other requests check the key, the clock, and whether each list answers. A 404 causes two more requests.
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

/// Asserts some of the behaviours that are measured under these faults.
fn assert_measures(settings: &Settings, faults: Value, expected: Value) {
    let found = measured(settings.clone(), faults.clone());
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&found[name], value, "{name} under {faults}: {found:?}");
    }
}

#[test]
fn check_measures_each_order_and_tie_behaviour() {
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
fn check_measures_each_range_kind_and_list_end() {
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
fn check_measures_the_range_meaning_of_each_list() {
    let of_responses = |by: &str| json!({"responses_filtered_by": by});
    // Answers of one session are minutes apart, and some were changed.
    for by in ["updated", "session", "ignored"] {
        assert_measures(&plain(), of_responses(by), json!({"responses_filtered_by": by, "start_inclusive": null}));
    }
    // If no range returns a row, a list of responses shows no behaviour.
    assert_measures(&plain(), of_responses("nothing"), json!({"responses_filtered_by": null, "order": null}));
    let of_surveys = |by: &str| json!({"surveys_filtered_by": by});
    for by in ["updated", "launched", "ignored"] {
        let expected =
            json!({"surveys_filtered_by": by, "surveys_start_inclusive": null, "responses_filtered_by": "created"});
        assert_measures(&plain(), of_surveys(by), expected);
    }
    assert_measures(&plain(), of_surveys("nothing"), json!({"surveys_filtered_by": "other"}));
    let ends = |start: bool, end: bool| {
        json!({
            "surveys_filtered_by": "created", "surveys_start_inclusive": start, "surveys_end_inclusive": end,
            "themes_filtered_by": "theme", "themes_start_inclusive": start, "themes_end_inclusive": end,
        })
    };
    assert_measures(&plain(), json!({}), ends(true, true));
    assert_measures(&plain(), json!({"exclusive_start": true}), ends(false, true));
    assert_measures(&plain(), json!({"exclusive_end": true, "not_found_when_empty": true}), ends(true, false));
    let lag = json!({"theme_lag_ms": 3_600_000});
    assert_measures(&plain(), lag, json!({"themes_filtered_by": "answer", "themes_start_inclusive": null}));
}

#[test]
fn check_measures_default_and_requested_survey_states() {
    let some = json!({"default_statuses": ["IN_PROGRESS", "PAUSED"]});
    let found = measured(plain(), some);
    assert_eq!(found["default_statuses"], json!(["IN_PROGRESS", "PAUSED"]));
    assert_eq!(found["statuses_on_request"], json!(["ARCHIVED", "COMPLETED", "DRAFT", "NEW"]));
    assert_eq!(found["surveys_listed_whole"], json!(false));
    let unread = json!({"default_statuses": ["IN_PROGRESS", "PAUSED"], "status_spelling": "comma", "ignore_other_spellings": true});
    assert_eq!(measured(plain(), unread)["statuses_on_request"], json!(["ARCHIVED", "COMPLETED", "DRAFT", "NEW"]));
}

#[test]
fn p9_a_status_that_the_contract_does_not_know_is_not_kept() {
    let service = service(plain(), json!({}));
    let survey = r#"{"id":990001,"createdAt":"2026-01-01T00:00:00Z","status":"Zoe Quux"}"#;
    service.control().plant(ListName::Surveys, survey, None).unwrap();
    let place = Place::new(&service).without_parquet();
    let outputs = [
        place.run(&["check", "--service-profile", "--json"]),
        place.run(&["sync", "-v"]),
        place.run(&["status"]),
        place.run(&["status", "--json"]),
    ];
    for output in &outputs {
        // The unknown status is stored in the warehouse, and the drift report names its path.
        assert!(!output.stdout.contains("Quux") && !output.stderr.contains("Quux"), "{output:?}");
    }
    assert!(outputs[0].stdout.contains("IN_PROGRESS"), "{:?}", outputs[0]);
    assert!(!String::from_utf8_lossy(&std::fs::read(place.state()).unwrap()).contains("Quux"));
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM surveys WHERE status = 'Zoe Quux'"), 1);
}

#[test]
fn p9_check_measures_user_times_without_naming_people() {
    for (faults, unit) in [
        (json!({}), "milliseconds"),
        (json!({"user_times_in_seconds": true}), "seconds"),
        (json!({"iso_user_times": true}), "text"),
    ] {
        let service = service(plain(), faults);
        let place = Place::new(&service).without_parquet().without_archive();
        let found = measured_at(&place, &service);
        assert_eq!(found["user_time_unit"], json!(unit));
        let log = service.log();
        let asked: Vec<&str> = log.iter().filter_map(|entry| entry.path.strip_prefix("/v2/users/")).collect();
        assert!((1..=3).contains(&asked.len()), "{asked:?}");
        // No file of the state contains the ids of the requested people.
        for file in place.files("state") {
            let bytes = std::fs::read(&file).unwrap();
            let is_named = |id: &&str| memchr::memmem::find(&bytes, id.as_bytes()).is_some();
            assert!(!asked.iter().any(is_named), "{}", file.display());
        }
        let shown = place.run(&["status", "--json"]).expect(0).stdout
            + &place.run(&["check", "--service-profile"]).expect(0).stdout;
        assert!(!asked.iter().any(|id| shown.contains(id)), "{shown}");
    }
    let nobody = measured(plain(), json!({"auth": "strict"}));
    assert_eq!(nobody["user_time_unit"], json!("milliseconds"), "the documented header");
}

#[test]
fn webhook_environments_are_listed_with_counts() {
    let service = service(small(60, 3), json!({}));
    let place = Place::new(&service).without_parquet();
    place.report(&["backfill", "--from", &days_ago(4)], 0);
    assert_eq!(measured_at(&place, &service)["environment_ids"], json!(null));
    // Stores events as a run stores webhooks.
    let warehouse = duckdb::Connection::open(place.duckdb()).unwrap();
    let event = |id: &str, environment: &str| {
        let columns = "SELECT string_agg(column_name, ', ') FROM duckdb_columns() WHERE table_name = 'webhook_events' AND NOT is_nullable";
        let needed: String = warehouse.query_row(columns, [], |row| row.get(0)).unwrap();
        let values: Vec<String> = needed.split(", ").map(|name| value_of(name, id)).collect();
        let sql = format!(
            "INSERT INTO webhook_events ({needed}, environment_id) VALUES ({}, '{environment}')",
            values.join(", ")
        );
        warehouse.execute_batch(&sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    };
    ["1", "2"].iter().for_each(|id| event(id, "env-prod"));
    event("3", "zoe@example.com");
    drop(warehouse);
    assert_eq!(measured_at(&place, &service)["environment_ids"], json!([{"id": "env-prod", "deliveries": 2}]));
    let inbox = place.path("state/checkpoints.sqlite.inbox");
    assert!(!inbox.exists());
    let place = place.with_config("[serve]\nenvironment_id = \"env-dev\"\n");
    let two = json!([{"id": "env-prod", "deliveries": 2}, {"id": "env-dev", "deliveries": 0}]);
    assert_eq!(measured_at(&place, &service)["environment_ids"], two);
    let shown = place.run(&["check", "--service-profile"]).expect(0).stdout;
    assert!(shown.contains("env-prod (2), env-dev (0)") && shown.contains("warning: several environments"), "{shown}");
    assert!(!shown.contains("zoe@") && !place.run(&["status", "--json"]).stdout.contains("zoe@"), "{shown}");
    assert!(memchr::memmem::find(&std::fs::read(place.state()).unwrap(), b"zoe@").is_none());
}

/// Returns a valid value for a column of events.
fn value_of(column: &str, id: &str) -> String {
    match column {
        name if name.ends_with("_at") => "TIMESTAMP '2026-01-29 10:00:00'".to_owned(),
        _ => format!("'{id}'"),
    }
}

#[test]
fn each_trait_shows_its_date_and_evidence_in_80_columns() {
    let service = service(plain(), json!({"default_statuses": ["IN_PROGRESS"]}));
    let place = Place::new(&service).without_parquet();
    let check = place.run(&["check", "--service-profile"]).expect(0).stdout;
    let json = place.run(&["status", "--json"]).expect(0).json();
    for one in json["traits"].as_array().unwrap().iter().filter(|one| !one["value"].is_null()) {
        let evidence = one["evidence"].as_str().unwrap_or_default();
        assert!(!evidence.is_empty(), "{one}");
        let start: String = evidence.chars().take(20).collect();
        assert!(check.contains(&start) && check.contains(one["trait"].as_str().unwrap()), "{evidence}: {check}");
    }
    let (_, traits) = check.split_once("behaviour of the service:").unwrap();
    let lines: Vec<&str> = traits.lines().collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    assert!(lines.iter().any(|line| line.trim_start().starts_with("20") && line.contains("Z: ")), "{lines:#?}");
    // Known values come first; the unknown ones are named together.
    let unknown: Vec<usize> =
        lines.iter().enumerate().filter(|(_, line)| line.contains("unknown")).map(|(at, _)| at).collect();
    let last_known = lines.iter().rposition(|line| line.contains("Z: ")).unwrap();
    assert!(unknown.len() == 1 && unknown[0] > last_known, "{lines:#?}");
    assert!(traits.split_once("unknown: ").unwrap().1.contains("retry_after"), "{traits}");
    // Runs send no request for known behaviours: not one more than without the measurement.
    let requests = |place: &Place| {
        service.clear_log();
        place.report(&["backfill", "--from", &days_ago(5)], 0);
        service.log().len()
    };
    let after_measure = requests(&place);
    let without = requests(&Place::new(&service).without_parquet());
    assert!(after_measure <= without, "{after_measure} requests, {without} without a measure");
}

#[test]
fn p9_evidence_contains_no_erased_person() {
    let service = service(small(200, 6), json!({"user_times_in_seconds": true}));
    crate::erase::people::plant(&service);
    let place = Place::new(&service);
    place.report(&["backfill", "--from", &days_ago(10)], 0);
    measured_at(&place, &service);
    let done = place.run(&["erase", "--yes", "--json", "--user-id", crate::erase::people::ZOE]);
    assert!(done.code == 0 || done.code == 3, "{}", done.stderr);
    service.clear_log();
    place.run(&["check", "--traits"]).expect(0);
    let log = service.log();
    let is_asked = |entry: &LogEntry| entry.path.contains("zo%C3%AB") || entry.path.contains("zoë");
    assert!(!log.iter().any(is_asked), "who is kept out is not asked for");
    let needle = crate::erase::grep::Needle::new(crate::erase::people::ZOE);
    assert_eq!(crate::erase::grep::found(&place, &[needle]), [""; 0]);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_check_measures_page_sizes() {
    let slow = |above_rows, status| json!({"slow_pages": {"above_rows": above_rows, "wait_ms": 1, "status": status}});
    assert_measures(&plain(), slow(400, 504), json!({"page_rows": 250}));
    assert_measures(&small(300, 20), slow(300, 500), json!({"page_rows": 250}));
    assert_measures(&small(300, 20), json!({}), json!({"page_rows": null}));
    assert_measures(&plain(), json!({"default_page_rows": 13}), json!({"themes_page_rows": 13}));
    assert_measures(&small(300, 20), json!({"default_page_rows": 900}), json!({"themes_page_rows": null}));
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn slow_check_shows_the_form_of_a_429_once_seen() {
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
        // An HTTP date needs a clock that runs.
        assert_measures(&Settings { frozen_clock: false, ..plain() }, refusal, json!({"retry_after": told}));
    }
    assert_measures(&plain(), json!({}), json!({"retry_after": null}));
}

#[test]
fn an_empty_service_leaves_traits_unknown_without_an_error() {
    for faults in [json!({}), json!({"not_found_when_empty": true})] {
        let mut found = measured(Settings { responses: 0, ..plain() }, faults);
        // The service has surveys.
        let surveys = ["survey_status_form", "surveys_listed_whole", "statuses_on_request", "surveys_filtered_by"];
        assert_eq!(
            surveys.map(|name| found.remove(name)),
            [Some(json!("comma")), Some(json!(true)), Some(json!([])), Some(json!("created"))]
        );
        let default = found.remove("default_statuses").unwrap();
        assert_eq!(default.as_array().map(Vec::len), Some(6), "{default}");
        for name in ["surveys_start_inclusive", "surveys_end_inclusive"] {
            assert_eq!(found.remove(name), Some(json!(true)), "{name}");
        }
        assert!(found.values().all(Value::is_null), "{found:?}");
    }
}

#[test]
fn measured_traits_are_stored_shown_and_used() {
    let service = service(
        plain(),
        json!({"ties": "lost", "default_page_rows": 20, "slow_pages": {"above_rows": 100, "wait_ms": 1}}),
    );
    let place = Place::new(&service).without_parquet();
    let before = place.run(&["status"]).expect(0).stdout;
    assert!(before.contains("Nothing was synced yet"), "{before}");
    measured_at(&place, &service);
    let table = place.run(&["check", "--service-profile"]).expect(0).stdout;
    assert!(table.contains("page_rows") && table.contains("newest_first") && table.contains("requests"), "{table}");
    let status = place.run(&["status"]).expect(0).stdout;
    assert!(!status.contains("behaviour of the service") && !status.contains("newest_first"), "{status}");
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
    // A day later everything is due again. The plan counts the requests that the scans need.
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
fn ordinary_runs_learn_traits() {
    let faults = json!({
        "order": "oldest_first", "end_mark": "missing", "not_found_when_empty": true,
        "too_many_requests": {"when": {"count": 1}, "retry_after": {"form": "fraction", "wait_ms": 50}}
    });
    let service = service(plain(), faults);
    let place = Place::new(&service).without_parquet();
    // The range begins long before the first answer: its first windows are empty.
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
    // The check does not provoke another refusal: the behaviour keeps its date and evidence.
    let retry_after = |place: &Place| {
        let status = place.run(&["status", "--json"]).expect(0).json();
        status["traits"].as_array().unwrap().iter().find(|one| one["trait"] == "retry_after").unwrap().clone()
    };
    let before = retry_after(&place);
    assert_eq!(before["evidence"], "a 429 in a run");
    let check = place.run(&["check", "--service-profile", "--json"]).expect(0).json();
    let told = check["traits"].as_array().unwrap().iter().find(|one| one["trait"] == "retry_after").unwrap();
    assert_eq!([&told["measured_ms"], &told["how"]], [&before["measured_ms"], &before["evidence"]]);
    assert_eq!(retry_after(&place), before);
}

#[test]
fn each_outcome_of_check_traits_has_its_exit_code() {
    let service = service(plain(), json!({}));
    let place = Place::new(&service).without_parquet().with_env(crate::harness::KEY_VARIABLE, "wrong");
    place.run(&["check", "--service-profile"]).expect(4);
    let place = Place::new(&service).without_parquet();
    let allowance = place.run(&["check", "--service-profile", "--json", "--max-requests", "8"]).expect(0).json();
    let unknown = |one: &&Value| one["how"].as_str().unwrap().contains("allowance of 8 requests");
    assert!(allowance["traits"].as_array().unwrap().iter().filter(unknown).count() >= 2, "{allowance}");
    let refusal = json!({"too_many_requests": {"when": {"count": 1, "skip": 5}, "retry_after": {"form": "seconds", "wait_ms": 90_000_000}}});
    service.control().merge_faults(refusal).unwrap();
    let told = place.run(&["check", "--service-profile"]).expect(6).stdout;
    assert!(told.contains("as the service asked"), "{told}");
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert!(status["traits"].to_string().contains("\"seconds\""), "what was seen up to then stays: {status}");
    service.stop();
    place.run(&["check", "--service-profile"]).expect(6);
    place.run(&["check", "--service-profile", "--ignore-rate-limit"]).expect(1);
}

#[test]
fn a_service_with_only_studies_returns_its_surveys() {
    let service = service(small(60, 3), json!({"surveys_at": "studies"}));
    let place = Place::new(&service);
    place.run(&["check"]).expect(0);
    let report = place.report(&["backfill", "--from", &days_ago(4), "--stream", "studies", "--stream", "responses"], 0);
    let surveys = report["streams"]["surveys"]["inserted"].as_u64().unwrap();
    assert_eq!(surveys as usize, service.truth(studysync_sandbox::ListName::Surveys).len());
    service.clear_log();
    place.report(&["sync"], 0);
    let log = service.log();
    assert!(log.iter().any(|entry| entry.path == "/v1/studies"), "{log:?}");
    assert!(log.iter().all(|entry| entry.path != "/v1/surveys"), "the name that answers is remembered");
    service.control().merge_faults(json!({"surveys_at": "surveys"})).unwrap();
    let again = place.report(&["sync"], 0);
    assert_eq!(again["streams"]["surveys"]["vanished"], 0, "{again}");
}
