//! The total of a plan: the estimated speed of its requests, the users that the next run reads, the sample of --probe.

use serde::Serialize;

use crate::{
    clock,
    config::Settings,
    model::{StoredReport, TimeParts},
    pipeline::{
        self, LEARNED_RATE, Sample, ScopeBacklog, people_due, refresh_intervals, short_lived_source, store_rate_limits,
    },
    plan::{Estimate, minutes},
    source::LearnedRate,
    state::{State, StateError},
};

use super::super::{
    CommandError, Context,
    signals::{end_on_signal, on_runtime},
};

/// Maximum number of the newest runs that are searched for a speed.
const RUNS_SEARCHED: u32 = 20;
/// Minimum requests of a run that shows the speed.
const REQUESTS_MIN: u64 = 10;

/// The sums over all streams and users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Total {
    pub windows: usize,
    /// The sum over the streams with an estimate; `None` if no stream has one.
    pub rows: Option<u64>,
    pub requests: Option<u64>,
    pub minutes: Option<f64>,
    /// True if a stream has no estimate, so that the sums do not include it.
    pub is_partial: bool,
}

impl Total {
    /// Returns the sums over the streams and the users.
    pub fn of<'a>(
        streams: impl Iterator<Item = &'a Estimate>,
        users: Option<&PlannedUsers>,
        requests_per_sec: Option<f64>,
    ) -> Total {
        let add = |sum: Option<u64>, number: Option<u64>| match (sum, number) {
            (Some(sum), Some(number)) => Some(sum + number),
            (sum, number) => sum.or(number),
        };
        let mut total = Total::default();
        for stream in streams {
            total.windows += stream.windows.len();
            total.is_partial |= stream.requests.is_none();
            (total.rows, total.requests) = (add(total.rows, stream.rows), add(total.requests, stream.requests));
        }
        total.requests = add(total.requests, users.map(|users| users.due));
        total.minutes = total.requests.and_then(|requests| minutes(requests, requests_per_sec));
        total
    }
}

/// The estimated speed of requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Speed {
    pub requests_per_sec: f64,
    pub basis: SpeedBasis,
}

/// The source of an estimated speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SpeedBasis {
    /// The service's rate limit, as runs have learned it.
    Limit,
    /// `requests_per_sec_max` of the settings.
    Setting,
    /// The speed of an earlier run that met no rate limit.
    EarlierRun,
    /// The speed of an earlier run that the service rate limited, without its waits.
    EarlierLimitedRun,
    /// The speed of the sample of --probe.
    Probe,
}

impl Speed {
    /// Returns the best known speed: the learned limit, else the speed of an earlier run, else the speed of the sample.
    /// A speed above the configured maximum is reduced to this maximum. If no speed is known, returns the configured
    /// maximum, or `None` without one.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn known(
        settings: &Settings,
        state: Option<&State>,
        probed: Option<&ProbeResult>,
    ) -> Result<Option<Speed>, StateError> {
        let learned = state.map(|state| state.behaviour::<LearnedRate>(LEARNED_RATE)).transpose()?.flatten();
        let earlier = state.map(earlier_run).transpose()?.flatten();
        let cap = settings.throttle.requests_per_sec_max;
        let speed = |basis| move |requests_per_sec| Speed { requests_per_sec, basis };
        let found = learned.and_then(|(rate, _)| rate.requests_per_sec).map(speed(SpeedBasis::Limit));
        let found = found.or(earlier);
        let found = found.or(probed.map(|probed| probed.requests_per_sec).map(speed(SpeedBasis::Probe)));
        Ok(match (found, cap) {
            (Some(found), Some(cap)) if found.requests_per_sec > cap => Some(speed(SpeedBasis::Setting)(cap)),
            (None, Some(cap)) => Some(speed(SpeedBasis::Setting)(cap)),
            (found, _) => found,
        })
    }
}

/// Returns the answered requests per second of a run, without the time in which the run only waited. `None` if the run
/// sent too few requests, or if its report does not tell.
fn speed_of(report: &StoredReport) -> Option<Speed> {
    let refused = report.get("/requests/by_status/429").unwrap_or(0);
    let answered = report.get::<u64>("/requests/total")?.saturating_sub(refused);
    let TimeParts { wall, told_to_wait, chose_to_wait, .. } = report.get("/time_ms")?;
    let active_ms = wall.saturating_sub(told_to_wait + chose_to_wait).max(1);
    let is_limited = refused > 0 || told_to_wait > 0;
    (answered >= REQUESTS_MIN).then(|| Speed {
        requests_per_sec: answered as f64 * 1000.0 / active_ms as f64,
        basis: if is_limited { SpeedBasis::EarlierLimitedRun } else { SpeedBasis::EarlierRun },
    })
}

/// Returns the speed of the newest run that sent enough requests; `None` if there is no such run.
fn earlier_run(state: &State) -> Result<Option<Speed>, StateError> {
    let runs = state.runs(RUNS_SEARCHED)?;
    Ok(runs.iter().find_map(|run| speed_of(&StoredReport::parse(run.report.as_deref()))))
}

/// The users that the next run reads, with one request each.
#[derive(Serialize)]
pub(in super::super) struct PlannedUsers {
    /// Number of users that the warehouse names.
    pub named: u64,
    /// Number of named users that are due.
    pub due: u64,
    /// Estimated minutes; `None` if no rate is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<f64>,
}

/// Counts the users that the warehouse names and those that are due. `minutes` is `None`. Returns `None` if the
/// warehouse is missing or cannot be read.
pub(in super::super) fn planned_users(settings: &Settings, state: Option<&State>, now_ms: i64) -> Option<PlannedUsers> {
    let rules = refresh_intervals(&settings.users, now_ms);
    let is_due = |user_id: &str| state.map_or(Ok(true), |state| state.is_person_due(user_id, &rules));
    match people_due(&settings.warehouse, is_due) {
        Ok(counts) => Some(PlannedUsers { named: counts.named, due: counts.due, minutes: None }),
        Err(error) => {
            tracing::info!(%error, "cannot estimate the users to read: the warehouse is unreadable");
            None
        }
    }
}

/// Maximum requests of all samples together, far above the usual number.
const REQUESTS_MAX: u64 = 1000;

/// The result of --probe.
pub(super) struct ProbeResult {
    /// The service's time.
    pub now_ms: i64,
    /// The backlog of each scope at the service's time.
    pub backlog: Vec<ScopeBacklog>,
    /// The sample of each scope of the backlog, in order; `None` for a scope that has nothing due, or whose sampled
    /// windows have no row.
    pub samples: Vec<Option<Sample>>,
    pub requests: u64,
    /// The speed of the sample's requests, which are sent one after the other.
    pub requests_per_sec: f64,
}

/// Requests the service's time, and a sample of each scope that is due at this time. `backlog_at` returns the backlog
/// of each scope at a time. If the service sends no time, this machine's time is used.
pub(super) fn probe(
    settings: &Settings,
    context: &Context,
    backlog_at: impl FnOnce(i64) -> Result<Vec<ScopeBacklog>, CommandError>,
) -> Result<ProbeResult, CommandError> {
    on_runtime(async {
        end_on_signal();
        let source = short_lived_source(settings, Some(REQUESTS_MAX))?;
        let base_url = settings.service.base_url.as_deref().unwrap_or_default();
        context.message(&format!("requesting a sample from {base_url} ...\n"));
        let started = tokio::time::Instant::now();
        let sampled = async {
            let now_ms = source.probe().await?.service_now_ms.unwrap_or_else(clock::now_ms);
            let backlog = backlog_at(now_ms)?;
            let mut samples = Vec::new();
            for scope in &backlog {
                samples.push(pipeline::sample(&source, scope).await?);
            }
            Ok::<_, CommandError>((now_ms, backlog, samples))
        };
        let sampled = sampled.await;
        // Also after an error: the next command must know a `Retry-After`.
        store_rate_limits(&source, settings);
        let (now_ms, backlog, samples) = sampled?;
        let requests = source.request_stats().total;
        let requests_per_sec = requests as f64 / started.elapsed().as_secs_f64().max(0.001);
        Ok(ProbeResult { now_ms, backlog, samples, requests, requests_per_sec })
    })
}
