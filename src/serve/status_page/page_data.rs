//! The values on the status page, also as the JSON of `/api/status`. No value names a person or contains a secret.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    pipeline::Reading,
    sync_status::{HealthReason, RunSummary, SyncStatus},
};

use super::{
    super::{HealthMonitor, ServeState, health_monitor::StatusResult},
    checkpoint_data::{CheckpointData, RunDetails, ScopeStatus},
    timestamp::Timestamp,
};

/// The health in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum HealthSummary {
    Healthy,
    /// No run has ended yet, and nothing failed.
    NoRunYet,
    NeedsALook,
    Failing,
}

/// Everything that the page shows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PageData {
    pub now: Timestamp,
    pub version: &'static str,
    /// When this `serve` started.
    pub started_at: Timestamp,
    #[serde(rename = "verdict")]
    pub health: HealthSummary,
    /// The reasons of the health, most urgent first, as at `/healthz`.
    pub reasons: Vec<HealthReason>,
    #[serde(rename = "under_way")]
    pub current_job: Option<CurrentJob>,
    pub schedule: String,
    pub next_run_at: Option<Timestamp>,
    pub last_run: Option<RunSummary>,
    pub last_success_at: Option<Timestamp>,
    pub failures_in_a_row: u32,
    /// The allowed lag of a stream.
    pub max_lag_secs: Option<u64>,
    pub streams: Vec<ScopeStatus>,
    /// The number of scopes that `streams` leaves out.
    pub streams_left_out: usize,
    /// Newest first.
    pub runs: Vec<RunDetails>,
    pub rate_limit: RateLimit,
    pub deliveries: Deliveries,
}

/// The current job.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CurrentJob {
    pub command: String,
    pub since: Option<Timestamp>,
    /// True if another process does the job, so that its progress is unknown.
    pub is_elsewhere: bool,
    /// The progress in one line.
    pub line: Option<String>,
    pub progress: Option<Reading>,
}

/// The service's rate limit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RateLimit {
    /// The learned limit; `None` if no run has learned one.
    pub requests_per_sec: Option<f64>,
    /// The rate of the current run.
    pub requests_per_sec_now: Option<f64>,
    /// The end of the service's Retry-After.
    pub retry_after: Option<Timestamp>,
    /// Why the requests of the current run wait.
    pub waiting: Option<String>,
}

/// The webhook deliveries.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Deliveries {
    /// The number of deliveries that are not in the warehouses yet.
    pub pending: u64,
    pub pending_bytes: u64,
    pub oldest_at: Option<Timestamp>,
    pub can_be_stored: bool,
    /// Deliveries stored since this `serve` started, by kind, without kinds that have none.
    pub stored: BTreeMap<&'static str, u64>,
}

impl PageData {
    /// Collects the values from the status, the checkpoints and the state in memory.
    pub fn new(
        monitor: &HealthMonitor,
        sync_status: &StatusResult,
        checkpoints: &CheckpointData,
        now_ms: i64,
    ) -> PageData {
        let health = monitor.health(sync_status);
        let unknown = SyncStatus::default();
        let sync_status = sync_status.as_ref().unwrap_or(&unknown);
        let state = &monitor.state;
        let daemon = state.status();
        let progress = state.progress();
        let summary = match () {
            () if !health.is_healthy() => HealthSummary::Failing,
            () if health.has("never_ran") => HealthSummary::NoRunYet,
            () if !health.reasons.is_empty() => HealthSummary::NeedsALook,
            () => HealthSummary::Healthy,
        };
        PageData {
            now: Timestamp(now_ms),
            version: env!("CARGO_PKG_VERSION"),
            started_at: Timestamp(state.started_ms),
            health: summary,
            reasons: health.reasons,
            current_job: current_job(state, sync_status, progress.as_ref()),
            schedule: daemon.schedule.expression,
            next_run_at: daemon.schedule.next_ms.map(Timestamp),
            last_run: sync_status.last_ended.clone(),
            last_success_at: sync_status.last_success.as_ref().map(|run| Timestamp(run.ended_ms())),
            failures_in_a_row: sync_status.failures_in_a_row,
            max_lag_secs: monitor.rules.max_lag.map(|max_lag| max_lag.as_secs()),
            streams: checkpoints.streams.clone(),
            streams_left_out: checkpoints.streams_left_out,
            runs: checkpoints.runs.clone(),
            rate_limit: rate_limit(sync_status, daemon.rate_limited_until_ms, progress.as_ref(), now_ms),
            deliveries: Deliveries {
                pending: daemon.pending.deliveries,
                pending_bytes: daemon.pending.bytes,
                oldest_at: daemon.pending.oldest_ms.map(Timestamp),
                can_be_stored: state.can_store(),
                stored: state.stored().filter(|(_, n)| *n > 0).map(|(kind, count)| (kind.name(), count)).collect(),
            },
        }
    }
}

/// Returns the current job of this process or, if there is none, the run of another process that holds the lease.
fn current_job(state: &ServeState, sync_status: &SyncStatus, progress: Option<&Reading>) -> Option<CurrentJob> {
    if let Some(job) = state.status().running {
        return Some(CurrentJob {
            command: job.command.to_owned(),
            since: Some(Timestamp(job.since_ms)),
            is_elsewhere: false,
            line: progress.map(Reading::line),
            progress: progress.cloned(),
        });
    }
    let run = sync_status.last_run.as_ref().filter(|run| run.is_running())?;
    let (command, since) = (run.command.clone(), Some(Timestamp(run.started_ms)));
    Some(CurrentJob { command, since, is_elsewhere: true, line: None, progress: None })
}

/// Collects the learned rate, the current rate and the current wait. `limited_until_ms` is the end of the `Retry-After`
/// that ended the last run. `progress` is that of the current run; `None` if there is none.
fn rate_limit(
    sync_status: &SyncStatus,
    limited_until_ms: Option<i64>,
    progress: Option<&Reading>,
    now_ms: i64,
) -> RateLimit {
    let wait = progress.and_then(|progress| progress.waiting);
    let wait_end_ms = wait
        .filter(|wait| wait.why == "rate limited")
        .map(|wait| now_ms.saturating_add(i64::try_from(wait.secs).unwrap_or(0).saturating_mul(1000)));
    let stored = [limited_until_ms, sync_status.rate_limited_until_ms].into_iter().flatten();
    let stored_end_ms = stored.max().filter(|at_ms| *at_ms > now_ms);
    let learned = sync_status.learned_requests_per_sec;
    RateLimit {
        requests_per_sec: progress.and_then(|progress| progress.requests_per_sec_max).or(learned),
        requests_per_sec_now: progress.map(|progress| progress.requests_per_sec),
        retry_after: stored_end_ms.or(wait_end_ms).map(Timestamp),
        waiting: wait.map(|wait| wait.why.to_owned()),
    }
}
