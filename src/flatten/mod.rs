//! Turns the pages of a stream into Arrow batches and rejects. The hot path.
//!
//! Pure: no clock, no IO, no state between pages; the same bytes always give the same rows. Every record of a page
//! becomes a row of the stream's base table or a reject (promise P1). No content of a record can fail the page.
//!
//! A page is read in layers, each by the scanner of `crate::json` and one level deep: the envelope into records
//! (`page`), a record into fields that are slices of the page (`fields`), a field into the cell that its column's type
//! demands (`crate::json`). No DOM is built, and what does not fit its column is still at hand as it was sent
//! (`extra`).
//!
//! A record that is not JSON is identified by its index in the page and becomes a reject.
//!
//! Unknown fields and values are recorded as drift (`drift`). A page with records that the drift rules discard is read
//! a second time without these records, because a record must be read to its end to find its drift.

use std::{borrow::Cow, collections::BTreeMap, str::Utf8Error};

use arrow::{
    array::{AsArray as _, BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::Int64Type,
    error::ArrowError,
};

use crate::{
    json::{self, Entry},
    model::{DiscardedRows, DriftRules, FlatPage, Reject, RejectReason, Stream, TableBatch},
    page::PageError,
    schema::RECORD_COLUMN,
    text::bytes_without_mark,
};

use self::{
    drift::{Doom, DriftLog},
    fields::Unplaceable,
    page::Listed,
    responses::ResponseTables,
    surveys::SurveyTables,
    themes::ThemeTables,
    users::UserTables,
};

mod answer;
mod answer_key;
mod attributes;
mod choices;
mod drift;
mod enumeration;
mod extra;
mod fields;
#[cfg(fuzzing)]
pub mod fuzzing;
mod labelled;
mod max_diff;
mod media;
mod met;
mod meta;
mod page;
mod question_type;
mod questions;
mod responses;
mod scalar;
mod snapshots;
mod surveys;
mod table_builder;
mod themes;
mod users;
mod webhooks;

pub use webhooks::{FlatDeliveries, Told, body_hash, flatten_deliveries, flatten_stored, tell};

/// Maximum bytes of a body: far above any real page, and far below the range of Arrow's offsets. Together with the
/// bound on the rows of child tables it keeps text columns from overflowing.
pub const PAGE_BYTES_MAX: usize = 256 << 20;

/// The field name of a reject that concerns the complete record.
const DATA: Cow<'static, str> = Cow::Borrowed("data");

/// Typical bytes of a record, to estimate the records of a page.
const RECORD_BYTES_LIKELY: usize = 400;

/// The reason why a complete page could not be flattened. No content of a record can cause these errors.
#[derive(Debug, thiserror::Error)]
pub enum FlattenError {
    /// The body is not the JSON of a list call. The source has checked it, so the archive may be damaged.
    #[error("the page is not the JSON of a list call")]
    NotAPage(#[source] PageError),
    /// The envelope has no `data`: a service error, not an empty page.
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

/// Flattens one page body of a stream by its drift rules. Every record becomes a row or a reject. The caller enforces
/// `freeze`: the rows are those of `evolve`, and `drift` shows whether the window has to be frozen.
///
/// # Errors
///
/// If the body is too large, or is not a JSON object with a list `data`.
pub fn flatten_page(stream: Stream, body: &[u8], rules: DriftRules) -> Result<FlatPage, FlattenError> {
    if body.len() > PAGE_BYTES_MAX {
        return Err(FlattenError::TooLarge { bytes: body.len() });
    }
    // The one check of the encoding; from here on serde_json takes the text as it is.
    let body = bytes_without_mark(body);
    let text = std::str::from_utf8(body);
    match stream {
        Stream::Responses => flatten_body::<ResponseTables>(stream, body, text, rules),
        Stream::Surveys => flatten_body::<SurveyTables>(stream, body, text, rules),
        Stream::Themes => flatten_body::<ThemeTables>(stream, body, text, rules),
        Stream::Users => {
            let flat = flatten_body::<UserTables>(stream, body, text, rules)?;
            Ok(FlatPage { absent: text.map(users::absent_of).unwrap_or_default(), ..flat })
        }
    }
}

/// The tables of a stream under construction.
trait RecordTables<'a>: Sized {
    /// Empty tables with capacity for this many records.
    fn new(records: usize, rules: DriftRules) -> Result<Self, ArrowError>;

    /// Appends the rows of a record and returns the hash of its base row's key. `record` is the index in the page, from
    /// 0. An error appends nothing.
    fn append(&mut self, record: i64, entries: &[Entry<'a>]) -> Result<u128, Unplaceable>;

    /// The drift so far.
    fn drift(&mut self) -> &mut DriftLog;

    /// Appends the batches of the tables that have rows.
    fn finish_into(self, batches: &mut Vec<TableBatch>) -> Result<DriftLog, ArrowError>;
}

/// A flattened page, and the records that the rules discard.
type Read = (FlatPage, BTreeMap<i64, Doom>);

fn flatten_body<'a, T: RecordTables<'a>>(
    stream: Stream,
    body: &'a [u8],
    text: Result<&'a str, Utf8Error>,
    rules: DriftRules,
) -> Result<FlatPage, FlattenError> {
    let first = match text {
        Ok(text) => flatten_objects::<T>(text, rules).map_err(FlattenError::Contract)?,
        Err(_) => None,
    };
    let (flat, doomed) = match first {
        Some(read) => read,
        None => {
            flatten_records::<T>(&page::read_records(body)?, rules, &BTreeMap::new()).map_err(FlattenError::Contract)?
        }
    };
    if doomed.is_empty() {
        return Ok(flat);
    }
    let (kept, _) = flatten_records::<T>(&page::read_records(body)?, rules, &doomed).map_err(FlattenError::Contract)?;
    let discarded = discarded_of(stream, &flat, &doomed).map_err(FlattenError::Contract)?;
    Ok(FlatPage { discarded, drift: flat.drift, ..kept })
}

/// Reads a page without rejects in one pass, as nearly every page is. Returns `None` for other pages: a reject needs
/// the text of its record, which is unknown here.
fn flatten_objects<'a, T: RecordTables<'a>>(text: &'a str, rules: DriftRules) -> Result<Option<Read>, ArrowError> {
    let records_likely = text.len() / RECORD_BYTES_LIKELY;
    let mut tables = T::new(records_likely, rules)?;
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
    finish(tables, flat).map(Some)
}

/// Reads any page record by record, without the records to discard.
fn flatten_records<'a, T: RecordTables<'a>>(
    records: &[Listed<'a>],
    rules: DriftRules,
    doomed: &BTreeMap<i64, Doom>,
) -> Result<Read, ArrowError> {
    let mut tables = T::new(records.len(), rules)?;
    let mut flat = FlatPage { records: records.len(), ..FlatPage::default() };
    flat.key_hashes.reserve(records.len());
    let mut entries = Vec::new();
    for (ordinal, record) in records.iter().enumerate() {
        let ordinal = ordinal as i64;
        let raw = match record {
            Listed::Json(raw) => *raw,
            Listed::Broken(raw) => {
                flat.rejects.push(Reject { reason: RejectReason::NotJson, field: DATA, raw: raw.clone() });
                continue;
            }
        };
        entries.clear();
        let outcome = match (doomed.get(&ordinal), json::read_entries(raw, &mut entries)) {
            (Some((reason, field)), _) => Err((*reason, Cow::Owned(field.clone()))),
            (None, Some(())) => tables.append(ordinal, &entries).map_err(|unplaceable| {
                note_unplaceable(tables.drift(), ordinal, unplaceable, &entries);
                (unplaceable.reason, Cow::Borrowed(unplaceable.field))
            }),
            (None, None) => {
                tables.drift().note_unplaceable(ordinal, "", raw);
                Err((RejectReason::NotAnObject, DATA))
            }
        };
        match outcome {
            Ok(key_hash) => flat.key_hashes.push(key_hash),
            Err((reason, field)) => flat.rejects.push(Reject { reason, field, raw: raw.to_owned() }),
        }
    }
    let (flat, mut doomed) = finish(tables, flat)?;
    // A record that is rejected for its key is not rejected twice.
    doomed.retain(|record, _| has_row(&flat, *record));
    Ok((flat, doomed))
}

fn has_row(flat: &FlatPage, record: i64) -> bool {
    let base = flat.batches.first();
    base.and_then(|base| records_column(&base.rows)).is_some_and(|records| records.binary_search(&record).is_ok())
}

fn finish<'a, T: RecordTables<'a>>(tables: T, mut flat: FlatPage) -> Result<Read, ArrowError> {
    let log = tables.finish_into(&mut flat.batches)?;
    let doomed;
    (flat.drift, doomed) = log.finish();
    Ok((flat, doomed))
}

/// Records drift for a key field with an unreadable value. A missing key field is not drift.
fn note_unplaceable(drift: &mut DriftLog, record: i64, unplaceable: Unplaceable, entries: &[Entry]) {
    if unplaceable.reason == RejectReason::BadKey {
        let is_at_fault = |entry: &&Entry| extra::canonical_key(entry.key) == unplaceable.field;
        if let Some(entry) = entries.iter().rev().find(is_at_fault) {
            drift.note_unplaceable(record, unplaceable.field, entry.value);
        }
    }
}

/// The base rows that the discarded records would have had.
fn discarded_of(
    stream: Stream,
    flat: &FlatPage,
    doomed: &BTreeMap<i64, Doom>,
) -> Result<Option<DiscardedRows>, ArrowError> {
    let Some(base) = flat.table(stream.name()) else { return Ok(None) };
    let is_doomed: Vec<bool> =
        records_column(base).unwrap_or_default().iter().map(|record| doomed.contains_key(record)).collect();
    let key_hashes = flat.key_hashes.iter().zip(&is_doomed).filter(|(_, is_doomed)| **is_doomed).map(|(hash, _)| *hash);
    let key_hashes = key_hashes.collect();
    Ok(Some(DiscardedRows { rows: filter_record_batch(base, &BooleanArray::from(is_doomed))?, key_hashes }))
}

/// The records that the rows of a batch came from, in order.
fn records_column(rows: &RecordBatch) -> Option<&[i64]> {
    let column = rows.column_by_name(RECORD_COLUMN)?.as_primitive_opt::<Int64Type>()?;
    Some(column.values())
}
