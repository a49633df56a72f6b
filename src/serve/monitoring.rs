//! The endpoints of `serve` for machines: `/readyz` (can deliveries be stored?), `/healthz` (is something wrong?) and
//! `/metrics`. No endpoint shows a person or a secret.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::{
    model::format_ms,
    sync_status::{Health, StreamLag},
};

use super::HealthMonitor;

/// Answers 200 while the health is good, else 503. The body lists every reason, those that fail and those that only
/// inform.
pub(super) async fn health(State(monitor): State<Arc<HealthMonitor>>) -> Response {
    let (can_store, sync_status) = tokio::join!(monitor.can_store(), monitor.sync_status());
    let health = monitor.health(&sync_status);
    let sync_status = sync_status.as_ref().as_ref().ok();
    let daemon = monitor.state.status();
    let time = |at_ms: Option<i64>| at_ms.map(format_ms);
    let lag_secs =
        |lags: &[StreamLag]| -> BTreeMap<_, _> { lags.iter().map(|lag| (lag.stream.name(), lag.lag_secs)).collect() };
    let body = json!({
        "status": status_line(can_store, daemon.rate_limited_until_ms, &health),
        "healthy": health.is_healthy(),
        "reasons": health.reasons,
        "last_run": sync_status.and_then(|status| status.last_ended.as_ref()),
        "last_success_at": sync_status.and_then(|status| status.last_success.as_ref()).map(|run| format_ms(run.ended_ms())),
        "failures_in_a_row": sync_status.map(|status| status.failures_in_a_row),
        "lag_secs": sync_status.map(|status| lag_secs(&status.stream_lags)),
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
