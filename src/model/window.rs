//! Half-open ranges of creation time, and what they are ranges of.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Stream, format_ms};

/// A half-open range of creation time in epoch milliseconds: the unit of completeness, of checkpoints and of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Window {
    /// The first millisecond inside.
    pub start_ms: i64,
    /// The first millisecond past the end.
    pub end_ms: i64,
}

impl Window {
    /// A window; an end before the start gives an empty one.
    pub fn new(start_ms: i64, end_ms: i64) -> Self {
        Self { start_ms, end_ms: end_ms.max(start_ms) }
    }

    /// Whether no millisecond is inside.
    pub fn is_empty(self) -> bool {
        self.end_ms <= self.start_ms
    }

    /// The number of milliseconds inside.
    pub fn len_ms(self) -> i64 {
        self.end_ms.saturating_sub(self.start_ms)
    }

    /// Whether the moment is inside.
    pub fn contains(self, at_ms: i64) -> bool {
        self.start_ms <= at_ms && at_ms < self.end_ms
    }

    /// What both windows hold; empty where they do not meet.
    #[must_use]
    pub fn intersect(self, other: Window) -> Window {
        Window::new(self.start_ms.max(other.start_ms), self.end_ms.min(other.end_ms))
    }

    /// Whether some millisecond is in both.
    pub fn overlaps(self, other: Window) -> bool {
        !self.intersect(other).is_empty()
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", format_ms(self.start_ms), format_ms(self.end_ms))
    }
}

/// What a window is a window of: a stream, and at most one survey of it. Completeness is proven for a scope, and an absent
/// row has vanished only from the scope that was scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// The stream.
    pub stream: Stream,
    /// One survey, or all of them.
    pub survey_id: Option<i64>,
}

impl Scope {
    /// The whole stream.
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
