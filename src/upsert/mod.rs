//! Parses rows of a file or a query into upserts: users to send to the service. Checks the rows against the rules of
//! the service. A row that breaks a rule is set aside with a reason. This module opens, sends and stores nothing.
//!
//! A row has the columns `userId`, `email`, `attributes` (an object) or `attributes.NAME`, and `events` (a list of
//! `{event, timestamp}`). Rows with equal content have an equal [`Upsert::content_key`] in every format.

mod csv;
mod csv_records;
mod json_members;
mod row;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, collections::BTreeMap, io};

use serde::Serialize;
use xxhash_rust::xxh3::xxh3_128;

pub use self::{
    csv::read_csv,
    row::{check_columns, read_ndjson, read_table_row},
};
use crate::model::{Fault, RunReason};

/// Maximum number of attributes of a user that the service accepts.
pub const ATTRIBUTES_MAX: usize = 100;
/// Maximum length of a row, in bytes.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// A user to send to the service.
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
    /// Any other value, as JSON without spaces. The service decides whether it accepts the value.
    Json(#[serde(serialize_with = "serialize_raw")] String),
}

fn serialize_raw<S: serde::Serializer>(json: &str, to: S) -> Result<S::Ok, S::Error> {
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
    /// Returns the JSON body of a request, with or without the events. The service counts an event each time it is
    /// sent, so callers leave out events that the service may have already.
    pub fn body(&self, with_events: bool) -> Vec<u8> {
        let sent = match with_events || self.events.is_empty() {
            true => Cow::Borrowed(self),
            false => Cow::Owned(Upsert { events: Vec::new(), ..self.clone() }),
        };
        // Texts, integers, booleans and valid JSON can always be serialized.
        serde_json::to_vec(&*sent).unwrap_or_default()
    }

    /// Returns the 128-bit hash of the upsert with its events, by which a run recognises rows that were sent before.
    pub fn content_key(&self) -> [u8; 16] {
        xxh3_128(&self.body(true)).to_be_bytes()
    }
}

/// One row of the input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of the row, from 1. The header of a CSV file and blank rows do not count.
    pub number: u64,
    /// The upsert, or the reason why the row is set aside.
    pub read: Result<Upsert, UnsendableRow>,
}

impl Row {
    /// Returns the approximate memory of the row: the size of its request, or of the reason.
    pub fn memory_bytes(&self) -> usize {
        self.read.as_ref().map_or_else(|row| row.reason.len(), |upsert| upsert.body(true).len())
    }
}

/// A row that is set aside and not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsendableRow {
    /// The row's user id; `None` if the row has none that can be read.
    pub user_id: Option<String>,
    /// The rule that the row breaks, for messages.
    pub reason: String,
}

impl UnsendableRow {
    /// Creates a row whose user id is unknown.
    fn of(reason: impl Into<String>) -> Self {
        UnsendableRow { user_id: None, reason: reason.into() }
    }

    /// Adds the number of the row's first line to the reason.
    fn on_line(self, line: u64) -> Self {
        UnsendableRow { reason: format!("line {line}: {}", self.reason), ..self }
    }
}

/// Why reading an input stopped.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Reading failed.
    #[error("the input cannot be read")]
    Read(#[source] io::Error),
    /// The names of the columns are wrong.
    #[error("{0}")]
    Columns(String),
}

impl Fault for InputError {
    fn reason(&self) -> RunReason {
        match self {
            InputError::Columns(_) => RunReason::Configuration,
            InputError::Read(_) => RunReason::RunFailed,
        }
    }

    fn hint(&self) -> Option<&str> {
        Some(match self {
            InputError::Columns(_) => "see `studysync users push --help` for the columns; no row was sent",
            InputError::Read(_) => CORRECT_INPUT,
        })
    }
}

/// The hint for an input of users that cannot be read to its end.
pub const CORRECT_INPUT: &str =
    "correct the input and run the same command again: rows that the service has answered are not sent again";

/// A callback that receives the rows in order. It returns false to stop the reading.
pub type RowSink<'a> = dyn FnMut(Row) -> bool + 'a;
