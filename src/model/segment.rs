//! A stretch of creation time that was proven complete: what `state` remembers and `plan` reckons with.

use super::{FlagSet, Window};

/// Stands for the time of the last scan where that scan left a doubt (rows that seem to be gone, and were not
/// believed): older than any real one, so that the stretch is due in every run.
pub const IN_DOUBT_MS: i64 = 0;

/// A stretch of creation time that was proven complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub window: Window,
    /// The optional parts that were asked for.
    pub flags: FlagSet,
    /// When its last scan began, by the service's clock; epoch milliseconds.
    pub scanned_ms: i64,
    /// The rows that the service returned; an estimate where a stretch was cut.
    pub rows: u64,
}

impl Segment {
    /// The part of the stretch inside a window, with its share of the rows.
    pub fn part(&self, window: Window) -> Option<Segment> {
        let inside = self.window.intersect(window);
        (!inside.is_empty()).then(|| {
            let share = inside.len_ms() as f64 / self.window.len_ms() as f64;
            Segment { window: inside, rows: (self.rows as f64 * share).round() as u64, ..*self }
        })
    }
}
