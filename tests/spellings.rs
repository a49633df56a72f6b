//! Another spelling of the same JSON is no edit, and a changed setting changes no data (P1, P4).

use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, ListName};

use crate::harness::{ALL_FLAGS, DAY_MS, Place, Service, days_ago, small};

/// Each run scans all history again.
const AGAIN_EVERY_RUN: &str =
    "rescan = [\"all every run\"]\n[streams.themes]\nrescan = [\"all every run\"]\n[streams.surveys]\n";
const AT: &str = "2026-01-20T10:00:00.000Z";

fn every_flag() -> String {
    format!("{ALL_FLAGS}{AGAIN_EVERY_RUN}")
}

/// Returns the value with another order of members, other whitespace and escapes, and another notation of numbers below
/// `depth` 1.
fn respelled(value: &Value, depth: usize) -> String {
    match value {
        Value::Object(members) => {
            let members = members.iter().rev().map(|(name, value)| {
                let is_key = depth == 0 && name != "response";
                format!("{} : {}", escaped(name), respelled(value, if is_key { 1 } else { depth + 2 }))
            });
            format!("{{ {} }}", members.collect::<Vec<_>>().join(" ,\n"))
        }
        Value::Array(items) => {
            format!("[ {} ]", items.iter().map(|item| respelled(item, depth + 2)).collect::<Vec<_>>().join(", "))
        }
        Value::Number(number) if depth > 1 && number.is_i64() => format!("{number}0.0e-1"),
        Value::String(text) => escaped(text),
        other => other.to_string(),
    }
}

/// Returns the JSON of a text with every character escaped.
fn escaped(text: &str) -> String {
    let units: String = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
    format!("\"{units}\"")
}

/// Answers of every kind with JSON, a survey, a theme and a reject.
fn records() -> Vec<(ListName, Value)> {
    let answer = |question: i64, kind: &str, response: Value| {
        json!({"createdAt": AT, "updatedAt": AT, "responseGroupUid": "spelled", "questionId": question, "surveyId": 5,
            "questionText": "Why é?", "questionType": kind, "response": response, "url": "/é", "meta": {"os": "é", "more": {"z": 1, "a": [2]}},
            "customMetadata": {"plan": {"b": 1, "a": "é"}, "list": [{"y": 1, "x": 2}], "size": 9, "name": "9"},
            "visitorSnapshot": {"attributes": {"é": {"b": 1, "a": 10}, "n": 10}, "events": {"e": {"k": 1, "c": 2}}, "eventProperties": {"p": [1, 2]}},
            "unknown": {"b": 1, "a": 2}})
    };
    let questions = json!([{"id": 1, "type": "LIKERT", "questionText": "é?", "options": [{"label": "é", "value": 1}, "two"],
        "optionsProperties": {"range": 5, "labels": {"left": "l", "right": "é"}}, "routingOptions": [{"to": 2, "if": 1}], "more": {"b": 1, "a": 2}}]);
    let constraints = json!([{"type": "SESSION_COUNT", "comparisonType": "gte", "event": null, "value": 3, "more": {"b": 1, "a": 2}}]);
    vec![
        (ListName::Responses, answer(1, "MATRIX", json!({"row é": "1 - low", "another row": "2 - high"}))),
        (ListName::Responses, answer(2, "RANKORDER", json!({"second": 2, "first é": 1}))),
        (
            ListName::Responses,
            answer(
                3,
                "MAXDIFF",
                json!([[{"option": "é", "id": 1, "selected": "left"}, {"id": 2, "option": "b", "selected": null}]]),
            ),
        ),
        (ListName::Responses, answer(4, "LIKERT", json!(9))),
        (ListName::Responses, answer(5, "OPEN", json!("naïve \"é\" / 1.0"))),
        (
            ListName::Responses,
            answer(
                6,
                "VIDEOVOICE",
                json!({"uploadId": "u", "mediaType": "video", "duration": 10, "transcription": "é", "more": {"b": 1, "a": 2}}),
            ),
        ),
        (ListName::Responses, answer(7, "MULTIPLESELECT", json!(["é", "b"]))),
        (ListName::Responses, answer(8, "SOMETHINGNEW", json!({"z": [1, {"y": 2, "x": 3}], "a": 1}))),
        (
            ListName::Responses,
            json!({"createdAt": AT, "questionId": "none", "responseGroupUid": "rejected", "response": {"b": 1, "a": "é"}, "meta": {"os": "x"}}),
        ),
        (
            ListName::Surveys,
            json!({"id": 900_001, "name": "é", "platform": "web", "type": "CONTINUOUS", "status": "DRAFT", "createdAt": AT, "updatedAt": AT,
            "launchedAt": null, "completedAt": null, "questions": questions, "constraints": constraints, "more": {"b": 1, "a": 2}}),
        ),
        (
            ListName::Themes,
            json!({"id": 900_001, "createdAt": AT, "updatedAt": AT, "questionId": 5, "questionText": "Why é?", "questionType": "OPEN",
            "response": "é", "responseGroupUid": "spelled", "surveyId": 5, "theme": "é", "themeDescription": "d", "visitorId": 1, "more": {"b": 1, "a": 2}}),
        ),
    ]
}

fn plant(service: &Service, spelled: impl Fn(&Value) -> String) {
    for (list, record) in records() {
        service.control().plant(list, &spelled(&record), Some(crate::harness::NOW_MS - 10 * DAY_MS)).unwrap();
    }
}

/// Returns the rows of every table that a scan fills, in both warehouses.
fn contents(place: &Place) -> Vec<(&'static str, &'static str, Vec<crate::harness::Row>)> {
    const TABLES: [&str; 21] = [
        "responses",
        "response_history",
        "response_matrix_cells",
        "response_ranks",
        "response_maxdiff_items",
        "response_media",
        "response_choices",
        "response_custom_metadata",
        "visitor_snapshots",
        "visitor_snapshot_attributes",
        "visitor_snapshot_history",
        "surveys",
        "survey_history",
        "survey_questions",
        "survey_question_options",
        "survey_constraints",
        "survey_question_history",
        "themes",
        "theme_history",
        "rejects",
        "survey_status_changes",
    ];
    let known = |table: &&&str| crate::harness::all_contracts().contains_key(**table);
    let sorted = |mut rows: Vec<crate::harness::Row>| {
        rows.sort();
        rows
    };
    let warehouses = place.warehouses();
    let rows = warehouses.iter().flat_map(|(name, tables)| {
        TABLES.iter().filter(known).map(|table| (*name, *table, sorted(tables.rows(table))))
    });
    rows.collect()
}

fn assert_nothing_changed(report: &Value) {
    for (stream, counts) in report["streams"].as_object().unwrap() {
        for what in ["inserted", "updated", "filled_in", "soft_deleted", "vanished", "rejected", "collisions"] {
            assert_eq!(counts[what], 0, "{stream} {what}: {counts}");
        }
    }
}

#[test]
fn p4_another_spelling_of_json_is_no_edit() {
    let service = Service::start(small(300, 20));
    plant(&service, Value::to_string);
    let place = Place::new(&service).with_config(&every_flag());
    place.report(&["sync"], 3);
    let before = contents(&place);
    assert!(before.iter().any(|(_, table, rows)| *table == "response_matrix_cells" && rows.len() > 2));

    plant(&service, |record| respelled(record, 0));
    place.run(&["verify", "--from", &days_ago(20), "--to", &days_ago(1)]).expect(0);
    assert_nothing_changed(&place.report(&["sync"], 0));
    for ((name, table, stored), (_, _, now)) in before.iter().zip(contents(&place)) {
        assert!(*stored == now, "{table} of {name}: stored texts stay as they came");
    }

    // Other values are edits: another order of a list, and another number.
    let edited = |record: &Value| {
        let mut record = record.clone();
        match record["questionId"].as_i64() {
            Some(7) => record["response"] = json!(["b", "é"]),
            Some(2) => record["response"]["second"] = json!(3),
            _ => {}
        }
        respelled(&record, 0)
    };
    plant(&service, edited);
    let report = place.report(&["sync"], 0);
    assert_eq!(report["streams"]["responses"]["updated"], 2, "{report}");
}

/// The data of an earlier version: it hashed rows differently if their JSON is not in its canonical spelling.
const EARLIER_HASHES: &str = "UPDATE responses SET _row_hash = _row_hash + 1 WHERE response_group_uid = 'spelled';
    UPDATE visitor_snapshots SET _row_hash = _row_hash + 1 WHERE response_group_uid = 'spelled';
    UPDATE surveys SET _row_hash = _row_hash + 1; UPDATE themes SET _row_hash = _row_hash + 1 WHERE id = 900001;
    UPDATE rejects SET raw_hash = raw_hash + 1;";

#[test]
fn p4_hashes_of_an_earlier_version_are_no_edits() {
    let service = Service::start(small(300, 20));
    plant(&service, |record| respelled(record, 0));
    let place = Place::new(&service).without_parquet().with_config(&every_flag());
    place.report(&["sync"], 3);
    let before = contents(&place);
    duckdb::Connection::open(place.duckdb()).unwrap().execute_batch(EARLIER_HASHES).unwrap();
    place.run(&["verify", "--from", &days_ago(20), "--to", &days_ago(1)]).expect(0);
    assert_nothing_changed(&place.report(&["sync"], 0));
    // The clock stands still, so a scan can begin before the scan that stored the rows.
    let without_first_seen = |rows: &[crate::harness::Row]| {
        let mut rows = rows.to_vec();
        rows.iter_mut().for_each(|row| drop(row.remove("_first_seen_at")));
        rows.sort();
        rows
    };
    for ((name, table, stored), (_, _, now)) in before.iter().zip(contents(&place)) {
        let is_same = without_first_seen(stored) == without_first_seen(&now);
        assert!(is_same, "{table} of {name}: the hashes are those of this version again");
    }
}

#[test]
fn p1_a_new_flag_is_no_changed_data() {
    let service = Service::start(small(600, 20));
    plant(&service, Value::to_string);
    // The same question id, spelled as another number: two records with one key and equal times.
    let twin = r#"{"createdAt":"2026-01-20T10:00:00.000Z","updatedAt":"2026-01-20T10:00:00.000Z","responseGroupUid":"spelled","questionId":4.0,
        "surveyId":5,"questionType":"LIKERT","questionText":"t","response":1,"url":"/twin","meta":{"os":"twin"}}"#;
    service.control().plant(ListName::Responses, twin, None).unwrap();
    let place = Place::new(&service).with_config(&format!("[streams.responses]\nflags = []\n{AGAIN_EVERY_RUN}"));
    let first = place.report(&["sync"], 3);
    let responses = &first["streams"]["responses"];
    assert_eq!((&responses["rejected"], &responses["collisions"]), (&json!(1), &json!(1)), "{first}");

    let place = place.with_config(&every_flag());
    let done = place.run(&["sync"]).expect(0);
    assert!(done.stderr.contains("filled in") && !done.stderr.contains(" changed"), "{}", done.stderr);
    for (name, tables) in place.warehouses() {
        let filled = tables.count("SELECT sum(filled_in) FROM sync_windows");
        assert!(filled > 300, "{name}: {filled}");
        assert_eq!(tables.count("SELECT sum(updated) FROM sync_windows"), 0, "{name}");
        assert_eq!(tables.rows("rejects").len(), 1, "{name}");
        let losers = "SELECT count(*), count(url) FROM response_history WHERE reason = 'collision'";
        assert_eq!(tables.rows_of(losers), [[Some("1".to_owned()), Some("1".to_owned())]], "{name}: it is filled in");
        assert_eq!(tables.count("SELECT count(*) FROM response_history"), 1, "{name}");
    }
    assert_nothing_changed(&place.report(&["sync"], 0));
    // Fewer flags: no column becomes NULL, and no row is new.
    let place = place.with_config(&format!("[streams.responses]\nflags = []\n{AGAIN_EVERY_RUN}"));
    assert_nothing_changed(&place.report(&["sync"], 0));
}

#[test]
fn p1_counts_of_two_warehouses_are_those_of_the_data() {
    let service = Service::start(small(600, 20));
    plant(&service, Value::to_string);
    let place = Place::new(&service).with_config(&every_flag()).without_parquet();
    let first = place.report(&["sync"], 3);
    let all = first["streams"]["responses"]["inserted"].as_u64().unwrap();
    service.change(&ChangeRequest { edits: 10, within_ms: Some(15 * DAY_MS), ..ChangeRequest::default() });
    // The reject is known, and the edits count as edits, although all rows are new to the second warehouse.
    let report = place.with_parquet().report(&["sync"], 0);
    let counts = &report["streams"]["responses"];
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!((count("updated"), count("inserted"), count("unchanged")), (10, all - 10, 0), "{counts}");
    assert_eq!(count("rejected"), 0, "{counts}");
    assert!(count("inserted") + count("updated") <= count("rows_read"), "{counts}");
}
