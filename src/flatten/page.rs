//! Reads the records of a page. [`for_each_object`] yields the members of each record in one pass. [`read_records`]
//! yields the text of each record and accepts records that are not JSON. Both functions read every list `data` of a
//! page.

use crate::{
    json::{Entry, escape_invalid_utf8, take_entries},
    page::{DATA, PageError, PageParts, scan},
};

/// Calls `accept` with the index and the members of each record in order for which `is_wanted` returns true, until
/// `accept` returns false. Returns the number of all records if `accept` returned true for all wanted records, each of
/// these is an object, and the page is well-formed. If the result is `None`, the caller reads the page with
/// [`read_records`].
pub(super) fn for_each_object<'a>(
    text: &'a str,
    is_wanted: impl Fn(i64) -> bool,
    mut accept: impl FnMut(i64, &[Entry<'a>]) -> bool,
) -> Option<usize> {
    let (mut entries, mut records) = (Vec::new(), 0_usize);
    let parts = scan(text, &[DATA], |scanner| {
        scanner.each_item(|scanner| {
            let record = records as i64;
            records += 1;
            if !is_wanted(record) {
                return scanner.value().map(drop);
            }
            entries.clear();
            take_entries(scanner, &mut entries)?;
            accept(record, &entries).then_some(())
        })?;
        // The byte ranges of the records are not needed.
        Some(Vec::new())
    });
    parts.filter(|parts| parts.check_data().is_ok()).map(|_| records)
}

/// A record of a page as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RawRecord<'a> {
    /// The exact text of a record that is JSON.
    Json(&'a str),
    /// The bytes of a record that is not JSON, as text.
    Broken(String),
}

/// Returns the records of a page in order, valid or not. Fails if the page has no list `data` or its envelope is no
/// JSON.
pub(super) fn read_records(body: &[u8]) -> Result<Vec<RawRecord<'_>>, PageError> {
    let parts = PageParts::parse(body, &[DATA])?;
    parts.check_data()?;
    let records = parts.records().map(|record| {
        let bytes = body.get(record.range.clone()).unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok(text) if !record.is_broken => RawRecord::Json(text),
            _ => RawRecord::Broken(escape_invalid_utf8(bytes)),
        }
    });
    Ok(records.collect())
}
