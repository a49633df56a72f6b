//! An interval of creation time that was proven complete: `state` stores it and `plan` uses it.

use super::{FlagSet, Window};

/// Replaces the time of the last scan if its interval needs a recheck because rows were withheld. The value is older
/// than any real time, so that the interval is due in every run.
pub const NEEDS_RECHECK_MS: i64 = 0;

/// An interval of creation time that was proven complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoverageInterval {
    pub window: Window,
    /// The optional parts that were asked for.
    pub flags: FlagSet,
    /// When its last scan began, by the service's clock; epoch milliseconds.
    pub scanned_ms: i64,
    /// The rows that the service returned; an estimate where an interval was cut.
    pub rows: u64,
}

impl CoverageInterval {
    /// The part of the interval inside a window, with its share of the rows.
    pub fn part(&self, window: Window) -> Option<CoverageInterval> {
        let inside = self.window.intersect(window);
        (!inside.is_empty()).then(|| {
            let share = inside.len_ms() as f64 / self.window.len_ms() as f64;
            CoverageInterval { window: inside, rows: (self.rows as f64 * share).round() as u64, ..*self }
        })
    }
}
