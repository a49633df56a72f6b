//! Turns the pages of a stream into Arrow batches and rejects. Every record of a run passes this module, so its speed
//! matters.
//!
//! Pure: no clock, no IO, no state between pages; the same bytes always give the same rows. Every record of a page
//! becomes a row of the stream's base table or a reject (promise P1). No content of a record can fail the page.
//!
//! Three layers read a page with the scanner of `crate::json`, each layer one level of JSON. The module `page` splits
//! the page into records. `fields` splits a record into fields, which are slices of the page. `crate::json` parses a
//! field as the type of its column. No tree of values (DOM) is built. The exact text of a value that does not fit its
//! column goes to the column `extra`.
//!
//! A record that is not JSON becomes a reject.
//!
//! Unknown fields and values are recorded as drift (`drift`). A page with records that the drift rules discard is read
//! a second time without these records, because a record must be read to its end to find its drift.

use std::{borrow::Cow, str::Utf8Error};

use arrow::{
    array::{AsArray as _, BooleanArray, RecordBatch},
    compute::filter_record_batch,
    datatypes::Int64Type,
    error::ArrowError,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    json::{self, Entry},
    model::{DiscardedRows, DriftRules, FlatPage, PageDetail, Reject, RejectReason, Stream},
    page::PageError,
    schema::RECORD_COLUMN,
    text::bytes_without_mark,
};

use self::{
    drift::{DiscardedRecords, DriftLog},
    fields::KeyError,
    page::RawRecord,
    responses::ResponseTables,
    surveys::SurveyTables,
    table_builder::{ColumnSet, RecordTables},
    themes::ThemeTables,
    users::UserTables,
};

mod answer;
mod child_rows;
mod drift;
mod enumerations;
mod extra;
mod fields;
#[cfg(fuzzing)]
pub mod fuzzing;
mod meta;
mod page;
mod questions;
mod responses;
mod snapshots;
mod surveys;
mod table_builder;
mod themes;
mod users;
mod webhooks;

pub use webhooks::{BodySummary, FlatDeliveries, body_hash, flatten_deliveries, flatten_stored_events, summarize_body};

/// Maximum bytes of a body: far above any real page, and far below the range of Arrow's offsets. This limit and the
/// limit on the rows of child tables keep text columns from overflowing.
pub const PAGE_BYTES_MAX: usize = 256 << 20;

/// The field name of a reject that concerns the complete record.
const DATA: Cow<'static, str> = Cow::Borrowed("data");

/// Typical bytes of a record, to estimate the records of a page.
const RECORD_BYTES_LIKELY: usize = 400;

/// The reason why a complete page could not be flattened. No content of a record can cause these errors.
#[derive(Debug, thiserror::Error)]
pub enum FlattenError {
    /// The body is not the JSON of a list call. The module `source` has checked each new page, so the archive may be
    /// damaged.
    #[error("the page is not the JSON of a list call")]
    NotAPage(#[source] PageError),
    /// The envelope has no `data`. Such a page is an error of the service, not an empty page.
    #[error("the page has no list of records")]
    NoData,
    /// The body is larger than [`PAGE_BYTES_MAX`].
    #[error("the page has {bytes} bytes, more than {PAGE_BYTES_MAX}")]
    TooLarge {
        /// The size of the body.
        bytes: usize,
    },
    /// A bug: this module and the contracts in `schemas/` disagree.
    #[error("the rows of the page do not follow the contract of their table")]
    Contract(#[from] ArrowError),
}

impl From<PageError> for FlattenError {
    fn from(error: PageError) -> Self {
        match error {
            PageError::NoData => FlattenError::NoData,
            other => FlattenError::NotAPage(other),
        }
    }
}

/// Flattens the body of one page. Every record becomes a row or a reject, as the drift rules say. The mode `freeze`
/// gives the same rows as `evolve`. But if the returned `drift` has an entry with the fate `Frozen`, the caller must
/// not apply the scan.
///
/// # Errors
///
/// If the body is too large, or is not a JSON object with a list `data`. Also if this module does not follow a table
/// contract, which is a bug.
pub fn flatten_page(stream: Stream, body: &[u8], rules: DriftRules) -> Result<FlatPage, FlattenError> {
    flatten_in_detail(stream, body, rules, &PageDetail::Rows)
}

/// Flattens the body of one page, but builds only the rows and columns of `detail`. What is built equals the same part
/// of the page that [`flatten_page`] returns. One exception: a session's snapshot is in a row of `visitor_snapshots`
/// for the earliest response with this snapshot among the records of `detail`. For a set of no records, returns an
/// empty page without reading the body.
///
/// # Errors
///
/// As [`flatten_page`].
pub fn flatten_in_detail(
    stream: Stream,
    body: &[u8],
    rules: DriftRules,
    detail: &PageDetail,
) -> Result<FlatPage, FlattenError> {
    if matches!(detail, PageDetail::Records(records) if records.is_empty()) {
        return Ok(FlatPage::default());
    }
    if body.len() > PAGE_BYTES_MAX {
        return Err(FlattenError::TooLarge { bytes: body.len() });
    }
    // The encoding is checked only here, once for the complete page.
    let body = bytes_without_mark(body);
    let text = std::str::from_utf8(body);
    let options = Options { rules, detail };
    match stream {
        Stream::Responses => flatten_body::<ResponseTables>(stream, body, text, options),
        Stream::Surveys => flatten_body::<SurveyTables>(stream, body, text, options),
        Stream::Themes => flatten_body::<ThemeTables>(stream, body, text, options),
        Stream::Users => {
            let flat = flatten_body::<UserTables>(stream, body, text, options)?;
            Ok(FlatPage { absent: text.map(users::read_absent).unwrap_or_default(), ..flat })
        }
    }
}

/// Returns the hash of the value of a rejected record: the same however the service spells the JSON. A text that is not
/// JSON is hashed as it is.
pub fn reject_hash(reject: &Reject) -> u128 {
    let mut value = Vec::with_capacity(reject.raw.len());
    json::write_canonical(&reject.raw, &[], &mut value);
    xxh3_128(&value)
}

/// The drift rules, and what is built of a page.
#[derive(Clone, Copy)]
struct Options<'d> {
    rules: DriftRules,
    detail: &'d PageDetail,
}

impl Options<'_> {
    /// Returns empty tables and an empty page with capacity for the rows of a page of this many records.
    fn begin<'a, T: RecordTables<'a>>(self, records: usize) -> Result<(T, FlatPage), ArrowError> {
        let (rows, columns) = match self.detail {
            PageDetail::Rows => (records, ColumnSet::All),
            PageDetail::Summary => (records, ColumnSet::Summary),
            PageDetail::Records(wanted) => (wanted.len(), ColumnSet::All),
        };
        let is_summary = columns == ColumnSet::Summary;
        let page = FlatPage { is_summary, key_hashes: Vec::with_capacity(rows), ..FlatPage::default() };
        Ok((T::new(rows, self.rules, columns)?, page))
    }
}

/// A flattened page, and the records that the drift rules discard.
type FlatAndDiscarded = (FlatPage, DiscardedRecords);

/// Flattens a page into the tables `T`. Tries one fast pass first; a page with rejects is read again record by record.
/// If the drift rules discard records, the page is read once more without them.
fn flatten_body<'a, T: RecordTables<'a>>(
    stream: Stream,
    body: &'a [u8],
    text: Result<&'a str, Utf8Error>,
    options: Options<'_>,
) -> Result<FlatPage, FlattenError> {
    let fast = match text {
        Ok(text) => flatten_objects::<T>(text, options)?,
        Err(_) => None,
    };
    let (flat, discarded_records) = match fast {
        Some(result) => result,
        None => flatten_records::<T>(&page::read_records(body)?, options, &DiscardedRecords::new())?,
    };
    if discarded_records.is_empty() {
        return Ok(flat);
    }
    let (remaining, _) = flatten_records::<T>(&page::read_records(body)?, options, &discarded_records)?;
    let discarded = discarded_rows(stream, &flat, &discarded_records)?;
    Ok(FlatPage { discarded, drift: flat.drift, ..remaining })
}

/// Flattens a page in one pass. Returns `None` if the page has rejects or is malformed, which is rare. A reject needs
/// the text of its record, which the fast pass does not have.
fn flatten_objects<'a, T: RecordTables<'a>>(
    text: &'a str,
    options: Options<'_>,
) -> Result<Option<FlatAndDiscarded>, ArrowError> {
    let records_likely = text.len() / RECORD_BYTES_LIKELY;
    let (mut tables, mut flat) = options.begin::<T>(records_likely)?;
    let is_wanted = |record| options.detail.includes(record);
    let records = page::for_each_object(text, is_wanted, |record, entries| {
        tables.append(record, entries).map(|key_hash| flat.key_hashes.push(key_hash)).is_ok()
    });
    let Some(records) = records else { return Ok(None) };
    flat.records = records;
    finish(tables, flat).map(Some)
}

/// Flattens any page record by record. The records in `to_discard` become rejects.
fn flatten_records<'a, T: RecordTables<'a>>(
    records: &[RawRecord<'a>],
    options: Options<'_>,
    to_discard: &DiscardedRecords,
) -> Result<FlatAndDiscarded, ArrowError> {
    let (mut tables, mut flat) = options.begin::<T>(records.len())?;
    flat.records = records.len();
    let mut entries = Vec::new();
    for (index, record) in (0_i64..).zip(records).filter(|(index, _)| options.detail.includes(*index)) {
        let raw = match record {
            RawRecord::Json(raw) => *raw,
            RawRecord::Broken(raw) => {
                flat.rejects.push(Reject { reason: RejectReason::NotJson, field: DATA, raw: raw.clone() });
                continue;
            }
        };
        entries.clear();
        let outcome = match (to_discard.get(&index), json::read_entries(raw, &mut entries)) {
            (Some((reason, field)), _) => Err((*reason, Cow::Owned(field.clone()))),
            (None, Some(())) => tables.append(index, &entries).map_err(|error| {
                report_unreadable_key(tables.drift(), index, error, &entries);
                (error.reason, Cow::Borrowed(error.field))
            }),
            (None, None) => {
                tables.drift().add_unreadable(index, "", raw);
                Err((RejectReason::NotAnObject, DATA))
            }
        };
        match outcome {
            Ok(key_hash) => flat.key_hashes.push(key_hash),
            Err((reason, field)) => flat.rejects.push(Reject { reason, field, raw: raw.to_owned() }),
        }
    }
    let (flat, mut discarded) = finish(tables, flat)?;
    // A record without a row is already a reject, because of its key. The drift rules do not reject it again.
    discarded.retain(|record, _| has_row(&flat, *record));
    Ok((flat, discarded))
}

fn has_row(flat: &FlatPage, record: i64) -> bool {
    let base = flat.batches.first();
    base.and_then(|base| records_column(&base.rows)).is_some_and(|records| records.binary_search(&record).is_ok())
}

/// Adds the finished batches and the drift to `flat`. Also returns the records that the drift rules discard.
fn finish<'a, T: RecordTables<'a>>(tables: T, mut flat: FlatPage) -> Result<FlatAndDiscarded, ArrowError> {
    let log = tables.finish_into(&mut flat)?;
    let discarded;
    (flat.drift, discarded) = log.finish();
    Ok((flat, discarded))
}

/// Records drift for a key field with an unreadable value. A missing key field is not drift.
fn report_unreadable_key(drift: &mut DriftLog, record: i64, error: KeyError, entries: &[Entry]) {
    if error.reason == RejectReason::BadKey {
        let is_key = |entry: &&Entry| extra::canonical_key(entry.key) == error.field;
        if let Some(entry) = entries.iter().rev().find(is_key) {
            drift.add_unreadable(record, error.field, entry.value);
        }
    }
}

/// Returns the base-table rows of the records that the drift rules discard (`discarded`). The scan needs their keys and
/// times, because the service still has these records. `flat` is the page with all records. Returns `None` if its base
/// table has no rows.
fn discarded_rows(
    stream: Stream,
    flat: &FlatPage,
    discarded: &DiscardedRecords,
) -> Result<Option<DiscardedRows>, ArrowError> {
    let Some(base) = flat.table(stream.name()) else { return Ok(None) };
    let records = records_column(base).unwrap_or_default();
    let is_discarded: Vec<bool> = records.iter().map(|record| discarded.contains_key(record)).collect();
    let rows = flat.key_hashes.iter().zip(&is_discarded);
    let key_hashes = rows.filter(|(_, is_discarded)| **is_discarded).map(|(hash, _)| *hash).collect();
    Ok(Some(DiscardedRows { rows: filter_record_batch(base, &BooleanArray::from(is_discarded))?, key_hashes }))
}

fn records_column(rows: &RecordBatch) -> Option<&[i64]> {
    let column = rows.column_by_name(RECORD_COLUMN)?.as_primitive_opt::<Int64Type>()?;
    Some(column.values())
}

#[cfg(test)]
mod detail_tests;
