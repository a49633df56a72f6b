//! Reports and records runs that failed before they could send a request, so that monitors see them.

use crate::{
    config::Settings,
    model::RunId,
    state::{State, StateError},
};

use super::{PipelineError, RunReport, RunTimes, Session, System, assemble::identity, error::chain};

/// A run that failed before it could send a request.
#[derive(Debug)]
pub struct FailedStart {
    pub error: PipelineError,
    /// The report of the run, as in the history of runs.
    pub report: Box<RunReport>,
}

impl FailedStart {
    /// Creates the report of a run that has no session and failed now. Does not record the run.
    pub(super) fn new(
        settings: &Settings,
        command: &'static str,
        started_ms: i64,
        error: PipelineError,
        system: &System,
    ) -> FailedStart {
        let times = RunTimes { started_ms, finished_ms: system.clock.now_ms() };
        let report = RunReport::failed_start(RunId::with_rng(started_ms, &system.rng), command, times, &error);
        FailedStart { error, report: Box::new(report.with_lists_of(settings)) }
    }
}

impl From<FailedStart> for PipelineError {
    fn from(failed: FailedStart) -> PipelineError {
        failed.error
    }
}

impl Session {
    /// Records in the state file that the run failed. The run had taken the lease, and had sent no request yet. An
    /// error of the state file is only logged.
    pub(super) fn finish_failed_start(&self, error: PipelineError) -> FailedStart {
        let report = RunReport::failed_start(self.run_id.clone(), self.command, self.times(), &error);
        let report = report.with_lists_of(&self.settings);
        let text = serde_json::to_string(&report).unwrap_or_default();
        if let Err(error) = self.finish_run(report.header.outcome.name(), report.header.exit_code, &text) {
            tracing::warn!(why = chain(&error), "cannot record that the run failed");
        }
        FailedStart { error, report: Box::new(report) }
    }
}

/// Records a run that failed before it had the lease. Records nothing if there is no state file, because a mistake in
/// the configuration must not create one.
pub(super) fn record_failed_start(
    settings: &Settings,
    command: &'static str,
    started_ms: i64,
    error: PipelineError,
    system: &System,
) -> FailedStart {
    let failed = FailedStart::new(settings, command, started_ms, error, system);
    // A state file that could not be opened a moment ago cannot be opened now either.
    let is_unusable =
        matches!(&failed.error, PipelineError::State(error) if !matches!(error, StateError::Leased { .. }));
    if !is_unusable && settings.state_path.try_exists().unwrap_or(false) {
        record(settings, &failed.report, started_ms, system);
    }
    failed
}

/// Stores the report in the history of runs. An error is only logged.
fn record(settings: &Settings, report: &RunReport, started_ms: i64, system: &System) {
    let Ok(identity) = identity(settings) else { return };
    let recorded = State::open(&settings.state_path, &identity.base_url, &identity.environment).and_then(|state| {
        let state = state.with_failpoints(system.failpoints.clone());
        let text = serde_json::to_string(report).unwrap_or_default();
        state.begin_run(&report.run_id, report.header.command, started_ms)?;
        let (outcome, exit_code) = (report.header.outcome.name(), i64::from(report.header.exit_code));
        state.finish_run(&report.run_id, system.clock.now_ms(), outcome, exit_code, &text)
    });
    if let Err(error) = recorded {
        tracing::debug!(why = chain(&error), "cannot record that the run failed");
    }
}
