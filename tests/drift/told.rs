//! Reports of drift: detailed enough to act on, bounded in size, and without personal data.

use serde_json::{Value, json};
use studysync::model::DRIFT_PLACES_MAX;
use studysync_sandbox::ListName;

use crate::harness::{Done, Place, Service, small};

use super::{PERSON, config, response, survey, theme, with_mode};

/// A service with a person's text in every place where a hostile or careless service could put it.
fn full_of_a_person() -> Service {
    let service = Service::start(small(40, 3));
    let person = PERSON;
    let mail = "zacharias.quux@example.com";
    for (list, record) in [
        (ListName::Responses, response(1, &format!(r#""questionType":"{person}","response":"{person}""#))),
        (ListName::Responses, response(2, &format!(r#""{person}":1,"questionType":"NPS","response":"{person}""#))),
        (
            ListName::Responses,
            response(3, &format!(r#""{mail}":{{"a":"{person}"}},"questionType":"OPEN","response":["{person}"]"#)),
        ),
        (
            ListName::Responses,
            response(4, &format!(r#""questionType":"RANKORDER","response":{{"{person}":"{person}"}}"#)),
        ),
        (
            ListName::Responses,
            response(
                5,
                &format!(r#""questionType":"VIDEOVOICE","response":{{"{person}":"{person}","duration":"{person}"}}"#),
            ),
        ),
        (
            ListName::Responses,
            response(
                6,
                &format!(
                    r#""questionType":"NPS","response":1,"meta":{{"{person}":1,"os":["{person}"],"screen":{{"{mail}":1,"width":"{person}"}}}}"#
                ),
            ),
        ),
        (
            ListName::Responses,
            response(
                7,
                &format!(
                    r#""questionType":"NPS","response":1,"visitorSnapshot":{{"{person}":1,"triggeringEvent":{{"{person}":1}},"attributes":{{"{person}":"{person}"}}}}"#
                ),
            ),
        ),
        (
            ListName::Responses,
            response(8, &format!(r#""questionType":"NPS","response":1,"customMetadata":{{"{person}":"{person}"}}"#)),
        ),
        (ListName::Responses, response(9, r#""questionType":"SLIDER","response":0.5"#)),
        (
            ListName::Surveys,
            survey(
                990001,
                &format!(
                    r#""status":"{person}","platform":"{mail}","questions":[{{"id":1,"type":"{person}","{person}":1}}]"#
                ),
            ),
        ),
        (
            ListName::Surveys,
            survey(
                990002,
                &format!(
                    r#""status":"ON_HOLD","constraints":[{{"type":"{mail}","{person}":"{person}","value":"{person}"}}]"#
                ),
            ),
        ),
        (
            ListName::Themes,
            theme(990001, &format!(r#""surveyId":"{person}","questionType":"{person}","{person}":"{person}""#)),
        ),
    ] {
        service.control().plant(list, &record, None).unwrap();
    }
    service
}

/// Asserts that a text contains neither the name nor the address, in upper or lower case.
fn assert_silent(text: &str, what: &str) {
    let lower = text.to_lowercase();
    for word in ["zacharias", "quux"] {
        let at = lower.find(word);
        assert!(at.is_none(), "{what} tells of a person: {:?}", at.map(|at| &lower[at.saturating_sub(80)..at + 20]));
    }
}

fn assert_silent_run(done: &Done, what: &str) {
    assert_silent(&done.stdout, what);
    assert_silent(&done.stderr, what);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p9_slow_drift_output_contains_no_personal_data() {
    let service = full_of_a_person();
    for mode in ["evolve", "freeze", "discard_row", "discard_value"] {
        let place = Place::new(&service).with_config(&config(&["responses", "surveys", "themes"], mode));
        for arguments in [&["sync", "--json", "-v"][..], &["sync"], &["status"], &["status", "--json"]] {
            assert_silent_run(&place.run(arguments), &format!("{mode}: {arguments:?}"));
        }
        for (name, tables) in place.warehouses() {
            for row in tables.rows_of("SELECT report FROM sync_runs") {
                assert_silent(row[0].as_deref().unwrap(), &format!("{mode}: sync_runs in {name}"));
            }
            for row in tables.rows_of("SELECT field FROM rejects") {
                assert_silent(row[0].as_deref().unwrap(), &format!("{mode}: rejects in {name}"));
            }
        }
        let state = String::from_utf8_lossy(&std::fs::read(place.state()).unwrap()).into_owned();
        assert_silent(&state, &format!("{mode}: the state file"));
        let place = with_mode(place, &["responses"], "freeze");
        assert_silent_run(&place.run(&["replay", "--json"]), &format!("{mode}: replay"));
    }
}

#[test]
fn every_mode_keeps_and_reports_each_new_type_and_value() {
    let service = Service::start(small(40, 3));
    let plant = |list, record: String| service.control().plant(list, &record, None).unwrap();
    plant(ListName::Responses, response(1, r#""visitorId":1,"questionType":"SLIDER","response":0.5"#));
    plant(ListName::Responses, response(2, r#""visitorId":1,"questionType":"SLIDER","response":0.6"#));
    plant(ListName::Responses, response(3, r#""visitorId":1,"questionType":"CARD_SORT","response":{}"#));
    plant(
        ListName::Surveys,
        survey(990001, r#""status":"ON_HOLD","platform":"ios","questions":[{"id":1,"type":"SLIDER"}]"#),
    );
    plant(
        ListName::Surveys,
        survey(990002, r#""status":"new","constraints":[{"type":"GEO","comparisonType":"lt","value":1}]"#),
    );
    plant(ListName::Themes, theme(990001, r#""surveyId":7,"questionType":"SLIDER""#));
    let entry = |stream: &str, kind: &str, place: &str, records: u64, example: &str| json!({"stream": stream, "kind": kind, "where": place, "records": records, "example": example, "fate": "kept"});
    let expected = json!([
        entry("responses", "new_question_type", "responses.questionType", 1, "CARD_SORT"),
        entry("responses", "new_question_type", "responses.questionType", 2, "SLIDER"),
        entry("surveys", "new_question_type", "surveys.questions[].type", 1, "SLIDER"),
        entry("surveys", "new_enum_value", "surveys.constraints[].comparisonType", 1, "lt"),
        entry("surveys", "new_enum_value", "surveys.constraints[].type", 1, "GEO"),
        entry("surveys", "new_enum_value", "surveys.platform", 1, "ios"),
        entry("surveys", "new_enum_value", "surveys.status", 1, "ON_HOLD"),
        entry("themes", "new_question_type", "themes.questionType", 1, "SLIDER"),
    ]);
    for mode in ["evolve", "freeze", "discard_row", "discard_value"] {
        let place = Place::new(&service).with_config(&config(&["responses", "surveys", "themes"], mode));
        let report = place.report(&["sync"], 0);
        let mut told = report["drift"].as_array().unwrap().clone();
        let order = |entry: &Value| entry["stream"].as_str().unwrap().to_owned();
        told.sort_by_key(order);
        assert_eq!(Value::from(told), expected, "{mode}");
        for (name, tables) in place.warehouses() {
            let kept = tables.count(
                "SELECT (SELECT count(*) FROM responses WHERE question_type IN ('SLIDER', 'CARD_SORT'))
                    + (SELECT count(*) FROM surveys WHERE status IN ('ON_HOLD', 'new'))
                    + (SELECT count(*) FROM themes WHERE question_type = 'SLIDER')",
            );
            assert_eq!(kept, 6, "{mode}, {name}");
        }
    }
}

#[test]
fn summary_and_status_print_one_line_per_drift() {
    let service = super::drifting();
    let place = Place::new(&service);
    let shown = place.run(&["sync"]).expect(0).stderr;
    let status = place.run(&["status"]).expect(0).words();
    for line in [
        "new field responses.battery (battery: object) in 1 record: kept",
        "type clash responses.visitorId (string of length 14) in 1 record: kept",
        "new field surveys.owner (owner: object) in 1 record: kept",
        "type clash themes.surveyId (string of length 14) in 1 record: kept",
    ] {
        assert!(shown.contains(&format!("drift: {line}")), "'{line}' is missing in {shown}");
    }
    // The first screen has room for three; the JSON has all.
    assert!(status.contains("new field responses.battery (battery: object) in 1 record: kept"), "{status}");
    assert!(status.contains("and at 3 more places (--json lists them)"), "{status}");
    // A command that finds no drift does not hide the drift that the last run found.
    place.run(&["verify", "--from", "2026-01-30"]).expect(0);
    assert!(place.run(&["status"]).expect(0).stdout.contains("responses.battery"));
    let json = place.run(&["status", "--json"]).expect(0).json();
    assert_eq!(json["drift"].as_array().unwrap().len(), 6, "{json}");
}

#[test]
fn p8_ten_thousand_unknown_names_are_kept_and_summarized() {
    const NAMES: usize = 10_000;
    let service = Service::start(small(40, 3));
    let members: Vec<String> = (0..NAMES).map(|at| format!(r#""name{at}":{at}"#)).collect();
    let members = format!(r#""questionType":"NPS","response":9,{}"#, members.join(","));
    for question in 1..=3 {
        service.control().plant(ListName::Responses, &response(question, &members), None).unwrap();
    }
    let place = Place::new(&service);
    let done = place.run(&["sync", "--json"]).expect(0);
    let report = done.json();
    let listed = report["drift"].as_array().unwrap();
    assert_eq!(listed.len(), DRIFT_PLACES_MAX);
    let records: u64 = listed.iter().map(|entry| entry["records"].as_u64().unwrap()).sum();
    assert_eq!(records + report["drift_unlisted"].as_u64().unwrap(), 3 * NAMES as u64);
    assert!(done.stdout.len() < 64 * 1024 && done.stderr.len() < 8 * 1024, "{} bytes", done.stdout.len());
    for (name, tables) in place.warehouses() {
        let sql =
            "SELECT min(json_array_length(json_keys(extra::JSON))) FROM responses WHERE response_group_uid = 'drift'";
        assert_eq!(tables.count(sql), NAMES as i64, "{name}: evolve keeps them all");
    }
    // The error of a frozen stream does not list all names either.
    let place = Place::new(&service).with_config(&config(&["responses"], "freeze"));
    let report = place.report(&["sync"], 1);
    let error = report["failures"][0]["error"].as_str().unwrap();
    assert!(error.len() < 1024 && error.contains("and more"), "{error}");
}

/// The tie probe at a page boundary reads every record of its millisecond a second time.
#[test]
fn drift_counts_a_record_once_when_a_tie_probe_reads_it_again() {
    let service = Service::start(small(40, 3));
    const RECORDS: u32 = 24;
    for question in 1..=RECORDS {
        let members = r#""questionType":"NPS","response":9,"battery":1,"visitorId":[]"#;
        service.control().plant(ListName::Responses, &response(question, members), None).unwrap();
    }
    let place = Place::new(&service).with_config("[streams.responses]\npage_rows = 5\n");
    let report = place.report(&["sync"], 0);
    assert!(report["requests"]["ties_probed"].as_u64().unwrap() > 0, "{report}");
    assert!(report["streams"]["responses"]["rows_read"].as_u64().unwrap() > u64::from(RECORDS) + 40, "{report}");
    let listed = report["drift"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "{report}");
    assert!(listed.iter().all(|drift| drift["records"] == RECORDS), "{report}");
}
