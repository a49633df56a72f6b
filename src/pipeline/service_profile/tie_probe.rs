//! Requests the rows of one millisecond: in the largest pages as a tie probe, or in small pages to measure how the
//! service treats ties. `plan::page_boundaries` evaluates the rows that were found.

use std::collections::HashSet;

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::{Int64Type, TimestampMicrosecondType},
};
use bytes::Bytes;
use serde::Deserialize;

use crate::{
    flatten::flatten_page,
    model::{
        Activity, DriftRules, FlagSet, FlatPage, PageRequest, SECOND_MS, Scope, Stream, Ties, TimeAccount, Window,
    },
    pipeline::{error::PipelineError, threads::blocking},
    plan::page_boundaries::{PageMoments, WalkEnd, judge, measuring_page_rows},
    schema::RECORD_COLUMN,
    source::{Answer, Range, Source, SourceError, WalkStep},
};

/// The maximum number of pages of a probe. A longer list counts as endless.
const PROBE_PAGES_MAX: usize = 50;
/// Reason why a probe may lack rows: a page limit may have cut the list of the millisecond.
const MORE_THAN_A_PAGE: &str = "its rows are more than a page holds";
/// The maximum number of pages of a measure.
const MEASURE_PAGES_MAX: usize = 40;
/// Number of repeated page tokens after which a measure takes the list for a loop. A single repetition proves no loop:
/// a service that loses rows may send a page twice.
const SAME_TOKENS_MAX: usize = 4;

/// Sends requests for the rows of one millisecond in one scope. For a time without milliseconds, the whole second is
/// requested.
#[derive(Clone, Debug)]
pub struct MomentRequester {
    pub source: Source,
    pub account: TimeAccount,
    pub scope: Scope,
    pub flags: FlagSet,
    pub rules: DriftRules,
}

/// A page of a tie probe.
#[derive(Debug)]
pub struct ProbePage {
    pub body: Bytes,
    pub flat: FlatPage,
}

/// The rows that a tie probe found at one millisecond.
#[derive(Debug)]
pub struct TieProbe {
    pub pages: Vec<ProbePage>,
    /// Hashes of the keys of the rows that were created at the millisecond.
    pub keys: HashSet<u128>,
    /// `Ok` if the probe shows all rows of the millisecond, otherwise the reason why rows may be missing.
    pub is_complete: Result<(), &'static str>,
}

impl MomentRequester {
    /// Creates the request for the rows of a millisecond, or of the whole second if `at_ms` is a whole second.
    fn request(&self, at_ms: i64, page_rows: u32) -> PageRequest {
        // A time without milliseconds may be rounded, so the row may be anywhere in that second.
        let length_ms = if at_ms.rem_euclid(SECOND_MS) == 0 { SECOND_MS } else { 1 };
        let window = Window::new(at_ms, at_ms.saturating_add(length_ms));
        PageRequest { scope: self.scope, window, flags: self.flags, page_rows, token: None }
    }

    /// Requests all rows of one millisecond, with the largest page size. A failed request leads to an incomplete probe;
    /// only errors that are not about the millisecond are returned.
    ///
    /// `seen_rows` is the number of records on an earlier page of the list, which shows how many records a page can
    /// have. A last page with fewer records was not cut by a page limit.
    pub async fn probe(&self, at_ms: i64, seen_rows: usize) -> Result<TieProbe, PipelineError> {
        let page_rows = self.scope.stream.page_rows_max().unwrap_or(0);
        let mut walk = self.source.walk_moment(self.request(at_ms, page_rows));
        let mut probe = TieProbe { pages: Vec::new(), keys: HashSet::new(), is_complete: Ok(()) };
        // Number of records on the latest page whose boundary may hide rows of the millisecond. `None` if no page has
        // such a boundary, or if a later page had records.
        let mut rows_before_cut = None;
        loop {
            match walk.next().await {
                Ok(WalkStep::Page(page)) => {
                    let flat = self.flatten(page.body.clone()).await?;
                    let moments = moments_of(self.scope.stream, &flat);
                    probe.keys.extend(moments.keys_at(at_ms));
                    if moments.records > 0 && rows_before_cut.take().is_some() {
                        probe.is_complete = Err(MORE_THAN_A_PAGE);
                    }
                    // The boundary of this page may hide rows of the millisecond. A probe of that boundary would only
                    // repeat this request.
                    if page.next.is_some() && moments.records > 0 && moments.last_ms.is_none_or(|last| last == at_ms) {
                        rows_before_cut = Some(page.rows);
                    }
                    probe.pages.push(ProbePage { body: page.body, flat });
                    if page.next.is_none() {
                        if rows_before_cut.is_some_and(|rows| rows >= seen_rows) {
                            probe.is_complete = Err(MORE_THAN_A_PAGE);
                        }
                        return Ok(probe);
                    }
                    if probe.pages.len() >= PROBE_PAGES_MAX {
                        probe.is_complete = Err("asked for alone, it has no end");
                        return Ok(probe);
                    }
                }
                Ok(WalkStep::Restarted { .. }) => rows_before_cut = None,
                // A millisecond cannot be halved, so the last page decides: a page below the page limit was not cut.
                Ok(WalkStep::UnprovenEnd) => {
                    let full = seen_rows.max(usize::try_from(page_rows).unwrap_or(usize::MAX));
                    walk.resolve_end(rows_before_cut.is_none_or(|rows| rows <= 1 || rows < full));
                }
                Ok(WalkStep::End(_)) => {
                    // The walk has confirmed this end with two page sizes, so no boundary hid rows. Without a page size
                    // parameter there is no such confirmation.
                    let is_cut = page_rows == 0 && rows_before_cut.is_some_and(|rows| rows > 1 && rows >= seen_rows);
                    probe.is_complete = if is_cut { Err(MORE_THAN_A_PAGE) } else { Ok(()) };
                    return Ok(probe);
                }
                Err(error) => {
                    probe.is_complete = Err(probe_failure(error)?);
                    return Ok(probe);
                }
            }
        }
    }

    /// Measures how the service treats the rows of a millisecond at page boundaries: compares the list in small pages
    /// with the list in the largest pages. Returns `Unknown` for a stream without page sizes, for fewer than two rows,
    /// or if the answers are inconclusive.
    pub async fn measure(&self, at_ms: i64) -> Result<Ties, PipelineError> {
        if self.scope.stream.page_rows_max().is_none() {
            return Ok(Ties::Unknown);
        }
        let all = self.probe(at_ms, 0).await?.keys;
        if all.len() < 2 {
            return Ok(Ties::Unknown);
        }
        let mut request = self.request(at_ms, measuring_page_rows(all.len()));
        let (mut walked, mut tokens, mut pages, mut same_tokens) = (Vec::new(), HashSet::new(), 0, 0);
        let end = loop {
            if pages >= MEASURE_PAGES_MAX {
                break WalkEnd::BrokenOff;
            }
            let Answer::Page(page) = self.source.ask(&request, Range::Moment).await? else {
                break WalkEnd::BrokenOff;
            };
            let flat = self.flatten(page.body).await?;
            walked.extend(moments_of(self.scope.stream, &flat).rows.iter().map(|(_, key)| *key));
            pages += 1;
            let Some(token) = page.next else { break WalkEnd::OfResults };
            same_tokens += usize::from(!tokens.insert(token.clone()));
            if same_tokens >= SAME_TOKENS_MAX {
                break WalkEnd::Loop;
            }
            request.token = Some(token);
        };
        Ok(judge(&all, &walked, pages, end))
    }

    /// Parses a page to rows.
    pub async fn flatten(&self, body: Bytes) -> Result<FlatPage, PipelineError> {
        let (stream, rules, account) = (self.scope.stream, self.rules, self.account.clone());
        blocking(move || {
            let _busy = account.enter(Activity::Parse);
            flatten_page(stream, &body, rules).map_err(PipelineError::Flatten)
        })
        .await?
    }
}

/// Returns the reason why the millisecond cannot be probed. Errors that are not about the millisecond are returned as
/// errors.
fn probe_failure(error: SourceError) -> Result<&'static str, PipelineError> {
    match error {
        SourceError::Looping { .. } => Ok("asked for alone, it has no end"),
        SourceError::TooLarge { .. } | SourceError::TokensDie { .. } => {
            Ok("asked for alone, it does not come complete")
        }
        SourceError::Refused { .. }
        | SourceError::Forbidden { .. }
        | SourceError::NotFound { .. }
        | SourceError::BadAnswer { .. } => Ok("the service does not answer for it alone"),
        error => Err(PipelineError::Source(error)),
    }
}

/// Returns the creation times and key hashes of the rows on a page, and the creation time of the last record. Discarded
/// records count, too. A reject has no row; its time is read only if it is the last record.
pub fn moments_of(stream: Stream, flat: &FlatPage) -> PageMoments {
    let mut rows: Vec<RowMoment> =
        flat.table(stream.name()).map(|batch| rows_of(batch, &flat.key_hashes)).unwrap_or_default();
    if let Some(discarded) = &flat.discarded {
        // Discarded records are part of the service's list, too.
        rows.extend(rows_of(&discarded.rows, &discarded.key_hashes));
        rows.sort_unstable_by_key(|row| row.record);
    }
    let last_ms = match rows.last() {
        Some(last) if last.record + 1 == flat.records as i64 => last.created_ms,
        _ => flat.rejects.last().and_then(|reject| created_ms(&reject.raw)),
    };
    let rows = rows.into_iter().filter(|row| row.has_time).map(|row| (row.created_ms, row.key)).collect();
    PageMoments::new(rows, last_ms, flat.records)
}

/// The creation time of one row on a page.
struct RowMoment {
    /// The position of the record on the page.
    record: i64,
    /// True if the table of the row has creation times.
    has_time: bool,
    /// Creation time in epoch milliseconds. `None` if the record lacks it.
    created_ms: Option<i64>,
    /// Hash of the row's key.
    key: u128,
}

/// Returns the creation times of the rows of a stream's main table, in order. `key_hashes` has one hash for each row.
fn rows_of(batch: &RecordBatch, key_hashes: &[u128]) -> Vec<RowMoment> {
    let created = batch.column_by_name("created_at");
    let created = created.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    let records = batch.column_by_name(RECORD_COLUMN).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let Some(records) = records else { return Vec::new() };
    let ms =
        |row: usize| created.filter(|created| created.is_valid(row)).map(|created| created.value(row).div_euclid(1000));
    let row = |(index, (record, key)): (usize, (&i64, &u128))| RowMoment {
        record: *record,
        has_time: created.is_some(),
        created_ms: ms(index),
        key: *key,
    };
    records.values().iter().zip(key_hashes).enumerate().map(row).collect()
}

/// Returns the creation time of a rejected record in epoch milliseconds. Reads the text after `"createdAt"` if the
/// record is not valid JSON. Returns `None` if there is no valid time.
fn created_ms(raw: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Created<'a> {
        #[serde(rename = "createdAt", borrow)]
        created_at: std::borrow::Cow<'a, str>,
    }
    let created = serde_json::from_str::<Created>(raw).ok().map(|created| created.created_at);
    let text = created.or_else(|| {
        let (_, rest) = raw.split_once("\"createdAt\"")?;
        let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
        value.split_once('"').map(|(text, _)| text.into())
    })?;
    chrono::DateTime::parse_from_rfc3339(&text).ok().map(|at| at.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::DriftMode;

    fn moments(body: &str) -> PageMoments {
        moments_of(Stream::Themes, &flatten_page(Stream::Themes, body.as_bytes(), DriftRules::default()).unwrap())
    }

    fn theme(id: u32, created_at: &str) -> String {
        format!(r#"{{"id":{id},"responseGroupUid":"a","questionId":1,"createdAt":"{created_at}"}}"#)
    }

    #[test]
    fn p3_the_last_record_is_the_page_boundary_even_if_rejected() {
        let [first, second] = [theme(1, "1970-01-01T00:00:00.007Z"), theme(2, "1970-01-01T00:00:00.0079Z")];
        let page = moments(&format!(r#"{{"data":[{first},{second}],"cursor":"x"}}"#));
        assert_eq!(page.last_ms, Some(7), "microseconds are cut");
        assert!(page.is_boundary_shared() && page.keys_at(7).len() == 2 && page.tie_ms == Some(7));
        let no_key = r#"{"id":3,"createdAt":"1970-01-01T00:00:00.009Z"}"#;
        let page = moments(&format!(r#"{{"data":[{first},{no_key}]}}"#));
        assert_eq!((page.rows.len(), page.last_ms), (1, Some(9)));
        let page = moments(&format!(r#"{{"data":[{first},{{"id":3}}]}}"#));
        assert_eq!((page.records > 0, page.last_ms), (true, None), "it must not be taken for the row before");
        assert_eq!(moments(r#"{"data":[]}"#).records, 0);
        let broken = r#"{"id":NaN,"createdAt": "1970-01-01T00:00:00.009Z","theme":"cut"#;
        let page = moments(&format!(r#"{{"data":[{first},{broken}],"cursor":"x"}}"#));
        assert_eq!((page.records, page.rows.len(), page.last_ms), (2, 1, Some(9)));
    }

    #[test]
    fn p3_a_discarded_record_still_counts_for_the_page_boundary() {
        let [first, last] = [theme(1, "1970-01-01T00:00:00.007Z"), theme(3, "1970-01-01T00:00:00.007Z")];
        let new = theme(2, "1970-01-01T00:00:00.007Z").replacen('{', r#"{"new":1,"#, 1);
        for records in [[&first, &new, &last], [&first, &last, &new], [&new, &first, &last]] {
            let body = format!(r#"{{"data":[{},{},{}]}}"#, records[0], records[1], records[2]);
            let by = |unknown_fields| {
                let rules = DriftRules { unknown_fields, ..DriftRules::default() };
                moments_of(Stream::Themes, &flatten_page(Stream::Themes, body.as_bytes(), rules).unwrap())
            };
            let (kept, discarded) = (by(DriftMode::Evolve), by(DriftMode::DiscardRow));
            assert_eq!((&discarded.rows, discarded.last_ms), (&kept.rows, Some(7)), "{body}");
            assert_eq!(discarded.keys_at(7).len(), 3);
        }
    }
}
