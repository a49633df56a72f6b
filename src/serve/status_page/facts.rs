//! What the status page shows, as values: also the JSON of `/api/status`. No person and no secret is in it.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::{
    pipeline::Reading,
    sync_status::{HealthReason, RunSummary, SyncStatus},
};

use super::{
    super::{Board, Watch},
    moment::Moment,
    stored::{RunFacts, ScopeFacts, StoredFacts},
};

/// How it stands, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Healthy,
    /// No run has ended yet, and nothing is wrong.
    NoRunYet,
    NeedsALook,
    Failing,
}

/// Everything that the page shows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct StatusFacts {
    pub now: Moment,
    pub version: &'static str,
    /// When this `serve` began.
    pub started_at: Moment,
    pub verdict: Verdict,
    /// Why, the most pressing first; the same as at `/healthz`.
    pub reasons: Vec<HealthReason>,
    pub under_way: Option<UnderWay>,
    pub schedule: String,
    pub next_run_at: Option<Moment>,
    pub last_run: Option<RunSummary>,
    pub last_success_at: Option<Moment>,
    pub failures_in_a_row: u32,
    /// How far a stream may be behind.
    pub max_lag_secs: Option<u64>,
    pub streams: Vec<ScopeFacts>,
    /// Scopes beyond those.
    pub streams_left_out: usize,
    /// The newest runs, newest first.
    pub runs: Vec<RunFacts>,
    pub rate_limit: RateLimit,
    pub deliveries: Deliveries,
}

/// What is under way.
#[derive(Clone, Debug, Serialize)]
pub(super) struct UnderWay {
    pub command: String,
    pub since: Option<Moment>,
    /// Whether another process does it, so that nothing is known of its progress.
    pub is_elsewhere: bool,
    /// The progress on one line.
    pub line: Option<String>,
    pub progress: Option<Reading>,
}

/// What is known of the service's rate limit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RateLimit {
    /// The limit that was learned; `None`: none was met.
    pub requests_per_sec: Option<f64>,
    /// The requests of the run under way.
    pub requests_per_sec_now: Option<f64>,
    /// The service said to come back at this time.
    pub retry_after: Option<Moment>,
    /// What the requests of the run under way wait for.
    pub waiting: Option<String>,
}

/// Deliveries of webhooks.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Deliveries {
    /// What waits for the warehouses.
    pub pending: u64,
    pub pending_bytes: u64,
    pub oldest_at: Option<Moment>,
    pub can_be_stored: bool,
    /// Since this `serve` began, by kind; kinds without any are left out.
    pub stored: BTreeMap<&'static str, u64>,
}

impl StatusFacts {
    /// Everything that is known now. `stored`: what the checkpoints hold of coverage and runs.
    pub fn of(
        watch: &Watch,
        sync_status: &Result<SyncStatus, String>,
        stored: &StoredFacts,
        now_ms: i64,
    ) -> StatusFacts {
        let health = watch.health(sync_status);
        let unknown = SyncStatus::default();
        let sync_status = sync_status.as_ref().unwrap_or(&unknown);
        let board = watch.board();
        let shown = board.shown();
        let progress = board.progress();
        let verdict = match () {
            () if !health.is_healthy() => Verdict::Failing,
            () if health.has("never_ran") => Verdict::NoRunYet,
            () if !health.reasons.is_empty() => Verdict::NeedsALook,
            () => Verdict::Healthy,
        };
        StatusFacts {
            now: Moment(now_ms),
            version: env!("CARGO_PKG_VERSION"),
            started_at: Moment(board.started_ms),
            verdict,
            reasons: health.reasons,
            under_way: under_way(board, sync_status, progress.as_ref()),
            schedule: shown.schedule.expression.clone(),
            next_run_at: shown.schedule.next_ms.map(Moment),
            last_run: sync_status.last_ended.clone(),
            last_success_at: sync_status.last_success.as_ref().map(|run| Moment(run.ended_ms())),
            failures_in_a_row: sync_status.failures_in_a_row,
            max_lag_secs: watch.max_lag().map(|max_lag| max_lag.as_secs()),
            streams: stored.streams.clone(),
            streams_left_out: stored.streams_left_out,
            runs: stored.runs.clone(),
            rate_limit: rate_limit(sync_status, shown.limited_until_ms, progress.as_ref(), now_ms),
            deliveries: Deliveries {
                pending: shown.waiting.deliveries,
                pending_bytes: shown.waiting.bytes,
                oldest_at: shown.waiting.oldest_ms.map(Moment),
                can_be_stored: board.is_storing(),
                stored: board.stored().filter(|(_, n)| *n > 0).map(|(kind, count)| (kind.name(), count)).collect(),
            },
        }
    }
}

fn under_way(board: &Board, sync_status: &SyncStatus, progress: Option<&Reading>) -> Option<UnderWay> {
    let shown = board.shown();
    if let Some(command) = shown.running {
        return Some(UnderWay {
            command: command.to_owned(),
            since: shown.running_since_ms.map(Moment),
            is_elsewhere: false,
            line: progress.map(Reading::line),
            progress: progress.cloned(),
        });
    }
    let run = sync_status.last_run.as_ref().filter(|run| run.outcome == "running")?;
    let (command, since) = (run.command.clone(), Some(Moment(run.started_ms)));
    Some(UnderWay { command, since, is_elsewhere: true, line: None, progress: None })
}

fn rate_limit(sync_status: &SyncStatus, limited_ms: Option<i64>, progress: Option<&Reading>, now_ms: i64) -> RateLimit {
    let waiting = progress.and_then(|progress| progress.waiting);
    let told = waiting.filter(|wait| wait.why == "rate limited");
    let told_ms = told.map(|wait| now_ms.saturating_add(i64::try_from(wait.secs).unwrap_or(0).saturating_mul(1000)));
    let until_ms =
        [limited_ms, sync_status.rate_limited_until_ms].into_iter().flatten().max().filter(|at| *at > now_ms);
    RateLimit {
        requests_per_sec: progress
            .and_then(|progress| progress.requests_per_sec_max)
            .or(sync_status.learned_requests_per_sec),
        requests_per_sec_now: progress.map(|progress| progress.requests_per_sec),
        retry_after: until_ms.or(told_ms).map(Moment),
        waiting: waiting.map(|wait| wait.why.to_owned()),
    }
}
