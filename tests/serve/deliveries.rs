//! Webhook deliveries: each kind, with the contract's irregularities, is stored once in both warehouses. And the runs
//! that a delivery triggers.

use studysync_sandbox::{ChangeRequest, WebhookTarget, deliver};

use super::{SECRET, Serving, answer_body, in_each, place_for, raw, status_of, until};
use crate::harness::{Service, Tables, small};

const NO_SCHEDULE: &str = "schedule = \"off\"\nwake_secs = 0\nflush_secs = 1\n";

fn now_ms() -> i64 {
    studysync::clock::now_ms()
}

pub fn post_all(bodies: &[String], target: &WebhookTarget) -> studysync_sandbox::Delivered {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(deliver(bodies, target))
}

#[test]
fn p1_each_webhook_kind_is_stored_once_despite_repeats() {
    let service = Service::start(small(600, 10));
    let place = place_for(&service, NO_SCHEDULE);
    place.run(&["sync", "--quiet"]).expect(0);
    let serving = Serving::start(&place);
    service.advance_days(1);
    let summary = service.change(&ChangeRequest {
        new_answers: 120,
        status_changes: 4,
        new_themes: 5,
        ..ChangeRequest::default()
    });
    let mut bodies = service.control().webhook_bodies(&summary);
    bodies.push(service.control().test_body());
    let target = WebhookTarget {
        url: serving.url(),
        secret: SECRET.into(),
        repeated_percent: 40,
        is_shuffled: true,
        ..WebhookTarget::default()
    };
    let delivered = post_all(&bodies, &target);
    let posts: u64 = delivered.posts.values().sum();
    assert_eq!(delivered.posts.get(&200), Some(&posts), "{delivered:?}");
    assert!(posts > bodies.len() as u64 * 5 / 4, "too few were repeated");
    // The same event with other whitespace is not stored again.
    let answer: serde_json::Value = serde_json::from_str(&bodies[0]).unwrap();
    assert_eq!(serving.post(format!("{:#}", answer).as_bytes()), 200);
    for (body, _) in ODD_BODIES {
        assert_eq!(serving.post(body), 200);
    }
    serving.wait_until_flushed();
    assert_eq!(serving.stop(), 0);
    // Readers of Parquet see the events after the next run, which also scans answers that were too young before.
    service.control().advance_clock(3_600_000);
    place.run(&["sync", "--quiet"]).expect(0);

    let count = |kind: &str| bodies.iter().filter(|body| kind_of(body) == kind).count() as i64;
    in_each(&place, |name, tables| {
        for kind in [
            "answer_submitted",
            "study_submitted",
            "study_sent",
            "study_seen",
            "theme_identified",
            "study_status_changed",
            "test",
        ] {
            assert!(count(kind) > 0, "{kind}");
            let found = tables.count(&format!("SELECT count(*) FROM webhook_events WHERE kind = '{kind}'"));
            assert_eq!(found, count(kind), "{name}: {kind}");
        }
        for body in &bodies {
            let body = body.replace('\'', "''");
            assert_eq!(
                tables.count(&format!("SELECT count(*) FROM webhook_events WHERE raw = '{body}'")),
                1,
                "{name}: {body}"
            );
        }
        for (body, kind) in ODD_BODIES {
            let hex: String = body.iter().map(|byte| format!("\\x{byte:02X}")).collect();
            let raw = "coalesce(from_base64(raw_base64), encode(raw))";
            let sql = format!("SELECT count(*) FROM webhook_events WHERE kind = '{kind}' AND {raw} = '{hex}'::BLOB");
            assert_eq!(tables.count(&sql), 1, "{name}: {}", String::from_utf8_lossy(body));
        }
        // An answer in a webhook equals the same answer in the list.
        let differ =
            "SELECT w.question_type, w.response_json, r.answer_json, w.occurred_at, r.created_at, r.question_id
                      FROM webhook_events w LEFT JOIN responses r ON r.response_group_uid = w.response_group_uid
                      AND r.question_text = w.question_text AND epoch_ms(r.created_at) = epoch_ms(w.occurred_at)
                      WHERE w.kind = 'answer_submitted' AND (r.visitor_uuid = w.visitor_id
                      AND r.survey_id = w.survey_id
                      AND (w.response_json IS NOT DISTINCT FROM nullif(r.answer_json, 'null')
                           OR w.response_parsed_json::JSON = r.answer_json::JSON
                           OR w.response_json::JSON = r.answer_json::JSON
                           OR w.response_json LIKE '{%' AND list_sort(json_keys(w.response_json)) = list_sort(json_keys(r.answer_json))
                      )) IS DISTINCT FROM true";
        let differ = tables.rows_of(differ);
        assert!(differ.is_empty(), "{name}: {} differ, such as {:?}", differ.len(), differ.first());
        let lists = "SELECT count(*) FROM webhook_events WHERE kind = 'answer_submitted' AND question_type = 'multipleselect'
                     AND (len(selected_indexes) > 0) IS DISTINCT FROM (selected_indexes IS NOT NULL AND selected_indexes <> [])";
        assert_eq!(tables.count(lists), 0, "{name}");
        assert!(tables.count("SELECT count(*) FROM webhook_events WHERE email IS NOT NULL") > 0, "{name}");
        // Every documented field has a column, and each question of a list has a row.
        let rest =
            "SELECT count(*) FROM webhook_events WHERE extra IS NOT NULL AND kind NOT IN ('unknown', 'not_json')";
        assert_eq!(tables.count(rest), 0, "{name}");
        let lists = "SELECT sum(json_array_length(questions)) FROM webhook_events WHERE questions IS NOT NULL";
        let rows = "SELECT count(*) FROM webhook_questions JOIN webhook_events USING (event_key, received_at)";
        assert_eq!(tables.count(lists), tables.count(rows), "{name}");
        let joined = "SELECT count(*) FROM webhook_questions q JOIN webhook_events e USING (event_key)
                      JOIN responses r ON r.response_group_uid = q.response_group_uid AND r.question_text = q.question_text
                      WHERE e.kind = 'study_submitted'";
        assert!(tables.count(joined) > 50, "{name}");
        let types = "SELECT count(*) FROM webhook_events w JOIN responses r ON r.response_group_uid = w.response_group_uid
                     AND r.question_text = w.question_text WHERE r.question_type IS DISTINCT FROM w.export_question_type";
        assert_eq!(tables.count(types), 0, "{name}");
    });
    // The example script reads the same rows, and gives webhooks a column with their month.
    let by_month = "SELECT count(*) FROM webhook_events e JOIN webhook_questions q USING (event_key)
                    WHERE e.received_month = date_trunc('month', e.received_at) AND q.received_month = e.received_month";
    let questions = place.duckdb_tables().count("SELECT count(*) FROM webhook_questions");
    assert_eq!(Tables::parquet_with_views(&place.parquet()).count(by_month), questions);
}

#[test]
fn p1_new_webhook_fields_are_kept_and_reported_by_the_next_run() {
    let service = Service::start(small(200, 5));
    let place = place_for(&service, NO_SCHEDULE);
    place.run(&["sync", "--quiet"]).expect(0);
    let serving = Serving::start(&place);
    for number in 0..5 {
        let body = answer_body(number).replacen('{', r#"{"battery":"low","surveyId":{"not":"a number"},"#, 1);
        let body = body.replace(r#""surveyId":7,"#, "");
        assert_eq!(serving.post(body.as_bytes()), 200);
    }
    serving.wait_until_flushed();
    serving.stop();
    let report = place.run(&["sync", "--json"]).expect(0).json();
    let told = |report: &serde_json::Value| -> Vec<(String, u64)> {
        let entries = report["drift"].as_array().unwrap().iter().filter(|entry| entry["stream"] == "webhooks");
        entries.map(|entry| (entry["where"].as_str().unwrap().to_owned(), entry["records"].as_u64().unwrap())).collect()
    };
    assert_eq!(told(&report), [("webhooks.battery".to_owned(), 5)]);
    assert_eq!(told(&place.run(&["status", "--json"]).expect(0).json()), told(&report));
    in_each(&place, |name, tables| {
        let kept = "SELECT count(*) FROM webhook_events WHERE extra LIKE '%\"battery\":\"low\"%'";
        assert_eq!(tables.count(kept), 5, "{name}");
    });
    // A reported drift is not reported again.
    service.control().advance_clock(3_600_000);
    let report = place.run(&["sync", "--json"]).expect(0).json();
    assert_eq!(told(&report), []);
}

#[test]
fn p1_replay_keeps_webhook_data() {
    let service = Service::start(small(200, 5));
    let place = place_for(&service, NO_SCHEDULE);
    place.run(&["sync", "--quiet"]).expect(0);
    let serving = Serving::start(&place);
    for number in 0..20 {
        assert_eq!(serving.post(answer_body(number).as_bytes()), 200);
    }
    serving.wait_until_flushed();
    serving.stop();
    place.run(&["sync", "--quiet"]).expect(0);
    // Simulates events that were stored by a version without these columns.
    let older = "UPDATE webhook_events SET created_at = NULL, export_question_type = NULL";
    duckdb::Connection::open(place.duckdb()).unwrap().execute_batch(older).unwrap();
    place.run(&["replay", "--quiet"]).expect(0);
    in_each(&place, |name, tables| {
        let filled =
            "SELECT count(*) FROM webhook_events WHERE created_at IS NOT NULL AND export_question_type = 'OPEN'";
        assert_eq!(tables.count(filled), 20, "{name}");
        assert_eq!(tables.count("SELECT count(DISTINCT event_key) FROM webhook_events"), 20, "{name}");
        assert_eq!(tables.count("SELECT count(*) FROM webhook_events"), 20, "{name}");
        assert!(tables.count("SELECT count(*) FROM responses") > 100, "{name}");
    });
}

/// Bodies that match no contract, and the kind that each is stored as.
const ODD_BODIES: [(&[u8], &str); 7] = [
    (b"\xef\xbb\xbf{\"eventType\":\"something_else\"}", "unknown"),
    (b"{\"eventType\":\"something_new\",\"x\":[1,2]}", "unknown"),
    (b"not json at all", "not_json"),
    (b"", "not_json"),
    (b"[{\"action\":\"sent\"}]", "unknown"),
    (b"{\"action\":\"sent\"", "not_json"),
    (b"\xff\xfe{\"bad\":\x80}\x00", "not_json"),
];

fn kind_of(body: &str) -> &'static str {
    let value: serde_json::Value = serde_json::from_str(body).unwrap();
    match (value["action"].as_str(), value["eventType"].as_str()) {
        (Some("sent"), _) => "study_sent",
        (Some("seen"), _) => "study_seen",
        (Some("completed"), _) => "study_submitted",
        (_, Some("TEST")) => "test",
        (_, Some("survey_response")) => "answer_submitted",
        _ if value.get("oldStatus").is_some() => "study_status_changed",
        _ => "theme_identified",
    }
}

#[test]
fn p11_webhooks_without_the_secret_are_not_stored() {
    let service = Service::start(small(200, 5));
    let place = place_for(&service, NO_SCHEDULE);
    let serving = Serving::start(&place);
    let body = answer_body(1);
    for header in [
        "",
        "authorization: Bearer wrong\r\n",
        "authorization: Bearer \r\n",
        &format!("authorization: {SECRET}\r\n"),
        &format!("authorization: Bearer {SECRET}x\r\n"),
        &format!("authorization: Bearer {}\r\n", &SECRET[..SECRET.len() - 1]),
        &format!("authorization: API-Key {SECRET}\r\n"),
    ] {
        let request =
            format!("POST /webhook HTTP/1.1\r\nhost: x\r\n{header}content-length: {}\r\n\r\n{body}", body.len());
        assert_eq!(status_of(&raw(serving.address, request.as_bytes())), 401, "{header}");
    }
    let request = format!(
        "POST /webhook HTTP/1.1\r\nhost: x\r\nAUTHORIZATION: bearer {SECRET}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(status_of(&raw(serving.address, request.as_bytes())), 200, "the scheme has no case");
    assert_eq!(serving.metric("deliveries_unauthorised_total"), 7);
    assert!(!serving.get("/").1.contains(SECRET));
    serving.wait_until_flushed();
    serving.stop();
    assert_eq!(place.duckdb_tables().count("SELECT count(*) FROM webhook_events"), 1);
    for path in place.files("") {
        let bytes = std::fs::read(&path).unwrap();
        assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "{}", path.display());
    }
}

#[test]
fn a_status_change_seen_by_scan_and_webhook_is_one_row() {
    let settings = studysync_sandbox::Settings { now_ms: now_ms(), frozen_clock: false, ..small(200, 5) };
    let service = Service::start(settings);
    let place = place_for(&service, "schedule = \"off\"\nwake_secs = 1\nflush_secs = 1\n");
    place.run(&["sync", "--quiet"]).expect(0);
    let serving = Serving::start(&place);
    let changes = ChangeRequest { status_changes: 1, status_to: None, seed: 3, ..ChangeRequest::default() };
    let first = service.change(&changes);
    let target = WebhookTarget { url: serving.url(), secret: SECRET.into(), ..WebhookTarget::default() };
    post_all(&service.control().webhook_bodies(&first), &target);
    let survey = first.status_changes[0].survey;
    // The webhook triggers a scan of the surveys, which finds the change too.
    until("the scan that the webhook woke", || {
        serving.metric("runs_total") >= 1 && serving.health()["running"].is_null()
    });
    serving.wait_until_flushed();
    serving.stop();
    let changes_of = |tables: &crate::harness::Tables| {
        tables.rows_of(&format!(
            "SELECT old_status, new_status, seen_by FROM survey_status_changes WHERE survey_id = {survey} ORDER BY changed_at"
        ))
    };
    let row = |old: &str, new: &str, by: &str| vec![Some(old.to_owned()), Some(new.to_owned()), Some(by.to_owned())];
    let change = &first.status_changes[0];
    in_each(&place, |name, tables| {
        assert_eq!(changes_of(tables)[1..], [row(&change.old_status, &change.status, "both")], "{name}");
    });

    // A scan finds the next change first. Its webhook comes later, twice, and has the time of the change. The service's
    // `Date` has a resolution of one second, and a scan begins at this time.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let second = service.change(&ChangeRequest { seed: 3, status_changes: 1, ..changes });
    let change = &second.status_changes[0];
    assert_eq!(change.survey, survey, "the same seed draws the same survey");
    place.run(&["sync", "--quiet"]).expect(0);
    let serving = Serving::start(&place);
    let twice = WebhookTarget { url: serving.url(), repeated_percent: 100, ..target };
    post_all(&service.control().webhook_bodies(&second), &twice);
    serving.wait_until_flushed();
    serving.stop();
    place.run(&["sync", "--quiet"]).expect(0);
    in_each(&place, |name, tables| {
        let found = changes_of(tables);
        assert_eq!(found.len(), 3, "{name}: {found:?}");
        assert_eq!(found[2], row(&change.old_status, &change.status, "both"), "{name}");
    });
}

#[test]
fn answers_known_only_to_webhooks_or_lists_are_listed() {
    let settings = studysync_sandbox::Settings { now_ms: now_ms() - 3_600_000, frozen_clock: false, ..small(300, 5) };
    let service = Service::start(settings);
    let place = place_for(&service, NO_SCHEDULE);
    let serving = Serving::start(&place);
    let summary = service.change(&ChangeRequest { new_answers: 30, ..ChangeRequest::default() });
    let bodies: Vec<String> = service
        .control()
        .webhook_bodies(&summary)
        .into_iter()
        .filter(|body| kind_of(body) == "answer_submitted")
        .collect();
    assert_eq!(bodies.len(), 30);
    let target = WebhookTarget { url: serving.url(), secret: SECRET.into(), ..WebhookTarget::default() };
    // Five answers have no webhook, and one webhook is about an answer that no list has.
    post_all(&bodies[5..], &target);
    let ghost = bodies[10].replacen("\"responseGroupUid\":\"", "\"responseGroupUid\":\"ghost-", 1);
    assert_eq!(serving.post(ghost.as_bytes()), 200);
    serving.wait_until_flushed();
    serving.stop();
    service.advance_days(1);
    place.run(&["sync", "--quiet"]).expect(0);
    let listed = |side: &str| {
        let sql = format!(
            "SELECT count(*) AS rows FROM webhook_mismatches WHERE known_by = '{side}' AND response_group_uid IS NOT NULL"
        );
        place.run(&["query", &sql, "--format", "csv"]).expect(0).stdout.lines().nth(1).unwrap().parse::<i64>().unwrap()
    };
    assert_eq!(listed("webhook"), 1);
    let read = |body: &String| serde_json::from_str::<serde_json::Value>(body).unwrap();
    let told: Vec<serde_json::Value> = bodies[5..].iter().map(read).collect();
    let told_from = told.iter().filter_map(|body| body["timestamp"].as_i64()).min().unwrap();
    // A webhook identifies its question only by the wording, which another question of the session may share.
    let is_told = |untold: &serde_json::Value| {
        told.iter().any(|told| ["responseGroupUid", "question"].iter().all(|field| told[*field] == untold[*field]))
    };
    let untold = bodies[..5].iter().map(read);
    let untold = untold.filter(|body| body["timestamp"].as_i64().unwrap() >= told_from && !is_told(body)).count();
    assert_eq!(listed("scan"), untold as i64);
}

/// Returns the webhook body of a status change, as the service posts it.
fn status_body(environment: &str, survey: i64, old: &str, new: &str) -> String {
    format!(
        r#"{{"surveyId":{survey},"surveyName":"s","oldStatus":"{old}","status":"{new}","environmentId":"{environment}","eventName":"surveyStatusChange","eventType":"product_message"}}"#
    )
}

#[test]
fn p10_a_webhook_of_another_environment_is_reported() {
    let service = Service::start(small(100, 3));
    // Deliveries stay in the inbox until a run.
    let place = place_for(&service, "schedule = \"off\"\nwake_secs = 1\nflush_secs = 3600\n");
    place.run(&["sync", "--quiet"]).expect(0);
    let surveys = service.truth(studysync_sandbox::ListName::Surveys);
    let survey: serde_json::Value = serde_json::from_str(&surveys[0]).unwrap();
    let (id, status) = (survey["id"].as_i64().unwrap(), survey["status"].as_str().unwrap());
    let serving = Serving::start(&place);
    // A test delivery from another environment does not determine the environment of this warehouse.
    assert_eq!(
        serving.post(br#"{"id":1,"environmentId":"dev","surveyId":1,"surveyName":"s","eventType":"TEST"}"#),
        200
    );
    assert_eq!(serving.post(answer_body(1).as_bytes()), 200);
    assert_eq!(serving.post(status_body("dev", id, status, "GONE").as_bytes()), 200);
    let stored = |kind: &str| {
        let name = format!("deliveries_stored_total{{kind=\"{kind}\"}}");
        crate::harness::sample(&serving.get("/metrics").1, &name) == Some(1.0)
    };
    assert!(stored("other_environment") && stored("answer_submitted"), "{}", serving.get("/metrics").1);
    assert_eq!(serving.health()["running"], serde_json::Value::Null, "it wakes no scan");
    serving.stop();
    let done = place.run(&["sync"]).expect(3);
    assert!(done.stderr.contains("another environment"), "{}", done.stderr);
    in_each(&place, |name, tables| {
        let changes = format!("SELECT count(*) FROM survey_status_changes WHERE survey_id = {id}");
        assert_eq!(tables.count(&changes), 1, "{name}: only that it was first seen");
        let others = "SELECT count(*) FROM webhook_events WHERE kind = 'other_environment' AND environment_id = 'dev'";
        assert_eq!((tables.count(others), tables.count("SELECT count(*) FROM webhook_events")), (2, 3), "{name}");
    });
    place.run(&["sync", "--quiet"]).expect(0);

    // The configuration can name the environment whose webhooks count.
    let place = place.with_config(&format!(
        "{}[serve]\nlisten = \"127.0.0.1:0\"\nschedule = \"off\"\nflush_secs = 3600\nenvironment_id = \"dev\"\n",
        crate::harness::ALL_FLAGS
    ));
    let serving = Serving::start(&place);
    assert_eq!(serving.post(status_body("dev", id, status, "LATER").as_bytes()), 200);
    assert_eq!(serving.post(answer_body(2).as_bytes()), 200);
    serving.stop();
    place.run(&["sync", "--quiet"]).expect(3);
    in_each(&place, |name, tables| {
        let change =
            format!("SELECT count(*) FROM survey_status_changes WHERE survey_id = {id} AND new_status = 'LATER'");
        assert_eq!(tables.count(&change), 1, "{name}");
        let other = "SELECT count(*) FROM webhook_events WHERE kind = 'other_environment' AND environment_id = 'e'";
        assert_eq!(tables.count(other), 1, "{name}");
    });
}
