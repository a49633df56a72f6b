//! The service's webhooks: bodies by the contract, with its quirks, and their delivery.
//!
//! The quirks: lists inside an answer, and metadata, are sent as JSON inside a text. `visitorId` is a UUID in webhooks
//! and a number in lists. The event names of 'sent' and 'seen' are sometimes swapped. The body about a change of status
//! contains no time. Delivery can be unreliable, as the contract allows: bodies are not retried, and may be lost,
//! repeated or in random order. TLS is not supported.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use super::{
    random::Random,
    world::{ChangeSummary, ListName, RowKey},
};

/// How long the sender waits for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(10);
/// Bytes that are read of an answer, enough for its status line.
const ANSWER_BYTES: usize = 64;
const ENVIRONMENT: &str = "sandbox-environment";
const PRODUCT: &str = "Sandbox";
const PRODUCT_ID: i64 = 17;

with_defaults! {
    /// The receiver of webhooks, and how unreliable their delivery is.
    pub struct WebhookTarget {
        /// `http://HOST:PORT/PATH`
        url: String,
        /// The secret, without the word `Bearer`.
        secret: String,
        /// Percentage of deliveries that are not sent.
        lost_percent: u64,
        /// Percentage of deliveries that are sent twice.
        repeated_percent: u64,
        /// True if deliveries are sent in random order.
        is_shuffled: bool,
        /// The seed of the random choices.
        seed: u64 = 1,
    }
}

/// Counts of deliveries by their result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivered {
    /// Number of events to deliver.
    pub events: u64,
    /// Number of events that were not sent.
    pub lost: u64,
    /// Number of posts by the status of the answer; 0 for no answer.
    pub posts: BTreeMap<u16, u64>,
}

/// Returns the bodies of the webhooks about these changes, as [`super::Control::webhook_bodies`] says. `records`
/// returns the records of a list.
pub(crate) fn bodies(summary: &ChangeSummary, now_ms: i64, records: impl Fn(ListName) -> Vec<Value>) -> Vec<String> {
    let with_key = |list: ListName, keys: &[RowKey]| {
        let wanted: HashSet<&RowKey> = keys.iter().collect();
        let is_wanted = |record: &Value| {
            let group = text(&record["responseGroupUid"]);
            wanted.contains(&RowKey { group, question: record["questionId"].to_string() })
        };
        let all = if keys.is_empty() { Vec::new() } else { records(list) };
        all.into_iter().filter(is_wanted).collect::<Vec<_>>()
    };
    let surveys: BTreeMap<String, Value> =
        records(ListName::Surveys).into_iter().map(|survey| (survey["id"].to_string(), survey)).collect();
    let name_of = |id: &Value| surveys.get(&id.to_string()).map_or(Value::Null, |survey| survey["name"].clone());
    let answers = with_key(ListName::Responses, &summary.new_answers);
    let mut bodies = Vec::new();
    let mut sessions: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for (nth, record) in answers.iter().enumerate() {
        bodies.push(answer_submitted(nth, record, &name_of(&record["surveyId"])));
        sessions.entry(text(&record["responseGroupUid"])).or_default().push(record);
    }
    for (nth, answers) in sessions.values().enumerate() {
        let Some(first) = answers.first() else { continue };
        let name = name_of(&first["surveyId"]);
        bodies.push(sent_or_seen("sent", nth, first, &name));
        bodies.push(sent_or_seen("seen", nth, first, &name));
        bodies.push(study_submitted(first, answers));
    }
    for change in &summary.status_changes {
        let survey = surveys.get(&change.survey.to_string());
        bodies.push(status_changed(change.survey, &change.old_status, &change.status, survey));
    }
    let themes = with_key(ListName::Themes, &summary.new_themes);
    bodies.extend(themes.iter().map(|theme| theme_identified(theme, now_ms)));
    bodies.iter().map(Value::to_string).collect()
}

/// Returns the body of a test webhook, about one of these surveys.
pub(crate) fn test_body(surveys: Vec<Value>) -> String {
    let survey = surveys.into_iter().min_by_key(|survey| survey["id"].to_string()).unwrap_or_default();
    json!({"id": 1, "environmentId": ENVIRONMENT, "surveyId": survey["id"], "surveyName": survey["name"], "eventType": "TEST"})
        .to_string()
}

/// Posts the bodies one after the other. The target says how many are lost or repeated, and if the order is random. A
/// post without an answer counts with status 0, and is not repeated.
pub async fn deliver(bodies: &[String], target: &WebhookTarget) -> Delivered {
    let mut random = Random::new(target.seed, 0x3e6);
    let mut delivered = Delivered { events: bodies.len() as u64, ..Delivered::default() };
    let mut posts: Vec<&String> = Vec::new();
    for body in bodies {
        if random.percent(target.lost_percent) {
            delivered.lost += 1;
            continue;
        }
        let times = if random.percent(target.repeated_percent) { 2 } else { 1 };
        posts.extend(std::iter::repeat_n(body, times));
    }
    if target.is_shuffled {
        random.shuffle(&mut posts);
    }
    for body in posts {
        let status = timeout(ANSWER_WAIT, post(body, target)).await.ok().flatten().unwrap_or(0);
        *delivered.posts.entry(status).or_default() += 1;
    }
    delivered
}

/// Sends one post on a new connection. Returns the status of the answer; `None` if there is none or the URL is invalid.
async fn post(body: &str, target: &WebhookTarget) -> Option<u16> {
    let (host, path) = target.url.strip_prefix("http://")?.split_once('/')?;
    let mut stream = TcpStream::connect(host).await.ok()?;
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nauthorization: Bearer {}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        target.secret,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.ok()?;
    stream.write_all(body.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES as u64).read_to_end(&mut answer).await.ok()?;
    String::from_utf8_lossy(&answer).split(' ').nth(1)?.parse().ok()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Returns the creation time of a record in epoch milliseconds; 0 if it cannot be read.
fn epoch_ms(record: &Value) -> i64 {
    let moment = record["createdAt"].as_str().and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok());
    moment.map_or(0, |moment| moment.timestamp_millis())
}

/// Converts a list to a string that contains its JSON text, as the service's webhooks do. Other values stay unchanged.
fn in_a_text(value: &Value) -> Value {
    match value {
        Value::Array(_) => Value::String(value.to_string()),
        other => other.clone(),
    }
}

fn visitor(record: &Value) -> Map<String, Value> {
    let snapshot = &record["visitorSnapshot"];
    let attributes = snapshot.get("attributes").or_else(|| snapshot.get("attribtues")).cloned().unwrap_or_default();
    let mut members = Map::new();
    members.insert("visitorId".into(), record["visitorUuid"].clone());
    members.insert("oldVisitorId".into(), record["visitorId"].clone());
    members.insert("userId".into(), record["externalUserId"].clone());
    members.insert("anonymousId".into(), Value::Null);
    members.insert("email".into(), attributes["email"].clone());
    members.insert("attributes".into(), attributes);
    members
}

/// Builds the body about one new answer. `nth` counts the answers from 0; the id of the body is `nth + 1`.
fn answer_submitted(nth: usize, record: &Value, survey_name: &Value) -> Value {
    let mut body = visitor(record);
    let meta = &record["meta"];
    let more = json!({
        "id": nth + 1,
        "environmentId": ENVIRONMENT,
        "createdAt": record["createdAt"],
        "responseGroupUid": record["responseGroupUid"],
        "response": in_a_text(&record["response"]),
        "surveyId": record["surveyId"],
        "surveyName": survey_name,
        "question": record["questionText"],
        "questionType": text(&record["questionType"]).to_lowercase(),
        "triggeringEvent": record["visitorSnapshot"]["triggeringEvent"],
        "timestamp": epoch_ms(record),
        "href": record["url"],
        "os": meta["os"],
        "browser": meta["browser"],
        "userAgent": meta["userAgent"],
        "customMetadata": record.get("customMetadata").map_or_else(|| "{}".to_owned(), Value::to_string),
        "selectedIndexes": in_a_text(&record["selectedIndexes"]),
        "eventType": "survey_response",
        "eventName": "surveyResponse",
        "eventProperties": record["visitorSnapshot"]["eventProperties"],
    });
    extend(&mut body, more);
    Value::Object(body)
}

fn study_submitted(first: &Value, answers: &[&Value]) -> Value {
    let questions: Vec<Value> = (answers.iter().enumerate())
        .map(|(order, answer)| json!({"question": answer["questionText"], "response": in_a_text(&answer["response"]), "order": order}))
        .collect();
    json!({
        "visitorId": first["visitorUuid"], "platform": "web", "surveyId": first["surveyId"], "timestamp": epoch_ms(first),
        "environmentId": ENVIRONMENT, "eventDate": first["createdAt"], "recordType": "survey", "action": "completed",
        "responseGroupUid": first["responseGroupUid"], "productName": PRODUCT, "productId": PRODUCT_ID,
        "eventName": "surveySubmitted", "questions": questions, "eventType": "product_message",
    })
}

/// Builds the body about a study that was sent or seen; `action` says which. `nth` counts the sessions from 0. If `nth`
/// is odd, `eventName` names the other event, as the service sometimes does.
fn sent_or_seen(action: &str, nth: usize, record: &Value, survey_name: &Value) -> Value {
    let mut body = visitor(record);
    let is_name_right = nth.is_multiple_of(2);
    let more = json!({
        "platform": "web", "timestamp": epoch_ms(record) - 60_000, "recordType": "survey", "eventDate": record["createdAt"],
        "environmentId": ENVIRONMENT, "surveyId": record["surveyId"], "action": action, "surveyName": survey_name,
        "responseGroupUid": record["responseGroupUid"], "productName": PRODUCT, "productId": PRODUCT_ID, "teamId": 3,
        "eventName": if (action == "sent") == is_name_right { "studySent" } else { "studySeen" },
        "triggeringEvent": if action == "sent" { "studyEventTrigger" } else { PRODUCT },
        "oldVisitorId": null, "customMetadata": "{}", "eventType": "product_message",
    });
    extend(&mut body, more);
    Value::Object(body)
}

/// Builds the body about a survey whose status changed. `survey` is the survey's record; `None` if it no longer exists.
fn status_changed(survey_id: i64, old_status: &str, status: &str, survey: Option<&Value>) -> Value {
    let questions = survey.and_then(|survey| survey["questions"].as_array()).cloned().unwrap_or_default();
    let questions: Vec<Value> = (questions.iter())
        .map(|question| json!({"question": question["questionText"], "questionTypeId": text(&question["type"]).to_lowercase()}))
        .collect();
    json!({
        "surveyId": survey_id, "surveyName": survey.map(|survey| survey["name"].clone()), "oldStatus": old_status,
        "status": status, "environmentId": ENVIRONMENT, "productName": PRODUCT, "productId": PRODUCT_ID,
        "eventName": "surveyStatusChange", "questions": questions, "eventType": "product_message",
    })
}

/// Builds the body about a new theme. `productId` is a text if `now_ms` is even and otherwise a number, because the
/// service sends both forms.
fn theme_identified(theme: &Value, now_ms: i64) -> Value {
    let is_text = now_ms % 2 == 0;
    json!({
        "themename": theme["theme"], "updatedAt": theme["updatedAt"], "productName": PRODUCT,
        "productId": if is_text { json!(PRODUCT_ID.to_string()) } else { json!(PRODUCT_ID) },
        "environmentId": ENVIRONMENT, "questionText": theme["questionText"], "questionType": theme["questionType"],
    })
}

/// Adds the members of a JSON object to a body.
fn extend(body: &mut Map<String, Value>, more: Value) {
    if let Value::Object(more) = more {
        body.extend(more);
    }
}
