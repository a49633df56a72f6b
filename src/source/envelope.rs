//! Parses a page's envelope: the number of records, and the page token or the end of the list.

use std::ops::Range;

use crate::{
    model::{EndStyle, PageToken},
    page::{DATA, PageError, PageParts, TOKEN_BYTES_MAX},
};

/// The envelope of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Number of items in `data`.
    pub rows: usize,
    /// The next page token; `None` on the last page.
    pub next: Option<PageToken>,
    /// The form in which the page marks the end of the list; `None` if the page has a next token.
    pub end: Option<EndStyle>,
    /// The byte range of the list `data` in the body.
    pub list: Range<usize>,
    /// Number of items of `data` that are not JSON.
    pub broken: usize,
}

/// Parses a page's envelope. Fields other than `cursor` and `data` are ignored.
///
/// # Errors
/// If the body is not a page with one list `data` and at most one usable `cursor`.
pub fn parse(body: &[u8]) -> Result<Envelope, PageError> {
    let parts = PageParts::parse(body, &[DATA])?;
    if let Some(field) = parts.duplicate {
        return Err(PageError::Duplicate { field });
    }
    parts.check_data()?;
    let list = parts.lists.first().ok_or(PageError::NoData)?;
    let (next, end) = match read_token(parts.cursor.and_then(|cursor| body.get(cursor)))? {
        Ok(token) => (Some(token), None),
        Err(end) => (None, Some(end)),
    };
    let broken = list.records.iter().filter(|record| record.is_broken).count();
    Ok(Envelope { rows: list.records.len(), next, end, list: list.range.clone(), broken })
}

/// Reads the value of `cursor`: the next page token, or the form in which the page marks the end of the list. `raw` is
/// `None` if the member is missing. The inner `Err` is not an error: it is the end of the list. Fails for a value that
/// cannot be sent back as a token.
fn read_token(raw: Option<&[u8]>) -> Result<Result<PageToken, EndStyle>, PageError> {
    let Some(raw) = raw else { return Ok(Err(EndStyle::Missing)) };
    let token = match raw.first() {
        Some(b'n') => return Ok(Err(EndStyle::Null)),
        Some(b'"') => serde_json::from_slice::<String>(raw).map_err(|_| PageError::BadToken)?,
        // A number is outside the contract but usable as a token: its digits become the text of the token.
        Some(b'-' | b'0'..=b'9') => String::from_utf8_lossy(raw).into_owned(),
        _ => return Err(PageError::BadToken),
    };
    match token.len() {
        0 => Ok(Err(EndStyle::EmptyText)),
        1..=TOKEN_BYTES_MAX => Ok(Ok(PageToken(token))),
        _ => Err(PageError::TokenTooLong),
    }
}

#[cfg(test)]
mod tests;
