//! The result of `status`. `--json` prints these fields.

use serde::{Deserialize, Serialize};

use crate::{
    pipeline::{DriftReport, KnownBehaviour, RunReason},
    sync_status::LagCheck,
};

use super::{
    erasures::WaitingErasure, proofs::ProofStatus, serving::ServeStatus, streams::StreamStatus, users::UsersStatus,
};

#[derive(Serialize)]
pub(super) struct Status {
    /// The path of the state file.
    pub state: String,
    pub base_url: Option<String>,
    pub environment: Option<String>,
    /// The process that holds the lease; `None` if no run is active.
    pub running: Option<String>,
    pub streams: Vec<StreamStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<UsersStatus>,
    /// The intervals of the requested range with their proofs, or all intervals.
    pub proofs: Vec<ProofStatus>,
    /// Unfinished scans, which the next run resumes.
    pub under_way: Vec<ScanStatus>,
    /// The learned rate limit; `None` if no run has learned one.
    pub requests_per_sec: Option<f64>,
    /// The end of the service's `Retry-After`, before which no command sends a request; `None` if none is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_request_before: Option<String>,
    /// Milliseconds by which the service's clock is ahead of this machine's clock; `None` if unknown.
    pub clock_skew_ms: Option<i64>,
    /// True if the service's clock is days off and not known to be right. Lags are then measured by this machine's.
    pub clock_in_doubt: bool,
    /// The result of --max-lag; `None` without --max-lag.
    #[serde(flatten)]
    pub lag: Option<LagCheck>,
    /// The service profile.
    pub traits: Vec<KnownBehaviour>,
    pub runs: Vec<RunStatus>,
    /// Erasures whose people the service may still send.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub erasures_waiting: Vec<WaitingErasure>,
    /// The state of `serve`; `None` if it never ran with this state file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve: Option<ServeStatus>,
    #[serde(flatten)]
    pub last_drift: LastDrift,
}

/// The drift that the newest of the shown runs found, with the same fields as in the run JSON. Runs whose JSON has no
/// such fields, such as `verify`, are skipped.
#[derive(Default, Deserialize, Serialize)]
pub(super) struct LastDrift {
    pub drift: Vec<DriftReport>,
    pub drift_unlisted: u64,
}

/// An unfinished scan.
#[derive(Serialize)]
pub(super) struct ScanStatus {
    pub stream: &'static str,
    pub window: String,
    pub pages: u64,
    pub records: u64,
}

/// A recent run.
#[derive(Serialize)]
pub(super) struct RunStatus {
    pub run_id: String,
    pub command: String,
    pub started: String,
    pub secs: Option<f64>,
    pub outcome: String,
    pub exit_code: Option<i64>,
    /// Why the outcome is not `done`, as a code. `why` is the same reason as a sentence, and `hint` says what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<RunReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
