//! Row counts in `status`, and mistyped surveys and dates.

use serde_json::{Value, json};

use crate::harness::{ALL_FLAGS, NOW_MS, Place, Service, days_ago, small};

fn survey_ids(place: &Place) -> Vec<i64> {
    let ids = place.duckdb_tables().rows_of("SELECT id FROM surveys ORDER BY id");
    ids.into_iter().map(|row| row[0].as_deref().unwrap().parse().unwrap()).collect()
}

fn scopes(status: &Value) -> Vec<(String, Value)> {
    let streams = status["streams"].as_array().unwrap().iter();
    streams.map(|stream| (stream["stream"].as_str().unwrap().to_owned(), stream["survey_id"].clone())).collect()
}

#[test]
fn status_row_counts_equal_the_table_counts() {
    let service = Service::start(small(900, 12));
    service.control().merge_faults(json!({"repeated_rows": {"rows": 9, "when": {"every": 2}}})).unwrap();
    let place = Place::new(&service).with_config(&format!("{ALL_FLAGS}page_rows = 50\n"));
    let report = place.report(&["backfill", "--from", &days_ago(14)], 0);
    let count = |sql: &str| place.duckdb_tables().count(sql);
    let read = report["streams"]["responses"]["rows_read"].as_i64().unwrap();
    assert!(read > count("SELECT count(*) FROM responses"), "some came twice: {report}");
    let one = survey_ids(&place)[0];
    place.run(&["sync", "--survey", &one.to_string()]);
    for run in [Place::run, Place::run_on_parquet] {
        let status = run(&place, &["status", "--json"]).expect(0).json();
        assert!(scopes(&status).len() > 3, "{status}");
        for stream in status["streams"].as_array().unwrap() {
            let name = stream["stream"].as_str().unwrap();
            let survey = stream["survey_id"].as_i64().map(|id| format!(" WHERE survey_id = {id}")).unwrap_or_default();
            assert_eq!(
                stream["rows"].as_i64(),
                Some(count(&format!("SELECT count(*) FROM {name}{survey}"))),
                "{stream}"
            );
        }
    }
    let rows = count("SELECT count(*) FROM responses");
    let text = place.run(&["status"]).expect(0).stdout;
    assert!(text.contains(&format!(", {rows} rows\n")), "{text}");
    // The number of records that scans read is not a row count, so `status` does not call it one.
    let text = place.run(&["status", "--from", &days_ago(14)]).expect(0).stdout;
    assert!(text.contains(" records in ") && !text.contains(" rows"), "{text}");
    let text = place.run(&["plan"]).expect(0).stdout;
    assert!(!text.contains(" rows"), "{text}");
    let text = place.run(&["verify", "--from", &days_ago(14)]).expect(0).stdout;
    assert!(!text.contains(" rows"), "{text}");
    let blind = place.bare(&["status", "--state", place.state().to_str().unwrap()]).output().unwrap();
    let blind = String::from_utf8(blind.stdout).unwrap();
    assert!(blind.contains("rows unknown"), "{blind}");
}

#[test]
fn an_unknown_survey_is_reported_and_leaves_no_trace() {
    let service = Service::start(small(400, 10));
    let place = Place::new(&service);
    // The first run of all, and a run of a warehouse that has surveys.
    for _ in 0..2 {
        for arguments in
            [&["sync", "--survey", "999999"][..], &["backfill", "--from", &days_ago(5), "--survey", "999999"]]
        {
            let done = place.run(arguments).expect(2);
            assert!(done.stderr.contains("survey 999999 is not known; did you mean "), "{}", done.stderr);
        }
        place.report(&["sync"], 0);
    }
    let status = place.run(&["status", "--json"]).expect(0).json();
    assert!(scopes(&status).iter().all(|(_, survey)| survey.is_null()), "{status}");
    let known = survey_ids(&place)[0];
    let near = format!("{known}0");
    let done = place.run(&["sync", "--survey", &known.to_string(), "--survey", &near]).expect(2);
    assert!(done.stderr.contains(&format!("survey {near} is not known; did you mean {known} (")), "{}", done.stderr);
    for (arguments, code) in [
        (&["plan", "--survey", "999999"][..], 3),
        (&["status", "--survey", "999999"], 3),
        (&["verify", "--from", &days_ago(3), "--survey", "999999"], 3),
        (&["report", "--survey", "999999"], 2),
    ] {
        let done = place.run(arguments).expect(code);
        assert!(done.stderr.contains("survey 999999 is not known"), "{arguments:?}: {}", done.stderr);
    }
    // A known survey costs no additional request. A survey that only the service knows is accepted.
    let one = known.to_string();
    place.run(&["sync", "--survey", &one]).expect(0);
    place.run(&["plan", "--survey", &one]).expect(0);
    let only_answers = json!({
        "createdAt": "2026-01-30T12:00:00.000Z", "updatedAt": "2026-01-30T12:00:00.000Z", "questionId": 1,
        "questionText": "?", "questionType": "NPS", "response": 9, "responseGroupUid": "unlisted", "surveyId": 777_777,
        "visitorId": 1, "visitorUuid": "v",
    });
    service.control().plant(studysync_sandbox::ListName::Responses, &only_answers.to_string(), None).unwrap();
    place.run(&["sync", "--survey", "777777"]).expect(0);
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM responses WHERE survey_id = 777777"), 1);
}

#[test]
fn forget_removes_the_coverage_of_one_survey() {
    let service = Service::start(small(400, 10));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let ids = survey_ids(&place);
    let (one, other) = (ids[0].to_string(), ids[1].to_string());
    place.run(&["sync", "--survey", &one, "--survey", &other]).expect(0);
    let before = place.duckdb_tables().count("SELECT count(*) FROM responses");
    let done = place.run(&["forget", "--survey", &one]).expect(0);
    assert!(done.stdout.contains("responses") && done.stdout.contains(&one), "{}", done.stdout);
    let status = place.run(&["status", "--json"]).expect(0).json();
    let left: Vec<Value> = scopes(&status).into_iter().map(|(_, survey)| survey).filter(|id| !id.is_null()).collect();
    assert!(!left.is_empty() && left.iter().all(|id| *id == ids[1]), "{status}");
    assert!(scopes(&status).iter().filter(|(_, survey)| survey.is_null()).count() == 3, "{status}");
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM responses"), before);
    let done = place.run(&["forget", "--survey", &one]).expect(2);
    assert!(
        done.stderr.contains(&format!("survey {one} has no checkpoints of its own; these surveys have: {other}")),
        "{}",
        done.stderr
    );
    place.run(&["forget"]).expect(2);
    place.run(&["sync"]).expect(0);
}

#[test]
fn a_date_in_the_wrong_unit_is_refused_with_a_suggestion() {
    let place = Place::at("http://127.0.0.1:9");
    let seconds = (NOW_MS / 1000).to_string();
    let micros = (NOW_MS * 1000).to_string();
    for command in ["plan", "backfill", "status", "verify", "replay"] {
        for wrong in [&seconds, &micros] {
            let done = place.run(&[command, "--from", wrong]).expect(2);
            assert!(done.stderr.contains(&format!("write {NOW_MS} (milliseconds)")), "{command}: {}", done.stderr);
        }
        let done = place.run(&[command, "--from", &days_ago(3), "--to", &seconds]).expect(2);
        assert!(done.stderr.contains("is in seconds"), "{command}: {}", done.stderr);
        let done = place.run(&[command, "--from", "2926-01-31"]).expect(2);
        assert!(done.stderr.contains("is in the future"), "{command}: {}", done.stderr);
    }
    let place = place.with_config(&format!("[streams.responses]\nsince = \"{seconds}\"\n"));
    let done = place.run(&["sync"]).expect(2);
    assert!(
        done.stderr.contains("[streams.responses] since") && done.stderr.contains("is in seconds"),
        "{}",
        done.stderr
    );
}

#[test]
fn plan_separates_unread_windows_from_missing_flags() {
    let service = Service::start(small(300, 10));
    let place = Place::new(&service).with_config("[streams.responses]\nflags = []\n");
    place.report(&["backfill", "--from", &days_ago(5), "--stream", "responses"], 0);
    let place = place.with_config("[streams.responses]\nflags = [\"with_urls\"]\n");
    let arguments = ["plan", "--from", &days_ago(8), "--to", &days_ago(1), "--stream", "responses"];
    let text = place.run(&[&arguments[..], &["--days"]].concat()).expect(0).stdout;
    assert!(text.contains("  new flags ") && text.contains("  never scanned "), "{text}");
    let plan = place.run(&[&arguments[..], &["--json"]].concat()).expect(0).json();
    let ms = |window: &Value, end: &str| window["window"][end].as_i64().unwrap();
    for window in plan["streams"][0]["windows"].as_array().unwrap() {
        let was_read = ms(window, "start_ms") >= NOW_MS - 5 * 86_400_000;
        assert_eq!(window["reason"], if was_read { "new_flags" } else { "gap" }, "{window}");
    }
    // The command requests a range, and then nothing is due.
    place.report(&["backfill", "--from", &days_ago(8), "--to", &days_ago(1), "--stream", "responses"], 0);
    let plan = place.run(&[&arguments[..], &["--json"]].concat()).expect(0).json();
    assert_eq!(plan["streams"][0]["windows"], json!([]));
}
