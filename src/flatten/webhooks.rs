//! Webhook deliveries: parses each body (`body.rs`) and builds its rows (`rows.rs`).
//!
//! The kind follows from the content of a body, because the service's names are ambiguous: its samples pair `studySent`
//! and `studySeen` with either trigger. Every body becomes a row. Lists and objects inside JSON texts are parsed, and
//! the exact bytes are stored too. Deliveries of one event share an `event_key`; nothing is deduplicated here.

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

pub use body::{Told, body_hash};
pub use rows::FlatDeliveries;

use body::Body;
use rows::{Event, EventTables};

/// Looks at a body.
pub fn tell(body: &[u8]) -> Told {
    Told::of(&Body::read(body))
}

/// The rows of deliveries. Those of another environment than this one, if it is known, are told apart by their kind.
///
/// # Errors
/// A fault of the program alone: no body can cause one.
pub fn flatten_deliveries(deliveries: &[Delivery], environment_id: Option<&str>) -> Result<FlatDeliveries, ArrowError> {
    let mut tables = EventTables::new(deliveries.len())?;
    for (place, delivery) in deliveries.iter().enumerate() {
        let body = Body::read(&delivery.body);
        let told = Told::of(&body);
        let event = Event {
            key: &body.event_key(told.kind, delivery),
            kind: told.kind_in(environment_id).name(),
            received_us: delivery.received_ms.saturating_mul(1000),
            record: place as i64,
        };
        tables.append(&event, &body);
    }
    tables.finish()
}

/// Rows made anew from the bodies in stored rows of `webhook_events`, one for each, with the keys that they have there.
/// A row whose body is gone gives one without content.
///
/// # Errors
/// A column is missing, or has another type.
pub fn flatten_stored(stored: &RecordBatch) -> Result<FlatEvents, ArrowError> {
    let column = |name: &str| {
        let column = stored.column_by_name(name);
        column.ok_or_else(|| ArrowError::SchemaError(format!("stored events without {name}")))
    };
    let texts = |name: &str| {
        let texts = column(name)?.as_string_opt::<i32>();
        texts.ok_or_else(|| ArrowError::SchemaError(format!("{name} of stored events is no text")))
    };
    let (keys, kinds, raw, base64) = (texts("event_key")?, texts("kind")?, texts("raw")?, texts("raw_base64")?);
    let received = column("received_at")?.as_primitive_opt::<TimestampMicrosecondType>();
    let received = received.ok_or_else(|| ArrowError::SchemaError("received_at of stored events is no time".into()))?;
    let bodies: Vec<Cow<'_, [u8]>> = raw
        .iter()
        .zip(base64)
        .map(|(text, base64)| match (text, base64) {
            (Some(text), _) => Cow::Borrowed(text.as_bytes()),
            (None, base64) => Cow::Owned(STANDARD.decode(base64.unwrap_or_default()).unwrap_or_default()),
        })
        .collect();
    let mut tables = EventTables::new(bodies.len())?;
    for (at, body) in bodies.iter().enumerate() {
        let event =
            Event { key: keys.value(at), kind: kinds.value(at), received_us: received.value(at), record: at as i64 };
        tables.append(&event, &Body::read(body));
    }
    tables.finish().map(|made| made.flat)
}

#[cfg(test)]
mod tests;
