//! What follows a run, once its lease is free: the textfile, then the notifications. None of it changes how the run ended.

use serde_json::Value;

use crate::{
    config::Settings,
    metrics::{Exposition, add_standing, write_textfile},
    model::RunId,
    otlp,
    pipeline::{PipelineError, RunMoments, RunReport, chain},
    standing::{Health, HealthRules, Standing},
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
    let standing = standing_after(settings, run);
    let health = Health::of(&standing, settings, rules);
    write_metrics(settings, &standing, &health);
    if settings.notify.is_on() {
        notify(settings, &standing, &health, rules).await;
    }
}

/// The same between two runs: the textfile shows how lag grows, and what could not be delivered is tried again.
pub async fn refresh(settings: &Settings, now_ms: i64, rules: HealthRules) {
    if settings.metrics.textfile.is_some() || otlp::is_on() {
        match Standing::read(settings, now_ms) {
            Ok(standing) => write_metrics(settings, &standing, &Health::of(&standing, settings, rules)),
            Err(error) => tracing::warn!(why = chain(&error), "the metrics cannot be written anew"),
        }
    }
    if settings.notify.is_on() {
        deliver(settings, &mut Ledger::open(settings).await).await;
    }
}

/// How it stands, with the run, also if the run could not be written down.
fn standing_after(settings: &Settings, run: &EndedRun) -> Standing {
    let now_ms = run.moments.finished_ms;
    let mut standing = Standing::read(settings, now_ms).unwrap_or_else(|error| {
        tracing::debug!(why = chain(&error), "the checkpoints cannot be read after the run");
        Standing { now_ms, ..Standing::default() }
    });
    let is_there = standing
        .last_ended
        .as_ref()
        .is_some_and(|last| last.command == run.command && last.started_ms >= run.moments.started_ms);
    if let Some(report) = run.unrecorded.as_ref().filter(|_| !is_there) {
        standing.add_unrecorded(report, run.moments);
    }
    standing
}

fn write_metrics(settings: &Settings, standing: &Standing, health: &Health) {
    let mut metrics = Exposition::default();
    add_standing(&mut metrics, standing, health);
    if let Ok(waiting) = Standing::waiting_deliveries(settings) {
        metrics.count("pending_deliveries", &[], waiting.deliveries);
    }
    otlp::record(&metrics);
    let Some(path) = &settings.metrics.textfile else { return };
    if let Err(error) = write_textfile(path, &metrics) {
        tracing::warn!(path = %path.display(), why = chain(&error), "cannot write the metrics");
    }
}

async fn notify(settings: &Settings, standing: &Standing, health: &Health, rules: HealthRules) {
    let Some(run) = &standing.last_ended else { return };
    let (notify, now_ms) = (&settings.notify, standing.now_ms);
    let is_tolerated = !health.is_failing_for(run) && rules.failures_tolerated > 0;
    let json = standing.last_report.clone().unwrap_or(Value::Null);
    let failure_left = standing.last_failure.as_ref();
    let circumstances = Circumstances { is_tolerated, failure_left, again_after: notify.again_after, now_ms };
    let mut ledger = Ledger::open(settings).await;
    ledger.add(now_ms, &Channel::all(settings), |before| {
        let events = before.judge(run, &circumstances);
        let wanted = events.into_iter().filter(|event| notify.on.contains(event));
        wanted.map(|event| Message::of(event, run, health, json.clone(), settings)).collect()
    });
    deliver(settings, &mut ledger).await;
}
