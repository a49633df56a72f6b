//! The service's rate limit, as one process hands it to the next.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::gate::Pace;

/// The rate at which the service was found to answer, as kept between runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRate {
    /// `None`: no limit was met.
    pub requests_per_sec: Option<f64>,
    /// When that was found, epoch milliseconds by this machine's clock.
    pub measured_ms: i64,
}

impl LearnedRate {
    /// The rate that is left of it: an old measure binds less, and none at all after a day.
    pub(super) fn aged(self, now_ms: i64) -> Option<f64> {
        let age_ms = u64::try_from(now_ms.saturating_sub(self.measured_ms)).unwrap_or(0);
        Pace::aged(self.requests_per_sec?, Duration::from_millis(age_ms))
    }
}
