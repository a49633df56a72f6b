//! `visitor_snapshots` and `visitor_snapshot_attributes`: the visitor as known when a survey was shown.
//!
//! The service repeats the snapshot of a session in every answer of the session. Each distinct snapshot of a session
//! gets one row, with the key of the earliest answer. The content hash excludes the creation time, which differs
//! between the answers.
//!
//! The service's schema and its sample spell the field of attributes differently; both spellings are read. If a
//! snapshot has both, `attributes` fills the column and the misspelt field goes to `extra`.

use std::{borrow::Cow, collections::hash_map::Entry as MapEntry};

use arrow::error::ArrowError;
use foldhash::{HashMap, HashMapExt as _, HashSet, HashSetExt as _};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    child_rows::{AnswerKey, append_attributes},
    drift::DriftLog,
    fields::{FieldDrift, Fields, wire_fields},
    table_builder::{ColumnSet, TableBuilder},
};
use crate::{
    json::{self, Entry},
    model::{DriftRules, FlatPage, RowContent, column_name_hash},
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

/// The snapshots of a page, collected until all of its answers are read.
#[derive(Debug)]
pub(super) struct SnapshotTables<'a> {
    columns: ColumnSet,
    /// One snapshot for each distinct text, survey and session.
    snapshots: Vec<KeyedSnapshot<'a>>,
    /// Indexes in `snapshots`.
    by_text: HashMap<TextKey<'a>, usize>,
    entries: Vec<Entry<'a>>,
    fields: Fields<'a, SnapshotField>,
}

/// Likely number of attributes of a snapshot, to reserve memory.
const ATTRIBUTES_GUESS: usize = 6;

/// Identifies a snapshot: its session, its survey, and a 128-bit hash of its exact text. Answers with the same
/// `TextKey` have the same snapshot.
type TextKey<'a> = (Cow<'a, str>, Option<i64>, u128);

/// A snapshot, with the key of its row and its drift.
#[derive(Debug)]
struct KeyedSnapshot<'a> {
    /// The key of the earliest answer with this snapshot.
    key: AnswerKey<'a>,
    snapshot: Snapshot<'a>,
    drift: Vec<FieldDrift<'a>>,
}

/// The columns of a snapshot.
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

impl<'a> SnapshotTables<'a> {
    pub(super) fn new(rules: DriftRules, columns: ColumnSet) -> Self {
        Self {
            columns,
            snapshots: Vec::new(),
            by_text: HashMap::new(),
            entries: Vec::new(),
            fields: Fields::new(rules),
        }
    }

    /// Adds the snapshot of an answer, and counts its drift for the answer's record. Returns `None` if `raw` is not an
    /// object.
    pub(super) fn add(&mut self, key: &AnswerKey<'a>, raw: &'a str, drift: &mut DriftLog) -> Option<()> {
        let text_key = (key.response_group_uid.clone(), key.survey_id, xxh3_128(raw.as_bytes()));
        let index = match self.by_text.entry(text_key) {
            MapEntry::Vacant(vacant) => {
                self.entries.clear();
                json::read_entries(raw, &mut self.entries)?;
                let snapshot = read_snapshot(&mut self.fields, &self.entries, key);
                let drift = std::mem::take(&mut self.fields.drift);
                self.snapshots.push(KeyedSnapshot { key: key.clone(), snapshot, drift });
                *vacant.insert(self.snapshots.len() - 1)
            }
            MapEntry::Occupied(occupied) => *occupied.get(),
        };
        if let Some(known) = self.snapshots.get_mut(index) {
            drift.add_all(key.record, "visitorSnapshot.", &known.drift);
            if key.created_at < known.key.created_at {
                known.key = key.clone();
            }
        }
        Some(())
    }

    /// Appends the batches of both tables. Snapshots of one session with equal content become one row.
    pub(super) fn finish_into(mut self, page: &mut FlatPage) -> Result<(), ArrowError> {
        let columns = self.columns;
        // The earliest snapshots come first. Of texts with equal values and other spellings, the first one
        // gives the row its key.
        self.snapshots.sort_by_key(|snapshot| (snapshot.key.created_at, snapshot.key.record));
        let mut seen = HashSet::with_capacity(self.snapshots.len());
        let mut distinct = Vec::with_capacity(self.snapshots.len());
        for KeyedSnapshot { key, snapshot, .. } in self.snapshots {
            let hash = content_hash(&snapshot, key.survey_id);
            if seen.insert((key.response_group_uid.clone(), hash)) {
                distinct.push((key, snapshot, hash));
            }
        }
        distinct.sort_by_key(|(key, ..)| key.record);
        let mut rows = TableBuilder::new("visitor_snapshots", distinct.len(), columns)?;
        let mut attributes =
            TableBuilder::new("visitor_snapshot_attributes", distinct.len() * ATTRIBUTES_GUESS, columns)?;
        for (key, snapshot, hash) in &distinct {
            append_row(&mut rows, key, snapshot, *hash);
            append_attributes(&mut attributes, key.record, snapshot.attributes, &mut self.entries, |row| {
                row.text("response_group_uid", Some(&key.response_group_uid));
                row.bigint("survey_id", key.survey_id);
                row.timestamp("created_at", Some(key.created_at));
            });
        }
        rows.finish_into(page)?;
        attributes.finish_into(page)
    }
}

/// Appends a row of `visitor_snapshots`.
fn append_row(row: &mut TableBuilder, key: &AnswerKey, snapshot: &Snapshot, hash: i64) {
    row.text("response_group_uid", Some(&key.response_group_uid));
    row.bigint("survey_id", key.survey_id);
    row.timestamp("created_at", Some(key.created_at));
    row.text("visitor_id", snapshot.visitor_id.as_deref());
    row.text("external_user_id", snapshot.external_user_id.as_deref());
    row.text("triggering_event", snapshot.triggering_event.as_deref());
    row.json("attributes", snapshot.attributes);
    row.json("event_properties", snapshot.event_properties);
    row.json("events", snapshot.events);
    row.json("extra", snapshot.extra.as_deref());
    row.bigint("_row_hash", Some(hash));
    row.end_row(key.record);
}

/// Reads the columns of a snapshot. `key` is that of an answer with the snapshot. A session id that differs from the
/// answer's goes to `extra`.
fn read_snapshot<'a>(
    fields: &mut Fields<'a, SnapshotField>,
    entries: &[Entry<'a>],
    key: &AnswerKey<'a>,
) -> Snapshot<'a> {
    fields.read(entries);
    let attributes = fields.json(Wire::Attributes);
    if attributes.is_some() && fields.json(Wire::AttributesMisspelt).is_some() {
        fields.add_to_extra(Wire::AttributesMisspelt);
    }
    let uid = fields.text(Wire::ResponseGroupUid);
    if uid.is_some_and(|uid| uid != key.response_group_uid) {
        fields.add_to_extra(Wire::ResponseGroupUid);
    }
    Snapshot {
        attributes: attributes.or_else(|| fields.json(Wire::AttributesMisspelt)),
        event_properties: fields.json(Wire::EventProperties),
        events: fields.json(Wire::Events),
        // Here the visitor id is a string (a UUID was seen), although the visitor id of a response is a number.
        visitor_id: fields.text_or_digits(Wire::VisitorId),
        external_user_id: fields.text(Wire::ExternalUserId),
        triggering_event: fields.text(Wire::TriggeringEvent),
        extra: fields.extra.write().map(str::to_owned),
    }
}

/// Hashes all columns of a snapshot except the session and the creation time.
fn content_hash(snapshot: &Snapshot, survey_id: Option<i64>) -> i64 {
    let mut content = RowContent::default();
    if let Some(survey_id) = survey_id {
        content.bigint(column_name_hash("survey_id"), survey_id);
    }
    let texts = [
        ("visitor_id", &snapshot.visitor_id),
        ("external_user_id", &snapshot.external_user_id),
        ("triggering_event", &snapshot.triggering_event),
    ];
    for (name, value) in texts.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))) {
        content.text(column_name_hash(name), value);
    }
    let values = [
        ("attributes", snapshot.attributes),
        ("event_properties", snapshot.event_properties),
        ("events", snapshot.events),
        ("extra", snapshot.extra.as_deref()),
    ];
    for (name, value) in values.into_iter().filter_map(|(name, value)| Some((name, value?))) {
        content.written_text(column_name_hash(name), |bytes| json::write_canonical(value, &[], bytes));
    }
    content.hash_64()
}
