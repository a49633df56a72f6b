//! Cuts what is due into windows of a good size: some tens of pages each, on UTC days where they can, never across the
//! end of a month, and small enough that losing one is cheap. Learns from each scan how dense the answers lie.
//!
//! A window that the service cannot deliver is handed out again in two halves. If one of them comes and the other does
//! not, a record in the other is to blame, and only its neighbourhood gets small. Else windows are too long, and those
//! to come are cut shorter, until enough of them came.

use std::collections::VecDeque;

use chrono::{DateTime, Datelike, NaiveDate};

use crate::model::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Segment, Window};

use super::{Due, Reason};

/// Pages that a window should take: many enough that its last, short page costs little, few enough to lose one.
const PAGES_AIM: u64 = 24;
/// A window may be at most so many times longer than the longest that was scanned:
/// one empty night proves little about the next.
const GROWTH_MAX: i64 = 4;
/// The same where that one held a page of rows or more: what it says of their density counts for more.
const GROWTH_DENSE_MAX: i64 = 12;
/// No month is longer, so no window is.
const MONTH_MAX_MS: i64 = 31 * DAY_MS;
/// The shortest window that a plan is cut into.
const LEN_MIN_MS: i64 = MINUTE_MS;
/// The shortest half of a window that did not come.
const HALF_MIN_MS: i64 = SECOND_MS;
/// Lengths below a day, so that windows end where people look for them. Each is at most [`GROWTH_MAX`] times the next
/// shorter one: else windows that became short would stay short.
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
/// Windows that must come before longer ones are tried, after windows were too long;
/// twice as many each time that it happens again.
const CALM_MIN: u32 = 2;
/// The most windows that are waited for.
const CALM_MAX: u32 = 64;

/// A window that was handed out again in halves.
#[derive(Clone, Copy, Debug)]
struct Halved {
    window: Window,
    middle_ms: i64,
    came: u32,
    failed: u32,
}

/// The shortest window that was too long for the service.
#[derive(Clone, Copy, Debug)]
struct TooLong {
    len_ms: i64,
    /// Windows that must come before it is tried again.
    calm: u32,
}

/// The two halves of a window that did not come, cut at a full minute or second;
/// `None` when it cannot be cut any smaller.
pub fn halves(window: Window) -> Option<[Window; 2]> {
    let unit_ms = if window.len_ms() >= 2 * MINUTE_MS { MINUTE_MS } else { HALF_MIN_MS };
    let half_ms = window.len_ms() / 2 / unit_ms * unit_ms;
    let middle_ms = window.start_ms + half_ms;
    (half_ms > 0).then(|| [Window::new(window.start_ms, middle_ms), Window::new(middle_ms, window.end_ms)])
}

/// Hands out windows, most urgent first.
#[derive(Clone, Debug)]
pub struct Cutter {
    due: VecDeque<Due>,
    /// Halves of windows that did not come, to be handed out as they are; the next one is the last.
    halves: Vec<Due>,
    /// Windows that were halved, until both halves are done with.
    halved: Vec<Halved>,
    too_long: Option<TooLong>,
    /// How often windows were too long.
    relapses: u32,
    held: Vec<Segment>,
    page_rows: u64,
    /// Rows per millisecond where nothing is known, learned from the scans of this run.
    learned: Option<f64>,
    /// Rows per millisecond of all earlier scans together; `None` where there were none.
    mean: Option<f64>,
    /// The longest that a window may be now.
    reach_ms: i64,
    /// Whether a scan, of this run or an earlier one, showed how dense rows lie.
    is_density_seen: bool,
    is_windowed: bool,
}

impl Cutter {
    /// `held` tells how dense the answers lay where a scan was before. A stream without windows is not cut at all.
    pub fn new(due: Vec<Due>, held: Vec<Segment>, page_rows: u32, is_windowed: bool) -> Self {
        let learned = held.last().map(density);
        let (rows, length_ms) =
            held.iter().fold((0, 0), |(rows, ms), segment| (rows + segment.rows, ms + segment.window.len_ms()));
        let mean = (length_ms > 0).then(|| rows as f64 / length_ms as f64);
        let longest_ms = held.iter().map(|segment| segment.window.len_ms()).max().unwrap_or(DAY_MS).max(DAY_MS);
        let page_rows = u64::from(page_rows.max(1));
        let reach_ms = longest_ms.saturating_mul(GROWTH_MAX);
        let is_density_seen = !held.is_empty();
        Self {
            due: due.into(),
            halves: Vec::new(),
            halved: Vec::new(),
            too_long: None,
            relapses: 0,
            held,
            page_rows,
            learned,
            mean,
            reach_ms,
            is_density_seen,
            is_windowed,
        }
    }

    /// The next window.
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

    /// Whether the next window's length is a guess: what was scanned is too little to say how dense rows lie.
    pub fn is_blind(&self) -> bool {
        self.is_windowed && !self.is_density_seen && self.reach_ms < MONTH_MAX_MS
    }

    /// Takes the density of a sample for that of all rows that no scan counted.
    pub fn sampled(&mut self, rows: u64, length_ms: i64) {
        let density = rows as f64 / length_ms.max(1) as f64;
        (self.mean, self.learned) = (Some(density), Some(density));
        self.is_density_seen = true;
    }

    /// What a scan showed.
    pub fn learn(&mut self, window: Window, rows: u64) {
        let seen = rows as f64 / window.len_ms().max(1) as f64;
        self.learned = Some(self.learned.map_or(seen, |learned| (learned + seen) / 2.0));
        let is_dense = rows >= self.page_rows;
        let growth = if is_dense { GROWTH_DENSE_MAX } else { GROWTH_MAX };
        self.is_density_seen |= is_dense;
        self.reach_ms = self.reach_ms.max(window.len_ms().saturating_mul(growth));
        self.half_ended(window, true);
        if let Some(too_long) = &mut self.too_long {
            too_long.calm -= 1;
            let bound_ms = (too_long.len_ms / 2).max(LEN_MIN_MS);
            if too_long.calm > 0 {
                self.reach_ms = self.reach_ms.min(bound_ms);
            } else {
                (self.reach_ms, self.too_long) = (too_long.len_ms, None);
            }
        }
    }

    /// Takes back a window that was too much for the service, to be handed out again in two halves.
    /// `false` when it cannot be cut any smaller.
    pub fn halve(&mut self, window: Window, reason: Reason) -> bool {
        self.half_ended(window, false);
        let Some([first, second]) = halves(window).filter(|_| self.is_windowed) else { return false };
        self.halved.push(Halved { window, middle_ms: first.end_ms, came: 0, failed: 0 });
        self.halves.extend([second, first].map(|window| Due { window, reason }));
        true
    }

    /// Whether the window is a half of one that did not come.
    pub fn is_half(&self, window: Window) -> bool {
        self.halved.iter().any(|halved| halved.has_half(window))
    }

    /// A window came, or did not. Where that settles what was wrong with the window that it is a half of, the windows
    /// to come are cut accordingly.
    fn half_ended(&mut self, half: Window, came: bool) {
        let Some(at) = self.halved.iter().position(|halved| halved.has_half(half)) else { return };
        let Some(halved) = self.halved.get_mut(at) else { return };
        *(if came { &mut halved.came } else { &mut halved.failed }) += 1;
        if halved.came + halved.failed < 2 {
            return;
        }
        let Halved { window, came, .. } = self.halved.swap_remove(at);
        let len_ms = match came {
            2 => window.len_ms(),
            // A record in the other half is to blame.
            1 => return,
            _ => window.len_ms() / 2,
        };
        if len_ms <= 2 * LEN_MIN_MS {
            return;
        }
        let len_ms = self.too_long.map_or(len_ms, |known| known.len_ms.min(len_ms));
        let calm = (CALM_MIN << self.relapses.min(10)).min(CALM_MAX);
        self.relapses += 1;
        self.too_long = Some(TooLong { len_ms, calm });
        self.reach_ms = self.reach_ms.min(len_ms / 2);
    }

    /// What is not handed out yet.
    pub fn remaining(&self) -> impl Iterator<Item = &Due> {
        self.halves.iter().chain(&self.due)
    }

    /// Rows that a window may hold, where anything is known.
    pub fn rows_expected(&self, window: Window) -> Option<u64> {
        let known: Vec<Segment> = self.held.iter().filter_map(|segment| segment.part(window)).collect();
        let known_ms: i64 = known.iter().map(|segment| segment.window.len_ms()).sum();
        let rest_ms = window.len_ms() - known_ms;
        let known_rows: u64 = known.iter().map(|segment| segment.rows).sum();
        // One scan says little of other times, so all of them together do.
        match (rest_ms, self.mean.or(self.learned)) {
            (0, _) => Some(known_rows),
            (rest_ms, Some(density)) => Some(known_rows + (density * rest_ms as f64).round() as u64),
            (_, None) => None,
        }
    }

    fn end_of(&self, due: &Due) -> i64 {
        let (window, start_ms) = (due.window, due.window.start_ms);
        let here = self.held.iter().find(|segment| segment.window.contains(start_ms)).map(density).or(self.learned);
        let wanted_ms = match here {
            None => DAY_MS,
            Some(here) if here <= 0.0 => i64::MAX,
            // A float too large for i64 becomes its greatest value.
            Some(here) => ((PAGES_AIM * self.page_rows) as f64 / here) as i64,
        };
        let length_ms = wanted_ms.min(self.reach_ms).max(LEN_MIN_MS);
        let end_ms = if length_ms >= DAY_MS {
            // A re-scan is cut where the last one was, though it begins a day later:
            // then its pages are those of the last one.
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
    fn has_half(&self, window: Window) -> bool {
        let Window { start_ms, end_ms } = self.window;
        [Window::new(start_ms, self.middle_ms), Window::new(self.middle_ms, end_ms)].contains(&window)
    }
}

/// The most days that are a power of two and not longer than this, which is a day or more.
fn days_ms(length_ms: i64) -> i64 {
    let days = (length_ms / DAY_MS).max(1);
    DAY_MS << days.ilog2()
}

fn density(segment: &Segment) -> f64 {
    segment.rows as f64 / segment.window.len_ms().max(1) as f64
}

/// The first millisecond of the next month: Parquet is cut there, and a window's rows should land in one file.
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
