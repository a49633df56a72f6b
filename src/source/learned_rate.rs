//! The request rate that one process learned and stores for the next.

use serde::{Deserialize, Serialize};

use crate::model::is_recent;

/// How long a stored rate is valid: 30 days, so that nightly and weekly runs start with it.
const VALID_MS: i64 = 30 * 24 * 3_600_000;

/// The request rate that a run has learned, as stored for later runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRate {
    /// `None`: the service has not rate limited the run.
    pub requests_per_sec: Option<f64>,
    /// When the rate was learned, in epoch milliseconds by this machine's clock.
    pub measured_ms: i64,
}

impl LearnedRate {
    /// Returns the rate; `None` if no rate was learned, or if the rate is older than 30 days, or of the future.
    pub(super) fn valid(self, now_ms: i64) -> Option<f64> {
        self.requests_per_sec.filter(|_| is_recent(self.measured_ms, now_ms, VALID_MS))
    }
}
