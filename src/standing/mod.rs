//! How it stands, in one place: the last runs, what failed and why, and how far each stream is behind. `serve`,
//! metrics, notifications and the command line read it here, so that all of them say the same.
//!
//! It is read from the checkpoints alone: no warehouse is opened, nothing is sent, and no lease is taken.

mod health;
mod lag;
mod run_summary;

pub use health::{Health, HealthRules, MAX_LAG, Reason, codes};
pub use lag::{Behind, Lag, ScopeLag, StreamLag, is_asked_for, lag_secs, length, scope_lags, stream_lags};
pub use run_summary::{FailedRun, RunSummary};

use std::{collections::BTreeMap, ops::ControlFlow};

use crate::{
    config::Settings,
    pipeline::{CLOCK_SKEW, LEARNED_RATE, RunMoments, RunReason, RunReport, told_wait_until},
    source::LearnedRate,
    state::{Inbox, RunEntry, State, StateError, Waiting},
};

/// The commands that bring the warehouse up to date: whether nights fail is judged by them. `wake` is not one of them:
/// it reads what a webhook hinted at, and says nothing of the rest.
const NIGHTLY: [&str; 3] = ["sync", "backfill", "users pull"];

/// How it stands.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// When it was read, epoch milliseconds by this machine.
    pub now_ms: i64,
    /// The newest run of any command, also one that is still at work.
    pub last_run: Option<RunSummary>,
    /// The newest nightly run that ended.
    pub last_ended: Option<RunSummary>,
    /// The newest nightly run that brought everything that was due.
    pub last_success: Option<RunSummary>,
    /// The newest nightly run that failed and that no later run has made good.
    pub last_failure: Option<RunSummary>,
    /// Nightly runs that failed and that no later run has made good.
    pub failures_in_a_row: u32,
    /// Nightly runs that were killed, the newest first,
    /// unless a run before [`Standing::last_ended`] has made them good.
    pub killed: Vec<RunSummary>,
    /// The JSON of [`Standing::last_ended`]; `None` if its end was not written down.
    pub last_report: Option<serde_json::Value>,
    /// When the newest run of each command ended well, epoch milliseconds.
    pub last_success_ms: BTreeMap<String, i64>,
    /// How far each scope is behind, by the service's clock.
    pub scope_lags: Vec<ScopeLag>,
    /// The same for each list that the settings name.
    pub lags: Vec<StreamLag>,
    /// Before this time no command asks the service, which told so.
    pub no_request_before_ms: Option<i64>,
    /// What was learned of the service's limit; `None`: none was met.
    pub requests_per_sec: Option<f64>,
}

impl Standing {
    /// Reads it. Without a state file nothing is known yet.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn read(settings: &Settings, now_ms: i64) -> Result<Standing, StateError> {
        match State::open_if_current(&settings.state_path)? {
            Some(state) => Standing::of(settings, &state, now_ms),
            None => Ok(Standing { now_ms, lags: stream_lags(settings, &[]), ..Standing::default() }),
        }
    }

    /// Reads it from checkpoints that are open.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn of(settings: &Settings, state: &State, now_ms: i64) -> Result<Standing, StateError> {
        let skew_ms = state.behaviour::<i64>(CLOCK_SKEW)?.map_or(0, |(skew_ms, _)| skew_ms);
        let scope_lags = scope_lags(settings, state, now_ms.saturating_add(skew_ms))?;
        let learned = state.behaviour::<LearnedRate>(LEARNED_RATE)?;
        let mut standing = Standing {
            now_ms,
            lags: stream_lags(settings, &scope_lags),
            scope_lags,
            no_request_before_ms: told_wait_until(state, now_ms)?,
            requests_per_sec: learned.and_then(|(rate, _)| rate.requests_per_sec),
            ..Standing::default()
        };
        standing.read_runs(state)?;
        Ok(standing)
    }

    /// What waits for the warehouses. It is counted, row by row.
    ///
    /// # Errors
    /// The inbox cannot be read.
    pub fn waiting_deliveries(settings: &Settings) -> Result<Waiting, StateError> {
        let inbox = Inbox::open_read_only(&settings.state_path)?;
        inbox.map_or(Ok(Waiting::default()), |inbox| inbox.count_waiting())
    }

    /// Whether a nightly run ever brought everything that was due.
    pub fn has_succeeded(&self) -> bool {
        self.last_success.is_some()
    }

    /// Adds a run that failed before it could be written down.
    pub fn add_unrecorded(&mut self, report: &RunReport, moments: RunMoments) {
        let entry = RunEntry {
            run_id: report.run_id.0.clone(),
            command: report.header.command.to_owned(),
            started_ms: moments.started_ms,
            finished_ms: Some(moments.finished_ms),
            outcome: Some(report.header.outcome.name().to_owned()),
            exit_code: Some(i64::from(report.header.exit_code)),
            report: serde_json::to_string(report).ok(),
        };
        self.last_report = serde_json::to_value(report).ok();
        let run = RunSummary::of(entry, false);
        if run.is_failure() {
            self.failures_in_a_row += 1;
            self.last_failure = Some(run.clone());
        }
        (self.last_run, self.last_ended) = (Some(run.clone()), Some(run));
    }

    fn is_last_ended(&self, run: &RunSummary) -> bool {
        self.last_ended.as_ref().is_some_and(|last| last.run_id == run.run_id)
    }

    fn read_runs(&mut self, state: &State) -> Result<(), StateError> {
        let holder = state.current_holder()?;
        self.last_success_ms = state.last_successes()?;
        let mut successes: Vec<RunSummary> = Vec::new();
        // Newest first, down to a success that makes good whatever failed before it, and of which people were told.
        state.visit_runs(|entry| {
            let is_holder = holder.as_ref().is_some_and(|holder| holder.run_id == entry.run_id);
            let is_running = is_holder && entry.finished_ms.is_none();
            let report = entry.report.clone();
            let run = RunSummary::of(entry, is_running);
            self.last_run.get_or_insert_with(|| run.clone());
            if !NIGHTLY.contains(&run.command.as_str()) || is_running {
                return ControlFlow::Continue(());
            }
            if self.last_ended.is_none() {
                self.last_ended = Some(run.clone());
                self.last_report = report.and_then(|report| serde_json::from_str(&report).ok());
            }
            if run.is_success() {
                let is_whole = run.makes_good(&FailedRun::default()) && !self.is_last_ended(&run);
                self.last_success.get_or_insert_with(|| run.clone());
                successes.push(run);
                return if is_whole { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            }
            let failed = run.as_failed();
            let mut of_others = successes.iter().filter(|success| !self.is_last_ended(success));
            if run.reason == Some(RunReason::RunKilled) && !of_others.any(|success| success.makes_good(&failed)) {
                self.killed.push(run.clone());
            }
            if run.is_failure() && !successes.iter().any(|success| success.makes_good(&failed)) {
                self.failures_in_a_row += 1;
                self.last_failure.get_or_insert(run);
            }
            ControlFlow::Continue(())
        })
    }
}

#[cfg(test)]
mod tests;
