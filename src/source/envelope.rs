//! What a page says about the list that it belongs to: how many records came, and where the list goes on or how it ended.

use std::ops::Range;

use crate::{
    model::{EndStyle, PageToken},
    page::{DATA, PageError, PageParts, TOKEN_BYTES_MAX},
};

/// What a page says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Items in `data`.
    pub rows: usize,
    /// Where to continue.
    pub next: Option<PageToken>,
    /// How the end of the list was said; present exactly when `next` is not.
    pub end: Option<EndStyle>,
    /// Where the list `data` stands in the body, in bytes.
    pub list: Range<usize>,
    /// Items of `data` that are no JSON.
    pub broken: usize,
}

/// Reads a page's envelope. Fields other than `cursor` and `data` are ignored.
///
/// # Errors
/// If the body is no page with one list `data` and at most one `cursor` that can be sent back.
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
    Ok(Envelope { rows: list.records.len(), next, end, list: list.place.clone(), broken })
}

/// The page token, or how the end was said.
fn read_token(raw: Option<&[u8]>) -> Result<Result<PageToken, EndStyle>, PageError> {
    let Some(raw) = raw else { return Ok(Err(EndStyle::Missing)) };
    let token = match raw.first() {
        Some(b'n') => return Ok(Err(EndStyle::Null)),
        Some(b'"') => serde_json::from_slice::<String>(raw).map_err(|_| PageError::BadToken)?,
        // Not in the contract, but unmistakable. The digits stay as they came.
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
