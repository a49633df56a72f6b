//! The control interface: clock, log, truth, changes, planted rows.

use std::collections::BTreeSet;

use serde_json::json;
use studysync_sandbox::{ListName, RowKey, Settings};

use super::*;

fn keys(summary: &Value, kind: &str) -> BTreeSet<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    summary[kind].as_array().unwrap().iter().map(|key| (text(&key["group"]), text(&key["question"]))).collect()
}

#[tokio::test]
async fn the_log_shows_each_request() {
    let service = start(small()).await;
    service.rows("/v1/responses?limit=1000&start=5").await;
    service.status("/v1/surveys?status=A%2CB").await;
    let text = service.client.get(service.url("/_sandbox/log?since=2")).send().await.unwrap().text().await.unwrap();
    let entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries.len(), 2, "{text}");
    assert_eq!(
        (&entries[0]["seq"], &entries[0]["path"], &entries[0]["status"]),
        (&json!(2), &json!("/v1/responses"), &json!(200))
    );
    assert_eq!(entries[0]["query"][2][0], "cursor");
    assert_eq!(entries[1]["query"], json!([["status", "A,B"]]));
    assert_eq!((&entries[1]["status"], &entries[1]["in_flight"]), (&json!(400), &json!(1)));
    let first = &service.running.control().log_since(1)[0];
    assert_eq!((first.rows, first.fault.as_deref()), (1000, None));
    assert!(first.completed_us.unwrap() >= first.arrived_us && first.bytes > 300_000);
    service.client.delete(service.url("/_sandbox/log")).send().await.unwrap();
    assert_eq!(service.running.control().log_since(0), []);
}

#[tokio::test]
async fn the_control_interface_advances_the_clock() {
    let service = start(small()).await;
    assert_eq!(
        service.control("clock", json!({"advance_ms": 86_400_000})).await,
        json!({"now_ms": NOW_MS + 86_400_000})
    );
    assert_eq!(service.get("/v1/themes").await.headers()["date"], "Sun, 01 Feb 2026 08:00:00 GMT");
    let running = start(Settings { frozen_clock: false, ..small() }).await;
    let before = running.running.control().now_ms();
    while running.running.control().now_ms() == before {}
    assert!(before >= NOW_MS, "it starts at the moment handed in, and runs");
}

#[tokio::test]
async fn the_summary_of_changes_is_exact() {
    let service = start(small()).await;
    service.control("clock", json!({"advance_ms": 86_400_000})).await;
    let before = service.truth("responses").await;
    let request = json!({
        "seed": 7, "new_answers": 100, "edits": 80, "soft_deletes": 20, "vanish_visitors": 10, "late": 15,
        "status_changes": 3, "question_edits": 2, "theme_edits": 2, "new_themes": 9,
    });
    let themes = service.truth("themes").await;
    let summary = service.control("changes", request.clone()).await;
    let after = service.truth("responses").await;
    let (old, new) = (by_key(&before), by_key(&after));
    let vanished = keys(&summary, "vanished");
    assert_eq!(summary["vanished_visitors"].as_array().unwrap().len(), 10);
    assert!(!vanished.is_empty() && vanished.iter().all(|key| !new.contains_key(key)));
    let stayed =
        |kind: &str| keys(&summary, kind).into_iter().filter(|key| !vanished.contains(key)).collect::<Vec<_>>();
    let (bumped, silent) = (keys(&summary, "edits_bumped"), keys(&summary, "edits_silent"));
    assert_eq!(bumped.len() + silent.len(), 80);
    assert!(bumped.len() > 20 && silent.len() > 20);
    for key in stayed("edits_bumped").iter().chain(&stayed("edits_silent")) {
        assert_ne!(new[key]["response"], old[key]["response"]);
        assert_eq!(new[key]["updatedAt"] != old[key]["updatedAt"], bumped.contains(key));
    }
    let deleted = stayed("soft_deletes");
    assert!(deleted.iter().all(|key| !is_deleted(old[key]) && is_deleted(new[key])));
    let day_ago_ms = NOW_MS;
    let added = stayed("new_answers");
    assert!(
        added.len() > 90 && added.iter().all(|key| (day_ago_ms..=NOW_MS + 86_400_000).contains(&created_ms(new[key])))
    );
    let late = keys(&summary, "late");
    assert_eq!(late.len(), 15);
    assert!(late.iter().any(|key| created_ms(new[key]) < day_ago_ms), "late rows lie in the past");
    let changed: BTreeSet<_> = new
        .iter()
        .filter(|(key, row)| old.get(*key).is_some_and(|old| old != *row))
        .map(|(key, _)| key.clone())
        .collect();
    let expected: BTreeSet<_> =
        stayed("edits_bumped").into_iter().chain(stayed("edits_silent")).chain(deleted).collect();
    assert_eq!(changed, expected, "and nothing else has changed");
    assert_eq!(new.len() + vanished.len(), 1500 + 100 + 15);

    let id_of = |row: &Value| (row["id"].to_string(), key(row));
    let new_themes: BTreeSet<_> = service.truth("themes").await.iter().map(id_of).collect();
    let old_themes: BTreeSet<_> = themes.iter().map(id_of).collect();
    assert_eq!(new_themes.difference(&old_themes).count(), summary["new_themes"].as_array().unwrap().len());
    let status = &summary["status_changes"][2];
    let surveys = service.truth("surveys").await;
    assert!(surveys.iter().any(|row| row["id"] == status["survey"] && row["status"] == status["status"]));

    let twin = start(small()).await;
    twin.control("clock", json!({"advance_ms": 86_400_000})).await;
    assert_eq!(twin.control("changes", request).await, summary, "the same seed, the same changes");
}

#[tokio::test]
async fn changes_can_be_limited_to_recent_rows_or_a_window() {
    let service = start(small()).await;
    let before = service.truth("responses").await;
    let within_ms = 2 * 86_400_000;
    let summary = service.control("changes", json!({"edits": 20, "within_ms": within_ms})).await;
    let rows = by_key(&before);
    assert_eq!(keys(&summary, "edits_bumped").len() + keys(&summary, "edits_silent").len(), 20);
    assert!(keys(&summary, "edits_silent").iter().all(|key| created_ms(rows[key]) >= NOW_MS - within_ms));
    let (from_ms, to_ms) = (NOW_MS - 3 * 86_400_000, NOW_MS - 2 * 86_400_000);
    let expected: BTreeSet<_> =
        before.iter().filter(|row| (from_ms..to_ms).contains(&created_ms(row))).map(key).collect();
    let summary = service.control("changes", json!({"vanish_window_ms": [from_ms, to_ms]})).await;
    assert_eq!(keys(&summary, "vanished"), expected);
    assert_eq!(service.truth("responses").await.len(), 1500 - expected.len());
}

#[tokio::test]
async fn a_planted_row_is_listed_byte_for_byte() {
    let service = start(small()).await;
    let record = r#"{ "createdAt":"2026-01-30T10:00:00.5+02:00","responseGroupUid":"g-1", "questionId":1.0e0,"response":"\ud800","surveyId":77, "x":[1 , 2]}"#;
    let url = service.url("/_sandbox/row");
    let send = async |record: &str| service.client.post(&url).body(record.to_owned()).send().await.unwrap().status();
    assert_eq!(send(record).await, 204);
    let body = service.get("/v1/responses?sid=77").await.text().await.unwrap();
    assert_eq!(body, format!(r#"{{"data":[{record}],"cursor":null}}"#));
    let changed = record.replace("\\ud800", "changed").replace("\"x\"", "\"deletedAt\":\"2026-01-30T10:00:01Z\",\"x\"");
    assert_eq!(send(&changed).await, 204);
    assert_eq!(
        service.rows("/v1/responses?sid=77").await.len(),
        0,
        "the same key is replaced; a deleted row is hidden"
    );
    assert_eq!(service.rows("/v1/responses?sid=77&with_deleted_responses=true").await.len(), 1);
    assert_eq!(send("[1]").await, 400);
    assert_eq!(send(r#"{"createdAt":"then"}"#).await, 400);
    let control = service.running.control();
    control.plant(ListName::Responses, r#"{"createdAt":"then","surveyId":78}"#, Some(NOW_MS)).unwrap();
    assert_eq!(service.rows("/v1/responses?sid=78").await, [json!({"createdAt": "then", "surveyId": 78})]);
    control.plant(ListName::Surveys, r#"{"id":4100,"createdAt":"2026-01-01T00:00:00Z","status":"ODD"}"#, None).unwrap();
    assert_eq!(service.rows("/v1/surveys?limit=1000").await.len(), 24, "a survey with the same id is replaced");
    let removed = service.client.delete(format!("{url}?group=g-1&question=1.0e0")).send().await.unwrap();
    assert_eq!(removed.text().await.unwrap(), r#"{"removed":1}"#);
}

#[tokio::test]
async fn changes_keep_the_exact_text_of_a_planted_row() {
    let service = start(Settings { responses: 0, ..small() }).await;
    let record = r#"{"createdAt":"2026-01-30T10:00:00Z","responseGroupUid":"g-1","questionId":1,"response":"mine","surveyId":77}"#;
    service.running.control().plant(ListName::Responses, record, None).unwrap();
    let summary = service.control("changes", json!({"edits": 5, "soft_deletes": 5})).await;
    for kind in ["edits_bumped", "edits_silent", "soft_deletes"] {
        assert_eq!(summary[kind], json!([]), "{kind}");
    }
    let body = service.get("/v1/responses?sid=77").await.text().await.unwrap();
    assert_eq!(body, format!(r#"{{"data":[{record}],"cursor":null}}"#));
}

#[tokio::test]
async fn a_generated_row_can_be_replaced_or_removed_by_key() {
    let service = start(small()).await;
    let row = service.truth("responses").await[3].clone();
    let (group, question) = key(&row);
    let control = service.running.control();
    let record = json!({"createdAt": row["createdAt"], "responseGroupUid": group, "questionId": row["questionId"], "mine": true});
    control.plant(ListName::Responses, &record.to_string(), None).unwrap();
    let truth = service.truth("responses").await;
    assert_eq!(truth.len(), 1500);
    assert_eq!(truth.iter().filter(|row| row["mine"] == true).count(), 1);
    assert_eq!(control.remove_row(&RowKey { group, question }), 1);
    assert_eq!(control.stats().responses, 1499);
}

#[tokio::test]
async fn hostile_rows_appear_only_on_request() {
    let service = start(Settings { hostile_share: 0.5, responses: 3000, ..small() }).await;
    let mut text = String::new();
    service.running.control().truth(ListName::Responses, |line| text.push_str(line));
    for odd in [
        "recordedtask",
        "conjoint",
        r"\u0000",
        r"\ud83d",
        "9007199254740993",
        "+02:00",
        "unknownField",
        r#""selectedIndexes":null"#,
        "1e-400",
    ] {
        assert!(text.contains(odd), "{odd}");
    }
    assert!(text.contains(&"long text ".repeat(100_000)));
    let clean = start(small()).await;
    let mut text = String::new();
    clean.running.control().truth(ListName::Responses, |line| text.push_str(line));
    assert!(["recordedtask", "+02:00", "unknownField"].iter().all(|odd| !text.contains(odd)));
}

#[tokio::test]
async fn impossible_settings_are_refused() {
    for settings in [
        Settings { days: 0, ..small() },
        Settings { responses: u64::MAX, ..small() },
        Settings { hostile_share: 1.5, ..small() },
        Settings { surveys: 0, ..small() },
    ] {
        let error = studysync_sandbox::Sandbox::start(settings, ([127, 0, 0, 1], 0).into()).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    for responses in [0, 1, 37] {
        let service = start(Settings { responses, ..small() }).await;
        assert_eq!(service.truth("responses").await.len() as u64, responses);
    }
}
