//! Takes a page of a list call apart, `{"cursor": ..., "data": [...]}`: the one parser of everybody who looks into a
//! page. It says where the page token and the records stand. What a record holds is for others to read.
//!
//! A [`Scanner`] reads a page in one pass. A text that the scanner does not accept is read by serde_json, which also
//! says what is wrong with it. Neither recurses, so records may be nested to any depth.
//!
//! A page of which single records are no JSON is a page all the same, as long as it is certain which they are
//! (`damaged`).

mod damaged;
mod parts;

use std::ops::Range;

use serde_json::value::RawValue;
use thiserror::Error;

use self::parts::mark_bytes;
pub(crate) use self::parts::scan;
pub use self::parts::{DATA, List, PageParts, Record};
use crate::json::{Scanner, Shape, read_entries, read_items, shape, unescaped};

/// The longest page token that is accepted, in bytes: the next request's address contains it.
pub const TOKEN_BYTES_MAX: usize = 4096;

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
    /// `cursor` is neither null nor text nor a number, or a text with half of a surrogate pair, which is legal JSON and
    /// cannot be sent.
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
    /// Takes a page apart. `lists` names the members whose items are records; [`DATA`] is the one of a service's page.
    /// A page without any of them has no lists, and is no error here: [`Self::check_data`] tells.
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
}

/// Reads a list of records; returns their places.
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

/// Takes a page apart by serde_json, in several passes.
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

#[cfg(test)]
mod tests;
