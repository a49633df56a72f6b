//! Cuts due intervals into windows of some tens of pages each, so that a failed window is cheap. A window ends at UTC
//! midnight, or at a round time if it is shorter than a day, unless its interval or the month ends before. The cutter
//! learns the row density from each scan.
//!
//! A window that the service cannot deliver is returned again in two halves. If only one half succeeds, a record in the
//! other half is the cause, and only the windows around the record get short. Otherwise the window was too long: the
//! next windows are shorter, until enough of them succeeded.

use std::collections::VecDeque;

use chrono::{DateTime, Datelike, NaiveDate};

use crate::model::{CoverageInterval, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Window};

use super::{Due, Reason};

/// Target pages per window: enough that the short last page costs little, few enough that a failed window is cheap.
const PAGES_AIM: u64 = 24;
/// A window is at most this many times as long as the longest scanned one. A scan with few rows, such as one of a quiet
/// night, says little about the row density of other times.
const GROWTH_MAX: i64 = 4;
/// A window is at most this many times as long as a scanned window with at least one page of rows. Such a scan shows
/// the row density more reliably than one with fewer rows.
const GROWTH_DENSE_MAX: i64 = 12;
/// The longest month, and so the longest window.
const MONTH_MAX_MS: i64 = 31 * DAY_MS;
/// The shortest window of a plan.
const LEN_MIN_MS: i64 = MINUTE_MS;
/// The shortest half of a failed window.
const HALF_MIN_MS: i64 = SECOND_MS;
/// Window lengths below a day, so that windows end at round times. Each is at most [`GROWTH_MAX`] times the next
/// shorter one: after a scan with few rows, windows grow at most by this factor, so with a wider gap, windows that
/// became short would stay short.
const LENGTHS_MS: [i64; 9] = [
    12 * HOUR_MS,
    6 * HOUR_MS,
    3 * HOUR_MS,
    HOUR_MS,
    30 * MINUTE_MS,
    10 * MINUTE_MS,
    5 * MINUTE_MS,
    2 * MINUTE_MS,
    MINUTE_MS,
];
/// Number of windows that must succeed after a window that was too long, before longer windows are tried again. The
/// number doubles each time a window was too long, up to [`SUCCESSES_MAX`].
const SUCCESSES_MIN: u32 = 2;
/// The maximum number of successful windows before longer ones are tried again.
const SUCCESSES_MAX: u32 = 64;

/// A failed window that is returned again in two halves.
#[derive(Clone, Copy, Debug)]
struct Halved {
    window: Window,
    /// End of the first half and start of the second, in epoch milliseconds.
    middle_ms: i64,
    /// Number of halves that succeeded.
    succeeded: u32,
    /// Number of halves that failed.
    failed: u32,
}

/// The shortest window that the service could not deliver because of its length.
#[derive(Clone, Copy, Debug)]
struct TooLong {
    /// Length of the window.
    len_ms: i64,
    /// Number of windows that must succeed before this length is tried again.
    successes_needed: u32,
}

/// Cuts a window in two halves at a full minute or second; `None` if the window is shorter than two seconds.
pub fn halves(window: Window) -> Option<[Window; 2]> {
    let unit_ms = if window.len_ms() >= 2 * MINUTE_MS { MINUTE_MS } else { HALF_MIN_MS };
    let half_ms = window.len_ms() / 2 / unit_ms * unit_ms;
    let middle_ms = window.start_ms + half_ms;
    (half_ms > 0).then(|| [Window::new(window.start_ms, middle_ms), Window::new(middle_ms, window.end_ms)])
}

/// Cuts due intervals into windows, and returns them one by one, most urgent first.
#[derive(Clone, Debug)]
pub struct Cutter {
    /// The intervals that are not cut into windows yet, most urgent first.
    due: VecDeque<Due>,
    /// Halves of windows, which are not cut further. The last element is returned next.
    halves: Vec<Due>,
    /// Failed windows that were halved, until both halves have succeeded or failed.
    halved: Vec<Halved>,
    /// `None` if no window was too long, or enough shorter ones have succeeded.
    too_long: Option<TooLong>,
    /// How often windows were found to be too long.
    too_long_count: u32,
    /// The coverage by earlier scans, with their numbers of rows.
    covered: Vec<CoverageInterval>,
    /// Page size in rows.
    page_rows: u64,
    /// Rows per millisecond to assume for times that no earlier scan covered. Begins with the density of the newest
    /// coverage or of a sample; each scan of this run is averaged in.
    learned: Option<f64>,
    /// Rows per millisecond of all earlier scans together, or of a sample; `None` if there is neither.
    mean: Option<f64>,
    /// The current maximum length of a window.
    len_max_ms: i64,
    /// The maximum number of expected rows of a window.
    rows_max: u64,
    /// True if the row density is known from an earlier scan, from a sample, or from a scan of this run with at least
    /// one page of rows.
    is_density_seen: bool,
    /// False for a stream without windows.
    is_windowed: bool,
}

impl Cutter {
    /// Creates a cutter of the intervals `due`. `covered` says how many rows earlier scans found. `page_rows` is the
    /// page size. If `is_windowed` is false, intervals are returned uncut.
    pub fn new(due: Vec<Due>, covered: Vec<CoverageInterval>, page_rows: u32, is_windowed: bool) -> Self {
        let learned = covered.last().map(density);
        let (rows, length_ms) =
            covered.iter().fold((0, 0), |(rows, ms), interval| (rows + interval.rows, ms + interval.window.len_ms()));
        let mean = (length_ms > 0).then(|| rows as f64 / length_ms as f64);
        let longest_ms = covered.iter().map(|interval| interval.window.len_ms()).max().unwrap_or(DAY_MS).max(DAY_MS);
        let page_rows = u64::from(page_rows.max(1));
        let len_max_ms = longest_ms.saturating_mul(GROWTH_MAX);
        let is_density_seen = !covered.is_empty();
        Self {
            due: due.into(),
            halves: Vec::new(),
            halved: Vec::new(),
            too_long: None,
            too_long_count: 0,
            covered,
            page_rows,
            learned,
            mean,
            len_max_ms,
            rows_max: u64::MAX,
            is_density_seen,
            is_windowed,
        }
    }

    /// Sets the maximum number of expected rows of a window, if fewer rows than [`PAGES_AIM`] pages fit into memory.
    pub fn limit_rows(&mut self, rows_max: u64) {
        self.rows_max = rows_max;
    }

    /// Returns the next window, or `None` after the last one.
    pub fn next_window(&mut self) -> Option<Due> {
        if let Some(half) = self.halves.pop() {
            return Some(half);
        }
        let due = self.due.pop_front()?;
        if !self.is_windowed {
            return Some(due);
        }
        let end_ms = self.end_of(&due);
        let rest = Window::new(end_ms, due.window.end_ms);
        if !rest.is_empty() {
            self.due.push_front(Due { window: rest, ..due });
        }
        Some(Due { window: Window::new(due.window.start_ms, end_ms), ..due })
    }

    /// Returns true if the length of the next window is a guess, because neither a scan nor a sample has shown the row
    /// density yet. False once windows may be as long as a month, because they grow no further.
    pub fn is_length_guessed(&self) -> bool {
        self.is_windowed && !self.is_density_seen && self.len_max_ms < MONTH_MAX_MS
    }

    /// Uses the row density of a sample, `rows` in `length_ms`, for all times that no scan covered.
    pub fn sampled(&mut self, rows: u64, length_ms: i64) {
        let density = rows as f64 / length_ms.max(1) as f64;
        (self.mean, self.learned) = (Some(density), Some(density));
        self.is_density_seen = true;
    }

    /// Learns the row density from a scan that succeeded. After windows that were too long, counts the successes and
    /// finally allows longer windows again.
    pub fn learn(&mut self, window: Window, rows: u64) {
        let seen = rows as f64 / window.len_ms().max(1) as f64;
        self.learned = Some(self.learned.map_or(seen, |learned| (learned + seen) / 2.0));
        let is_dense = rows >= self.page_rows;
        let growth = if is_dense { GROWTH_DENSE_MAX } else { GROWTH_MAX };
        self.is_density_seen |= is_dense;
        self.len_max_ms = self.len_max_ms.max(window.len_ms().saturating_mul(growth));
        self.record_half(window, true);
        if let Some(too_long) = &mut self.too_long {
            too_long.successes_needed -= 1;
            let bound_ms = (too_long.len_ms / 2).max(LEN_MIN_MS);
            if too_long.successes_needed > 0 {
                self.len_max_ms = self.len_max_ms.min(bound_ms);
            } else {
                (self.len_max_ms, self.too_long) = (too_long.len_ms, None);
            }
        }
    }

    /// Queues the two halves of a window that the service could not deliver. If the window is itself a half, records
    /// its failure. Returns false if the window is too short to cut, or the stream has no windows.
    pub fn halve(&mut self, window: Window, reason: Reason) -> bool {
        self.record_half(window, false);
        let Some(middle_ms) = self.queue_halves(window, reason) else { return false };
        self.halved.push(Halved { window, middle_ms, succeeded: 0, failed: 0 });
        true
    }

    /// Queues the two halves of a window whose rows take too much memory. Returns false if the window is too short to
    /// cut, or the stream has no windows.
    pub fn cut(&mut self, window: Window, reason: Reason) -> bool {
        // Whether a failed window was too long cannot be learned from parts of its halves.
        self.halved.retain(|halved| !halved.has_half(window));
        self.queue_halves(window, reason).is_some()
    }

    /// Queues the two halves of a window, and returns the time between them in epoch milliseconds.
    fn queue_halves(&mut self, window: Window, reason: Reason) -> Option<i64> {
        let [first, second] = halves(window).filter(|_| self.is_windowed)?;
        self.halves.extend([second, first].map(|window| Due { window, reason }));
        Some(first.end_ms)
    }

    /// Returns true if the window is a half of a failed window.
    pub fn is_half(&self, window: Window) -> bool {
        self.halved.iter().any(|halved| halved.has_half(window))
    }

    /// Records whether a half succeeded; does nothing for a window that is not a half. After both halves, decides
    /// whether the failed window was too long, and if so limits the length of the next windows.
    fn record_half(&mut self, half: Window, has_succeeded: bool) {
        let Some(at) = self.halved.iter().position(|halved| halved.has_half(half)) else { return };
        let Some(halved) = self.halved.get_mut(at) else { return };
        *(if has_succeeded { &mut halved.succeeded } else { &mut halved.failed }) += 1;
        if halved.succeeded + halved.failed < 2 {
            return;
        }
        let Halved { window, succeeded, .. } = self.halved.swap_remove(at);
        let len_ms = match succeeded {
            2 => window.len_ms(),
            // A record in the failed half is the cause.
            1 => return,
            _ => window.len_ms() / 2,
        };
        if len_ms <= 2 * LEN_MIN_MS {
            return;
        }
        let len_ms = self.too_long.map_or(len_ms, |known| known.len_ms.min(len_ms));
        let successes_needed = (SUCCESSES_MIN << self.too_long_count.min(10)).min(SUCCESSES_MAX);
        self.too_long_count += 1;
        self.too_long = Some(TooLong { len_ms, successes_needed });
        self.len_max_ms = self.len_max_ms.min(len_ms / 2);
    }

    /// Returns the intervals that [`Cutter::next_window`] has not returned yet.
    pub fn remaining(&self) -> impl Iterator<Item = &Due> {
        self.halves.iter().chain(&self.due)
    }

    /// Estimates the rows of a window; `None` if no density is known.
    pub fn rows_expected(&self, window: Window) -> Option<u64> {
        let known: Vec<CoverageInterval> = self.covered.iter().filter_map(|interval| interval.part(window)).collect();
        let known_ms: i64 = known.iter().map(|interval| interval.window.len_ms()).sum();
        let rest_ms = window.len_ms() - known_ms;
        let known_rows: u64 = known.iter().map(|interval| interval.rows).sum();
        // One scan says little about other times, so the mean of all scans comes first.
        match (rest_ms, self.mean.or(self.learned)) {
            (0, _) => Some(known_rows),
            (rest_ms, Some(density)) => Some(known_rows + (density * rest_ms as f64).round() as u64),
            (_, None) => None,
        }
    }

    /// Returns the end of the next window of a due interval, in epoch milliseconds. The window is as long as the
    /// expected rows of [`PAGES_AIM`] pages, within the current limits of rows and length, and ends at a round time.
    /// The window ends at the end of the month or of the interval at the latest.
    fn end_of(&self, due: &Due) -> i64 {
        let (window, start_ms) = (due.window, due.window.start_ms);
        let rows_per_ms =
            self.covered.iter().find(|interval| interval.window.contains(start_ms)).map(density).or(self.learned);
        let wanted_ms = match rows_per_ms {
            None => DAY_MS,
            Some(rows_per_ms) if rows_per_ms <= 0.0 => i64::MAX,
            // A float too large for i64 becomes the greatest i64.
            Some(rows_per_ms) => ((PAGES_AIM * self.page_rows).min(self.rows_max) as f64 / rows_per_ms) as i64,
        };
        let length_ms = wanted_ms.min(self.len_max_ms).max(LEN_MIN_MS);
        let end_ms = if length_ms >= DAY_MS {
            // The windows of a re-scan end at multiples of a power of two of days. So successive re-scans have the same
            // windows even if the row density changes a little.
            let unit_ms = if due.reason == Reason::Rescan { days_ms(length_ms) } else { DAY_MS };
            let end_ms = start_ms.saturating_add(length_ms).div_euclid(unit_ms) * unit_ms;
            end_ms.max(start_ms.div_euclid(DAY_MS) * DAY_MS + DAY_MS)
        } else {
            let unit_ms = LENGTHS_MS.into_iter().find(|unit_ms| *unit_ms <= length_ms).unwrap_or(LEN_MIN_MS);
            start_ms.div_euclid(unit_ms) * unit_ms + unit_ms
        };
        end_ms.min(end_of_month(start_ms)).min(window.end_ms)
    }
}

impl Halved {
    /// Returns true if the window is one of the two halves.
    fn has_half(&self, window: Window) -> bool {
        let Window { start_ms, end_ms } = self.window;
        [Window::new(start_ms, self.middle_ms), Window::new(self.middle_ms, end_ms)].contains(&window)
    }
}

/// Rounds a length of at least one day down to a power of two of days.
fn days_ms(length_ms: i64) -> i64 {
    let days = (length_ms / DAY_MS).max(1);
    DAY_MS << days.ilog2()
}

/// Returns the rows per millisecond of an interval.
fn density(interval: &CoverageInterval) -> f64 {
    interval.rows as f64 / interval.window.len_ms().max(1) as f64
}

/// Returns the start of the next month in UTC, where Parquet partitions end: the rows of a window should be in one
/// file. Returns `i64::MAX` for a time outside the calendar.
fn end_of_month(at_ms: i64) -> i64 {
    let next = DateTime::from_timestamp_millis(at_ms).and_then(|moment| {
        let (year, month) = (moment.year(), moment.month());
        let (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
        NaiveDate::from_ymd_opt(year, month, 1)
    });
    next.map_or(i64::MAX, |day| day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis())
}

#[cfg(test)]
mod tests;
