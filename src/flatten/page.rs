//! The envelope of a list call: finds the records in a page.
//!
//! Records come as members ([`for_each_object`], one scan of the page) or as texts ([`read_records`], which a second
//! scan then takes apart, and which no record can fail, not even one that is no JSON). Should an envelope have several
//! lists `data`, which the grammar allows, the records of all of them are read.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::FlattenError;
use crate::json::{Entry, Scanner, shown, take_apart, take_entries, unescaped, unquoted};

/// Hands the members of each record to `take`, in order, until that answers `false`. False if it did, if a record is no
/// object, or if the scanner does not take the text: [`read_records`] then tells what there is.
pub(super) fn for_each_object<'a>(text: &'a str, mut take: impl FnMut(&[Entry<'a>]) -> bool) -> bool {
    let (mut entries, mut has_data) = (Vec::new(), false);
    let mut scanner = Scanner::new(text);
    let read = scanner.each_member(|scanner, name| {
        if !is_data(name) {
            return scanner.value().map(|_| ());
        }
        has_data = true;
        scanner.each_item(|scanner| {
            entries.clear();
            take_entries(scanner, &mut entries)?;
            take(&entries).then_some(())
        })
    });
    read.is_some() && has_data && scanner.is_at_end()
}

/// A record of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed<'a> {
    /// Its exact text.
    Json(&'a str),
    /// Its bytes as a text, where it is no JSON.
    Broken(String),
}

/// The records, in order.
pub(super) fn read_records(body: &[u8]) -> Result<Vec<Listed<'_>>, FlattenError> {
    let mut records = Vec::new();
    let mut parser = serde_json::Deserializer::from_slice(body);
    let parsed = parser.deserialize_map(Envelope(&mut records)).and_then(|has_data| parser.end().map(|()| has_data));
    match parsed {
        Ok(true) => Ok(records.into_iter().map(Listed::Json).collect()),
        Ok(false) => Err(FlattenError::NoData),
        Err(error) => broken_records(body).ok_or(FlattenError::NotAPage(error)),
    }
}

/// The records of a page of which some are no JSON.
fn broken_records(body: &[u8]) -> Option<Vec<Listed<'_>>> {
    let (_, page) = take_apart(body)?;
    let records = page.records.into_iter().map(|record| {
        let bytes = body.get(record.place)?;
        match std::str::from_utf8(bytes) {
            Ok(text) if !record.is_broken => Some(Listed::Json(text)),
            _ => Some(Listed::Broken(shown(bytes))),
        }
    });
    records.collect()
}

/// Whether a member's name, as it stands between its quotes, is `data`, however it is written.
fn is_data(name: &str) -> bool {
    name == "data" || (name.contains('\\') && unescaped(name).text == "data")
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
            if is_data(unquoted(key.get())) {
                members.next_value_seed(Records(self.0))?;
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
