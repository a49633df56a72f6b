//! Deliveries of webhooks become rows of `webhook_events`.
//!
//! The kind is told by what a body holds, since the service's names are ambiguous: its samples pair `studySent` and `studySeen`
//! with either trigger. Every body becomes a row, whatever it is. Lists and objects that come as JSON inside a text are read; the
//! exact bytes stay beside them. Which deliveries are one event is said by `event_key`; nothing is left out here.

use std::borrow::Cow;

use arrow::{error::ArrowError, record_batch::RecordBatch};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::table_builder::TableBuilder;
use crate::{
    json::{self, Entry, Shape, moments},
    model::{Delivery, EventKind},
    text::without_mark,
};

/// The table that is filled.
const TABLE: &str = "webhook_events";
/// Where a body says when something happened, best first.
const MOMENTS: [&str; 4] = ["timestamp", "eventDate", "createdAt", "updatedAt"];

/// What can be told of a body at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub kind: EventKind,
    /// What a body without a moment of its own is about. The same bytes about the same thing are told again only if nothing else
    /// about it was told in between, and only for a while.
    pub timeless_subject: Option<String>,
    /// The environment that it is of, as the service calls it.
    pub environment_id: Option<String>,
}

impl Told {
    /// What it is for the warehouse of an environment, if that is known.
    pub fn kind_in(&self, environment_id: Option<&str>) -> EventKind {
        match (&self.environment_id, environment_id) {
            (Some(told), Some(ours)) if told != ours => EventKind::OtherEnvironment,
            _ => self.kind,
        }
    }
}

/// Looks at a body.
pub fn tell(body: &[u8]) -> Told {
    let told = Body::read(body);
    let kind = told.kind();
    let timeless_subject = told.timeless_subject(kind);
    let environment_id = told.text("environmentId").filter(|id| !id.is_empty()).map(Cow::into_owned);
    Told { kind, timeless_subject, environment_id }
}

/// The hash by which the same bytes are known.
pub fn body_hash(body: &[u8]) -> u128 {
    xxh3_128(body)
}

/// One row of `webhook_events` for each delivery, in order. Those of another environment than this one, if it is known, are told apart
/// by their kind.
///
/// # Errors
/// A fault of the program alone: no body can cause one.
pub fn flatten_deliveries(deliveries: &[Delivery], environment_id: Option<&str>) -> Result<RecordBatch, ArrowError> {
    let mut row = TableBuilder::new(TABLE, deliveries.len())?;
    for (place, delivery) in deliveries.iter().enumerate() {
        append(&mut row, delivery, tell(&delivery.body).kind_in(environment_id));
        row.end_row(place as i64);
    }
    let mut batches = Vec::new();
    row.finish_into(&mut batches)?;
    let empty = || ArrowError::SchemaError("no delivery to flatten".to_owned());
    batches.pop().map(|batch| batch.rows).ok_or_else(empty)
}

fn append(row: &mut TableBuilder, delivery: &Delivery, shown_as: EventKind) {
    let body = Body::read(&delivery.body);
    let kind = body.kind();
    let texts = |row: &mut TableBuilder, cells: &[(&'static str, &'static str)]| {
        for (column, field) in cells {
            row.text(column, body.text(field).as_deref());
        }
    };
    row.text("event_key", Some(&body.event_key(kind, delivery)));
    row.text("kind", Some(shown_as.name()));
    row.timestamp("received_at", Some(delivery.received_ms.saturating_mul(1000)));
    row.timestamp("occurred_at", body.moment());
    row.text("body_hash", Some(&format!("{:032x}", body_hash(&delivery.body))));
    row.bigint("webhook_id", body.bigint("id"));
    texts(row, &[("environment_id", "environmentId"), ("product_id", "productId"), ("product_name", "productName")]);
    texts(row, &[("event_type", "eventType"), ("event_name", "eventName"), ("action", "action")]);
    row.bigint("survey_id", body.bigint("surveyId"));
    texts(row, &[("survey_name", "surveyName"), ("old_status", "oldStatus"), ("status", "status")]);
    texts(row, &[("response_group_uid", "responseGroupUid")]);
    row.text("question_text", body.text("question").or_else(|| body.text("questionText")).as_deref());
    texts(row, &[("question_type", "questionType")]);
    let response = body.raw("response");
    let parsed = response.and_then(inner_json);
    row.text("response_json", response);
    row.text("response_parsed_json", parsed.as_deref());
    let text = response.and_then(json::read_text).filter(|_| parsed.is_none());
    row.text("response_text", text.as_ref().map(|text| text.text.as_ref()));
    row.double("response_number", response.and_then(json::read_number));
    row.bigints("selected_indexes", body.indexes().as_deref());
    texts(row, &[("theme_name", "themename"), ("visitor_id", "visitorId")]);
    row.bigint("old_visitor_id", body.bigint("oldVisitorId"));
    texts(row, &[("user_id", "userId"), ("anonymous_id", "anonymousId"), ("email", "email")]);
    texts(row, &[("triggering_event", "triggeringEvent"), ("platform", "platform"), ("href", "href")]);
    for (column, field) in [
        ("attributes", "attributes"),
        ("event_properties", "eventProperties"),
        ("custom_metadata", "customMetadata"),
        ("questions", "questions"),
    ] {
        row.text(column, body.json(field).as_deref());
    }
    row.text("raw", body.text.ok());
    let base64 = body.text.err().map(|bytes| STANDARD.encode(bytes));
    row.text("raw_base64", base64.as_deref());
}

/// A body, taken apart one level deep.
struct Body<'a> {
    /// The text, or the bytes that are none.
    text: Result<&'a str, &'a [u8]>,
    /// The members, if it is an object.
    entries: Option<Vec<Entry<'a>>>,
    /// Whether it is JSON: an object, or a list, text, number or the like.
    is_json: bool,
}

impl<'a> Body<'a> {
    fn read(bytes: &'a [u8]) -> Self {
        let text = std::str::from_utf8(bytes).map_err(|_| bytes);
        // All of it is JSON, and nothing follows.
        let whole = text.ok().and_then(|text| serde_json::from_str::<&RawValue>(without_mark(text)).ok());
        let entries = whole.and_then(|whole| {
            let mut entries = Vec::new();
            json::read_entries(whole.get(), &mut entries).map(|()| entries)
        });
        Self { text, entries, is_json: whole.is_some() }
    }

    /// The exact value of a field; `None` where it is missing or null. Of one that is there twice the last counts.
    fn raw(&self, field: &str) -> Option<&'a str> {
        let entries = self.entries.as_deref()?.iter().rev();
        let found = entries.filter(|entry| entry.key == field).map(|entry| entry.value).next()?;
        (json::shape(found) != Shape::Null).then_some(found)
    }

    /// The text of a field; of anything else than a text, its JSON.
    fn text(&self, field: &str) -> Option<Cow<'a, str>> {
        let raw = self.raw(field)?;
        Some(json::read_text(raw).map_or(Cow::Borrowed(raw), |text| text.text))
    }

    fn bigint(&self, field: &str) -> Option<i64> {
        let raw = self.raw(field)?;
        json::read_integer(raw).or_else(|| json::read_digits(raw))
    }

    /// The JSON of a field, also where it was sent inside a text.
    fn json(&self, field: &str) -> Option<Cow<'a, str>> {
        let raw = self.raw(field)?;
        Some(inner_json(raw).map_or(Cow::Borrowed(raw), Cow::Owned))
    }

    /// Microseconds.
    fn moment(&self) -> Option<i64> {
        MOMENTS.iter().find_map(|field| {
            let raw = self.raw(field)?;
            let digits = || json::read_digits(raw).and_then(|ms| moments::read_timestamp(&ms.to_string()));
            moments::read_timestamp(raw).or_else(digits)
        })
    }

    /// `selectedIndexes`: a number, a list, or either as a text.
    fn indexes(&self) -> Option<Vec<i64>> {
        let raw = self.json("selectedIndexes")?;
        match json::shape(&raw) {
            Shape::List => json::read_items(&raw)?.into_iter().map(json::read_integer).collect(),
            _ => json::read_integer(&raw).or_else(|| json::read_digits(&raw)).map(|index| vec![index]),
        }
    }

    fn kind(&self) -> EventKind {
        if self.entries.is_none() {
            return if self.is_json { EventKind::Unknown } else { EventKind::NotJson };
        }
        let has = |field: &str| self.raw(field).is_some();
        let is = |field: &str, value: &str| self.text(field).is_some_and(|text| text.eq_ignore_ascii_case(value));
        if is("eventType", "TEST") {
            EventKind::Test
        } else if is("action", "completed") {
            EventKind::StudySubmitted
        } else if is("action", "sent") {
            EventKind::StudySent
        } else if is("action", "seen") {
            EventKind::StudySeen
        } else if has("oldStatus") && has("status") {
            EventKind::StudyStatusChanged
        } else if has("themename") {
            EventKind::ThemeIdentified
        } else if has("question") && has("responseGroupUid") {
            EventKind::AnswerSubmitted
        } else {
            EventKind::Unknown
        }
    }

    /// What names the event: the same for every delivery that tells it, however it is written. What tells no time is named by when
    /// it was received as well; the inbox knows which of those are repeats.
    fn event_key(&self, kind: EventKind, delivery: &Delivery) -> String {
        match self.natural_key(kind) {
            Some(hash) => format!("{hash:032x}"),
            None if self.timeless_subject(kind).is_some() => {
                format!("{:032x}-{:x}", body_hash(&delivery.body), delivery.received_ms)
            }
            None => format!("{:032x}", body_hash(&delivery.body)),
        }
    }

    fn timeless_subject(&self, kind: EventKind) -> Option<String> {
        let is_timeless = self.moment().is_none();
        match kind {
            EventKind::StudyStatusChanged if is_timeless => {
                Some(format!("survey {}", self.bigint("surveyId").map_or_else(|| "?".to_owned(), |id| id.to_string())))
            }
            EventKind::Test if is_timeless => Some("test".to_owned()),
            _ => None,
        }
    }

    /// `None` where the body lacks what would name the event: then only the same bytes are the same event.
    fn natural_key(&self, kind: EventKind) -> Option<u128> {
        let moment = self.moment()?.to_string();
        let text = |field: &str| self.text(field).filter(|text| !text.is_empty());
        let mut hash = Xxh3::new();
        let mut add = |part: &str| {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        };
        add(kind.name());
        add(&moment);
        add(&text("surveyId").unwrap_or_default());
        // Two questions of one wording can be answered alike in one moment: where the service numbers what it posts, the number counts.
        add(&text("id").unwrap_or_default());
        match kind {
            EventKind::AnswerSubmitted => {
                add(&text("responseGroupUid")?);
                add(&text("question")?);
                add(&self.json("response").unwrap_or_default());
            }
            EventKind::StudySubmitted => add(&text("responseGroupUid")?),
            EventKind::StudySent | EventKind::StudySeen => {
                add(&text("responseGroupUid").unwrap_or_default());
                add(&text("visitorId")?);
            }
            EventKind::ThemeIdentified => {
                add(&text("themename")?);
                add(&text("questionText")?);
                add(&text("productId").unwrap_or_default());
                add(&text("environmentId").unwrap_or_default());
            }
            EventKind::StudyStatusChanged
            | EventKind::Test
            | EventKind::OtherEnvironment
            | EventKind::Unknown
            | EventKind::NotJson => return None,
        }
        Some(hash.digest128())
    }
}

/// The list or object that a text holds.
fn inner_json(raw: &str) -> Option<String> {
    let inner = json::read_text(raw)?.text;
    let inner = inner.trim();
    let is_container = matches!(json::shape(inner), Shape::List | Shape::Object);
    (is_container && serde_json::from_str::<&RawValue>(inner).is_ok()).then(|| inner.to_owned())
}

#[cfg(test)]
mod tests;
