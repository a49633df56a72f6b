//! Coverage intervals: `state` stores them, and `plan` computes from them what is due.

use super::{FlagSet, Window};

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
