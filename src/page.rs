//! Takes a page of a list call apart, `{"cursor": ..., "data": [...]}`: the one parser of everybody who looks into a page. It says where the
//! page token and the records stand. What a record holds is for others to read.
//!
//! A [`Scanner`] reads a page in one pass. A text that the scanner does not accept is read by serde_json, which also says what is wrong with it.
//! Neither recurses, so records may be nested to any depth.
//!
//! A page of which single records are no JSON is a page all the same, as long as it is certain which they are (`damaged`).

mod damaged;

use std::{mem, ops::Range};

use serde_json::value::RawValue;
use thiserror::Error;

use crate::json::{Scanner, Shape, read_entries, read_items, shape, unescaped};

/// The list of records that a service sends.
pub const DATA: &str = "data";
/// The page token.
const CURSOR: &str = "cursor";
/// The longest page token that is accepted, in bytes: the next request's address contains it.
pub const TOKEN_BYTES_MAX: usize = 4096;

/// The parts of a page. All places are in bytes of the body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageParts {
    /// The value of `cursor`.
    pub cursor: Option<Range<usize>>,
    /// The lists of records, in order.
    pub lists: Vec<List>,
    /// A member that occurs twice and must not: `cursor` or `data`.
    pub duplicate: Option<&'static str>,
    has_data: bool,
    is_data_no_list: bool,
}

/// A list of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// The list with its brackets.
    pub place: Range<usize>,
    /// Its items, in order.
    pub records: Vec<Record>,
}

/// An item of such a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The record without the space around it.
    pub place: Range<usize>,
    /// Whether the record is no JSON.
    pub is_broken: bool,
}

/// Why a body is no page.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    /// The bytes are no text.
    #[error("the body is not UTF-8: byte {at} is wrong")]
    NotUtf8 { at: usize },
    /// The text is no JSON, or a cut one.
    #[error("the body is not JSON: {reason}")]
    NotJson { reason: String },
    /// JSON, but not an object.
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// Without `data` nothing is known, least of all that there are no records.
    #[error("the body has no 'data'")]
    NoData,
    /// `data` is something else than a list.
    #[error("'data' is not a list")]
    DataNotAList,
    /// `cursor` is neither null nor text nor a number, or a text with half of a surrogate pair, which is legal JSON and cannot be sent.
    #[error("'cursor' is neither null nor a text that can be sent back")]
    BadToken,
    /// `cursor` is too long for an address.
    #[error("'cursor' is longer than {TOKEN_BYTES_MAX} bytes")]
    TokenTooLong,
    /// A member occurs twice, and no rule says which one counts.
    #[error("'{field}' stands twice")]
    Duplicate { field: &'static str },
}

impl PageParts {
    /// Takes a page apart. `lists` names the members whose items are records; [`DATA`] is the one of a service's page. A page without any of
    /// them has no lists, and is no error here: [`Self::check_data`] tells.
    ///
    /// # Errors
    /// If the body is no JSON object.
    pub fn parse(body: &[u8], lists: &[&str]) -> Result<Self, PageError> {
        let parsed = match std::str::from_utf8(body) {
            Ok(text) => scan(text, lists, read_places).map_or_else(|| parse_slowly(text, lists), Ok),
            Err(error) => Err(PageError::NotUtf8 { at: error.valid_up_to() }),
        };
        match parsed {
            Err(error @ (PageError::NotUtf8 { .. } | PageError::NotJson { .. })) => damaged::parse(body).ok_or(error),
            parsed => parsed,
        }
    }

    /// Checks that each `data` is a list, and that there is one.
    ///
    /// # Errors
    /// If not.
    pub fn check_data(&self) -> Result<(), PageError> {
        match (self.has_data, self.is_data_no_list) {
            (false, _) => Err(PageError::NoData),
            (true, true) => Err(PageError::DataNotAList),
            (true, false) => Ok(()),
        }
    }

    /// The records of all lists, in order.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        self.lists.iter().flat_map(|list| &list.records)
    }

    /// Adds a member of the page; `records` if it is one of the lists.
    fn add(&mut self, name: &str, place: Range<usize>, records: Option<Vec<Record>>) {
        match name {
            CURSOR if self.cursor.replace(place.clone()).is_some() => self.duplicate = Some(CURSOR),
            DATA => {
                self.is_data_no_list |= records.is_none();
                if mem::replace(&mut self.has_data, true) {
                    self.duplicate = Some(DATA);
                }
            }
            _ => {}
        }
        if let Some(records) = records {
            self.lists.push(List { place, records });
        }
    }
}

/// Takes a page apart in one pass. `read_list` reads each list of records, with the scanner at its bracket, and returns the places of the
/// records if somebody needs them. `None` if the scanner or `read_list` does not accept the text, which may be a page all the same.
pub(crate) fn scan<'a>(
    text: &'a str,
    lists: &[&str],
    mut read_list: impl FnMut(&mut Scanner<'a>) -> Option<Vec<Record>>,
) -> Option<PageParts> {
    let (mut scanner, mut parts) = (Scanner::starting_at(text, mark_bytes(text)), PageParts::default());
    scanner.each_member(|scanner, name| {
        // Half of a surrogate pair becomes U+FFFD, and no name of a member that is looked for.
        let name = unescaped(name).text;
        let start = scanner.at();
        let is_list = scanner.peek() == Some(b'[') && lists.contains(&&*name);
        let records = match is_list {
            true => Some(read_list(scanner)?),
            false => scanner.value().map(|_| None)?,
        };
        let end = start + text.get(start..scanner.at())?.trim_ascii_end().len();
        parts.add(&name, start..end, records);
        Some(())
    })?;
    scanner.is_at_end().then_some(parts)
}

fn read_places(scanner: &mut Scanner) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    scanner.each_item(|scanner| {
        let start = scanner.at();
        scanner.value()?;
        records.push(Record { place: start..scanner.at(), is_broken: false });
        Some(())
    })?;
    Some(records)
}

/// The same by serde_json, in several passes.
fn parse_slowly(text: &str, lists: &[&str]) -> Result<PageParts, PageError> {
    let page: &RawValue = serde_json::from_str(text.get(mark_bytes(text)..).unwrap_or_default())
        .map_err(|error| PageError::NotJson { reason: error.to_string() })?;
    let (mut parts, mut members) = (PageParts::default(), Vec::new());
    read_entries(page.get(), &mut members).ok_or(PageError::NotAnObject)?;
    for member in members {
        let name = unescaped(member.key).text;
        let is_list = shape(member.value) == Shape::List && lists.contains(&&*name);
        let items = is_list.then(|| read_items(member.value)).flatten();
        let record = |item| Record { place: place_of(item, text), is_broken: false };
        parts.add(&name, place_of(member.value, text), items.map(|items| items.into_iter().map(record).collect()));
    }
    Ok(parts)
}

/// Where a slice of a text stands in it.
fn place_of(slice: &str, text: &str) -> Range<usize> {
    let start = (slice.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    start..start + slice.len()
}

/// Bytes of the byte order marks before a text.
fn mark_bytes(text: &str) -> usize {
    text.len() - text.trim_start_matches('\u{feff}').len()
}

#[cfg(test)]
mod tests;
