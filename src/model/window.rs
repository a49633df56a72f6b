//! Windows (half-open ranges of creation time) and scopes (a stream, or one survey of it).

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{SECOND_MS, Stream, format_ms};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_to_seconds_contains_the_window() {
        for (start_ms, end_ms, wider) in [
            (0, 1000, [0, 1000]),
            (1, 1001, [0, 2000]),
            (999, 999, [0, 1000]),
            (-1, 1, [-1000, 1000]),
            (-1001, -1000, [-2000, -1000]),
        ] {
            assert_eq!(Window::new(start_ms, end_ms).widened_to_seconds(), Window::new(wider[0], wider[1]));
        }
        let all = Window::new(i64::MIN, i64::MAX).widened_to_seconds();
        assert!(all.start_ms == i64::MIN && all.end_ms >= i64::MAX - SECOND_MS);
    }
}
