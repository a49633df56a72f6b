//! A plan as it is printed, as JSON or for people.

use serde::Serialize;

use crate::{model::Ties, plan::Estimate};

use super::{
    cost::{SpeedBasis, Total},
    people::PlannedPeople,
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
    /// The service's time as far as it is known.
    pub now: String,
    pub total: Total,
    /// Scans that an earlier run began; they are resumed first.
    pub under_way: usize,
    /// The rate behind the minutes; `None` if none is known.
    pub requests_per_sec: Option<f64>,
    /// Where that rate is from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed_from: Option<SpeedBasis>,
    /// What is known of rows that share a millisecond: each edge of a page is looked at, or a sample.
    pub ties: Ties,
    /// Requests that --probe sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probe_requests: Option<u64>,
    pub streams: Vec<PlannedStream>,
    /// The stream of users, if it is enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<PlannedPeople>,
}
