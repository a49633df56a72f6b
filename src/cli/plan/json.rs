//! The result of `plan`. `--json` prints these fields.

use std::time::Duration;

use serde::Serialize;

use crate::{model::Ties, plan::Estimate};

use super::{
    super::wording::format_second,
    cost::{SpeedBasis, Total},
    users::PlannedUsers,
};

#[derive(Serialize)]
pub(super) struct PlannedStream {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
    #[serde(flatten)]
    pub estimate: Estimate,
}

/// The remaining wait of a `Retry-After` that the service sent to an earlier command.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RateLimitWait {
    /// No command sends a request before this moment, by this machine's clock.
    pub no_request_before: String,
    /// Seconds until then.
    pub wait_secs: u64,
    /// The longest wait of a run, `patience_secs`. A run that would wait longer sends no request.
    pub max_wait_secs: u64,
}

impl RateLimitWait {
    /// Creates the wait from `now_ms` until `until_ms`, both epoch milliseconds. `patience` is the longest wait of a
    /// run.
    pub fn new(until_ms: i64, now_ms: i64, patience: Duration) -> RateLimitWait {
        let wait_ms = u64::try_from(until_ms - now_ms).unwrap_or(0);
        RateLimitWait {
            no_request_before: format_second(until_ms),
            wait_secs: wait_ms.div_ceil(1000),
            max_wait_secs: patience.as_secs(),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Plan {
    pub command: &'static str,
    /// The service's time. If it is unknown, it is estimated from this machine's clock.
    pub now: String,
    /// The wait before the first request; `None` if no wait remains.
    #[serde(flatten)]
    pub wait: Option<RateLimitWait>,
    pub total: Total,
    /// Unfinished scans of an earlier run, which the next run resumes first.
    pub under_way: usize,
    /// The request rate from which `minutes` are estimated; `None` if no rate is known.
    pub requests_per_sec: Option<f64>,
    /// The source of the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_from: Option<SpeedBasis>,
    /// The service's measured behaviour for rows that share a millisecond at a page boundary. This behaviour decides
    /// how many page boundaries are probed.
    pub ties: Ties,
    /// Number of requests of --probe; `None` without --probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_requests: Option<u64>,
    pub streams: Vec<PlannedStream>,
    /// The estimate for the stream of users; `None` if the stream is disabled or the warehouse cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<PlannedUsers>,
}
