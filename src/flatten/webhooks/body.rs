//! A body, taken apart: what kind of event it tells, and what names that event.

use std::borrow::Cow;

use serde_json::value::RawValue;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::{
    json::{self, Entry, Shape, moments},
    model::{Delivery, EventKind},
    text::without_mark,
};

/// Where a body says when something happened, best first.
const MOMENTS: [&str; 4] = ["timestamp", "eventDate", "createdAt", "updatedAt"];

/// What can be told of a body at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub kind: EventKind,
    /// What a body without a moment of its own is about. The same bytes about the same thing are told again only if
    /// nothing else about it was told in between, and only for a while.
    pub timeless_subject: Option<String>,
    /// The environment that it is of, as the service calls it.
    pub environment_id: Option<String>,
}

impl Told {
    pub(super) fn of(body: &Body<'_>) -> Self {
        let kind = body.kind();
        let timeless_subject = body.timeless_subject(kind);
        let environment_id = body.text("environmentId").filter(|id| !id.is_empty()).map(Cow::into_owned);
        Told { kind, timeless_subject, environment_id }
    }

    /// What it is for the warehouse of an environment, if that is known.
    pub fn kind_in(&self, environment_id: Option<&str>) -> EventKind {
        match (&self.environment_id, environment_id) {
            (Some(told), Some(ours)) if told != ours => EventKind::OtherEnvironment,
            _ => self.kind,
        }
    }
}

/// The hash by which the same bytes are known.
pub fn body_hash(body: &[u8]) -> u128 {
    xxh3_128(body)
}

/// A body, taken apart one level deep.
pub(super) struct Body<'a> {
    /// The text, or the bytes that are none.
    pub text: Result<&'a str, &'a [u8]>,
    /// The members, if it is an object.
    pub entries: Option<Vec<Entry<'a>>>,
    /// Whether it is JSON: an object, or a list, text, number or the like.
    is_json: bool,
}

impl<'a> Body<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Self {
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
    pub(super) fn raw(&self, field: &str) -> Option<&'a str> {
        let entries = self.entries.as_deref()?.iter().rev();
        let found = entries.filter(|entry| entry.key == field).map(|entry| entry.value).next()?;
        (json::shape(found) != Shape::Null).then_some(found)
    }

    /// The text of a field; of anything else than a text, its JSON.
    pub(super) fn text(&self, field: &str) -> Option<Cow<'a, str>> {
        let raw = self.raw(field)?;
        Some(json::read_text(raw).map_or(Cow::Borrowed(raw), |text| text.text))
    }

    pub(super) fn bytes(&self) -> &'a [u8] {
        self.text.map_or_else(|bytes| bytes, str::as_bytes)
    }

    pub(super) fn bigint(&self, field: &str) -> Option<i64> {
        read_bigint(self.raw(field)?)
    }

    /// The JSON of a field, also where it was sent inside a text.
    pub(super) fn json(&self, field: &str) -> Option<Cow<'a, str>> {
        self.raw(field).map(sent_json)
    }

    /// Microseconds.
    pub(super) fn moment(&self) -> Option<i64> {
        MOMENTS.iter().find_map(|field| read_moment(self.raw(field)?))
    }

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

    /// What names the event: the same for every delivery that tells it, however it is written. What tells no time is
    /// named by when it was received as well; the inbox knows which of those are repeats.
    pub(super) fn event_key(&self, kind: EventKind, delivery: &Delivery) -> String {
        match self.natural_key(kind) {
            Some(hash) => format!("{hash:032x}"),
            None if self.timeless_subject(kind).is_some() => {
                format!("{:032x}-{:x}", body_hash(&delivery.body), delivery.received_ms)
            }
            None => format!("{:032x}", body_hash(&delivery.body)),
        }
    }

    pub(super) fn timeless_subject(&self, kind: EventKind) -> Option<String> {
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
        // Two questions of one wording can be answered alike in one moment: where the service numbers what it posts,
        // the number counts.
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

/// An integer, also as a text of digits.
pub(super) fn read_bigint(raw: &str) -> Option<i64> {
    json::read_integer(raw).or_else(|| json::read_digits(raw))
}

/// A moment in microseconds, also as a text of epoch milliseconds.
pub(super) fn read_moment(raw: &str) -> Option<i64> {
    let digits = || json::read_digits(raw).and_then(|ms| moments::read_timestamp(&ms.to_string()));
    moments::read_timestamp(raw).or_else(digits)
}

/// `selectedIndexes`: a number, a list, or either as a text.
pub(super) fn indexes(raw: &str) -> Option<Vec<i64>> {
    let raw = sent_json(raw);
    match json::shape(&raw) {
        Shape::List => json::read_items(&raw)?.into_iter().map(json::read_integer).collect(),
        _ => read_bigint(&raw).map(|index| vec![index]),
    }
}

/// The JSON of a value, also where it was sent inside a text.
pub(super) fn sent_json(raw: &str) -> Cow<'_, str> {
    inner_json(raw).map_or(Cow::Borrowed(raw), Cow::Owned)
}

/// The list or object that a text holds.
pub(super) fn inner_json(raw: &str) -> Option<String> {
    let inner = json::read_text(raw)?.text;
    let inner = inner.trim();
    let is_container = matches!(json::shape(inner), Shape::List | Shape::Object);
    (is_container && serde_json::from_str::<&RawValue>(inner).is_ok()).then(|| inner.to_owned())
}
