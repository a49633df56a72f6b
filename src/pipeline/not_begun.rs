//! Runs that fail before they can ask for anything stand in the history too:
//! whoever watches runs has to see those first of all.

use crate::{
    config::Settings,
    model::RunId,
    state::{State, StateError},
};

use super::{PipelineError, RunMoments, RunReport, Session, System, assemble::identity, error::chain};

impl Session {
    /// The run that this session began has failed while it opened what it works with.
    pub(super) fn finish_not_begun(&self, error: &PipelineError) {
        let report = RunReport::not_begun(self.run_id.clone(), self.command, self.moments(), error);
        let report = report.for_lists_of(&self.settings);
        let text = serde_json::to_string(&report).unwrap_or_default();
        if let Err(error) = self.finish_run(report.header.outcome.name(), report.header.exit_code, &text) {
            tracing::warn!(why = chain(&error), "cannot write down that the run failed");
        }
    }
}

/// Writes down a run that failed before it had the lease, if there is a state file of this service already: a mistake
/// in the configuration makes none.
pub(super) fn note_not_begun(
    settings: &Settings,
    command: &'static str,
    started_ms: i64,
    error: &PipelineError,
    system: &System,
) {
    // What cannot be opened now could not be opened a moment ago.
    let is_hopeless = matches!(error, PipelineError::State(error) if !matches!(error, StateError::Leased { .. }));
    if is_hopeless || !settings.state_path.try_exists().unwrap_or(false) {
        return;
    }
    let Ok(identity) = identity(settings) else { return };
    let moments = RunMoments { started_ms, finished_ms: system.clock.now_ms() };
    let report = RunReport::not_begun(RunId::with_rng(started_ms, &system.rng), command, moments, error);
    let report = report.for_lists_of(settings);
    let noted = State::open(&settings.state_path, &identity.base_url, &identity.environment).and_then(|state| {
        let state = state.watched(system.failpoints.clone());
        let text = serde_json::to_string(&report).unwrap_or_default();
        state.begin_run(&report.run_id, command, started_ms)?;
        let (outcome, exit_code) = (report.header.outcome.name(), i64::from(report.header.exit_code));
        state.finish_run(&report.run_id, moments.finished_ms, outcome, exit_code, &text)
    });
    if let Err(error) = noted {
        tracing::debug!(why = chain(&error), "cannot write down that the run failed");
    }
}
