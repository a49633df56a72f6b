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
    /// The service's time, estimated from this machine's clock if unknown.
    pub now: String,
    pub total: Total,
    /// Unfinished scans of an earlier run, which the next run resumes first.
    pub under_way: usize,
    /// The rate from which `minutes` are estimated; `None` if no rate is known.
    pub requests_per_sec: Option<f64>,
    /// The source of the rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_from: Option<SpeedBasis>,
    /// The service's measured behaviour for rows that share a millisecond at a page boundary. It decides how many page
    /// boundaries are probed.
    pub ties: Ties,
    /// Requests of --probe.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_requests: Option<u64>,
    pub streams: Vec<PlannedStream>,
    /// The stream of users, if it is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<PlannedUsers>,
}
