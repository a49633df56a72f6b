//! The request rate, as one process stores it for the next.

use serde::{Deserialize, Serialize};

/// A stored rate is valid for 30 days: nightly and weekly runs start at it, and pacing corrects it.
const VALID_MS: i64 = 30 * 24 * 3_600_000;

/// The rate at which the service was found to answer, as kept between runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRate {
    /// `None`: no limit was met.
    pub requests_per_sec: Option<f64>,
    /// When that was found, epoch milliseconds by this machine's clock.
    pub measured_ms: i64,
}

impl LearnedRate {
    /// The rate, unless it is too old to start from.
    pub(super) fn valid(self, now_ms: i64) -> Option<f64> {
        self.requests_per_sec.filter(|_| now_ms.saturating_sub(self.measured_ms) < VALID_MS)
    }
}
