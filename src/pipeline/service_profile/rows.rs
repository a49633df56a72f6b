//! The rows of a page, with every time by which the service could filter them.
//!
//! Reads a list of a few rows to its end.

use std::collections::HashMap;

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _},
    datatypes::TimestampMicrosecondType,
};

use crate::{
    model::{EndStyle, FlatPage, PageRequest, RowTime, SECOND_MS, Stream, Window},
    pipeline::error::PipelineError,
    source::{Answer, Range},
};

use super::tie_probe::{MomentRequester, moments_of};

/// Times of a row that differ by at most this much count as equal, because the service may round them.
const SAME_MS: i64 = 2 * SECOND_MS;
/// Rows at most this far from a row are listed with it when the row's creation time is requested.
const NEAR_MS: i64 = 2;

/// The times of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct RowTimes {
    /// The hash of the row's key.
    pub key: u128,
    pub created_ms: i64,
    /// The times other than the creation time that the row has, in epoch milliseconds.
    pub others: Vec<(RowTime, i64)>,
}

impl RowTimes {
    /// Returns the times that differ from the creation time by more than rounding.
    pub fn distinct_times(&self) -> impl Iterator<Item = (RowTime, i64)> + '_ {
        self.others.iter().copied().filter(|(_, at_ms)| (at_ms - self.created_ms).abs() > SAME_MS)
    }
}

/// Returns the rows of a page that have a creation time, in order. The session time of a row is the earliest creation
/// time of the session's rows on the page.
pub(super) fn rows_of(stream: Stream, flat: &FlatPage) -> Vec<RowTimes> {
    let Some(batch) = flat.table(stream.name()) else { return Vec::new() };
    let times = |name: &str| batch.column_by_name(name).map(moments).unwrap_or_default();
    let at = |times: &[Option<i64>], row: usize| times.get(row).copied().flatten();
    let (created, updated, launched) = (times("created_at"), times("updated_at"), times("launched_at"));
    let sessions = batch.column_by_name("response_group_uid").and_then(|column| column.as_string_opt::<i32>());
    let mut first: HashMap<&str, i64> = HashMap::new();
    for (row, session) in sessions.iter().flat_map(|sessions| sessions.iter().enumerate()) {
        let Some((session, created_ms)) = session.zip(at(&created, row)) else { continue };
        let start_ms = first.entry(session).or_insert(created_ms);
        *start_ms = created_ms.min(*start_ms);
    }
    let session_of =
        |row: usize| sessions.filter(|sessions| sessions.is_valid(row)).map(|sessions| sessions.value(row));
    let read = |(row, key): (usize, &u128)| {
        let session_ms = session_of(row).and_then(|session| first.get(session).copied());
        let others = [
            (RowTime::Updated, at(&updated, row)),
            (RowTime::Session, session_ms),
            (RowTime::Launched, at(&launched, row)),
        ];
        let others = others.into_iter().filter_map(|(time, at_ms)| Some((time, at_ms?))).collect();
        Some(RowTimes { key: *key, created_ms: at(&created, row)?, others })
    };
    flat.key_hashes.iter().enumerate().filter_map(read).collect()
}

/// Returns the times of a column in epoch milliseconds.
fn moments(column: &ArrayRef) -> Vec<Option<i64>> {
    let times = column.as_primitive_opt::<TimestampMicrosecondType>();
    times.map(|times| times.iter().map(|at_us| at_us.map(|at_us| at_us.div_euclid(1000))).collect()).unwrap_or_default()
}

/// Returns the row that shows best by which time the service filters. Returns `None` without rows.
///
/// Rows are ranked by the number of distinct times, by having no other row close to them, and by the distance from the
/// middle of the page. The page may lack rows of the first and the last session.
pub(super) fn most_informative(rows: &[RowTimes]) -> Option<&RowTimes> {
    let mut created: Vec<i64> = rows.iter().map(|row| row.created_ms).collect();
    created.sort_unstable();
    let near = |at_ms: i64| {
        let from = created.partition_point(|other| *other < at_ms - NEAR_MS);
        created.partition_point(|other| *other <= at_ms + NEAR_MS) - from
    };
    let middle = rows.len() / 2;
    let rank = |(index, row): &(usize, &RowTimes)| {
        let is_alone = near(row.created_ms) <= 1;
        (row.distinct_times().count(), is_alone, std::cmp::Reverse(index.abs_diff(middle)))
    };
    rows.iter().enumerate().max_by_key(rank).map(|(_, row)| row)
}

/// The maximum number of pages that are read of a small list.
const PAGES_MAX: usize = 4;

/// A list of a few rows.
pub(super) struct SmallList {
    /// True if the list has the row of the reader's key.
    pub has_row: bool,
    /// Number of rows on the pages that were read.
    pub rows: usize,
    /// How the service marked the end of the list. `None` if the end was not reached.
    pub end: Option<EndStyle>,
    /// True if an empty page or a 404 follows the first page.
    pub has_trailing_empty_page: bool,
}

/// Reads lists of a few rows, and looks for one row in them.
pub(super) struct SmallListReader<'a> {
    pub requester: &'a MomentRequester,
    /// The page size of requests, for streams with page sizes.
    pub page_rows: u32,
    /// The key hash of the row to look for.
    pub key: u128,
}

impl SmallListReader<'_> {
    /// Reads the list of a window of a few milliseconds, at most [`PAGES_MAX`] pages. `range` says how exactly the
    /// client requests the ends of the window. If a request fails, returns the list so far, without an end.
    pub async fn read(&self, window: Window, range: Range) -> Result<SmallList, PipelineError> {
        let Self { requester, key, .. } = self;
        let page_rows = requester.scope.stream.page_rows_max().map_or(0, |max| max.min(self.page_rows));
        let mut request =
            PageRequest { scope: requester.scope, window, flags: requester.flags, page_rows, token: None };
        let mut list = SmallList { has_row: false, rows: 0, end: None, has_trailing_empty_page: false };
        for page_index in 0..PAGES_MAX {
            match requester.source.ask(&request, range).await? {
                Answer::Page(page) => {
                    let flat = requester.flatten(page.body).await?;
                    let moments = moments_of(requester.scope.stream, &flat);
                    list.has_row |= moments.rows.iter().any(|(_, other)| other == key);
                    list.rows += page.rows;
                    list.has_trailing_empty_page = page_index > 0 && page.rows == 0;
                    list.end = page.end;
                    request.token = page.next;
                    if request.token.is_none() {
                        break;
                    }
                }
                Answer::Rejected { status: 404, is_web_page: false } => {
                    (list.end, list.has_trailing_empty_page) = (Some(EndStyle::NotFound), page_index > 0);
                    break;
                }
                Answer::Rejected { .. } | Answer::Failed(_) => break,
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: u128, created_ms: i64, updated_ms: i64, session_ms: i64) -> RowTimes {
        RowTimes { key, created_ms, others: vec![(RowTime::Updated, updated_ms), (RowTime::Session, session_ms)] }
    }

    #[test]
    fn the_row_with_most_distinct_times_is_chosen() {
        let rows = [row(1, 10_000, 10_000, 10_000), row(2, 20_000, 90_000, 20_000), row(3, 30_000, 90_000, 20_000)];
        assert_eq!(most_informative(&rows).map(|row| row.key), Some(3));
        assert_eq!(most_informative(&rows[..2]).map(|row| row.key), Some(2));
        // A row with another one close to it is not alone in its list.
        let rows = [row(1, 10_000, 10_000, 10_000), row(2, 10_001, 10_001, 10_001), row(3, 50_000, 50_000, 50_000)];
        assert_eq!(most_informative(&rows).map(|row| row.key), Some(3));
        assert_eq!(most_informative(&[]), None);
        assert_eq!(rows[0].distinct_times().count(), 0);
    }
}
