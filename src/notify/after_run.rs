//! What follows a run, once its lease is free: the textfile, then the notifications.
//! None of it changes how the run ended.

use serde_json::{Value, json};

use crate::{
    config::{NotifyEvent, Settings},
    metrics::{MetricValues, add_sync_status, write_textfile},
    model::RunId,
    otlp,
    pipeline::{PipelineError, RunMoments, RunReport, chain},
    sync_status::{Health, HealthRules, RunSummary, SyncStatus},
};

use super::{channel::Channel, decision::Circumstances, delivery::deliver, ledger::Ledger, message::Message};

/// A run that has ended.
#[derive(Debug)]
pub struct EndedRun {
    command: &'static str,
    moments: RunMoments,
    /// What is said of it if it could not write down its end itself.
    unrecorded: Option<RunReport>,
}

impl EndedRun {
    /// `error`: what ended it, if an error did.
    pub fn new(
        settings: &Settings,
        command: &'static str,
        moments: RunMoments,
        error: Option<&PipelineError>,
    ) -> EndedRun {
        let run_id = RunId::new(moments.started_ms);
        let unrecorded =
            error.map(|error| RunReport::not_begun(run_id, command, moments, error).for_lists_of(settings));
        EndedRun { command, moments, unrecorded }
    }
}

/// Writes the textfile, and tells whom the settings name. Takes a bounded time, and never fails.
pub async fn conclude(settings: &Settings, run: &EndedRun, rules: HealthRules) {
    if settings.metrics.textfile.is_none() && !settings.notify.is_on() && !otlp::is_on() {
        return;
    }
    let status = status_after(settings, run);
    let health = Health::new(&status, settings, rules);
    write_metrics(settings, &status, &health);
    if settings.notify.is_on() {
        let ended = status.last_ended.as_ref().map(|run| Ended {
            run,
            json: status.last_report.as_ref().unwrap_or(&Value::Null),
            is_tolerated: !health.is_failing_for(run) && rules.failures_tolerated > 0,
        });
        notify(settings, &status, &health, ended.as_ref()).await;
    }
}

/// The same between two runs: the textfile shows how lag grows, and what could not be delivered is tried again.
/// Killed runs are told of.
pub async fn refresh(settings: &Settings, now_ms: i64, rules: HealthRules) {
    let read = SyncStatus::read(settings, now_ms);
    if let Err(error) = &read {
        tracing::warn!(why = chain(error), "cannot read the checkpoints: the metrics stay unchanged");
    }
    let is_known = read.is_ok();
    let status = read.unwrap_or_else(|_| SyncStatus { now_ms, ..SyncStatus::default() });
    let health = Health::new(&status, settings, rules);
    if is_known && (settings.metrics.textfile.is_some() || otlp::is_on()) {
        write_metrics(settings, &status, &health);
    }
    if settings.notify.is_on() {
        notify(settings, &status, &health, None).await;
    }
}

/// How it stands, with the run, also if the run could not be written down.
fn status_after(settings: &Settings, run: &EndedRun) -> SyncStatus {
    let now_ms = run.moments.finished_ms;
    let mut status = SyncStatus::read(settings, now_ms).unwrap_or_else(|error| {
        tracing::debug!(why = chain(&error), "cannot read the checkpoints after the run");
        SyncStatus { now_ms, ..SyncStatus::default() }
    });
    let is_there = status
        .last_ended
        .as_ref()
        .is_some_and(|last| last.command == run.command && last.started_ms >= run.moments.started_ms);
    if let Some(report) = run.unrecorded.as_ref().filter(|_| !is_there) {
        status.add_unrecorded_run(report, run.moments);
    }
    status
}

fn write_metrics(settings: &Settings, status: &SyncStatus, health: &Health) {
    let mut metrics = MetricValues::default();
    add_sync_status(&mut metrics, status, health);
    if let Ok(waiting) = SyncStatus::pending_deliveries(settings) {
        metrics.set_count("pending_deliveries", &[], waiting.deliveries);
    }
    otlp::record(&metrics);
    let Some(path) = &settings.metrics.textfile else { return };
    if let Err(error) = write_textfile(path, &metrics) {
        tracing::warn!(path = %path.display(), why = chain(&error), "cannot write the metrics");
    }
}

/// Tells of runs that were killed since, and of the run that has ended, if one has.
async fn notify(settings: &Settings, status: &SyncStatus, health: &Health, ended: Option<&Ended<'_>>) {
    let (notify, now_ms) = (&settings.notify, status.now_ms);
    let (failure_left, again_after) = (status.last_failure.as_ref(), notify.again_after);
    let is_tolerated = ended.is_some_and(|ended| ended.is_tolerated);
    let circumstances = Circumstances { is_tolerated, failure_left, again_after, now_ms };
    let mut ledger = Ledger::open(settings).await;
    ledger.add(now_ms, &Channel::all(settings), |before| {
        let mut messages = Vec::new();
        let mut tell = |events: Vec<NotifyEvent>, run: &RunSummary, json: &Value| {
            let wanted = events.into_iter().filter(|event| notify.on.contains(event));
            messages.extend(wanted.map(|event| Message::of(event, run, health, json.clone(), settings)));
        };
        // The oldest first. A killed run has left no JSON of its own.
        for run in status.killed_runs.iter().rev() {
            tell(before.judge_killed(run, &circumstances), run, &json!(run));
        }
        if let Some(Ended { run, json, .. }) = ended {
            tell(before.judge(run, &circumstances), run, json);
        }
        messages
    });
    deliver(settings, &mut ledger).await;
}

/// The newest run, as it is told.
struct Ended<'a> {
    run: &'a RunSummary,
    json: &'a Value,
    /// Its failure is still retried.
    is_tolerated: bool,
}
