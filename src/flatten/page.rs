//! The envelope of a list call: finds the records in a page.
//!
//! Records come as members ([`for_each_object`], one scan of the page) or as texts ([`read_records`], which a second scan then
//! takes apart, and which no record can fail). Should an envelope have several lists `data`, which the grammar allows, the
//! records of all of them are read.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::json::{Entry, Members};

/// The exact texts of the records, in order; `None` if the envelope has no list `data`.
pub(super) fn read_records(text: &str) -> Result<Option<Vec<&str>>, serde_json::Error> {
    let mut records = Vec::new();
    let has_data = read_envelope(text, Texts(&mut records))?;
    Ok(has_data.then_some(records))
}

/// Hands the members of each record to `take`, in order, until that answers `false`. False if it did, if a record is no object, or
/// if the text is no page: [`read_records`] then tells what there is.
pub(super) fn for_each_object<'a>(text: &'a str, take: impl FnMut(&[Entry<'a>]) -> bool) -> bool {
    let mut entries = Vec::new();
    read_envelope(text, Objects { entries: &mut entries, take }).unwrap_or(false)
}

/// What becomes of the items of `data`.
trait Items<'a> {
    fn take_next<S: SeqAccess<'a>>(&mut self, items: &mut S) -> Result<Option<()>, S::Error>;
}

/// Whether there was a list `data`.
fn read_envelope<'a>(text: &'a str, mut items: impl Items<'a>) -> Result<bool, serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(text);
    let has_data = parser.deserialize_map(Envelope(&mut items))?;
    parser.end()?;
    Ok(has_data)
}

struct Texts<'v, 'a>(&'v mut Vec<&'a str>);

impl<'a> Items<'a> for Texts<'_, 'a> {
    fn take_next<S: SeqAccess<'a>>(&mut self, items: &mut S) -> Result<Option<()>, S::Error> {
        let text = items.next_element::<&'a RawValue>()?;
        Ok(text.map(|text| self.0.push(text.get())))
    }
}

struct Objects<'v, 'a, F> {
    entries: &'v mut Vec<Entry<'a>>,
    take: F,
}

impl<'a, F: FnMut(&[Entry<'a>]) -> bool> Items<'a> for Objects<'_, 'a, F> {
    fn take_next<S: SeqAccess<'a>>(&mut self, items: &mut S) -> Result<Option<()>, S::Error> {
        self.entries.clear();
        match items.next_element_seed(Members(self.entries))? {
            Some(()) if (self.take)(self.entries) => Ok(Some(())),
            Some(()) => Err(S::Error::custom("refused")),
            None => Ok(None),
        }
    }
}

struct Envelope<'v, I>(&'v mut I);

impl<'a, I: Items<'a>> Visitor<'a> for Envelope<'_, I> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a list `data`")
    }

    fn visit_map<M: MapAccess<'a>>(self, mut members: M) -> Result<bool, M::Error> {
        let mut has_data = false;
        while let Some(key) = members.next_key::<&'a RawValue>()? {
            if is_data(key.get()) {
                members.next_value_seed(List(&mut *self.0))?;
                has_data = true;
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(has_data)
    }
}

/// Whether a member's name, with its quotes, is `data`, however it is written.
fn is_data(name: &str) -> bool {
    name == "\"data\"" || (name.contains('\\') && serde_json::from_str::<String>(name).is_ok_and(|name| name == "data"))
}

struct List<'v, I>(&'v mut I);

impl<'a, I: Items<'a>> DeserializeSeed<'a> for List<'_, I> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a, I: Items<'a>> Visitor<'a> for List<'_, I> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of records")
    }

    fn visit_seq<S: SeqAccess<'a>>(self, mut items: S) -> Result<(), S::Error> {
        while self.0.take_next(&mut items)?.is_some() {}
        Ok(())
    }
}
