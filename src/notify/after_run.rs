//! Does the work after a run has released its lease: writes the textfile, and notifies. This work cannot change the
//! run's outcome.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::{
    config::{NotifyEvent, Settings},
    metrics::{MetricValues, add_sync_status, write_textfile},
    model::RunId,
    otlp,
    pipeline::{PipelineError, RunReport, RunTimes, chain},
    sync_status::{Health, HealthRules, RunSummary, Status},
};

use super::{
    decision::RunContext,
    delivery::deliver,
    message::Message,
    outbox::{Channel, Outbox},
};

/// A run that has ended.
#[derive(Debug)]
pub struct EndedRun {
    command: &'static str,
    moments: RunTimes,
    /// The report to use if the history of runs has no entry of this run; `None` for a run without an error.
    fallback_report: Option<RunReport>,
    /// Why somebody should look at what was done after the run, in a sentence.
    attention: Option<String>,
}

impl EndedRun {
    /// Describes a run by its command, its times, and the error that ended the run; `None` for a run without an error.
    pub fn new(
        settings: &Settings,
        command: &'static str,
        moments: RunTimes,
        error: Option<&PipelineError>,
    ) -> EndedRun {
        let run_id = RunId::new(moments.started_ms);
        let fallback_report =
            error.map(|error| RunReport::failed_start(run_id, command, moments, error).with_lists_of(settings));
        EndedRun { command, moments, fallback_report, attention: None }
    }

    /// Adds why somebody should look at what was done after the run, such as an erasure of vanished sessions.
    #[must_use]
    pub fn with_attention(self, attention: Option<String>) -> EndedRun {
        EndedRun { attention, ..self }
    }
}

/// Writes the textfile and notifies after a run. Takes a limited time and never fails.
pub async fn after_run(settings: &Settings, run: &EndedRun, rules: HealthRules) {
    if settings.metrics.textfile.is_none() && !settings.notify.is_enabled() && !otlp::is_on() {
        return;
    }
    let status = status_with(settings, run);
    let health = Health::new(&status, settings, rules);
    write_metrics(settings, &status, &health);
    if settings.notify.is_enabled() {
        notify(settings, &status, &health, rules, true).await;
    }
}

/// Writes the textfile between runs, because the lag grows. Also notifies about killed runs, and sends pending
/// messages. If the checkpoints cannot be read, the textfile stays unchanged.
pub async fn between_runs(settings: &Settings, now_ms: i64, rules: HealthRules) {
    let read = Status::read(settings, now_ms);
    if let Err(error) = &read {
        tracing::warn!(why = chain(error), "cannot read the checkpoints: the metrics stay unchanged");
    }
    let is_known = read.is_ok();
    let status = read.unwrap_or_else(|_| Status { now_ms, ..Status::default() });
    let health = Health::new(&status, settings, rules);
    if is_known && (settings.metrics.textfile.is_some() || otlp::is_on()) {
        write_metrics(settings, &status, &health);
    }
    if settings.notify.is_enabled() {
        notify(settings, &status, &health, rules, false).await;
    }
}

/// Notifies that a report was written to this path, or why it cannot be written.
pub async fn after_report(settings: &Settings, written: &Result<PathBuf, String>, now_ms: i64) {
    let notify = &settings.notify;
    if !notify.is_enabled() {
        return;
    }
    let mut outbox = Outbox::open(settings).await;
    outbox.add(now_ms, &Channel::configured(settings), |state| {
        let events = state.events_for_report(written.is_ok(), notify.again_after, now_ms);
        let wanted = events.into_iter().filter(|event| notify.on.contains(event));
        wanted.map(|event| Message::report(event, settings, written, now_ms)).collect()
    });
    deliver(settings, &mut outbox).await;
}

/// Reads the status. If the history has no entry of this run, its fallback report is added to the status.
fn status_with(settings: &Settings, run: &EndedRun) -> Status {
    let now_ms = run.moments.finished_ms;
    let mut status = Status::read(settings, now_ms).unwrap_or_else(|error| {
        tracing::debug!(why = chain(&error), "cannot read the checkpoints after the run");
        Status { now_ms, ..Status::default() }
    });
    let last = status.last_ended.as_ref();
    let is_recorded = last.is_some_and(|last| last.command == run.command && last.started_ms >= run.moments.started_ms);
    if let Some(report) = run.fallback_report.as_ref().filter(|_| !is_recorded) {
        status.add_unrecorded_run(report, run.moments);
    }
    if let (Some(attention), Some(last), true) = (&run.attention, &mut status.last_ended, is_recorded) {
        last.add_attention(attention);
    }
    status
}

/// Writes the textfile and sets the values for OTLP. A failure is only logged.
fn write_metrics(settings: &Settings, status: &Status, health: &Health) {
    let mut metrics = MetricValues::new(&settings.service.environment, &settings.service.host());
    add_sync_status(&mut metrics, status, health);
    if let Ok(pending) = Status::pending_deliveries(settings) {
        metrics.set_count("pending_deliveries", &[], pending.deliveries);
    }
    otlp::record(&metrics);
    let Some(path) = &settings.metrics.textfile else { return };
    if let Err(error) = write_textfile(path, &metrics) {
        tracing::warn!(path = %path.display(), why = chain(&error), "cannot write the metrics");
    }
}

/// Notifies about killed runs and, if `has_ended`, about the newest run that ended. Afterwards sends every pending
/// message.
async fn notify(settings: &Settings, status: &Status, health: &Health, rules: HealthRules, has_ended: bool) {
    let (notify, now_ms) = (&settings.notify, status.now_ms);
    let ended = status.last_ended.as_ref().filter(|_| has_ended);
    let context = RunContext {
        is_tolerated: rules.failures_tolerated > 0 && ended.is_some_and(|run| !health.is_failing_for(run)),
        failures_in_a_row: status.failures_in_a_row,
        after_failures: notify.after_failures,
        unresolved_failure: status.last_failure.as_ref(),
        again_after: notify.again_after,
        now_ms,
    };
    let mut outbox = Outbox::open(settings).await;
    outbox.add(now_ms, &Channel::configured(settings), |state| {
        let mut messages = Vec::new();
        let mut add_messages = |events: Vec<NotifyEvent>, run: &RunSummary, json: &Value| {
            let wanted = events.into_iter().filter(|event| notify.on.contains(event));
            messages.extend(wanted.map(|event| Message::new(event, run, health, json.clone(), settings)));
        };
        // The oldest run comes first. A killed run has no report, so its summary takes the place of the report.
        for run in status.killed_runs.iter().rev() {
            add_messages(state.events_for_killed_run(run, &context), run, &json!(run));
        }
        if let Some(run) = ended {
            let json = status.last_report.as_ref().unwrap_or(&Value::Null);
            add_messages(state.events_for_run(run, &context), run, json);
        }
        messages
    });
    deliver(settings, &mut outbox).await;
}
