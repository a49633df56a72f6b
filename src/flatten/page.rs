//! The envelope of a list call: finds the records in a page.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Bytes that a small record has: how many records a page is likely to hold.
const RECORD_BYTES_MIN: usize = 256;

/// The exact texts of the records, in order; `None` if the envelope has no list `data`. Should it have several, which the
/// grammar allows, the records of all of them are there.
pub(super) fn read_records(text: &str) -> Result<Option<Vec<&str>>, serde_json::Error> {
    let mut records = Vec::with_capacity(text.len() / RECORD_BYTES_MIN);
    let mut parser = serde_json::Deserializer::from_str(text);
    let has_data = parser.deserialize_map(Envelope(&mut records))?;
    parser.end()?;
    Ok(has_data.then_some(records))
}

struct Envelope<'v, 'a>(&'v mut Vec<&'a str>);

impl<'a> Visitor<'a> for Envelope<'_, 'a> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a list `data`")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<bool, M::Error> {
        let mut has_data = false;
        while let Some(key) = members.next_key::<&'a RawValue>()? {
            if key.get() == "\"data\"" {
                members.next_value_seed(Records(&mut *self.0))?;
                has_data = true;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(has_data)
    }
}

struct Records<'v, 'a>(&'v mut Vec<&'a str>);

impl<'a> DeserializeSeed<'a> for Records<'_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for Records<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut items: S) -> Result<(), S::Error> {
        while let Some(record) = items.next_element::<&'a RawValue>()? {
            self.0.push(record.get());
        }
        Ok(())
    }
}
