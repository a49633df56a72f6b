//! Flattens webhook deliveries: parses each body (`body.rs`) and builds its rows (`rows.rs`).
//!
//! The content of a body decides the kind of its event, because the service's event names are ambiguous. In the
//! service's samples, the names `studySent` and `studySeen` both occur for surveys that were sent and for surveys that
//! were seen. Every body becomes a row. Lists and objects inside JSON texts are parsed, and the exact bytes are stored
//! too. Deliveries of one event share an `event_key`; duplicates are not removed here.

use std::borrow::Cow;

use arrow::{
    array::{AsArray as _, RecordBatch},
    datatypes::TimestampMicrosecondType,
    error::ArrowError,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::model::{Delivery, FlatEvents};

mod body;
mod rows;

pub use body::{BodySummary, body_hash};
pub use rows::FlatDeliveries;

use body::WebhookBody;
use rows::{EventHeader, EventTables};

/// Parses a body and returns its summary.
pub fn summarize_body(body: &[u8]) -> BodySummary {
    BodySummary::of(&WebhookBody::parse(body))
}

/// Flattens deliveries. `environment_id` is the environment of this warehouse; if it is known, deliveries of another
/// environment get the kind [`EventKind::OtherEnvironment`](crate::model::EventKind::OtherEnvironment).
///
/// # Errors
/// If the list of deliveries is empty; any other error is a bug of this program. No content of a body causes an error.
pub fn flatten_deliveries(deliveries: &[Delivery], environment_id: Option<&str>) -> Result<FlatDeliveries, ArrowError> {
    let mut tables = EventTables::new(deliveries.len())?;
    for (record, delivery) in (0_i64..).zip(deliveries) {
        let body = WebhookBody::parse(&delivery.body);
        let summary = BodySummary::of(&body);
        let header = EventHeader {
            key: &body.event_key(summary.kind, delivery),
            kind: summary.kind_for(environment_id).name(),
            received_us: delivery.received_ms.saturating_mul(1000),
            record,
        };
        tables.append(&header, &body);
    }
    tables.finish()
}

/// Flattens the bodies in stored rows of `webhook_events` again, for a replay. Each new row keeps the key and kind of
/// its stored row. A stored row without a body becomes a row without content.
///
/// # Errors
/// If a column is missing or has another type, or if there are no rows.
pub fn flatten_stored_events(stored: &RecordBatch) -> Result<FlatEvents, ArrowError> {
    let column = |name: &str| {
        let column = stored.column_by_name(name);
        column.ok_or_else(|| ArrowError::SchemaError(format!("stored events without {name}")))
    };
    let texts = |name: &str| {
        let texts = column(name)?.as_string_opt::<i32>();
        texts.ok_or_else(|| ArrowError::SchemaError(format!("{name} of stored events is not text")))
    };
    let (keys, kinds, raw, base64) = (texts("event_key")?, texts("kind")?, texts("raw")?, texts("raw_base64")?);
    let received = column("received_at")?.as_primitive_opt::<TimestampMicrosecondType>();
    let received =
        received.ok_or_else(|| ArrowError::SchemaError("received_at of stored events is not a timestamp".into()))?;
    let bodies: Vec<Cow<'_, [u8]>> = raw
        .iter()
        .zip(base64)
        .map(|(text, base64)| match (text, base64) {
            (Some(text), _) => Cow::Borrowed(text.as_bytes()),
            (None, base64) => Cow::Owned(STANDARD.decode(base64.unwrap_or_default()).unwrap_or_default()),
        })
        .collect();
    let mut tables = EventTables::new(bodies.len())?;
    for (row, body) in bodies.iter().enumerate() {
        let (key, kind) = (keys.value(row), kinds.value(row));
        let header = EventHeader { key, kind, received_us: received.value(row), record: row as i64 };
        tables.append(&header, &WebhookBody::parse(body));
    }
    tables.finish().map(|deliveries| deliveries.flat)
}

#[cfg(test)]
mod tests;
