//! A value as long as the largest page, in any column that can store one: every later command can read, change and
//! erase what a backfill stored.

use serde_json::{Value, json};
use studysync_sandbox::ListName;

use super::assert_live_rows;
use crate::harness::{ALL_FLAGS, DAY_MS, NOW_MS, Place, Service, days_ago, small};

/// The user whose answers are long.
const USER: &str = "user-of-long-answers";
const UUID: &str = "5b1c9d6e-0b7a-4c55-9a40-1d2e3f405199";
const QUESTIONS: [&str; 11] = [
    "OPEN",
    "MULTIPLECHOICE",
    "MULTIPLESELECT",
    "MATRIX",
    "RANKORDER",
    "MAXDIFF",
    "VIDEOVOICE",
    "NPS",
    "CONSENTLEGAL",
    "aidynamicfollowup",
    "LIKERT",
];

fn at(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms).unwrap().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// The answer to a question of this type, with a long text in every part.
fn answer(kind: &str, long: &str) -> Value {
    match kind {
        "MULTIPLESELECT" => json!([long, "short"]),
        "MATRIX" => json!({ long: "1 - Poor", "Speed": long }),
        "RANKORDER" => json!({ long: 1, "Price": 2 }),
        "MAXDIFF" => {
            json!([[{ "id": 1, "option": long, "selected": "left" }, { "id": 2, "option": "b", "selected": null }]])
        }
        "VIDEOVOICE" => json!({ "uploadId": "u-1", "mediaType": "video", "duration": 3.5, "transcription": long,
            "downloadUrl": format!("https://media.example/{long}"), "videoUrl": "", "updatedAt": "2026-01-20T00:00:00.000Z" }),
        "NPS" | "LIKERT" => json!(4),
        "CONSENTLEGAL" => json!({ "submitted": true }),
        "aidynamicfollowup" => json!({ "turns": [{ "said": long }] }),
        _ => json!(long),
    }
}

/// A record of the user. Each record has long texts in other columns.
fn record(number: usize, kind: &str, long: &str, text: &str) -> String {
    let at = at(NOW_MS - 3 * DAY_MS + number as i64 * 1000);
    let session = format!("5e551011-0000-4000-8000-0000000000{number:02}");
    let mut record = json!({
        "createdAt": at, "updatedAt": at, "deletedAt": null, "questionId": 9100 + number, "questionText": "How?", "questionType": kind,
        "response": answer(kind, long), "responseGroupUid": session, "surveyId": 991, "externalUserId": USER, "visitorId": 880_100,
        "visitorUuid": UUID, "url": "https://x.example/",
    });
    let snapshot = |attributes: Value, events: Value, trigger: &str| {
        json!({ "visitorId": UUID, "externalUserId": USER, "attributes": attributes, "responseGroupUid": session,
            "triggeringEvent": trigger, "eventProperties": { "page": text }, "events": events })
    };
    let more = match number % 6 {
        0 => json!({ "url": format!("https://x.example/?q={text}"), "questionText": text }),
        1 => json!({ "meta": { "href": format!("https://x.example/{text}"), "userAgent": text } }),
        2 => json!({ "customMetadata": { "campaign": text } }),
        3 => json!({ "visitorSnapshot": snapshot(json!({ "plan": text }), json!({}), "page") }),
        4 => json!({ "visitorSnapshot": snapshot(json!({}), json!({ "clicked": [text] }), text) }),
        _ => json!({ "context": text, "partnerAnonymousId": text }),
    };
    record.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    record.to_string()
}

fn plant(service: &Service, bytes: usize, word: &str) {
    let long = word.repeat(bytes / word.len());
    for (number, kind) in QUESTIONS.iter().enumerate() {
        // Six records also have a long text in a column other than the answer.
        let text = if number < 6 { &long } else { word };
        service.control().plant(ListName::Responses, &record(number, kind, &long, text), None).unwrap();
    }
    let at = at(NOW_MS - 3 * DAY_MS);
    let theme = json!({
        "id": 78, "createdAt": at, "updatedAt": at, "questionId": 9100, "questionText": "How?", "questionType": "OPEN", "response": long,
        "responseGroupUid": "5e551011-0000-4000-8000-000000000000", "surveyId": 991, "theme": long, "themeDescription": long,
        "visitorId": 880_100,
    });
    service.control().plant(ListName::Themes, &theme.to_string(), None).unwrap();
    let survey = json!({
        "id": 991, "name": long, "platform": "web", "type": "CONTINUOUS", "status": "IN_PROGRESS", "createdAt": at, "updatedAt": at,
        "launchedAt": at, "completedAt": null, "totalResponseLimit": null,
        "constraints": [{ "comparisonType": "eq", "event": long, "type": "SESSION_COUNT", "value": 1 }],
        "questions": [{ "id": 9101, "type": "MULTIPLECHOICE", "questionText": long, "options": [{ "label": long, "value": 1 }],
            "optionsProperties": { "introText": long, "labels": { "left": long, "right": "b" } }, "routingOptions": null }],
    });
    service.control().plant(ListName::Surveys, &survey.to_string(), None).unwrap();
}

/// Runs each command on the long values. In other rows the columns are NULL, and an engine must not store copies of the
/// long value for them.
fn works_with_long_values(choose: fn(Place) -> Place, warehouse: &str, bytes: usize, rows: u64) {
    let service = Service::start(small(rows, 20));
    plant(&service, bytes, "words ");
    let place = choose(Place::new(&service)).with_config(&format!("{ALL_FLAGS}[warehouse]\n{warehouse}\n"));
    let run = |arguments: &[&str], codes: &[i32]| {
        let done = place.run(arguments);
        assert!(codes.contains(&done.code), "{arguments:?} ended with {}: {}", done.code, done.stderr);
        done
    };
    let from = days_ago(21);
    run(&["backfill", "--from", &from], &[0]);
    plant(&service, bytes, "others ");
    service.advance_days(1);
    run(&["sync"], &[0]);
    run(&["verify", "--from", &from], &[0]);
    assert_live_rows(&place, &service, "after the edits");
    let longest = "SELECT max(length(answer_json)), max(length(url)), max(length(extra)) FROM responses";
    run(&["query", longest], &[0]);
    let out = place.path("all.parquet").display().to_string();
    run(&["query", "SELECT * FROM current_responses", "--out", &out], &[0]);
    run(&["diff", "--since", &days_ago(1)], &[0]);
    run(&["report", "--out", &place.path("report.html").display().to_string()], &[0]);
    run(&["replay"], &[0]);
    assert_live_rows(&place, &service, "after the replay");
    run(&["erase", "--user-id", USER, "--local-only", "--yes"], &[0]);
    for (name, tables) in place.warehouses() {
        assert_eq!(tables.count("SELECT count(*) FROM responses WHERE survey_id = 991"), 0, "{name}");
        assert_eq!(tables.count("SELECT count(*) FROM response_history WHERE survey_id = 991"), 0, "{name}");
    }
}

const MIB: usize = 1 << 20;

/// With the minimum memory limit, a Parquet warehouse writes at most this many bytes of long texts together.
const WINDOW_BYTES_MAX: i64 = 36 << 20;

#[test]
fn p8_a_window_with_many_long_texts_is_cut() {
    let service = Service::start(small(40, 4));
    for number in 0..60 {
        let at = at(NOW_MS - 3 * DAY_MS + number * 60_000);
        let record = json!({
            "createdAt": at, "updatedAt": at, "deletedAt": null, "questionId": 9100, "questionText": "How?", "questionType": "OPEN",
            "response": "words ".repeat(MIB / 6), "responseGroupUid": format!("5e551011-0000-4000-8000-{number:012}"), "surveyId": 991,
            "externalUserId": USER, "visitorId": 880_100, "visitorUuid": UUID, "url": "https://x.example/",
        });
        service.control().plant(ListName::Responses, &record.to_string(), None).unwrap();
    }
    let place = Place::new(&service).without_duckdb().with_config("[warehouse]\nmemory_limit_mb = 256\n");
    place.run(&["backfill", "--from", &days_ago(21)]).expect(0);
    let longest = place.parquet_tables().count(
        "SELECT max(bytes)::BIGINT FROM (
             SELECT sum(strlen(answer_text)) AS bytes FROM responses JOIN sync_windows AS scan
             ON scan.stream = 'responses' AND created_at >= scan.window_start AND created_at < scan.window_end
             GROUP BY scan.scan_id)",
    );
    assert!(longest > MIB as i64 && longest <= WINDOW_BYTES_MAX, "{longest}");
}

#[test]
fn p8_long_values_work_with_the_default_memory() {
    works_with_long_values(|place| place, "", MIB, 4_000);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p8_slow_long_values_work_in_duckdb_with_the_least_memory() {
    works_with_long_values(Place::without_parquet, "memory_limit_mb = 256", MIB, 4_000);
}

#[test]
#[ignore = "slow: run by `make test-slow`"]
fn p8_slow_long_values_work_in_parquet_with_the_least_memory() {
    works_with_long_values(Place::without_duckdb, "memory_limit_mb = 256", MIB, 4_000);
}
