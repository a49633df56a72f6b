//! The stream of users: `users`, `user_attributes` and `user_events`.
//!
//! The service has no list of people. `pipeline::sync::people` requests each person and combines the exact bodies of
//! the answers into a page. A record of such a page is `{"userId": the requested id, "user": the body}`. The requested
//! id is the key of the row. A different id in the body goes to `extra`.
//!
//! An item of the list of events that is not an object has no row in `user_events`. `users.events` contains the
//! complete list.

use arrow::error::ArrowError;
use serde::Deserialize;

use super::{
    child_rows::append_attributes,
    drift::DriftLog,
    fields::{Fields, KeyError, wire_fields},
    table_builder::{ColumnSet, RecordTables, TableBuilder},
};
use crate::{
    json::{self, Entry},
    model::{DriftRules, FlatPage, RejectReason, Stream},
};

wire_fields! {
    /// The fields of a record of a page of people.
    RecordField {
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

/// Returns the requested ids that the service does not know, from the member `absent` of the page. Empty if the page
/// has no such list.
pub(super) fn read_absent(text: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Absent {
        #[serde(default)]
        absent: Vec<String>,
    }
    // The page was parsed before, so a failure means that it has no such list.
    serde_json::from_str::<Absent>(text).map(|page| page.absent).unwrap_or_default()
}

/// The tables of the stream of users under construction.
#[derive(Debug)]
pub(super) struct UserTables<'a> {
    record: Fields<'a, RecordField>,
    fields: Fields<'a, UserField>,
    event: Fields<'a, EventField>,
    users: TableBuilder,
    attributes: TableBuilder,
    events: TableBuilder,
    entries: Vec<Entry<'a>>,
    drift: DriftLog,
}

impl<'a> RecordTables<'a> for UserTables<'a> {
    fn new(records: usize, rules: DriftRules, columns: ColumnSet) -> Result<Self, ArrowError> {
        Ok(Self {
            record: Fields::new(rules),
            fields: Fields::new(rules),
            event: Fields::new(rules),
            users: TableBuilder::new("users", records, columns)?,
            attributes: TableBuilder::new("user_attributes", 0, columns)?,
            events: TableBuilder::new("user_events", 0, columns)?,
            entries: Vec::new(),
            drift: DriftLog::new(Stream::Users.name(), rules),
        })
    }

    /// Appends the row of a user, and the rows of its attributes and events. The requested id is the key.
    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, KeyError> {
        self.record.read(entries);
        let external_user_id = self.record.key_text(RecordField::UserId)?;
        let error = |reason| KeyError { reason, field: "user" };
        let body = self.record.json(RecordField::User).ok_or(error(RejectReason::MissingKey))?;
        self.entries.clear();
        json::read_entries(body, &mut self.entries).ok_or(error(RejectReason::NotAnObject))?;
        self.fields.read(&self.entries);

        let (fields, row) = (&mut self.fields, &mut self.users);
        if fields.text(Wire::ExternalUserId).is_some_and(|sent| sent != external_user_id) {
            fields.add_to_extra(Wire::ExternalUserId);
        }
        row.text("external_user_id", Some(&external_user_id));
        row.text("user_id", fields.text_or_digits(Wire::Id).as_deref());
        row.timestamp("created_at", fields.timestamp(Wire::CreatedAt));
        row.json("attributes", fields.json(Wire::Attributes));
        row.json("events", fields.json(Wire::Events));
        row.json("extra", fields.extra.write());
        row.row_hash();
        let key_hash = row.end_row(record);
        let (attributes, events) = (fields.json(Wire::Attributes), fields.json(Wire::Events));
        self.drift.drain_fields(record, "", &mut self.fields);
        append_attributes(&mut self.attributes, record, attributes, &mut self.entries, |row| {
            row.text("external_user_id", Some(&external_user_id));
        });
        self.append_events(record, &external_user_id, events);
        Ok(key_hash)
    }

    fn drift(&mut self) -> &mut DriftLog {
        &mut self.drift
    }

    fn finish_into(self, page: &mut FlatPage) -> Result<DriftLog, ArrowError> {
        self.users.finish_into(page)?;
        self.attributes.finish_into(page)?;
        self.events.finish_into(page)?;
        Ok(self.drift)
    }
}

impl<'a> UserTables<'a> {
    /// Appends a row of `user_events` for each object in the list `raw`, until the table is full.
    fn append_events(&mut self, record: i64, external_user_id: &str, raw: Option<&'a str>) {
        for (ordinal, item) in (1_i64..).zip(raw.and_then(json::read_items).unwrap_or_default()) {
            self.entries.clear();
            if self.events.is_full() || json::read_entries(item, &mut self.entries).is_none() {
                continue;
            }
            self.event.read(&self.entries);
            let (fields, row) = (&mut self.event, &mut self.events);
            row.text("external_user_id", Some(external_user_id));
            row.bigint("event_ordinal", Some(ordinal));
            row.text("event", fields.text(EventField::Event).as_deref());
            row.bigint("count", fields.bigint(EventField::Count));
            row.timestamp("created_at", fields.timestamp(EventField::CreatedAt));
            row.timestamp("updated_at", fields.timestamp(EventField::UpdatedAt));
            row.json("extra", fields.extra.write());
            row.end_row(record);
            self.drift.drain_fields(record, "events[].", &mut self.event);
        }
    }
}
