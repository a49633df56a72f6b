//! What `serve` shows of itself: `/healthz` for machines that restart it, `/metrics` for Prometheus, `/` for people. No person
//! and no secret is in any of them.

use std::{fmt::Write as _, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, html};
use serde_json::json;

use crate::model::format_ms;

use super::{Board, Count};

/// 200 while deliveries can be stored, else 503. `status` is "ok" if the service can be asked too.
pub(super) async fn health(State(board): State<Arc<Board>>) -> Response {
    let shown = board.shown();
    let is_well = board.is_storing();
    let moment = |at_ms: Option<i64>| at_ms.map(format_ms);
    let body = json!({
        "status": match (is_well, shown.limited_until_ms) {
            (false, _) => "deliveries cannot be stored",
            (true, Some(_)) => "error: the service must be left alone",
            (true, None) => "ok",
        },
        "rate_limited_until": moment(shown.limited_until_ms),
        "started_at": format_ms(board.started_ms),
        "running": shown.running,
        "trouble": shown.trouble,
        "next_run_at": moment(shown.schedule.next_ms),
        "last_run_at": moment(shown.schedule.last_started_ms),
        "last_outcome": shown.schedule.last_outcome,
        "waiting_deliveries": shown.waiting.deliveries,
        "waiting_since": moment(shown.waiting.oldest_ms),
    });
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(body)).into_response()
}

/// Prometheus text.
pub(super) async fn metrics(State(board): State<Arc<Board>>) -> Response {
    let mut text = String::new();
    let mut metric = |name: &str, help: &str, kind: &str, values: &[(String, i64)]| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP studysync_{name} {help}\n# TYPE studysync_{name} {kind}");
        for (labels, value) in values {
            let _ = writeln!(text, "studysync_{name}{labels} {value}");
        }
    };
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    let stored: Vec<_> =
        board.stored().map(|(kind, count)| (format!("{{kind=\"{}\"}}", kind.name()), number(count))).collect();
    metric("deliveries_stored_total", "Deliveries that were stored.", "counter", &stored);
    for (count, name, help) in Count::ALL {
        metric(name, help, "counter", &[(String::new(), number(board.counted(count)))]);
    }
    let shown = board.shown();
    let waiting = &shown.waiting;
    for (name, help, value) in [
        ("inbox_deliveries", "Deliveries that wait for the warehouses.", number(waiting.deliveries)),
        ("inbox_bytes", "Bytes of deliveries that wait.", number(waiting.bytes)),
        ("running", "Whether a run or a flush is under way.", i64::from(shown.running.is_some())),
        (
            "next_run_ms",
            "When the next scheduled run begins, epoch milliseconds; 0: never.",
            shown.schedule.next_ms.unwrap_or(0),
        ),
        (
            "last_run_ms",
            "When the last run ended, epoch milliseconds; 0: none did.",
            shown.schedule.last_finished_ms.unwrap_or(0),
        ),
        ("storing", "Whether deliveries can be stored.", i64::from(board.is_storing())),
        (
            "rate_limited_until_ms",
            "Until when the service must be left alone, where that is longer than a run waits, epoch milliseconds; 0: it may be asked.",
            shown.limited_until_ms.unwrap_or(0),
        ),
    ] {
        metric(name, help, "gauge", &[(String::new(), value)]);
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

/// A page for people.
pub(super) async fn status(State(board): State<Arc<Board>>) -> Response {
    let shown = board.shown();
    let moment = |at_ms: Option<i64>| at_ms.map_or_else(|| "–".to_owned(), format_ms);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="refresh" content="10";
                title { "studysync serve" }
                style { "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}th{text-align:left;padding-right:2rem;font-weight:normal;color:#555}td{font-variant-numeric:tabular-nums}@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}th{color:#999}}" }
            }
            body {
                h1 { "studysync serve" }
                @if let Some(trouble) = &shown.trouble { p { strong { "Trouble: " } (trouble) } }
                @if !board.is_storing() { p { strong { "Deliveries cannot be stored: look at the log." } } }
                table {
                    @for (what, value) in [
                        ("Since", format_ms(board.started_ms)),
                        ("Schedule", shown.schedule.expression.clone()),
                        ("Next run", moment(shown.schedule.next_ms)),
                        ("Under way", shown.running.unwrap_or("–").to_owned()),
                        ("Last run began", moment(shown.schedule.last_started_ms)),
                        ("Last run ended", moment(shown.schedule.last_finished_ms)),
                        ("Last outcome", shown.schedule.last_outcome.clone().unwrap_or_else(|| "–".to_owned())),
                        ("Deliveries that wait", shown.waiting.deliveries.to_string()),
                    ] { tr { th { (what) } td { (value) } } }
                }
                h2 { "Deliveries since then" }
                table {
                    @for (kind, count) in board.stored() { tr { th { (kind.name()) } td { (count) } } }
                    @for (count, name, help) in Count::ALL { tr title=(help) { th { (name) } td { (board.counted(count)) } } }
                }
            }
        }
    };
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string()).into_response()
}
