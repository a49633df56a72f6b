//! Parses the body of a webhook delivery: the kind of its event, and the key of the event.

use std::borrow::Cow;

use serde_json::value::RawValue;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    json::{self, Entry, Shape, moments, unwrap_json},
    model::{Delivery, EventKind, uuid_in_normal_form},
    text::without_mark,
};

/// The fields that may hold the time of an event; the first readable one is used.
const TIME_FIELDS: [&str; 4] = ["timestamp", "eventDate", "createdAt", "updatedAt"];

/// The facts about a body that are needed before it is flattened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodySummary {
    pub kind: EventKind,
    /// The subject of a body without a time, such as `survey 7`; `None` for other bodies. The inbox compares a body
    /// without a time with earlier bodies of the same subject, to recognise a repeated delivery.
    pub timeless_subject: Option<String>,
    /// The service's identifier of the environment; `None` if the body does not name one.
    pub environment_id: Option<String>,
}

impl BodySummary {
    pub(super) fn of(body: &WebhookBody<'_>) -> Self {
        let kind = body.kind();
        let timeless_subject = body.timeless_subject(kind);
        let environment_id = body.id("environmentId").filter(|id| !id.is_empty()).map(Cow::into_owned);
        BodySummary { kind, timeless_subject, environment_id }
    }

    /// Returns [`EventKind::OtherEnvironment`] if the body names another environment than `environment_id`, else the
    /// body's kind. `environment_id` is the environment of this warehouse; `None` if it is unknown.
    pub fn kind_for(&self, environment_id: Option<&str>) -> EventKind {
        match (&self.environment_id, environment_id) {
            (Some(sent), Some(own)) if *sent != uuid_in_normal_form(own.into()) => EventKind::OtherEnvironment,
            _ => self.kind,
        }
    }
}

/// Returns a hash that identifies the exact bytes of a body.
pub fn body_hash(body: &[u8]) -> u128 {
    xxh3_128(body)
}

/// A parsed body, one level deep.
pub(super) struct WebhookBody<'a> {
    /// The text, or the bytes if they are not UTF-8.
    pub text: Result<&'a str, &'a [u8]>,
    /// The members of the body; `None` if the body is not an object.
    pub entries: Option<Vec<Entry<'a>>>,
    /// True if the body is JSON, of any type.
    is_json: bool,
}

impl<'a> WebhookBody<'a> {
    pub(super) fn parse(bytes: &'a [u8]) -> Self {
        let text = std::str::from_utf8(bytes).map_err(|_| bytes);
        let value = text.ok().and_then(|text| serde_json::from_str::<&RawValue>(without_mark(text)).ok());
        let entries = value.and_then(|value| {
            let mut entries = Vec::new();
            json::read_entries(value.get(), &mut entries).map(|()| entries)
        });
        Self { text, entries, is_json: value.is_some() }
    }

    /// Returns the exact JSON text of a field; `None` if the field is missing or null. For a repeated field, returns
    /// the last value.
    pub(super) fn raw(&self, field: &str) -> Option<&'a str> {
        let last = self.entries.as_deref()?.iter().rfind(|entry| entry.key == field)?;
        (json::shape(last.value) != Shape::Null).then_some(last.value)
    }

    /// Returns the value of a string field, and the JSON of a field of another type.
    pub(super) fn text(&self, field: &str) -> Option<Cow<'a, str>> {
        let raw = self.raw(field)?;
        Some(json::read_text(raw).map_or(Cow::Borrowed(raw), |text| text.text))
    }

    /// Returns the value of a field with an id: a UUID in its normal form, any other value as [`Self::text`] does.
    fn id(&self, field: &str) -> Option<Cow<'a, str>> {
        self.text(field).map(uuid_in_normal_form)
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.text.map_or_else(|bytes| bytes, str::as_bytes)
    }

    /// Returns the time of the event in epoch microseconds; `None` if the body has no readable time.
    pub(super) fn occurred_at(&self) -> Option<i64> {
        TIME_FIELDS.iter().find_map(|field| read_moment(self.raw(field)?))
    }

    /// Decides the kind of the event by the fields of the body. The first rule that fits counts; a body that fits none
    /// is `Unknown`.
    pub(super) fn kind(&self) -> EventKind {
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

    /// Returns the key of the event. If the body has the values that identify an event ([`Self::natural_key`]), all
    /// deliveries of the event have the same key, however their JSON is written. Otherwise the key is a hash of the
    /// bytes. A body with a timeless subject also gets the time of receipt in its key: the inbox has removed repeated
    /// deliveries, so each remaining delivery is an event.
    pub(super) fn event_key(&self, kind: EventKind, delivery: &Delivery) -> String {
        match self.natural_key(kind) {
            Some(hash) => format!("{hash:032x}"),
            None if self.timeless_subject(kind).is_some() => {
                format!("{:032x}-{:x}", body_hash(&delivery.body), delivery.received_ms)
            }
            None => format!("{:032x}", body_hash(&delivery.body)),
        }
    }

    /// Returns the subject of a body without a time whose kind can occur again with the same bytes: a status change or
    /// a test. `None` for other bodies.
    fn timeless_subject(&self, kind: EventKind) -> Option<String> {
        let is_timeless = self.occurred_at().is_none();
        match kind {
            EventKind::StudyStatusChanged if is_timeless => Some(format!(
                "survey {}",
                self.raw("surveyId").and_then(read_bigint).map_or_else(|| "?".to_owned(), |id| id.to_string())
            )),
            EventKind::Test if is_timeless => Some("test".to_owned()),
            _ => None,
        }
    }

    /// Hashes the values that identify the event. Returns `None` if the body lacks one of them, and for kinds that no
    /// values identify, such as status changes and tests. Then [`Self::event_key`] uses the bytes.
    fn natural_key(&self, kind: EventKind) -> Option<u128> {
        let occurred_at = self.occurred_at()?.to_string();
        let text = |field: &str| self.text(field).filter(|text| !text.is_empty());
        let id = |field: &str| self.id(field).filter(|text| !text.is_empty());
        let mut hash = Xxh3::new();
        let mut add = |part: &str| {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        };
        add(kind.name());
        add(&occurred_at);
        add(&text("surveyId").unwrap_or_default());
        // Two questions with the same text can get equal answers at the same time; the `id` of the body distinguishes
        // them.
        add(&text("id").unwrap_or_default());
        match kind {
            EventKind::AnswerSubmitted => {
                add(&id("responseGroupUid")?);
                add(&text("question")?);
                add(&self.raw("response").map(unwrap_json).unwrap_or_default());
            }
            EventKind::StudySubmitted => add(&id("responseGroupUid")?),
            EventKind::StudySent | EventKind::StudySeen => {
                add(&id("responseGroupUid").unwrap_or_default());
                add(&id("visitorId")?);
            }
            EventKind::ThemeIdentified => {
                add(&text("themename")?);
                add(&text("questionText")?);
                add(&text("productId").unwrap_or_default());
                add(&id("environmentId").unwrap_or_default());
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

/// Reads an integer, also from a string of digits.
pub(super) fn read_bigint(raw: &str) -> Option<i64> {
    json::read_integer(raw).or_else(|| json::read_digits(raw))
}

/// Reads a time in epoch microseconds. Accepts every time of the streams, and a string of epoch milliseconds.
pub(super) fn read_moment(raw: &str) -> Option<i64> {
    let digits = || json::read_digits(raw).and_then(|ms| moments::read_timestamp(&ms.to_string()));
    moments::read_timestamp(raw).or_else(digits)
}

/// Reads `selectedIndexes`: an integer, a list of integers, or a string with one of these. `None` for other values.
pub(super) fn read_indexes(raw: &str) -> Option<Vec<i64>> {
    let raw = unwrap_json(raw);
    match json::shape(&raw) {
        Shape::List => json::read_items(&raw)?.into_iter().map(json::read_integer).collect(),
        _ => read_bigint(&raw).map(|index| vec![index]),
    }
}
