//! The result of `plan`. `--json` prints these fields.

use serde::Serialize;

use crate::{model::Ties, plan::Estimate};

use super::{
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

#[derive(Serialize)]
pub(super) struct Plan {
    pub command: &'static str,
    /// The service's time. If it is unknown, it is estimated from this machine's clock.
    pub now: String,
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
