//! Windows (half-open ranges of creation time), sets of windows, scopes (a stream, or one survey of it), and the
//! intervals of coverage, which `state` stores and from which `plan` computes what is due.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{FlagSet, SECOND_MS, Stream, format_ms};

/// A half-open range of creation time in epoch milliseconds: the unit of completeness, of checkpoints and of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The first millisecond of the window.
    pub start_ms: i64,
    /// The first millisecond after the window.
    pub end_ms: i64,
}

impl Window {
    /// Creates a window. If the end is before the start, the window is empty and ends at its start.
    pub fn new(start_ms: i64, end_ms: i64) -> Self {
        Self { start_ms, end_ms: end_ms.max(start_ms) }
    }

    /// Returns true if the window contains no millisecond.
    pub fn is_empty(self) -> bool {
        self.end_ms <= self.start_ms
    }

    /// Returns the length in milliseconds.
    pub fn len_ms(self) -> i64 {
        self.end_ms.saturating_sub(self.start_ms)
    }

    /// Returns true if the time is in the window.
    pub fn contains(self, at_ms: i64) -> bool {
        self.start_ms <= at_ms && at_ms < self.end_ms
    }

    /// Returns the intersection of both windows; empty if they do not overlap.
    #[must_use]
    pub fn intersect(self, other: Window) -> Window {
        Window::new(self.start_ms.max(other.start_ms), self.end_ms.min(other.end_ms))
    }

    /// Returns the shortest window of whole seconds that contains this one. The service may filter by milliseconds,
    /// while its records show their creation time in whole seconds. Of two windows that meet within a second, the first
    /// could contain the shown time of a record that only the second returns. The record would then count as vanished.
    #[must_use]
    pub fn widened_to_seconds(self) -> Window {
        let down = |at_ms: i64| at_ms.div_euclid(SECOND_MS).saturating_mul(SECOND_MS);
        Window::new(down(self.start_ms), down(self.end_ms.saturating_add(SECOND_MS - 1)))
    }

    /// Returns true if the windows overlap.
    pub fn overlaps(self, other: Window) -> bool {
        !self.intersect(other).is_empty()
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", format_ms(self.start_ms), format_ms(self.end_ms))
    }
}

/// A stream, or one survey of it. A scan proves completeness for its scope. Absent rows count as vanished only within
/// the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// The stream.
    pub stream: Stream,
    /// The survey; `None` for all surveys.
    pub survey_id: Option<i64>,
}

impl Scope {
    /// Returns the scope of a complete stream.
    pub fn all(stream: Stream) -> Self {
        Self { stream, survey_id: None }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.survey_id {
            None => write!(f, "{}", self.stream),
            Some(id) => write!(f, "{} of survey {id}", self.stream),
        }
    }
}

/// A set of milliseconds, stored as windows that are sorted, disjoint, not adjacent and not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet {
    windows: Vec<Window>,
}

impl IntervalSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the windows, in order.
    pub fn windows(&self) -> &[Window] {
        &self.windows
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.windows.is_empty()
    }

    /// Returns the number of milliseconds in the set.
    pub fn len_ms(&self) -> i64 {
        self.windows.iter().map(|window| window.len_ms()).sum()
    }

    /// Returns the shortest window that contains the whole set; `None` if the set is empty.
    pub fn bounding_range(&self) -> Option<Window> {
        Some(Window::new(self.windows.first()?.start_ms, self.windows.last()?.end_ms))
    }

    /// Adds a window, and merges it with the windows that it overlaps or touches.
    pub fn insert(&mut self, window: Window) {
        if window.is_empty() {
            return;
        }
        let first = self.windows.partition_point(|stored| stored.end_ms < window.start_ms);
        let last = self.windows.partition_point(|stored| stored.start_ms <= window.end_ms);
        let merged = self.windows[first..last].iter().fold(window, |merged, stored| {
            Window::new(merged.start_ms.min(stored.start_ms), merged.end_ms.max(stored.end_ms))
        });
        self.windows.splice(first..last, [merged]);
    }

    /// Removes the milliseconds of a window.
    pub fn remove(&mut self, window: Window) {
        if window.is_empty() {
            return;
        }
        let first = self.windows.partition_point(|stored| stored.end_ms <= window.start_ms);
        let last = self.windows.partition_point(|stored| stored.start_ms < window.end_ms);
        let remaining: Vec<Window> = self.windows[first..last]
            .iter()
            .flat_map(|stored| {
                [
                    Window::new(stored.start_ms, window.start_ms.min(stored.end_ms)),
                    Window::new(window.end_ms.max(stored.start_ms), stored.end_ms),
                ]
            })
            .filter(|window| !window.is_empty())
            .collect();
        self.windows.splice(first..last, remaining);
    }

    /// Returns true if the set contains the whole window.
    pub fn covers(&self, window: Window) -> bool {
        window.is_empty() || {
            let at = self.windows.partition_point(|stored| stored.end_ms <= window.start_ms);
            self.windows
                .get(at)
                .is_some_and(|stored| stored.start_ms <= window.start_ms && window.end_ms <= stored.end_ms)
        }
    }

    /// Returns the ranges of the window that are not in the set, in order of time.
    pub fn gaps_in(&self, window: Window) -> Vec<Window> {
        let mut gaps = IntervalSet::new();
        gaps.insert(window);
        for stored in &self.windows {
            gaps.remove(*stored);
        }
        gaps.windows
    }

    /// Returns the milliseconds that are in both sets.
    #[must_use]
    pub fn intersect(&self, other: &IntervalSet) -> IntervalSet {
        let mut both = IntervalSet::new();
        for mine in &self.windows {
            for theirs in &other.windows {
                both.insert(mine.intersect(*theirs));
            }
        }
        both
    }
}

impl FromIterator<Window> for IntervalSet {
    /// Collects windows in O(n log n), which is faster than inserting them one by one.
    fn from_iter<I: IntoIterator<Item = Window>>(windows: I) -> Self {
        let mut sorted: Vec<Window> = windows.into_iter().filter(|window| !window.is_empty()).collect();
        sorted.sort_unstable_by_key(|window| window.start_ms);
        let mut merged: Vec<Window> = Vec::with_capacity(sorted.len());
        for window in sorted {
            match merged.last_mut() {
                Some(last) if window.start_ms <= last.end_ms => last.end_ms = last.end_ms.max(window.end_ms),
                _ => merged.push(window),
            }
        }
        Self { windows: merged }
    }
}

/// Value of [`CoverageInterval::scanned_ms`] for an interval that needs a recheck. The value is older than any real
/// time, so that every run scans the interval again.
pub const NEEDS_RECHECK_MS: i64 = 0;

/// An interval of creation time that was proven complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverageInterval {
    /// The range of creation time.
    pub window: Window,
    /// The optional parts of records that the scan requested.
    pub flags: FlagSet,
    /// When the last scan began, in epoch milliseconds of the service's clock; or [`NEEDS_RECHECK_MS`].
    pub scanned_ms: i64,
    /// Number of rows that the service returned; an estimate if only a longer interval was scanned.
    pub rows: u64,
}

impl CoverageInterval {
    /// Returns the interval cut to a window. The rows are estimated by the share of the length. Returns `None` if
    /// interval and window do not overlap.
    pub fn part(&self, window: Window) -> Option<CoverageInterval> {
        let inside = self.window.intersect(window);
        (!inside.is_empty()).then(|| {
            let share = inside.len_ms() as f64 / self.window.len_ms() as f64;
            CoverageInterval { window: inside, rows: (self.rows as f64 * share).round() as u64, ..*self }
        })
    }
}

#[cfg(test)]
mod tests;
