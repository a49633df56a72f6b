//! Cuts, merges and inserts stored coverage intervals. Pure.

use crate::model::{CoverageInterval, DAY_MS, EndStyles, HOUR_MS, ScanId, Window};

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

    use super::*;
    use crate::model::{EndStyle, FlagSet};

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
