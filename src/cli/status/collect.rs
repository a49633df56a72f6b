//! Collects the status from checkpoints, warehouse, suppression list and inbox.

use crate::{
    clock,
    config::Settings,
    model::Window,
    pipeline::{LEARNED_RATE, known_behaviours, retry_after_until_ms},
    source::LearnedRate,
    state::{RunEntry, State, StateError},
    sync_status::{PresentTime, RunSummary, is_selected},
};

use super::{
    super::printer::format_second,
    erasures::WaitingErasure,
    json::{LastDrift, RunStatus, ScanStatus, Status},
    proofs::proofs,
    serving::serving,
    streams::streams,
    users::users,
};

/// Maximum recent runs that `status` shows.
const RUNS_SHOWN: u32 = 5;

/// Returns the status, without the result of --max-lag. `range` is the range whose proofs are requested; `None` for the
/// complete coverage.
pub(super) fn collect(
    settings: &Settings,
    state: &State,
    range: Option<Window>,
    erasures_waiting: Vec<WaitingErasure>,
) -> Result<Status, StateError> {
    let present = PresentTime::read(state, clock::now_ms())?;
    let now_ms = present.now_ms;
    let streams = streams(settings, state, present)?;
    let unfinished =
        state.unfinished_scans()?.into_iter().filter(|unfinished| is_selected(settings, unfinished.scan.scope));
    let unfinished = unfinished.map(|unfinished| ScanStatus {
        stream: unfinished.scan.scope.stream.name(),
        window: unfinished.scan.window.to_string(),
        pages: unfinished.pages,
        records: unfinished.rows,
    });
    let holder = state.current_holder()?;
    let runs = state.runs(RUNS_SHOWN)?;
    let last_drift = last_drift(&runs);
    let is_running = |run: &RunEntry| holder.as_ref().is_some_and(|holder| holder.run_id == run.run_id);
    let runs = runs.into_iter().map(|run| {
        let is_running = is_running(&run);
        run_status(RunSummary::from_entry(run, is_running))
    });
    Ok(Status {
        state: state.path().display().to_string(),
        base_url: state.meta("base_url")?,
        environment: state.meta("environment")?,
        running: holder.as_ref().map(ToString::to_string),
        streams,
        users: users(settings, state, now_ms)?,
        proofs: proofs(settings, state, range, now_ms)?,
        under_way: unfinished.collect(),
        requests_per_sec: state.behaviour::<LearnedRate>(LEARNED_RATE)?.and_then(|(rate, _)| rate.requests_per_sec),
        no_request_before: retry_after_until_ms(state, clock::now_ms())?.map(format_second),
        clock_skew_ms: present.skew_ms,
        clock_in_doubt: present.is_in_doubt,
        lag: None,
        traits: known_behaviours(state)?,
        runs: runs.collect(),
        erasures_waiting,
        serve: serving(&settings.state_path)?,
        last_drift,
    })
}

fn run_status(run: RunSummary) -> RunStatus {
    RunStatus {
        secs: run.finished_ms.map(|finished_ms| (finished_ms - run.started_ms) as f64 / 1000.0),
        outcome: run.outcome,
        started: format_second(run.started_ms),
        run_id: run.run_id,
        command: run.command,
        exit_code: run.exit_code,
        reason: run.reason,
        why: run.why,
        hint: run.hint,
    }
}

/// Returns the drift of the newest run whose report has the fields of drift. Reports of earlier versions, of `verify`
/// and of `replay` do not have them.
fn last_drift(runs: &[RunEntry]) -> LastDrift {
    let reports = runs.iter().filter_map(|run| run.report.as_deref());
    reports.filter_map(|report| serde_json::from_str(report).ok()).next().unwrap_or_default()
}
