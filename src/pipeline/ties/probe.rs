//! Asks for the rows of one millisecond: all of them, to see what hides behind a page's boundary; and page by page, to measure what
//! the service does at boundaries. Decides nothing: `plan::page_boundaries` does.

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
    plan::page_boundaries::{PageMoments, WalkEnd, judge, measuring_page_rows},
    schema::RECORD_COLUMN,
    source::{Answer, Range, Source, SourceError, WalkStep},
};

use super::super::{PipelineError, threads::blocking};

/// The most pages of a probe: more rows of one millisecond than any page holds are rare, and more than this are none.
const PROBE_PAGES_MAX: usize = 50;
/// Why a probe may lack rows.
const MORE_THAN_A_PAGE: &str = "its rows are more than a page holds";
/// The most pages of a measure.
const MEASURE_PAGES_MAX: usize = 40;
/// A token that comes so often again leads nowhere. Once may be a slip: a service that loses rows and sends a page twice must not be
/// taken for one that repeats them.
const SAME_TOKENS_MAX: usize = 4;

/// Whom to ask, for what.
#[derive(Clone, Debug)]
pub(in super::super) struct Asker {
    pub source: Source,
    pub account: TimeAccount,
    pub scope: Scope,
    pub flags: FlagSet,
    pub rules: DriftRules,
}

/// A page beside the list of a window.
#[derive(Debug)]
pub(in super::super) struct ProbePage {
    pub body: Bytes,
    pub flat: FlatPage,
}

/// What the service has at one millisecond.
#[derive(Debug)]
pub(super) struct TieProbe {
    pub pages: Vec<ProbePage>,
    pub keys: HashSet<u128>,
    /// Whether these are all of its rows; if not, why that is not known.
    pub is_whole: Result<(), &'static str>,
}

/// Why a probe or a measure did not come to its end.
#[derive(Debug)]
pub(in super::super) enum TieProbeError {
    Source(SourceError),
    Run(PipelineError),
}

impl From<PipelineError> for TieProbeError {
    fn from(error: PipelineError) -> Self {
        TieProbeError::Run(error)
    }
}

impl Asker {
    fn request(&self, at_ms: i64, page_rows: u32) -> PageRequest {
        // A time without milliseconds may be a rounded one: the row lies anywhere in that second.
        let length_ms = if at_ms.rem_euclid(SECOND_MS) == 0 { SECOND_MS } else { 1 };
        let window = Window::new(at_ms, at_ms.saturating_add(length_ms));
        PageRequest { scope: self.scope, window, flags: self.flags, page_rows, token: None }
    }

    /// All rows of one millisecond, in pages as large as they may be. `seen_rows`: the service has shown that it puts so many
    /// records of this list on a page; fewer, and nothing behind them, were not cut for their number.
    pub(super) async fn probe(&self, at_ms: i64, seen_rows: usize) -> Result<TieProbe, TieProbeError> {
        let page_rows = self.scope.stream.page_rows_max().unwrap_or(0);
        let mut walk = self.source.walk_moment(self.request(at_ms, page_rows));
        let mut probe = TieProbe { pages: Vec::new(), keys: HashSet::new(), is_whole: Ok(()) };
        // Records up to an boundary that may hide rows of the millisecond, as long as nothing came behind it.
        let mut cut_at = None;
        loop {
            match walk.next().await {
                Ok(WalkStep::Page(page)) => {
                    let flat = self.flatten(page.body.clone()).await?;
                    let moments = moments_of(self.scope.stream, &flat);
                    probe.keys.extend(moments.keys_at(at_ms));
                    if moments.records > 0 && cut_at.take().is_some() {
                        probe.is_whole = Err(MORE_THAN_A_PAGE);
                    }
                    // This page's own boundary may hide rows of the millisecond, and asking for them would be this very request.
                    if page.next.is_some() && moments.records > 0 && moments.last_ms.is_none_or(|last| last == at_ms) {
                        cut_at = Some(page.rows);
                    }
                    probe.pages.push(ProbePage { body: page.body, flat });
                    if page.next.is_none() {
                        if cut_at.is_some_and(|rows| rows >= seen_rows) {
                            probe.is_whole = Err(MORE_THAN_A_PAGE);
                        }
                        return Ok(probe);
                    }
                    if probe.pages.len() >= PROBE_PAGES_MAX {
                        probe.is_whole = Err("asked for alone, it has no end");
                        return Ok(probe);
                    }
                }
                Ok(WalkStep::Restarted { .. }) => cut_at = None,
                // A moment cannot be halved: what was not cut for its number, and is followed by nothing, is all there is.
                Ok(WalkStep::UnprovenEnd) => {
                    let full = seen_rows.max(usize::try_from(page_rows).unwrap_or(usize::MAX));
                    walk.resolve_end(cut_at.is_none_or(|rows| rows <= 1 || rows < full));
                }
                Ok(WalkStep::End(_)) => {
                    // Two walks with different boundaries have agreed on this end: no boundary hid anything. Where no page size can be asked for,
                    // there was one walk.
                    let is_cut = page_rows == 0 && cut_at.is_some_and(|rows| rows > 1 && rows >= seen_rows);
                    probe.is_whole = if is_cut { Err(MORE_THAN_A_PAGE) } else { Ok(()) };
                    return Ok(probe);
                }
                Err(error) => {
                    probe.is_whole = Err(cannot_be_looked_at(error)?);
                    return Ok(probe);
                }
            }
        }
    }

    /// What the service does with rows of this millisecond at the boundaries of pages; `Unknown` if it has fewer than two, or its
    /// answers do not tell.
    pub(in super::super) async fn measure(&self, at_ms: i64) -> Result<Ties, TieProbeError> {
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
            let Answer::Page { page, .. } =
                self.source.ask(&request, Range::Moment).await.map_err(TieProbeError::Source)?
            else {
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

    pub(in super::super) async fn flatten(&self, body: Bytes) -> Result<FlatPage, PipelineError> {
        let (stream, rules, account) = (self.scope.stream, self.rules, self.account.clone());
        blocking(move || {
            let _busy = account.enter(Activity::Parse);
            flatten_page(stream, &body, rules).map_err(PipelineError::Flatten)
        })
        .await?
    }
}

/// An answer that is no page of the millisecond leaves it open; what stops or ends the run does so here too.
fn cannot_be_looked_at(error: SourceError) -> Result<&'static str, TieProbeError> {
    match error {
        SourceError::Looping { .. } => Ok("asked for alone, it has no end"),
        SourceError::TooLarge { .. } | SourceError::TokensDie { .. } => Ok("asked for alone, it does not come whole"),
        SourceError::Refused { .. }
        | SourceError::Forbidden { .. }
        | SourceError::NotFound { .. }
        | SourceError::BadAnswer { .. } => Ok("the service does not answer for it alone"),
        error => Err(TieProbeError::Source(error)),
    }
}

/// The creation times on a page.
pub(in super::super) fn moments_of(stream: Stream, flat: &FlatPage) -> PageMoments {
    let mut rows: Vec<PlacedRow> =
        flat.table(stream.name()).map(|batch| rows_of(batch, &flat.key_hashes)).unwrap_or_default();
    if let Some(discarded) = &flat.discarded {
        // A record that is not wanted stands in the list like any other.
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

struct PlacedRow {
    record: i64,
    /// Whether its table has creation times at all.
    has_time: bool,
    created_ms: Option<i64>,
    key: u128,
}

/// The rows of a base table, in order.
fn rows_of(batch: &RecordBatch, key_hashes: &[u128]) -> Vec<PlacedRow> {
    let created = batch.column_by_name("created_at");
    let created = created.and_then(|column| column.as_primitive_opt::<TimestampMicrosecondType>());
    let records = batch.column_by_name(RECORD_COLUMN).and_then(|column| column.as_primitive_opt::<Int64Type>());
    let Some(records) = records else { return Vec::new() };
    let ms = |at: usize| created.filter(|created| created.is_valid(at)).map(|at_us| at_us.value(at).div_euclid(1000));
    let row = |(at, (record, key)): (usize, (&i64, &u128))| PlacedRow {
        record: *record,
        has_time: created.is_some(),
        created_ms: ms(at),
        key: *key,
    };
    records.values().iter().zip(key_hashes).enumerate().map(row).collect()
}

/// The creation time of a record that has no place in a table, even if it is no JSON.
fn created_ms(raw: &str) -> Option<i64> {
    #[derive(Deserialize)]
    struct Created<'a> {
        #[serde(rename = "createdAt", borrow)]
        created_at: std::borrow::Cow<'a, str>,
    }
    let created = serde_json::from_str::<Created>(raw).ok().map(|created| created.created_at);
    let text = created.or_else(|| {
        let (_, behind) = raw.split_once("\"createdAt\"")?;
        let value = behind.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
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
    fn p3_the_last_record_of_a_page_is_its_edge_whether_it_has_a_place_or_not() {
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
    fn p3_a_record_that_the_drift_rules_discard_still_stands_at_its_edge() {
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
