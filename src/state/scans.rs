//! Stores the unfinished scans: how many durable pages each scan has, and which page is next.
//!
//! Cuts, merges and inserts stored coverage intervals. Pure.

use rusqlite::{Row, params};

use crate::model::{
    CoverageInterval, DAY_MS, DurableStep, EndStyles, FlagSet, HOUR_MS, PageToken, RunId, Scan, ScanId, Scope, Stream,
    Window,
};

use super::{State, StateError, loaded_survey, stored_count, stored_survey};

/// A scan that has begun and has no checkpoint yet. The spool has the scan's pages, perhaps more than `pages`, because
/// not every page updates the row of the scan in this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedScan {
    pub scan: Scan,
    /// Page size of the last request. A run that resumes the scan begins with this size.
    pub page_rows: u32,
    /// Number of durable pages.
    pub pages: u64,
    /// Number of records on the durable pages.
    pub rows: u64,
    /// Token of the page after the durable pages. `None` before the first page and after the last one.
    pub next_page_token: Option<PageToken>,
}

impl State {
    /// Records a scan before its first request. After a power failure, the scan may be missing; then the next run
    /// discards its spool, and its window is due again.
    pub fn begin_scan(&self, scan: &Scan, page_rows: u32) -> Result<(), StateError> {
        self.hit(DurableStep::ScanBegun)?;
        let sql = "INSERT INTO scans (scan_id, run_id, stream, survey_id, start_ms, end_ms, flags, started_ms, page_rows) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let Scan { id, run_id, scope, window, flags, started_ms } = scan;
        let (stream, survey) = (scope.stream.name(), stored_survey(scope.survey_id));
        let row = params![
            id.0,
            run_id.0,
            stream,
            survey,
            window.start_ms,
            window.end_ms,
            flags.bits(),
            started_ms,
            page_rows
        ];
        self.database.execute_unsynced(sql, row).map(drop)
    }

    /// Stores the page size, the numbers of durable pages and rows, and the token of the page after them. `next` is
    /// `None` after the last page of the list.
    pub fn advance_scan(
        &self,
        scan: &ScanId,
        page_rows: u32,
        pages: u64,
        rows: u64,
        next: Option<&PageToken>,
    ) -> Result<(), StateError> {
        self.hit(DurableStep::ScanAdvanced)?;
        let sql =
            "UPDATE scans SET page_rows = ?2, pages = ?3, rows_read = ?4, next_page_token = ?5 WHERE scan_id = ?1";
        let next = next.map(|token| &token.0);
        self.database.execute(sql, (&scan.0, page_rows, stored_count(pages), stored_count(rows), next)).map(drop)
    }

    /// Deletes the row of a scan that will not be committed.
    pub fn forget_scan(&self, scan: &ScanId) -> Result<(), StateError> {
        self.hit(DurableStep::ScanForgotten)?;
        self.database.execute("DELETE FROM scans WHERE scan_id = ?1", [&scan.0]).map(drop)
    }

    /// Returns the unfinished scans, oldest first.
    pub fn unfinished_scans(&self) -> Result<Vec<UnfinishedScan>, StateError> {
        let sql = "SELECT scan_id, run_id, stream, survey_id, start_ms, end_ms, flags, started_ms, page_rows, pages, rows_read, \
                   next_page_token FROM scans ORDER BY scan_id";
        let mut statement = self.database.connection.prepare(sql).map_err(self.database.failed("read"))?;
        let mut rows = statement.query([]).map_err(self.database.failed("read"))?;
        let mut scans = Vec::new();
        while let Some(row) = rows.next().map_err(self.database.failed("read"))? {
            let stream: String = row.get(2).map_err(self.database.failed("read"))?;
            scans.push(read_scan(row, self.parse_stream(&stream)?).map_err(self.database.failed("read"))?);
        }
        Ok(scans)
    }
}

/// Reads a scan from a row of the table `scans`.
fn read_scan(row: &Row<'_>, stream: Stream) -> rusqlite::Result<UnfinishedScan> {
    let count = |index| row.get::<_, i64>(index).map(i64::unsigned_abs);
    Ok(UnfinishedScan {
        scan: Scan {
            id: ScanId(row.get(0)?),
            run_id: RunId(row.get(1)?),
            scope: Scope { stream, survey_id: loaded_survey(row.get(3)?) },
            window: Window::new(row.get(4)?, row.get(5)?),
            flags: FlagSet::from_bits(row.get(6)?),
            started_ms: row.get(7)?,
        },
        page_rows: row.get(8)?,
        pages: count(9)?,
        rows: count(10)?,
        next_page_token: row.get::<_, Option<String>>(11)?.map(PageToken),
    })
}

/// Adjacent intervals are merged if their scans began within this time of each other, so that the file grows with the
/// coverage and not with the number of scans. The merged interval keeps the earlier time.
const MERGE_WITHIN_MS: i64 = HOUR_MS;
/// The maximum length of a merged interval. The sizes of new windows are computed from the mean row density of an
/// interval, which must stay short so that the mean is close to the density at each time.
const MERGED_LEN_MAX_MS: i64 = 31 * DAY_MS;

/// A coverage interval with the scans that read it last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredInterval {
    pub interval: CoverageInterval,
    pub read: LastRead,
}

/// The scans that read an interval last: one scan, or several for a merged interval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRead {
    /// When the earliest of the scans began, in epoch milliseconds by the service's clock. Unlike `scanned_ms`, this
    /// time stays if the interval needs a recheck.
    pub read_ms: i64,
    /// The latest of the scans. `None` if an earlier version of the program did not record it.
    pub scan_id: Option<ScanId>,
    /// Number of scans. 0 if an earlier version of the program did not record it.
    pub scans: u64,
    /// Number of pages of the scans; an estimate if the interval was cut.
    pub pages: u64,
    /// The ways in which the service marked the ends of the lists.
    pub ends: EndStyles,
}

impl StoredInterval {
    /// Returns the piece of the interval inside a window, with an estimated share of the rows and pages. Returns `None`
    /// if interval and window do not overlap.
    pub fn part(&self, window: Window) -> Option<StoredInterval> {
        let interval = self.interval.part(window)?;
        let share = interval.window.len_ms() as f64 / self.interval.window.len_ms() as f64;
        let pages = (self.read.pages as f64 * share).round() as u64;
        Some(StoredInterval { interval, read: LastRead { pages, ..self.read.clone() } })
    }

    /// Returns true if `next` follows directly and can be merged into this interval: equal flags, similar scan times,
    /// and not too long together.
    fn can_merge(&self, next: &StoredInterval) -> bool {
        let (first, next) = (&self.interval, &next.interval);
        first.window.end_ms == next.window.start_ms
            && first.flags == next.flags
            && (first.scanned_ms - next.scanned_ms).abs() <= MERGE_WITHIN_MS
            && next.window.end_ms - first.window.start_ms <= MERGED_LEN_MAX_MS
    }

    /// Extends this interval by the adjacent interval `next`.
    fn merge(&mut self, next: StoredInterval) {
        let interval = &mut self.interval;
        interval.window.end_ms = next.interval.window.end_ms;
        interval.scanned_ms = interval.scanned_ms.min(next.interval.scanned_ms);
        interval.rows += next.interval.rows;
        // Two pieces of one cut interval were read by the same scans, which must not count twice.
        let is_same = self.read.scan_id.is_some() && self.read.scan_id == next.read.scan_id;
        let scans = if is_same { self.read.scans.max(next.read.scans) } else { self.read.scans + next.read.scans };
        self.read = LastRead {
            read_ms: self.read.read_ms.min(next.read.read_ms),
            scan_id: self.read.scan_id.take().max(next.read.scan_id),
            scans,
            pages: self.read.pages + next.read.pages,
            ends: self.read.ends.union(next.read.ends),
        };
    }
}

/// Returns the stored intervals with `new` in place of everything inside its window. The result is disjoint, sorted,
/// and merged where possible. Pure.
pub(super) fn insert_interval(stored: &[StoredInterval], new: StoredInterval) -> Vec<StoredInterval> {
    let before = Window::new(i64::MIN, new.interval.window.start_ms);
    let after = Window::new(new.interval.window.end_ms, i64::MAX);
    let mut intervals: Vec<StoredInterval> =
        stored.iter().flat_map(|interval| [interval.part(before), interval.part(after)]).flatten().collect();
    intervals.push(new);
    intervals.sort_by_key(|stored| stored.interval.window.start_ms);
    let mut merged: Vec<StoredInterval> = Vec::with_capacity(intervals.len());
    for interval in intervals {
        match merged.last_mut() {
            Some(last) if last.can_merge(&interval) => last.merge(interval),
            _ => merged.push(interval),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::model::{EndStyle, FlagSet};

    use super::*;

    fn read(interval: CoverageInterval, scan: i64) -> StoredInterval {
        let ends = [EndStyle::Null].into_iter().collect();
        let scan_id = Some(ScanId(format!("{scan:04}")));
        StoredInterval { interval, read: LastRead { read_ms: interval.scanned_ms, scan_id, scans: 1, pages: 2, ends } }
    }

    fn interval() -> impl Strategy<Value = CoverageInterval> {
        (0..100i64, 1..40i64, 0..3i64, 0..3u8, 0..50u64).prop_map(|(start_ms, len_ms, night, flags, rows)| {
            CoverageInterval {
                window: Window::new(start_ms, start_ms + len_ms),
                flags: FlagSet::from_bits(flags),
                scanned_ms: night * 24 * HOUR_MS,
                rows,
            }
        })
    }

    proptest! {
        /// Each millisecond has the flags and the time of the last interval that contained it.
        #[test]
        fn each_millisecond_has_the_last_inserted_scan(scans in prop::collection::vec(interval(), 1..12)) {
            let mut stored = Vec::new();
            let mut truth = [None; 160];
            for scan in &scans {
                stored = insert_interval(&stored, read(*scan, 7));
                for at in scan.window.start_ms..scan.window.end_ms {
                    truth[at as usize] = Some((scan.flags, scan.scanned_ms));
                }
            }
            for (at, expected) in truth.iter().enumerate() {
                let found: Vec<_> =
                    stored.iter().map(|one| one.interval).filter(|one| one.window.contains(at as i64)).collect();
                prop_assert!(found.len() <= 1);
                prop_assert_eq!(found.first().map(|one| (one.flags, one.scanned_ms)), *expected);
            }
            for pair in stored.windows(2) {
                prop_assert!(pair[0].interval.window.end_ms <= pair[1].interval.window.start_ms);
                prop_assert!(!pair[0].can_merge(&pair[1]));
            }
        }
    }

    #[test]
    fn p8_adjacent_intervals_of_one_run_are_merged() {
        let nightly = |day: i64, scanned_ms| CoverageInterval {
            window: Window::new(day * DAY_MS, (day + 1) * DAY_MS),
            flags: FlagSet::EMPTY,
            scanned_ms,
            rows: 10,
        };
        let mut stored = Vec::new();
        for day in 0..365 {
            stored = insert_interval(&stored, read(nightly(day, 1000 * day), day));
        }
        assert!(stored.len() <= 13, "{} intervals for a year", stored.len());
        assert_eq!(stored.iter().map(|one| one.interval.rows).sum::<u64>(), 3650);
        assert_eq!(stored.iter().map(|one| one.read.scans).sum::<u64>(), 365);
        assert_eq!(stored[0].read.scan_id, Some(ScanId(format!("{:04}", 30))), "the latest of its scans");
    }
}
