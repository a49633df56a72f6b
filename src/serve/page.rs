//! What `serve` shows people of itself at `/`. No person and no secret is in it.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, html};

use crate::{metrics::named, model::format_ms};

use super::{Board, Count};

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
                    @for (count, name) in Count::ALL { tr title=[named(name).map(|metric| metric.help)] { th { (name) } td { (board.counted(count)) } } }
                }
            }
        }
    };
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page.into_string()).into_response()
}
