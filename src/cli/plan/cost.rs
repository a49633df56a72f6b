//! The total of a plan, and the estimated speed of its requests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    config::Settings,
    model::TimeParts,
    pipeline::LEARNED_RATE,
    plan::{Estimate, minutes},
    source::LearnedRate,
    state::{State, StateError},
};

use super::{probe::ProbeResult, users::PlannedUsers};

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

/// The fields of a run's JSON that show its speed.
#[derive(Deserialize)]
struct ReportFields {
    requests: RequestFields,
    time_ms: TimeParts,
}

#[derive(Deserialize)]
struct RequestFields {
    total: u64,
    #[serde(default)]
    by_status: BTreeMap<String, u64>,
}

impl ReportFields {
    /// Returns the answered requests per second, without the time in which the run only waited. `None` if the run sent
    /// too few requests.
    fn speed(&self) -> Option<Speed> {
        let refused = self.requests.by_status.get("429").copied().unwrap_or(0);
        let answered = self.requests.total.saturating_sub(refused);
        let TimeParts { wall, told_to_wait, chose_to_wait, .. } = self.time_ms;
        let active_ms = wall.saturating_sub(told_to_wait + chose_to_wait).max(1);
        let is_limited = refused > 0 || told_to_wait > 0;
        (answered >= REQUESTS_MIN).then(|| Speed {
            requests_per_sec: answered as f64 * 1000.0 / active_ms as f64,
            basis: if is_limited { SpeedBasis::EarlierLimitedRun } else { SpeedBasis::EarlierRun },
        })
    }
}

/// Returns the speed of the newest run that sent enough requests; `None` if there is no such run.
fn earlier_run(state: &State) -> Result<Option<Speed>, StateError> {
    let speed = |report: &str| serde_json::from_str::<ReportFields>(report).ok()?.speed();
    Ok(state.runs(RUNS_SEARCHED)?.iter().find_map(|run| run.report.as_deref().and_then(speed)))
}
