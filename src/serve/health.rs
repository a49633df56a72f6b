//! What `serve` shows machines: `/readyz` (may deliveries come here), `/healthz` (has somebody to be woken) and
//! `/metrics`. No person and no secret is in any of them.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::{model::format_ms, sync_status::Health};

use super::Watch;

/// 200 while nights succeed and deliveries can be stored, else 503.
/// Either way the body has every reason, red or only named.
pub(super) async fn health(State(watch): State<Arc<Watch>>) -> Response {
    let can_store = watch.can_store().await;
    let sync_status = watch.sync_status().await;
    let health = watch.health(&sync_status);
    let sync_status = sync_status.as_ref().as_ref().ok();
    let shown = watch.board().shown();
    let moment = |at_ms: Option<i64>| at_ms.map(format_ms);
    let lag_secs = |lags: &[crate::sync_status::StreamLag]| {
        lags.iter().map(|lag| (lag.stream.name(), lag.lag_secs)).collect::<std::collections::BTreeMap<_, _>>()
    };
    let body = json!({
        "status": status(can_store, shown.limited_until_ms, &health),
        "healthy": health.is_healthy(),
        "reasons": health.reasons,
        "last_run": sync_status.and_then(|sync_status| sync_status.last_ended.as_ref()),
        "last_success_at": sync_status.and_then(|sync_status| sync_status.last_success.as_ref()).map(|run| format_ms(run.ended_ms())),
        "failures_in_a_row": sync_status.map(|sync_status| sync_status.failures_in_a_row),
        "lag_secs": sync_status.map(|sync_status| lag_secs(&sync_status.stream_lags)),
        "rate_limited_until": moment(shown.limited_until_ms),
        "started_at": format_ms(watch.board().started_ms),
        "running": shown.running,
        "trouble": shown.trouble,
        "next_run_at": moment(shown.schedule.next_ms),
        "last_run_at": moment(shown.schedule.last_started_ms),
        "last_outcome": shown.schedule.last_outcome,
        "pending_deliveries": shown.waiting.deliveries,
        "waiting_since": moment(shown.waiting.oldest_ms),
    });
    (code(health.is_healthy()), Json(body)).into_response()
}

/// One line of how it is: "ok", or what is most pressing.
fn status(can_store: bool, limited_until_ms: Option<i64>, health: &Health) -> String {
    match (can_store, limited_until_ms) {
        (false, _) => "deliveries cannot be stored".to_owned(),
        (true, Some(_)) => "error: the service must be left alone".to_owned(),
        (true, None) => match health.reasons.iter().find(|reason| reason.is_failing) {
            Some(reason) => format!("error: {}", reason.text),
            None => "ok".to_owned(),
        },
    }
}

/// 200 while deliveries can be stored, else 503: for whoever restarts `serve`, or passes deliveries on to it. How the
/// runs end is nothing that a restart mends.
pub(super) async fn ready(State(watch): State<Arc<Watch>>) -> Response {
    let can_store = watch.can_store().await;
    let status = match (watch.board().is_started(), can_store) {
        (false, _) => "starting",
        (true, false) => "deliveries cannot be stored",
        (true, true) => "ok",
    };
    (code(status == "ok"), Json(json!({ "status": status }))).into_response()
}

fn code(is_well: bool) -> StatusCode {
    if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

/// Prometheus text.
pub(super) async fn metrics(State(watch): State<Arc<Watch>>) -> Response {
    let metrics = watch.metrics().await;
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], metrics.text()).into_response()
}
