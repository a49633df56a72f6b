//! The last runs and the lag of each stream, read from the checkpoints.

use std::{collections::BTreeMap, ops::ControlFlow};

use crate::{
    config::Settings,
    model::is_in_future,
    pipeline::{LEARNED_RATE, RunReason, RunReport, RunTimes, retry_after_until_ms},
    source::LearnedRate,
    state::{Inbox, PendingDeliveries, RunEntry, State, StateError},
};

use super::{FailedRun, PresentTime, RunSummary, ScopeLag, StreamLag, scope_lags, stream_lags};

/// The commands that bring the warehouse up to date. In this file, a "sync run" is a run of one of these commands.
/// `wake` is not in the list: a wake-up reads only the streams that a webhook named, so its success proves nothing
/// about other streams.
const SYNC_COMMANDS: [&str; 3] = ["sync", "backfill", "users pull"];

/// The last runs and the lag of each stream. A failed run is *resolved* when a later run succeeded in its place
/// ([`RunSummary::resolves`]).
#[derive(Clone, Debug, Default)]
pub struct SyncStatus {
    /// When the status was read, epoch milliseconds by this machine.
    pub now_ms: i64,
    /// The newest run of any command, finished or not.
    pub last_run: Option<RunSummary>,
    /// The newest sync run that ended or was killed.
    pub last_ended: Option<RunSummary>,
    /// The newest successful sync run that did not end in the future: everything that was due is in the warehouse.
    pub last_success: Option<RunSummary>,
    /// True if a sync run has succeeded, whatever its time.
    pub has_succeeded: bool,
    /// The newest failed sync run that is not resolved.
    pub last_failure: Option<RunSummary>,
    /// The number of failed sync runs that are not resolved.
    pub failures_in_a_row: u32,
    /// Killed sync runs, newest first, except those that a run before [`SyncStatus::last_ended`] resolved.
    pub killed_runs: Vec<RunSummary>,
    /// The JSON report of [`SyncStatus::last_ended`]; `None` if that run recorded no end.
    pub last_report: Option<serde_json::Value>,
    /// For each command: when its newest successful run ended, epoch milliseconds.
    pub last_success_ms: BTreeMap<String, i64>,
    /// How far each scope is behind the service's clock.
    pub scope_lags: Vec<ScopeLag>,
    /// How far each configured stream is behind the service's clock.
    pub stream_lags: Vec<StreamLag>,
    /// The end of the service's `Retry-After`, before which no command sends a request; `None` if none is in force.
    pub rate_limited_until_ms: Option<i64>,
    /// The learned rate limit of the service, in requests per second; `None` if the service has not limited requests so
    /// far.
    pub learned_requests_per_sec: Option<f64>,
}

impl SyncStatus {
    /// Reads the status. If there is no state file, returns a status without runs and coverage.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn read(settings: &Settings, now_ms: i64) -> Result<SyncStatus, StateError> {
        match State::open_if_current(&settings.state_path)? {
            Some(state) => SyncStatus::from_state(settings, &state, now_ms),
            None => Ok(SyncStatus { now_ms, stream_lags: stream_lags(settings, &[]), ..SyncStatus::default() }),
        }
    }

    /// Reads the status from the checkpoints. Measures lags by the [`PresentTime`].
    fn from_state(settings: &Settings, state: &State, now_ms: i64) -> Result<SyncStatus, StateError> {
        let scope_lags = scope_lags(settings, state, PresentTime::read(state, now_ms)?)?;
        let learned = state.behaviour::<LearnedRate>(LEARNED_RATE)?;
        let mut status = SyncStatus {
            now_ms,
            stream_lags: stream_lags(settings, &scope_lags),
            scope_lags,
            rate_limited_until_ms: retry_after_until_ms(state, now_ms)?,
            learned_requests_per_sec: learned.and_then(|(rate, _)| rate.requests_per_sec),
            ..SyncStatus::default()
        };
        status.read_history(state)?;
        Ok(status)
    }

    /// Counts the webhook deliveries that are not in the warehouses yet. Reads every stored delivery.
    ///
    /// # Errors
    /// The inbox cannot be read.
    pub fn pending_deliveries(settings: &Settings) -> Result<PendingDeliveries, StateError> {
        let inbox = Inbox::open_read_only(&settings.state_path)?;
        inbox.map_or(Ok(PendingDeliveries::default()), |inbox| inbox.count_pending())
    }

    /// Adds a run that is not in the history, because it failed before it could be recorded.
    pub fn add_unrecorded_run(&mut self, report: &RunReport, moments: RunTimes) {
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
        let run = RunSummary::from_entry(entry, None);
        if run.is_failure() {
            self.failures_in_a_row += 1;
            self.last_failure = Some(run.clone());
        }
        (self.last_run, self.last_ended) = (Some(run.clone()), Some(run));
    }

    fn is_last_ended(&self, run: &RunSummary) -> bool {
        self.last_ended.as_ref().is_some_and(|last| last.run_id == run.run_id)
    }

    /// Reads the history of runs, newest first, into the fields about runs.
    fn read_history(&mut self, state: &State) -> Result<(), StateError> {
        let holder = state.current_holder()?;
        self.last_success_ms = state.last_successes(self.now_ms)?;
        let mut successes: Vec<RunSummary> = Vec::new();
        // Runs are visited newest first. The visit stops at a success that resolves every earlier failure and is not
        // the newest sync run. A kill before the newest run may not have been notified yet.
        state.visit_runs(|entry| {
            let report = entry.report.clone();
            let run = RunSummary::from_entry(entry, holder.as_ref());
            self.last_run.get_or_insert_with(|| run.clone());
            if !SYNC_COMMANDS.contains(&run.command.as_str()) || run.is_running() {
                return ControlFlow::Continue(());
            }
            if self.last_ended.is_none() {
                self.last_ended = Some(run.clone());
                self.last_report = report.and_then(|report| serde_json::from_str(&report).ok());
            }
            if run.is_success() {
                let resolves_all = run.resolves(&FailedRun::default()) && !self.is_last_ended(&run);
                self.has_succeeded = true;
                if !is_in_future(run.ended_ms(), self.now_ms) {
                    self.last_success.get_or_insert_with(|| run.clone());
                }
                successes.push(run);
                return if resolves_all && self.last_success.is_some() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                };
            }
            let failed = run.as_failed();
            let mut earlier_successes = successes.iter().filter(|success| !self.is_last_ended(success));
            if run.reason == Some(RunReason::RunKilled) && !earlier_successes.any(|success| success.resolves(&failed)) {
                self.killed_runs.push(run.clone());
            }
            if run.is_failure() && !successes.iter().any(|success| success.resolves(&failed)) {
                self.failures_in_a_row += 1;
                self.last_failure.get_or_insert(run);
            }
            ControlFlow::Continue(())
        })
    }
}
