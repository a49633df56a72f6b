//! Response rates from webhooks and lists together, compared with a second computation from bodies and answers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use studysync_sandbox::{ChangeRequest, ListName, RowKey, WebhookTarget};

use super::{SECRET, Serving, deliveries::post_all, place_for};
use crate::harness::{Cell, DAY_MS, NOW_MS, Service, Tables, connect, days_ago, small};

const NO_SCHEDULE: &str = "schedule = \"off\"\nwake_secs = 0\nflush_secs = 1\n";
const KINDS: [&str; 4] = ["study_sent", "study_seen", "answer_submitted", "study_submitted"];

/// The known facts about a session.
#[derive(Clone, Debug, Default)]
struct Session {
    survey: Option<i64>,
    moments: Vec<i64>,
    /// The time of each kind of webhook about the session.
    told: BTreeMap<&'static str, i64>,
    /// The time of the first webhook with an answer that is not skipped.
    told_answer: Option<i64>,
    /// Whether a scan found the session, even if its answers were deleted later.
    is_listed: bool,
    /// The triggers of its webhooks, by kind.
    triggers: BTreeMap<&'static str, String>,
    platform: Option<String>,
    /// The session's answers in the list: creation time, question, whether skipped.
    answers: Vec<(i64, i64, bool)>,
    snapshot_trigger: Option<String>,
}

/// The position of a question in its survey, by survey and question.
type Ordinals = BTreeMap<(i64, i64), i64>;

fn kind_of(body: &Value) -> Option<&'static str> {
    match body["action"].as_str() {
        Some("sent") => Some(KINDS[0]),
        Some("seen") => Some(KINDS[1]),
        Some("completed") => Some(KINDS[3]),
        _ if body["question"].is_string() && body["responseGroupUid"].is_string() => Some(KINDS[2]),
        _ => None,
    }
}

fn number(cell: &Cell) -> i64 {
    cell.as_deref().unwrap().parse().unwrap()
}

fn earlier(told: &mut BTreeMap<&'static str, i64>, kind: &'static str, at: i64) {
    let held = told.entry(kind).or_insert(at);
    *held = at.min(*held);
}

/// Returns whether an answer is empty. Webhooks also send lists and objects as JSON inside a text.
fn is_blank(response: &Value) -> bool {
    match response {
        Value::Null => true,
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner @ (Value::Array(_) | Value::Object(_))) => is_blank(&inner),
            _ => text.trim().is_empty(),
        },
        Value::Array(items) => items.iter().all(Value::is_null),
        Value::Object(members) => members.values().all(Value::is_null),
        _ => false,
    }
}

fn sessions(tables: &Tables) -> BTreeMap<String, Session> {
    let mut sessions: BTreeMap<String, Session> = BTreeMap::new();
    for row in tables.rows_of("SELECT raw, event_key FROM webhook_events WHERE kind <> 'other_environment'") {
        let body: Value = serde_json::from_str(row[0].as_deref().unwrap()).unwrap();
        let Some(kind) = kind_of(&body) else { continue };
        let uid = body["responseGroupUid"].as_str().filter(|uid| !uid.is_empty());
        let name = uid.map_or_else(|| format!("event {}", row[1].as_deref().unwrap()), str::to_owned);
        let session = sessions.entry(name).or_default();
        let at = body["timestamp"].as_i64().unwrap() * 1000;
        earlier(&mut session.told, kind, at);
        if kind == "answer_submitted" && !is_blank(&body["response"]) {
            session.told_answer = Some(session.told_answer.map_or(at, |told| told.min(at)));
        }
        session.moments.push(at);
        session.survey = session.survey.max(body["surveyId"].as_i64());
        if let Some(trigger) = body["triggeringEvent"].as_str() {
            let held = session.triggers.entry(kind).or_default();
            *held = trigger.to_owned().max(std::mem::take(held));
        }
        session.platform = session.platform.take().max(body["platform"].as_str().map(str::to_owned));
    }
    let answers = "SELECT response_group_uid, survey_id, epoch_us(created_at), question_id, is_skipped FROM responses
                   WHERE deleted_at IS NULL AND _vanished_at IS NULL";
    for row in tables.rows_of(answers) {
        let session = sessions.entry(row[0].clone().unwrap()).or_default();
        if session.answers.is_empty() {
            session.survey = None;
        }
        session.survey = session.survey.max(row[1].as_deref().map(|id| id.parse().unwrap()));
        session.answers.push((number(&row[2]), number(&row[3]), row[4].as_deref() == Some("true")));
        session.moments.push(number(&row[2]));
    }
    for row in tables.rows_of("SELECT DISTINCT response_group_uid FROM responses") {
        if let Some(session) = sessions.get_mut(row[0].as_deref().unwrap()) {
            session.is_listed = true;
        }
    }
    for row in tables.rows_of("SELECT response_group_uid, triggering_event FROM visitor_snapshots") {
        if let Some(session) = sessions.get_mut(row[0].as_deref().unwrap()) {
            session.snapshot_trigger = session.snapshot_trigger.take().max(row[1].clone());
        }
    }
    sessions
}

impl Session {
    fn answered(&self) -> Option<i64> {
        let listed = self.answers.iter().filter(|(.., is_skipped)| !is_skipped).map(|(at, ..)| *at);
        listed.chain(self.told_answer).min()
    }

    fn known_by(&self) -> &'static str {
        match (self.told.is_empty(), self.is_listed) {
            (true, _) => "scan",
            (false, false) => "webhook",
            (false, true) => "both",
        }
    }

    fn is_completed(&self, ordinals: &Ordinals) -> bool {
        let Some(survey) = self.survey else { return self.told.contains_key("study_submitted") };
        let last = ordinals.iter().filter(|((of, _), _)| *of == survey).map(|(_, ordinal)| *ordinal).max();
        let reached = self.answers.iter().filter_map(|(_, question, _)| ordinals.get(&(survey, *question))).max();
        self.told.contains_key("study_submitted") || reached.zip(last.as_ref()).is_some_and(|(at, last)| at >= last)
    }

    fn first_question(&self, ordinals: &Ordinals) -> Option<i64> {
        let place = |question: i64| self.survey.and_then(|survey| ordinals.get(&(survey, question)).copied());
        let listed =
            self.answers.iter().map(|(at, question, _)| (*at, place(*question).unwrap_or(i64::MAX), *question));
        listed.min().map(|(.., question)| question).or_else(|| {
            let of = ordinals.iter().filter(|((of, _), _)| Some(*of) == self.survey);
            of.min_by_key(|(_, ordinal)| **ordinal).map(|((_, question), _)| *question)
        })
    }

    fn trigger(&self) -> Option<String> {
        let told = |kind: &str| self.triggers.get(kind).cloned();
        told("study_sent").or_else(|| told("answer_submitted")).or_else(|| self.snapshot_trigger.clone())
    }
}

fn ordinals(tables: &Tables) -> Ordinals {
    let sql = "SELECT survey_id, question_id, min(question_ordinal) FROM survey_questions WHERE question_id IS NOT NULL GROUP BY ALL";
    tables.rows_of(sql).iter().map(|row| ((number(&row[0]), number(&row[1])), number(&row[2]))).collect()
}

fn text(value: Option<impl ToString>) -> Cell {
    value.map(|value| value.to_string())
}

fn assert_stages(name: &str, tables: &Tables) {
    let (sessions, ordinals) = (sessions(tables), ordinals(tables));
    let platforms: BTreeMap<i64, Cell> = tables
        .rows_of("SELECT id, platform FROM surveys")
        .into_iter()
        .map(|row| (number(&row[0]), row[1].clone()))
        .collect();
    let platform_of =
        |session: &Session| session.platform.clone().or_else(|| platforms.get(&session.survey?).cloned().flatten());
    let mut wanted: Vec<Vec<Cell>> = sessions
        .iter()
        .map(|(uid, session)| {
            vec![
                Some(uid.clone()),
                text(session.survey),
                text(session.moments.iter().min()),
                text(session.told.get("study_sent")),
                text(session.told.get("study_seen")),
                text(session.answered()),
                text(session.told.get("study_submitted")),
                text(Some(session.is_completed(&ordinals))),
                session.trigger(),
                platform_of(session),
                text(session.first_question(&ordinals)),
                text(Some(session.known_by())),
            ]
        })
        .collect();
    let mut found = tables.rows_of(
        "SELECT response_group_uid, survey_id, epoch_us(begun_at), epoch_us(sent_at), epoch_us(seen_at), epoch_us(answered_at),
            epoch_us(submitted_at), is_completed, triggering_event, platform, first_question_id, known_by FROM session_stages",
    );
    wanted.sort();
    found.sort();
    let differs = wanted.iter().zip(&found).find(|(wanted, found)| wanted != found);
    assert!(wanted == found, "{name}: {} and {} sessions; {differs:?}", wanted.len(), found.len());
    let met: BTreeSet<&Cell> = wanted.iter().map(|row| &row[11]).collect();
    assert_eq!(met.len(), 3, "{name}: {met:?}");

    let since = sessions.values().flat_map(|session| session.told.values()).min().copied().unwrap();
    let scanned =
        number(&tables.value("SELECT epoch_us(max(window_end)) FROM sync_windows WHERE stream = 'responses'"));
    let mut groups: BTreeMap<Vec<Cell>, Vec<&Session>> = BTreeMap::new();
    for session in sessions.values() {
        let begun = *session.moments.iter().min().unwrap();
        if begun < since {
            continue;
        }
        let day = chrono::DateTime::from_timestamp_micros(begun).unwrap().date_naive();
        let key = [
            text(session.survey),
            text(Some(day)),
            session.trigger(),
            platform_of(session),
            text(session.first_question(&ordinals)),
        ];
        groups.entry(key.to_vec()).or_default().push(session);
    }
    let mut wanted: Vec<Vec<Cell>> = Vec::new();
    for (key, of) in groups {
        let count = |is_such: &dyn Fn(&Session) -> bool| of.iter().filter(|session| is_such(session)).count();
        let told = |session: &Session, kind: &str| session.told.contains_key(kind);
        let (sent, answered) = (count(&|it| told(it, "study_sent")), count(&|it| it.answered().is_some()));
        let sent_and_seen = count(&|it| told(it, "study_sent") && told(it, "study_seen"));
        let sent_and_answered = count(&|it| told(it, "study_sent") && it.answered().is_some());
        let completed = count(&|it| it.is_completed(&ordinals));
        let only_webhooks = count(&|it| it.known_by() == "webhook" && it.answered().is_some_and(|at| at < scanned));
        let only_scans = count(&|it| it.known_by() == "scan" && it.answered().is_some());
        let share = |part: usize, whole: usize| (whole > 0).then(|| part as f64 / whole as f64);
        let shown = |share: Option<f64>| share.map(|share| format!("{share:.9}"));
        let figures = vec![
            text(Some(of.len())),
            text(Some(sent)),
            text(Some(count(&|it| told(it, "study_seen")))),
            text(Some(answered)),
            text(Some(count(&|it| told(it, "study_submitted")))),
            text(Some(completed)),
            text(Some(only_webhooks)),
            text(Some(only_scans)),
            shown(share(sent_and_seen, sent)),
            shown(share(sent_and_answered, sent)),
            shown(share(completed, answered)),
            shown(share(only_webhooks + only_scans, answered)),
            text(Some(since)),
        ];
        wanted.push([key, figures].concat());
    }
    let mut found = tables.rows_of(
        "SELECT survey_id, day::VARCHAR, triggering_event, platform, first_question_id, sessions, sent, seen, answered, submitted,
            completed, only_webhooks, only_scans, format('{:.9f}', seen_rate), format('{:.9f}', response_rate),
            format('{:.9f}', completion_rate), format('{:.9f}', one_source_share), epoch_us(webhooks_since) FROM response_rates",
    );
    wanted.sort();
    found.sort();
    let differs = wanted.iter().zip(&found).find(|(wanted, found)| wanted != found);
    assert!(wanted == found, "{name}: {} and {} rates; {differs:?}", wanted.len(), found.len());
    let sum = |column: usize| wanted.iter().map(|row| number(&row[column])).sum::<i64>();
    let sums: Vec<i64> = (5..13).map(sum).collect();
    assert!(!sums.contains(&0), "{name}: {sums:?}");
}

#[test]
fn response_rates_equal_a_second_computation() {
    let service = Service::start(small(900, 12));
    let place = place_for(&service, NO_SCHEDULE);
    place.run(&["sync", "--quiet"]).expect(0);
    let serving = Serving::start(&place);
    service.advance_days(1);
    let summary = service.change(&ChangeRequest { new_answers: 300, ..ChangeRequest::default() });
    let mut bodies = service.control().webhook_bodies(&summary);
    // Studies that nobody answered. Some of these webhooks have no session.
    let sent: Vec<Value> = (bodies.iter().map(|body| serde_json::from_str::<Value>(body).unwrap()))
        .filter(|body| body["action"] == "sent")
        .collect();
    for (nth, body) in sent.iter().enumerate() {
        let mut body = body.clone();
        body["responseGroupUid"] = if nth % 5 == 0 { Value::Null } else { json!(format!("unanswered-{nth}")) };
        bodies.push(body.to_string());
        if nth % 2 == 0 {
            body["action"] = json!("seen");
            bodies.push(body.to_string());
        }
    }
    let target = WebhookTarget {
        url: serving.url(),
        secret: SECRET.into(),
        lost_percent: 60,
        repeated_percent: 10,
        is_shuffled: true,
        ..WebhookTarget::default()
    };
    post_all(&bodies, &target);
    serving.wait_until_flushed();
    assert_eq!(serving.stop(), 0);
    // Some answers are deleted before a scan finds them: only webhooks have them.
    service.change(&ChangeRequest { vanish_visitors: 15, within_ms: Some(3_600_000 * 20), ..ChangeRequest::default() });
    service.control().advance_clock(3_600_000);
    // Exit code 3: so many vanished answers at once need a look.
    place.run(&["sync", "--quiet", "--accept-vanished"]).expect(0);
    assert_stages("DuckDB", &place.duckdb_tables());
    assert_stages("Parquet", &Tables::parquet_with_views(&place.parquet()));
}

/// Answers of each question type, in the form of the lists.
const ANSWERS: &[(&str, &[&str])] = &[
    ("OPEN", &["null", r#""""#, r#"" \u00a0\t""#, r#""no""#, r#""[]""#, r#""null""#, "0"]),
    ("MULTIPLECHOICE", &["null", r#""""#, r#""Blue""#, r#""[null]""#]),
    ("MULTIPLESELECT", &["null", "[]", "[null, null]", r#"["null"]"#, r#"["a", null]"#, r#""""#, r#""a""#]),
    ("LIKERT", &["null", r#""""#, "1", r#""2""#]),
    ("NPS", &["null", r#""""#, "0", "10"]),
    ("MATRIX", &["null", "{}", r#"{"a": null, "b\": 1": null}"#, r#"{"a": null, "b": "null"}"#, r#"{"a": "1"}"#]),
    ("RANKORDER", &["null", "{}", r#"{"a": null}"#, r#"{"a": 1, "b": null}"#]),
    (
        "MAXDIFF",
        &[
            "null",
            "[]",
            r#"[[{"id": 1, "option": "a", "selected": null}]]"#,
            r#"[[{"id": 1, "option": "a", "selected": "best"}]]"#,
        ],
    ),
    ("CONSENTLEGAL", &["null", "{}", r#"{"submitted": null}"#, r#"{"submitted": false}"#, "true"]),
    ("VIDEOVOICE", &["null", "{}", r#"{"mediaType": null}"#, r#"{"mediaType": "video"}"#]),
    ("TEXTURLPROMPT", &["null", r#""""#]),
    ("AIDYNAMIC", &["null", r#""""#, "[]", r#""x""#, "7"]),
];

/// A record of the list of responses.
fn listed(session: &str, question: usize, question_type: &str, response: &str, at_ms: i64) -> String {
    let response: Value = serde_json::from_str(response).unwrap();
    let at = chrono::DateTime::from_timestamp_millis(at_ms).unwrap().to_rfc3339();
    json!({
        "createdAt": at, "updatedAt": at, "questionId": question, "questionText": format!("Q{question}"),
        "questionType": question_type, "response": response, "responseGroupUid": session, "surveyId": 901,
        "visitorId": 1, "visitorUuid": "v",
    })
    .to_string()
}

/// The body of an answer's webhook.
fn told(session: &str, question: usize, question_type: &str, response: &Value, at_ms: i64) -> String {
    json!({
        "id": 1, "question": format!("Q{question}"), "questionType": question_type.to_lowercase(), "response": response,
        "responseGroupUid": session, "surveyId": 901, "timestamp": at_ms, "visitorId": "v",
    })
    .to_string()
}

fn uuid(number: usize) -> String {
    format!("2f1c9d6e-0b7a-4c55-9a40-{number:012x}")
}

#[test]
fn p1_a_webhook_about_a_skipped_question_is_no_answer() {
    let service = Service::start(small(60, 5));
    let place = place_for(&service, NO_SCHEDULE);
    let at_ms = NOW_MS - 2 * DAY_MS;
    let (mut bodies, mut answers) = (Vec::new(), Vec::new());
    for (question_type, responses) in ANSWERS {
        for response in *responses {
            let number = answers.len();
            answers.push(format!("{question_type} {response}"));
            service
                .control()
                .plant(ListName::Responses, &listed(&uuid(number), 1, question_type, response, at_ms), None)
                .unwrap();
            let value: Value = serde_json::from_str(response).unwrap();
            bodies.push(told(&format!("sent-{number}"), 1, question_type, &value, at_ms));
            // Webhooks also send lists and objects as JSON inside a text.
            if value.is_array() || value.is_object() {
                bodies.push(told(&format!("text-{number}"), 1, question_type, &json!(response), at_ms));
            }
        }
    }
    let serving = Serving::start(&place);
    post_all(&bodies, &WebhookTarget { url: serving.url(), secret: SECRET.into(), ..WebhookTarget::default() });
    serving.wait_until_flushed();
    assert_eq!(serving.stop(), 0);
    place.run(&["backfill", "--from", &days_ago(5), "--quiet"]);
    for tables in [place.duckdb_tables(), Tables::parquet_with_views(&place.parquet())] {
        let of_list = "SELECT response_group_uid, is_skipped FROM responses WHERE question_text = 'Q1'";
        let skipped: BTreeMap<Cell, bool> = tables
            .rows_of(of_list)
            .into_iter()
            .map(|row| (row[0].clone(), row[1].as_deref() == Some("true")))
            .collect();
        let stages = "SELECT response_group_uid, answered_at IS NULL FROM session_stages WHERE known_by = 'webhook'";
        let mut compared = (0, 0);
        for row in tables.rows_of(stages) {
            let session = row[0].as_deref().unwrap();
            let Some((_, number)) = session.split_once('-') else { continue };
            let number: usize = number.parse().unwrap();
            let is_skipped = skipped[&Some(uuid(number))];
            assert_eq!(row[1].as_deref() == Some("true"), is_skipped, "{session}: {}", answers[number]);
            if is_skipped { compared.0 += 1 } else { compared.1 += 1 }
        }
        assert_eq!(compared.0 + compared.1, bodies.len());
        assert!(compared.0 > 20 && compared.1 > 15, "{compared:?}");
        let rates = "SELECT sum(sessions), sum(answered) FROM response_rates WHERE only_webhooks > 0";
        let sessions = Some(bodies.len().to_string());
        assert_eq!(tables.rows_of(rates)[0], [sessions, Some(compared.1.to_string())]);
    }
}

#[test]
fn p1_a_session_that_a_scan_found_is_not_only_of_webhooks() {
    let service = Service::start(small(60, 5));
    let place = place_for(&service, NO_SCHEDULE);
    let at_ms = NOW_MS - DAY_MS;
    let sessions: Vec<String> = (0..6).map(uuid).collect();
    for session in &sessions {
        service.control().plant(ListName::Responses, &listed(session, 1, "NPS", "9", at_ms), None).unwrap();
    }
    let spelled = [
        sessions[0].clone(),
        sessions[1].to_uppercase(),
        format!("{{{}}}", sessions[2]),
        format!("{{{}}}", sessions[3].to_uppercase()),
        sessions[4].to_uppercase(),
        sessions[5].clone(),
        "never-listed".to_owned(),
    ];
    let bodies: Vec<String> = spelled.iter().map(|session| told(session, 1, "NPS", &json!(9), at_ms)).collect();
    let serving = Serving::start(&place);
    post_all(&bodies, &WebhookTarget { url: serving.url(), secret: SECRET.into(), ..WebhookTarget::default() });
    serving.wait_until_flushed();
    assert_eq!(serving.stop(), 0);
    place.run(&["backfill", "--from", &days_ago(5), "--quiet"]).expect(0);
    // One answer is deleted at the service, another one vanishes.
    let deleted =
        listed(&sessions[4], 1, "NPS", "9", at_ms).replacen('{', "{\"deletedAt\":\"2026-01-30T18:00:00Z\",", 1);
    service.control().plant(ListName::Responses, &deleted, None).unwrap();
    service.control().remove_row(&RowKey { group: sessions[5].clone(), question: "1".into() });
    service.advance_days(1);
    place.run(&["sync", "--quiet"]).expect(0);

    let known = |tables: &Tables| -> BTreeMap<Cell, Cell> {
        let sql = "SELECT response_group_uid, known_by FROM session_stages WHERE survey_id = 901";
        tables.rows_of(sql).into_iter().map(|row| (row[0].clone(), row[1].clone())).collect()
    };
    let expected: BTreeMap<Cell, Cell> = sessions
        .iter()
        .map(|session| (Some(session.clone()), text(Some("both"))))
        .chain([(text(Some("never-listed")), text(Some("webhook")))])
        .collect();
    let gone =
        "SELECT count(*) FROM responses WHERE survey_id = 901 AND (deleted_at IS NOT NULL OR _vanished_at IS NOT NULL)";
    let rates = "SELECT sum(answered), sum(only_webhooks), sum(only_scans) FROM response_rates WHERE survey_id = 901";
    let mismatches = "SELECT response_group_uid, known_by FROM webhook_mismatches WHERE survey_id = 901";
    let assert_known = |tables: &Tables| {
        assert_eq!(known(tables), expected);
        assert_eq!(tables.count(gone), 2);
        assert_eq!(tables.rows_of(rates), [["7", "1", "0"].map(|count| text(Some(count)))]);
        assert_eq!(tables.rows_of(mismatches), [["never-listed", "webhook"].map(|cell| text(Some(cell)))]);
    };
    assert_known(&place.duckdb_tables());
    assert_known(&Tables::parquet_with_views(&place.parquet()));
    // Earlier versions stored ids without normalizing them.
    let connection = connect();
    connection
        .execute_batch(&format!(
            "ATTACH '{}' AS w; UPDATE w.webhook_events SET response_group_uid = upper(response_group_uid)
             WHERE response_group_uid <> 'never-listed'; DETACH w",
            place.duckdb().display()
        ))
        .unwrap();
    drop(connection);
    assert_known(&place.duckdb_tables());
}
