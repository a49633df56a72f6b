//! The stream of users: `users`, `user_attributes` and `user_events`.
//!
//! The service has no list of people: each is asked for alone, and the program puts the exact bodies together to a page
//! (`pipeline::people`). A record of it is `{"userId": what was asked for, "user": the body}`. The key is what was
//! asked for, so a body that names nobody, or somebody else, has its place all the same, and what it names is kept in
//! `extra`.
//!
//! Items of a list of events that are no objects have no row in `user_events`; `users.events` has the whole.

use std::borrow::Cow;

use arrow::error::ArrowError;
use serde::Deserialize;

use super::{
    RecordTables,
    attributes::append_attributes,
    drift::DriftLog,
    fields::{Fields, Unplaceable, wire_fields},
    table_builder::TableBuilder,
};
use crate::{
    json::{self, Entry, Shape},
    model::{DriftRules, RejectReason, Stream, TableBatch},
};

wire_fields! {
    /// What a record says beside the body.
    PersonField {
        UserId = "userId",
        User = "user",
    }
}

wire_fields! {
    /// The fields of a person.
    UserField {
        Id = "id",
        ExternalUserId = "externalUserId",
        CreatedAt = "createdAt",
        Attributes = "attributes",
        Events = "events",
    }
}

wire_fields! {
    /// The fields of an event.
    EventField {
        Event = "event",
        Count = "count",
        CreatedAt = "createdAt",
        UpdatedAt = "updatedAt",
    }
}

use UserField as Wire;

/// The keys on a page that the service does not know.
pub(super) fn absent_of(text: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Absent {
        #[serde(default)]
        absent: Vec<String>,
    }
    // A page that is none was refused before.
    serde_json::from_str::<Absent>(text).map(|page| page.absent).unwrap_or_default()
}

#[derive(Debug)]
pub(super) struct UserTables<'a> {
    person: Fields<'a, PersonField>,
    fields: Fields<'a, UserField>,
    event: Fields<'a, EventField>,
    users: TableBuilder,
    attributes: TableBuilder,
    events: TableBuilder,
    entries: Vec<Entry<'a>>,
    drift: DriftLog,
}

impl<'a> RecordTables<'a> for UserTables<'a> {
    fn new(records: usize, rules: DriftRules) -> Result<Self, ArrowError> {
        Ok(Self {
            person: Fields::new(rules),
            fields: Fields::new(rules),
            event: Fields::new(rules),
            users: TableBuilder::new("users", records)?,
            attributes: TableBuilder::new("user_attributes", 0)?,
            events: TableBuilder::new("user_events", 0)?,
            entries: Vec::new(),
            drift: DriftLog::new(Stream::Users.name(), rules),
        })
    }

    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, Unplaceable> {
        self.person.read(entries);
        let external_user_id = self.person.key_text(PersonField::UserId)?;
        let unplaceable = |reason| Unplaceable { reason, field: "user" };
        let body = self.person.json(PersonField::User).ok_or(unplaceable(RejectReason::MissingKey))?;
        self.entries.clear();
        json::read_entries(body, &mut self.entries).ok_or(unplaceable(RejectReason::NotAnObject))?;
        self.fields.read(&self.entries);

        let (fields, row) = (&mut self.fields, &mut self.users);
        if fields.text(Wire::ExternalUserId).is_some_and(|named| named != external_user_id) {
            fields.keep(Wire::ExternalUserId);
        }
        row.text("external_user_id", Some(&external_user_id));
        row.text("user_id", id_text(fields).as_deref());
        row.timestamp("created_at", fields.timestamp(Wire::CreatedAt));
        row.text("attributes", fields.json(Wire::Attributes));
        row.text("events", fields.json(Wire::Events));
        row.text("extra", fields.extra.write());
        row.row_hash();
        let key_hash = row.end_row(record);
        let (attributes, events) = (fields.json(Wire::Attributes), fields.json(Wire::Events));
        self.drift.take(record, "", &mut self.fields);
        append_attributes(&mut self.attributes, record, attributes, &mut self.entries, |row| {
            row.text("external_user_id", Some(&external_user_id));
        });
        self.append_events(record, &external_user_id, events);
        Ok(key_hash)
    }

    fn drift(&mut self) -> &mut DriftLog {
        &mut self.drift
    }

    fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<DriftLog, ArrowError> {
        self.users.finish_into(batches)?;
        self.attributes.finish_into(batches)?;
        self.events.finish_into(batches)?;
        Ok(self.drift)
    }
}

impl<'a> UserTables<'a> {
    fn append_events(&mut self, record: i64, external_user_id: &str, raw: Option<&'a str>) {
        let items = raw.filter(|raw| json::shape(raw) == Shape::List).and_then(json::read_items).unwrap_or_default();
        for (at, item) in items.into_iter().enumerate() {
            self.entries.clear();
            if self.events.is_full() || json::read_entries(item, &mut self.entries).is_none() {
                continue;
            }
            self.event.read(&self.entries);
            let (fields, row) = (&mut self.event, &mut self.events);
            row.text("external_user_id", Some(external_user_id));
            row.bigint("event_ordinal", Some(at as i64 + 1));
            row.text("event", fields.text(EventField::Event).as_deref());
            row.bigint("count", fields.bigint(EventField::Count));
            row.timestamp("created_at", fields.timestamp(EventField::CreatedAt));
            row.timestamp("updated_at", fields.timestamp(EventField::UpdatedAt));
            row.text("extra", fields.extra.write());
            row.end_row(record);
            self.drift.take(record, "events[].", &mut self.event);
        }
    }
}

/// A string by the contract; a number keeps its digits.
fn id_text<'a>(fields: &mut Fields<'a, UserField>) -> Option<Cow<'a, str>> {
    match fields.json(Wire::Id) {
        Some(raw) if json::shape(raw) == Shape::Number => Some(Cow::Borrowed(raw)),
        _ => fields.text(Wire::Id),
    }
}
