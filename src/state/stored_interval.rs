//! Stretches of creation time: how a scan is laid over those that are known. Pure.

use crate::model::{CoverageInterval, DAY_MS, EndStyles, HOUR_MS, ScanId, Window};

/// Neighbours scanned within this time of each other are kept as one interval, so that the file grows with the coverage
/// and not with the number of scans. The interval counts as scanned at the earlier time.
const MERGE_WITHIN_MS: i64 = HOUR_MS;
/// Stretches are not merged beyond this length: each keeps a density of its own, by which windows are sized.
const MERGED_LEN_MAX_MS: i64 = 31 * DAY_MS;

/// An interval of creation time that was proven complete, with how it was last read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredInterval {
    pub interval: CoverageInterval,
    pub read: LastRead,
}

/// The scans that read an interval last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastRead {
    /// When the earliest of them began, by the service's clock; epoch milliseconds. A doubt does not set it back.
    pub read_ms: i64,
    /// The latest of them; `None` where it was not noted.
    pub scan_id: Option<ScanId>,
    /// How many there were; 0 where that was not noted.
    pub scans: u64,
    /// Their pages; an estimate where an interval was cut.
    pub pages: u64,
    /// How the service said each time that there was no more.
    pub ends: EndStyles,
}

impl StoredInterval {
    /// The part of the interval inside a window, with its share of the rows and pages.
    pub fn part(&self, window: Window) -> Option<StoredInterval> {
        let interval = self.interval.part(window)?;
        let share = interval.window.len_ms() as f64 / self.interval.window.len_ms() as f64;
        let pages = (self.read.pages as f64 * share).round() as u64;
        Some(StoredInterval { interval, read: LastRead { pages, ..self.read.clone() } })
    }

    /// Whether the two can be kept as one.
    fn touches(&self, next: &StoredInterval) -> bool {
        let (held, next) = (&self.interval, &next.interval);
        held.window.end_ms == next.window.start_ms
            && held.flags == next.flags
            && (held.scanned_ms - next.scanned_ms).abs() <= MERGE_WITHIN_MS
            && next.window.end_ms - held.window.start_ms <= MERGED_LEN_MAX_MS
    }

    fn take_in(&mut self, next: StoredInterval) {
        let interval = &mut self.interval;
        interval.window.end_ms = next.interval.window.end_ms;
        interval.scanned_ms = interval.scanned_ms.min(next.interval.scanned_ms);
        interval.rows += next.interval.rows;
        // The parts of an interval that was cut are of the same scans.
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

/// The intervals with one more scan laid over them, disjoint, sorted and merged. Pure.
pub(super) fn insert_interval(held: &[StoredInterval], scan: StoredInterval) -> Vec<StoredInterval> {
    let before = Window::new(i64::MIN, scan.interval.window.start_ms);
    let after = Window::new(scan.interval.window.end_ms, i64::MAX);
    let mut intervals: Vec<StoredInterval> =
        held.iter().flat_map(|stored| [stored.part(before), stored.part(after)]).flatten().collect();
    intervals.push(scan);
    intervals.sort_by_key(|stored| stored.interval.window.start_ms);
    let mut merged: Vec<StoredInterval> = Vec::with_capacity(intervals.len());
    for stored in intervals {
        match merged.last_mut() {
            Some(last) if last.touches(&stored) => last.take_in(stored),
            _ => merged.push(stored),
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
        /// Each millisecond knows the last scan that covered it, or an earlier time where neighbours were merged.
        #[test]
        fn coverage_is_what_was_laid_over_it_last(scans in prop::collection::vec(interval(), 1..12)) {
            let mut held = Vec::new();
            let mut truth = [None; 160];
            for scan in &scans {
                held = insert_interval(&held, read(*scan, 7));
                for at in scan.window.start_ms..scan.window.end_ms {
                    truth[at as usize] = Some((scan.flags, scan.scanned_ms));
                }
            }
            for (at, expected) in truth.iter().enumerate() {
                let found: Vec<_> = held.iter().filter(|held| held.interval.window.contains(at as i64)).collect();
                prop_assert!(found.len() <= 1);
                prop_assert_eq!(found.first().map(|held| (held.interval.flags, held.interval.scanned_ms)), *expected);
            }
            for pair in held.windows(2) {
                prop_assert!(pair[0].interval.window.end_ms <= pair[1].interval.window.start_ms);
                prop_assert!(!pair[0].touches(&pair[1]));
            }
        }
    }

    #[test]
    fn p8_neighbours_of_one_run_are_kept_as_one_interval() {
        let nightly = |day: i64, scanned_ms| CoverageInterval {
            window: Window::new(day * DAY_MS, (day + 1) * DAY_MS),
            flags: FlagSet::EMPTY,
            scanned_ms,
            rows: 10,
        };
        let mut held = Vec::new();
        for day in 0..365 {
            held = insert_interval(&held, read(nightly(day, 1000 * day), day));
        }
        assert!(held.len() <= 13, "{} intervals for a year", held.len());
        assert_eq!(held.iter().map(|stored| stored.interval.rows).sum::<u64>(), 3650);
        assert_eq!(held.iter().map(|stored| stored.read.scans).sum::<u64>(), 365);
        assert_eq!(held[0].read.scan_id, Some(ScanId(format!("{:04}", 30))), "the latest of its scans");
    }
}
