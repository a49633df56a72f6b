//! `visitor_snapshots` and `visitor_snapshot_attributes`: the visitor as known when a survey was shown.
//!
//! Every answer of a session repeats the session's snapshot, so a page has one row for each distinct snapshot of a
//! session: that of its earliest answer. The content hash leaves the creation time out, or the repeats would not be
//! equal.
//!
//! The service's schema and its sample spell the attributes differently; both are read. When both are sent,
//! `attributes` wins and the other goes to `extra`.

use std::{borrow::Cow, collections::hash_map::Entry as Slot};

use arrow::error::ArrowError;
use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    answer_key::AnswerKey,
    attributes::append_attributes,
    drift::DriftLog,
    fields::{Fields, wire_fields},
    met::Met,
    table_builder::TableBuilder,
};
use crate::{
    json::{self, Entry, Shape},
    model::{DriftRules, RowContent, TableBatch, column_name_hash},
};

wire_fields! {
    /// The fields of a snapshot.
    SnapshotField {
        Attributes = "attributes",
        AttributesMisspelt = "attribtues",
        EventProperties = "eventProperties",
        Events = "events",
        ResponseGroupUid = "responseGroupUid",
        TriggeringEvent = "triggeringEvent",
        VisitorId = "visitorId",
        ExternalUserId = "externalUserId",
    }
}

use SnapshotField as Wire;

#[derive(Debug)]
pub(super) struct Snapshots<'a> {
    /// Snapshots to be written, one for each text, survey and session.
    pending: Vec<Pending<'a>>,
    by_text: HashMap<TextKey<'a>, usize>,
    entries: Vec<Entry<'a>>,
    fields: Fields<'a, SnapshotField>,
}

/// Attributes that a snapshot is likely to have.
const ATTRIBUTES_GUESS: usize = 6;

/// What makes a snapshot the repeat of another without a look inside. The text stands for itself by a 128-bit hash.
type TextKey<'a> = (Cow<'a, str>, Option<i64>, u128);

#[derive(Debug)]
struct Pending<'a> {
    /// Of the earliest answer that carried it.
    key: AnswerKey<'a>,
    snapshot: Snapshot<'a>,
    drift: Vec<Met<'a>>,
}

/// A snapshot's columns.
#[derive(Debug)]
struct Snapshot<'a> {
    visitor_id: Option<Cow<'a, str>>,
    external_user_id: Option<Cow<'a, str>>,
    triggering_event: Option<Cow<'a, str>>,
    attributes: Option<&'a str>,
    event_properties: Option<&'a str>,
    events: Option<&'a str>,
    extra: Option<String>,
}

impl<'a> Snapshots<'a> {
    pub(super) fn new(rules: DriftRules) -> Self {
        Self { pending: Vec::new(), by_text: HashMap::new(), entries: Vec::new(), fields: Fields::new(rules) }
    }

    /// Takes the snapshot that an answer carries. `None` if it is not an object.
    pub(super) fn add(&mut self, key: &AnswerKey<'a>, raw: &'a str, drift: &mut DriftLog) -> Option<()> {
        if json::shape(raw) != Shape::Object {
            return None;
        }
        let text_key = (key.response_group_uid.clone(), key.survey_id, xxh3_128(raw.as_bytes()));
        let at = match self.by_text.entry(text_key) {
            Slot::Vacant(slot) => {
                slot.insert(self.pending.len());
                self.entries.clear();
                // The text has been parsed as a part of its record, and is an object.
                let _ = json::read_entries(raw, &mut self.entries);
                let snapshot = read_snapshot(&mut self.fields, &self.entries, key);
                let drift = std::mem::take(&mut self.fields.drift);
                self.pending.push(Pending { key: key.clone(), snapshot, drift });
                self.pending.len() - 1
            }
            Slot::Occupied(slot) => *slot.get(),
        };
        if let Some(pending) = self.pending.get_mut(at) {
            drift.note_all(key.record, "visitorSnapshot.", &pending.drift);
            if key.created_at < pending.key.created_at {
                pending.key = key.clone();
            }
        }
        Some(())
    }

    pub(super) fn finish_into(mut self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError> {
        let mut pending = std::mem::take(&mut self.pending);
        // Earliest first, so that of texts with equal content (another order of fields) the earliest is met first.
        pending.sort_by_key(|pending| (pending.key.created_at, pending.key.record));
        let mut seen = HashSet::with_capacity(pending.len());
        let mut kept = Vec::with_capacity(pending.len());
        for pending in pending {
            let hash = content_hash(&pending.snapshot, pending.key.survey_id);
            if seen.insert((pending.key.response_group_uid.clone(), hash)) {
                kept.push((pending.key, pending.snapshot, hash));
            }
        }
        kept.sort_by_key(|(key, ..)| key.record);
        let mut rows = TableBuilder::new("visitor_snapshots", kept.len())?;
        let mut attributes = TableBuilder::new("visitor_snapshot_attributes", kept.len() * ATTRIBUTES_GUESS)?;
        for (key, snapshot, hash) in &kept {
            append_row(&mut rows, key, snapshot, *hash);
            append_attributes(&mut attributes, key.record, snapshot.attributes, &mut self.entries, |row| {
                row.text("response_group_uid", Some(&key.response_group_uid));
                row.bigint("survey_id", key.survey_id);
                row.timestamp("created_at", Some(key.created_at));
            });
        }
        rows.finish_into(batches)?;
        attributes.finish_into(batches)
    }
}

fn append_row(row: &mut TableBuilder, key: &AnswerKey, snapshot: &Snapshot, hash: i64) {
    row.text("response_group_uid", Some(&key.response_group_uid));
    row.bigint("survey_id", key.survey_id);
    row.timestamp("created_at", Some(key.created_at));
    row.text("visitor_id", snapshot.visitor_id.as_deref());
    row.text("external_user_id", snapshot.external_user_id.as_deref());
    row.text("triggering_event", snapshot.triggering_event.as_deref());
    row.text("attributes", snapshot.attributes);
    row.text("event_properties", snapshot.event_properties);
    row.text("events", snapshot.events);
    row.text("extra", snapshot.extra.as_deref());
    row.bigint("_row_hash", Some(hash));
    row.end_row(key.record);
}

fn read_snapshot<'a>(
    fields: &mut Fields<'a, SnapshotField>,
    entries: &[Entry<'a>],
    key: &AnswerKey<'a>,
) -> Snapshot<'a> {
    fields.read(entries);
    let attributes = fields.json(Wire::Attributes);
    if attributes.is_some() && fields.json(Wire::AttributesMisspelt).is_some() {
        fields.keep(Wire::AttributesMisspelt);
    }
    let uid = fields.text(Wire::ResponseGroupUid);
    if uid.is_some_and(|uid| uid != key.response_group_uid) {
        fields.keep(Wire::ResponseGroupUid);
    }
    Snapshot {
        attributes: attributes.or_else(|| fields.json(Wire::AttributesMisspelt)),
        event_properties: fields.json(Wire::EventProperties),
        events: fields.json(Wire::Events),
        visitor_id: snapshot_visitor(fields),
        external_user_id: fields.text(Wire::ExternalUserId),
        triggering_event: fields.text(Wire::TriggeringEvent),
        extra: fields.extra.write().map(str::to_owned),
    }
}

/// A string here (a UUID was seen), although the responses number the visitors; a number keeps its digits.
fn snapshot_visitor<'a>(fields: &mut Fields<'a, SnapshotField>) -> Option<Cow<'a, str>> {
    match fields.json(Wire::VisitorId) {
        Some(raw) if json::shape(raw) == Shape::Number => Some(Cow::Borrowed(raw)),
        _ => fields.text(Wire::VisitorId),
    }
}

/// Over all columns but the key and the creation time.
fn content_hash(snapshot: &Snapshot, survey_id: Option<i64>) -> i64 {
    let mut content = RowContent::default();
    if let Some(survey_id) = survey_id {
        content.bigint(column_name_hash("survey_id"), survey_id);
    }
    let texts = [
        ("visitor_id", snapshot.visitor_id.as_deref()),
        ("external_user_id", snapshot.external_user_id.as_deref()),
        ("triggering_event", snapshot.triggering_event.as_deref()),
        ("attributes", snapshot.attributes),
        ("event_properties", snapshot.event_properties),
        ("events", snapshot.events),
        ("extra", snapshot.extra.as_deref()),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            content.text(column_name_hash(name), value);
        }
    }
    content.hash_64()
}
