//! Parses pages of list calls, `{"cursor": ..., "data": [...]}`: finds the byte ranges of the page token and of the
//! records. The records are not parsed. The whole program uses this parser.
//!
//! A [`Scanner`] reads a page in one pass. If the scanner refuses the text, serde_json reads the text and describes the
//! error. Neither of the two parsers recurses, so records may be nested to any depth.
//!
//! A page with records that are not JSON is accepted if it is certain where these records end (`damaged`).

mod damaged;
mod parts;

use std::ops::Range;

use serde_json::value::RawValue;
use thiserror::Error;

use self::parts::mark_bytes;
pub(crate) use self::parts::scan;
pub use self::parts::{DATA, PageParts, PageRecord, RecordList};
use crate::json::{Scanner, read_entries, read_items, unescaped};

/// Maximum bytes of a page token, because the address of the next request contains it.
pub const TOKEN_BYTES_MAX: usize = 4096;

/// The reason why a body is not a page.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PageError {
    #[error("the body is not UTF-8: byte {at} is wrong")]
    NotUtf8 { at: usize },
    /// The text is not JSON; it may have been cut off.
    #[error("the body is not JSON: {reason}")]
    NotJson { reason: String },
    #[error("the body is not a JSON object")]
    NotAnObject,
    /// `data` is missing. A page without `data` is no proof that there are no records.
    #[error("the body has no 'data'")]
    NoData,
    #[error("'data' is not a list")]
    DataNotAList,
    /// `cursor` is neither null nor a string nor a number, or has a lone surrogate, which JSON allows and an address
    /// does not.
    #[error("'cursor' is neither null nor a text that can be sent back")]
    BadToken,
    #[error("'cursor' is longer than {TOKEN_BYTES_MAX} bytes")]
    TokenTooLong,
    /// A member occurs twice, and no rule says which value counts.
    #[error("the body has '{field}' twice")]
    Duplicate { field: &'static str },
}

impl PageParts {
    /// Parses a page. `lists` names the members whose items are records; for a page of the service this is [`DATA`]. A
    /// missing list is no error here; [`Self::check_data`] checks for it.
    ///
    /// # Errors
    /// If the body is not a JSON object. A body with broken records is accepted if it is certain where these records
    /// end; then only [`DATA`] is a list of records, whatever `lists` names.
    pub fn parse(body: &[u8], lists: &[&str]) -> Result<Self, PageError> {
        let parsed = match std::str::from_utf8(body) {
            Ok(text) => scan(text, lists, read_ranges).map_or_else(|| parse_with_serde(text, lists), Ok),
            Err(error) => Err(PageError::NotUtf8 { at: error.valid_up_to() }),
        };
        match parsed {
            Err(error @ (PageError::NotUtf8 { .. } | PageError::NotJson { .. })) => damaged::parse(body).ok_or(error),
            parsed => parsed,
        }
    }

    /// Checks the member `data`.
    ///
    /// # Errors
    /// If `data` is missing or not a list.
    pub fn check_data(&self) -> Result<(), PageError> {
        match (self.has_data, self.has_other_data) {
            (false, _) => Err(PageError::NoData),
            (true, true) => Err(PageError::DataNotAList),
            (true, false) => Ok(()),
        }
    }
}

/// Reads a list of records and returns their byte ranges.
fn read_ranges(scanner: &mut Scanner) -> Option<Vec<PageRecord>> {
    let mut records = Vec::new();
    scanner.each_item(|scanner| {
        let start = scanner.position();
        scanner.value()?;
        records.push(PageRecord { range: start..scanner.position(), is_broken: false });
        Some(())
    })?;
    Some(records)
}

/// Parses a page that the scanner refused, with serde_json and in several passes.
fn parse_with_serde(text: &str, lists: &[&str]) -> Result<PageParts, PageError> {
    let page: &RawValue = serde_json::from_str(text.get(mark_bytes(text)..).unwrap_or_default())
        .map_err(|error| PageError::NotJson { reason: error.to_string() })?;
    let (mut parts, mut members) = (PageParts::default(), Vec::new());
    read_entries(page.get(), &mut members).ok_or(PageError::NotAnObject)?;
    for member in members {
        let name = unescaped(member.key).text;
        let items = lists.contains(&&*name).then(|| read_items(member.value)).flatten();
        let record = |item| PageRecord { range: range_of(item, text), is_broken: false };
        parts.add(&name, range_of(member.value, text), items.map(|items| items.into_iter().map(record).collect()));
    }
    Ok(parts)
}

/// Returns the byte range of a slice in its text.
fn range_of(slice: &str, text: &str) -> Range<usize> {
    let start = (slice.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    start..start + slice.len()
}

#[cfg(test)]
mod tests;
