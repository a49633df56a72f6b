//! People to be sent to the service: rows of a file or a query become upserts, checked against what the service takes,
//! or are set aside with a reason. Reads bytes and rows that it is handed;
//! opens nothing, sends nothing, remembers nothing.
//!
//! A row has the columns `userId`, `email`, `attributes` (an object) or `attributes.NAME`, and `events` (a list of
//! `{event, timestamp}`). Equal content has an equal [`Upsert::content_key`], however it was written down.

mod csv;
mod csv_records;
mod excerpt;
mod json_members;
mod ndjson;
mod row;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, io};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

pub use self::{
    csv::read_csv,
    ndjson::read_ndjson,
    row::{check_columns, read_table_row},
};

/// The most attributes of a user that the service takes.
pub const ATTRIBUTES_MAX: usize = 100;
/// The longest row that is read, in bytes.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// A user as sent to the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Upsert {
    pub user_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum AttributeValue {
    Text(String),
    Integer(i64),
    Boolean(bool),
    /// Any other value, as JSON without spaces: whether the service takes it is for the service to say.
    Json(#[serde(serialize_with = "exactly")] String),
}

fn exactly<S: serde::Serializer>(json: &str, to: S) -> Result<S::Ok, S::Error> {
    let raw = serde_json::value::RawValue::from_string(json.to_owned()).map_err(serde::ser::Error::custom)?;
    raw.serialize(to)
}

/// A historical event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    pub event: String,
    /// Epoch milliseconds.
    pub timestamp: i64,
}

impl Upsert {
    /// The JSON of a request, with or without the events: the service counts those as often as they come.
    pub fn body(&self, with_events: bool) -> Vec<u8> {
        let bare;
        let sent = match with_events || self.events.is_empty() {
            true => self,
            false => {
                bare = Upsert { events: Vec::new(), ..self.clone() };
                &bare
            }
        };
        // Texts, integers, truths and JSON that was read before can always be written.
        serde_json::to_vec(sent).unwrap_or_default()
    }

    /// Names the content: equal for equal rows, wherever they come from.
    pub fn content_key(&self) -> [u8; 16] {
        xxh3_128(&self.body(true)).to_be_bytes()
    }
}

/// One row of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// From 1; a line with the names of columns is none.
    pub number: u64,
    pub read: Result<Upsert, UnsendableRow>,
}

/// A row that cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsendableRow {
    /// As far as it can be told.
    pub user_id: Option<String>,
    pub reason: String,
}

impl UnsendableRow {
    fn of(reason: impl Into<String>) -> Self {
        UnsendableRow { user_id: None, reason: reason.into() }
    }

    /// With the line at which the row begins.
    fn on_line(self, line: u64) -> Self {
        UnsendableRow { reason: format!("line {line}: {}", self.reason), ..self }
    }
}

/// Why an input cannot be read on.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The bytes stop coming.
    #[error("the input cannot be read")]
    Read(#[source] io::Error),
    /// The columns are not those of users: mend the names.
    #[error("{0}")]
    Columns(String),
}

/// Takes rows, in order, until it answers `false`.
pub type RowSink<'a> = dyn FnMut(Row) -> bool + 'a;
