//! The health of `serve`, derived from the checkpoints, which are read at intervals, and from the state in memory. Also
//! the endpoints for machines: `/readyz` (can deliveries be stored?), `/healthz` (is something wrong?) and `/metrics`.
//! No endpoint shows a person or a secret.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;
use tokio::{
    sync::{Mutex, oneshot},
    time::timeout,
};

use crate::{
    clock::Clock,
    config::Settings,
    metrics::{MetricValues, add_sync_status},
    model::{HOUR_MS, format_ms},
    pipeline::chain,
    sync_status::{Health, HealthRules, MAX_LAG, Status},
};

use super::{Counter, DeliveryQueue, Schedule, ServeError, ServeState, timely_read::TimelyRead};

/// The checkpoints are read again after this time, however many requests come.
const STATUS_MAX_AGE: Duration = Duration::from_secs(1);
/// Interval between two tests whether deliveries can be stored.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// Interval between two tests while deliveries cannot be stored.
const PROBE_EVERY_FAILING: Duration = Duration::from_secs(2);
/// How long a request waits for the result of a test.
const PROBE_WAIT: Duration = Duration::from_millis(500);
/// Time after which a test without a result has failed.
const PROBE_MAX: Duration = Duration::from_secs(10);
/// How much later than its tick a scheduled run may end before a stream counts as behind.
const LATE_MS: i64 = 2 * HOUR_MS;
/// Consecutive failed runs that are tolerated, because a failed run is retried.
const FAILURES_TOLERATED: u32 = 1;

/// The status that is derived from the checkpoints, or the error text if the checkpoints cannot be read.
pub(super) type StatusResult = Result<Status, String>;

/// Derives the health of `serve` and its metrics.
#[derive(Debug)]
pub struct HealthMonitor {
    pub(super) settings: Settings,
    pub(super) rules: HealthRules,
    pub(super) clock: Clock,
    pub(super) state: Arc<ServeState>,
    queue: DeliveryQueue,
    status: TimelyRead<StatusResult>,
    probe: Mutex<Probe>,
}

/// The tests whether deliveries can be stored.
#[derive(Debug, Default)]
struct Probe {
    /// When the last test began.
    begun: Option<Instant>,
    /// Receives the result of the test under way.
    result: Option<oneshot::Receiver<bool>>,
}

impl HealthMonitor {
    pub(super) fn new(
        settings: &Settings,
        clock: Clock,
        state: Arc<ServeState>,
        queue: DeliveryQueue,
    ) -> Result<HealthMonitor, ServeError> {
        let rules = health_rules(settings, clock.now_ms())?;
        let (status, probe) = Default::default();
        Ok(HealthMonitor { settings: settings.clone(), rules, clock, state, queue, status, probe })
    }

    /// Returns the status that is derived from the checkpoints, at most a second old if the checkpoints answer.
    pub(super) async fn sync_status(&self) -> Arc<StatusResult> {
        let (settings, now_ms) = (self.settings.clone(), self.clock.now_ms());
        let read = move || Status::read(&settings, now_ms).map_err(|error| chain(&error));
        let late = || Err("the state file does not answer".to_owned());
        self.status.get(|_, age| age < STATUS_MAX_AGE, read, late).await
    }

    /// Derives the health from the status and from the state in memory.
    pub(super) fn health(&self, sync_status: &StatusResult) -> Health {
        let mut health = match sync_status {
            Ok(sync_status) => Health::new(sync_status, &self.settings, self.rules),
            Err(why) => Health::unknown(format!("the checkpoints cannot be read: {why}")),
        };
        let status = self.state.status();
        if let Some((why, hint)) = status.key_refused {
            health.add_key_refused(why, hint);
        }
        if let Some(why) = status.flush_error {
            health.add_deliveries_waiting(why);
        }
        if let Some(why) = &status.report_error {
            health.add_report_failed(why);
        }
        if !self.state.can_store() {
            health.add_deliveries_not_stored();
        }
        health
    }

    /// Returns true if deliveries can be stored. The storage is tested at intervals. After a failure, a proxy may send
    /// no more deliveries, and then only a test shows that storing works again. A test that does not end in
    /// [`PROBE_MAX`] has failed.
    pub(super) async fn can_store(&self) -> bool {
        let mut probe = self.probe.lock().await;
        let Probe { begun, result } = &mut *probe;
        let interval = if self.state.can_store() { PROBE_EVERY } else { PROBE_EVERY_FAILING };
        if result.is_none() && begun.is_none_or(|begun| begun.elapsed() >= interval) {
            (*begun, *result) = (Some(Instant::now()), self.queue.probe());
        }
        // Requests that come later do not wait again.
        let wait = PROBE_WAIT.saturating_sub(begun.map_or(Duration::ZERO, |begun| begun.elapsed()));
        let Some(pending) = result else { return self.state.can_store() };
        match timeout(wait, pending).await {
            Ok(_) => *result = None,
            Err(_) if begun.is_some_and(|begun| begun.elapsed() >= PROBE_MAX) => return false,
            Err(_) => {}
        }
        self.state.can_store()
    }

    /// Returns the values of all metrics.
    pub(super) async fn metrics(&self) -> MetricValues {
        let service = &self.settings.service;
        let mut values = MetricValues::new(&service.environment, &service.host());
        let sync_status = self.sync_status().await;
        let health = self.health(&sync_status);
        let unknown = Status::default();
        add_sync_status(&mut values, sync_status.as_ref().as_ref().unwrap_or(&unknown), &health);
        add_serve_state(&mut values, &self.state);
        values
    }
}

/// Returns the limits of good health. The allowed lag is the configured one, or else the longest gap of the schedule
/// plus [`LATE_MS`], or [`MAX_LAG`] without a schedule. One failed run is tolerated only with a schedule.
///
/// # Errors
/// The configured schedule is invalid.
pub fn health_rules(settings: &Settings, now_ms: i64) -> Result<HealthRules, ServeError> {
    let schedule = Schedule::configured(&settings.serve)?;
    let max_lag = schedule.as_ref().map_or(MAX_LAG, |schedule| {
        let lag_ms = schedule.longest_gap_ms(now_ms).saturating_add(LATE_MS);
        Duration::from_millis(lag_ms.unsigned_abs())
    });
    let failures_tolerated = if schedule.is_some() { FAILURES_TOLERATED } else { 0 };
    Ok(HealthRules { max_lag: settings.serve.max_lag(max_lag), failures_tolerated })
}

/// Adds the counters and the daemon's status.
fn add_serve_state(values: &mut MetricValues, state: &ServeState) {
    for (kind, count) in state.stored() {
        values.set_count("deliveries_stored_total", &[kind.name()], count);
    }
    for (counter, name) in Counter::ALL {
        values.set_count(name, &[], state.counted(counter));
    }
    let status = state.status();
    values.set_count("pending_deliveries", &[], status.pending.deliveries);
    values.set_count("inbox_deliveries", &[], status.pending.deliveries);
    values.set_count("inbox_bytes", &[], status.pending.bytes);
    values.set_count("running", &[], u64::from(status.running.is_some()));
    values.set("next_run_ms", &[], status.schedule.next_ms.unwrap_or(0) as f64);
    values.set("last_run_ms", &[], status.schedule.last_finished_ms.unwrap_or(0) as f64);
    values.set_count("storing", &[], u64::from(state.can_store()));
    values.set("rate_limited_until_ms", &[], status.rate_limited_until_ms.unwrap_or(0) as f64);
}

/// Answers 200 while the health is good, else 503. The body lists every reason, those that fail and those that only
/// inform.
pub(super) async fn health(State(monitor): State<Arc<HealthMonitor>>) -> Response {
    let (can_store, sync_status) = tokio::join!(monitor.can_store(), monitor.sync_status());
    let health = monitor.health(&sync_status);
    let sync_status = sync_status.as_ref().as_ref().ok();
    let daemon = monitor.state.status();
    let time = |at_ms: Option<i64>| at_ms.map(format_ms);
    let lag_secs = |status: &Status| -> BTreeMap<_, _> {
        status.stream_lags.iter().map(|lag| (lag.stream, lag.lag_secs)).collect()
    };
    let body = json!({
        "status": status_line(can_store, daemon.rate_limited_until_ms, &health),
        "healthy": health.is_healthy(),
        "reasons": health.reasons,
        "last_run": sync_status.and_then(|status| status.last_ended.as_ref()),
        "last_success_at": sync_status.and_then(|status| status.last_success.as_ref()).map(|run| format_ms(run.ended_ms())),
        "failures_in_a_row": sync_status.map(|status| status.failures_in_a_row),
        "lag_secs": sync_status.map(lag_secs),
        "rate_limited_until": time(daemon.rate_limited_until_ms),
        "started_at": format_ms(monitor.state.started_ms),
        "running": daemon.running.map(|job| job.command),
        "trouble": daemon.last_error,
        "next_run_at": time(daemon.schedule.next_ms),
        "last_run_at": time(daemon.schedule.last_started_ms),
        "last_outcome": daemon.schedule.last_outcome,
        "waiting_deliveries": daemon.pending.deliveries,
        "waiting_since": time(daemon.pending.oldest_ms),
    });
    (code(health.is_healthy()), Json(body)).into_response()
}

/// Returns `ok`, or the most urgent problem in one line. `rate_limited_until_ms` is the end of a `Retry-After` for
/// which no run waits.
fn status_line(can_store: bool, rate_limited_until_ms: Option<i64>, health: &Health) -> String {
    match (can_store, rate_limited_until_ms) {
        (false, _) => "deliveries cannot be stored".to_owned(),
        (true, Some(_)) => "error: rate limited for longer than a run waits".to_owned(),
        (true, None) => match health.reasons.iter().find(|reason| reason.is_failing) {
            Some(reason) => format!("error: {}", reason.text),
            None => "ok".to_owned(),
        },
    }
}

/// Answers 200 if `serve` has started and deliveries can be stored, else 503. Failed runs do not change the answer:
/// neither a restart by a supervisor nor a proxy that stops sending deliveries would help a run.
pub(super) async fn ready(State(monitor): State<Arc<HealthMonitor>>) -> Response {
    let can_store = monitor.can_store().await;
    let status = match (monitor.state.has_read_earlier_deliveries(), can_store) {
        (false, _) => "starting",
        (true, false) => "deliveries cannot be stored",
        (true, true) => "ok",
    };
    (code(status == "ok"), Json(json!({ "status": status }))).into_response()
}

fn code(is_good: bool) -> StatusCode {
    if is_good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Answers with all metrics as Prometheus text.
pub(super) async fn metrics(State(monitor): State<Arc<HealthMonitor>>) -> Response {
    let metrics = monitor.metrics().await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text()).into_response()
}
