//! Reads the records of a page. [`for_each_object`] yields the members of each record in one pass. [`read_records`]
//! yields the text of each record and accepts records that are not JSON. If a page has several lists `data`, all of
//! them are read.

use super::FlattenError;
use crate::{
    json::{Entry, shown, take_entries},
    page::{DATA, PageError, PageParts, scan},
};

/// Calls `take` with the members of each record in order, until `take` returns `false`. Returns true if `take` accepted
/// all records, every record is an object, and the page is well-formed. Otherwise use [`read_records`].
pub(super) fn for_each_object<'a>(text: &'a str, mut take: impl FnMut(&[Entry<'a>]) -> bool) -> bool {
    let mut entries = Vec::new();
    let parts = scan(text, &[DATA], |scanner| {
        scanner.each_item(|scanner| {
            entries.clear();
            take_entries(scanner, &mut entries)?;
            take(&entries).then_some(())
        })?;
        // Nobody asks for their places.
        Some(Vec::new())
    });
    parts.is_some_and(|parts| parts.check_data().is_ok())
}

/// A record of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed<'a> {
    /// Its exact text.
    Json(&'a str),
    /// Its bytes as text, if it is not JSON.
    Broken(String),
}

/// The records, in order.
pub(super) fn read_records(body: &[u8]) -> Result<Vec<Listed<'_>>, FlattenError> {
    let parts = PageParts::parse(body, &[DATA]).map_err(FlattenError::NotAPage)?;
    parts.check_data().map_err(|error| match error {
        PageError::NoData => FlattenError::NoData,
        other => FlattenError::NotAPage(other),
    })?;
    let records = parts.records().map(|record| {
        let bytes = body.get(record.place.clone()).unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok(text) if !record.is_broken => Listed::Json(text),
            _ => Listed::Broken(shown(bytes)),
        }
    });
    Ok(records.collect())
}
