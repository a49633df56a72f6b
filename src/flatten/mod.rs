//! Turns the pages of a stream into Arrow batches and rejects. The hot path.
//!
//! Pure: no clock, no IO, no state between pages, and the same bytes always give the same rows. Every record of a page lands, in
//! the stream's base table or in the rejects (promise P1); nothing inside a record can fail the page.
//!
//! A page is read in layers, each by serde_json's scanner and one level deep: the envelope into records (`page`), a record
//! into fields that are slices of the page (`fields`), a field into the cell that its column's type demands (`json`,
//! `timestamp`). No DOM is built, and what does not fit its column is still at hand as it was sent (`extra`).

use std::borrow::Cow;

use arrow::error::ArrowError;

use crate::model::{FlatPage, Reject, RejectReason, Stream, TableBatch};

use self::{fields::Unplaceable, json::Entry, responses::ResponseTables, surveys::SurveyTables, themes::ThemeTables};

mod answer;
mod answer_key;
mod choices;
mod content_hash;
mod extra;
mod fields;
#[cfg(fuzzing)]
pub mod fuzzing;
mod json;
mod labelled;
mod max_diff;
mod media;
mod meta;
mod page;
mod question_type;
mod questions;
mod responses;
mod snapshots;
mod surveys;
mod table_builder;
mod themes;
mod timestamp;

/// The largest body, in bytes: far above any page of a service, and far below what Arrow's offsets can address. With it, and a
/// bound on the rows of child tables, no text column can overflow.
pub const PAGE_BYTES_MAX: usize = 256 << 20;

/// Bytes of a record, to guess how many a page holds.
const RECORD_BYTES_LIKELY: usize = 400;

/// Why a whole page could not be flattened. No record of a service can cause one of these.
#[derive(Debug, thiserror::Error)]
pub enum FlattenError {
    /// The body is not the JSON of a list call. The source has checked it, so the archive may be damaged.
    #[error("the page is not the JSON of a list call")]
    NotAPage(#[source] serde_json::Error),
    /// The envelope has no `data`: an error of the service, and never an empty page.
    #[error("the page has no list of records")]
    NoData,
    /// The body is larger than [`PAGE_BYTES_MAX`].
    #[error("the page has {bytes} bytes, more than {PAGE_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// This module and the contracts in `schemas/` disagree: a bug.
    #[error("the rows of the page do not follow the contract of their table")]
    Contract(#[source] ArrowError),
}

/// Flattens one page body of a stream. Every record lands, in a batch or in the rejects; invalid UTF-8 becomes U+FFFD.
///
/// # Errors
///
/// If the body is too large, or is not a JSON object with a list `data`.
pub fn flatten_page(stream: Stream, body: &[u8]) -> Result<FlatPage, FlattenError> {
    if body.len() > PAGE_BYTES_MAX {
        return Err(FlattenError::TooLarge { bytes: body.len() });
    }
    // The one check of the encoding; from here on serde_json takes the text as it is.
    let text = match std::str::from_utf8(body) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => String::from_utf8_lossy(body),
    };
    match stream {
        Stream::Responses => flatten_text::<ResponseTables>(&text),
        Stream::Surveys => flatten_text::<SurveyTables>(&text),
        Stream::Themes => flatten_text::<ThemeTables>(&text),
    }
}

/// The tables of a stream under construction.
trait RecordTables<'a>: Sized {
    /// Empty tables, with room for so many records.
    fn new(records: usize) -> Result<Self, ArrowError>;

    /// Appends the rows of a record, given its place in the page, from 0. The hash of the base row's key is returned. Nothing is
    /// appended when it fails.
    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, Unplaceable>;

    /// Appends the batches of the tables that have rows.
    fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<(), ArrowError>;
}

fn flatten_text<'a, T: RecordTables<'a>>(text: &'a str) -> Result<FlatPage, FlattenError> {
    if let Some(flat) = flatten_objects::<T>(text).map_err(FlattenError::Contract)? {
        return Ok(flat);
    }
    let records = page::read_records(text).map_err(FlattenError::NotAPage)?.ok_or(FlattenError::NoData)?;
    flatten_records::<T>(&records).map_err(FlattenError::Contract)
}

/// One scan over a page of which every record can be placed, as nearly every page is. `None` for any other page: the text of a
/// record to reject is not known here.
fn flatten_objects<'a, T: RecordTables<'a>>(text: &'a str) -> Result<Option<FlatPage>, ArrowError> {
    let records_likely = text.len() / RECORD_BYTES_LIKELY;
    let mut tables = T::new(records_likely)?;
    let mut flat = FlatPage::default();
    flat.key_hashes.reserve(records_likely);
    let is_whole = page::for_each_object(text, |entries| {
        let placed = tables.append(flat.records as i64, entries);
        flat.records += 1;
        placed.map(|key_hash| flat.key_hashes.push(key_hash)).is_ok()
    });
    if !is_whole {
        return Ok(None);
    }
    tables.finish_into(&mut flat.batches)?;
    Ok(Some(flat))
}

/// Any page, record by record.
fn flatten_records<'a, T: RecordTables<'a>>(records: &[&'a str]) -> Result<FlatPage, ArrowError> {
    let mut tables = T::new(records.len())?;
    let mut flat = FlatPage { records: records.len(), ..FlatPage::default() };
    flat.key_hashes.reserve(records.len());
    let mut entries = Vec::new();
    for (ordinal, raw) in records.iter().copied().enumerate() {
        entries.clear();
        let outcome = match json::read_entries(raw, &mut entries) {
            Some(()) => tables.append(ordinal as i64, &entries),
            None => Err(Unplaceable { reason: RejectReason::NotAnObject, field: "data" }),
        };
        match outcome {
            Ok(key_hash) => flat.key_hashes.push(key_hash),
            Err(Unplaceable { reason, field }) => flat.rejects.push(Reject { reason, field, raw: raw.to_owned() }),
        }
    }
    tables.finish_into(&mut flat.batches)?;
    Ok(flat)
}
