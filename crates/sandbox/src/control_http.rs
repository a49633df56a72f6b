//! The control operations over HTTP, under `/_sandbox/`. Control calls need no key. The crate's README.md documents
//! them.

use std::{convert::Infallible, fmt::Display, sync::Arc};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures::stream;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    control::{Control, ListName, Stats},
    faults::Faults,
    request_log::LogEntry,
    service::Service,
    webhooks::{Delivered, WebhookTarget, deliver},
    world::{ChangeRequest, ChangeSummary, RowKey},
};

/// Maximum log entries in one chunk of a streamed answer.
const LOG_ENTRIES: usize = 10_000;

type Answer<T> = Result<Json<T>, Refused>;

/// An answer with status 400 and this reason.
struct Refused(String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, Json(json!({ "error": self.0 }))).into_response()
    }
}

/// Returns the routes of the control interface.
pub(crate) fn router() -> Router<Arc<Service>> {
    Router::new()
        .route("/log", get(log).delete(clear_log))
        .route("/truth/{list}", get(truth))
        .route("/users", get(users))
        .route("/stats", get(stats))
        .route("/clock", post(advance))
        .route("/changes", post(changes))
        .route("/webhooks", post(webhooks))
        .route("/faults", get(faults).post(merge_faults))
        .route("/row", post(plant).delete(remove))
}

fn control(service: &Arc<Service>) -> Control {
    Control { service: service.clone() }
}

fn refused(reason: impl Display) -> Refused {
    Refused(reason.to_string())
}

/// Parses the body as JSON. The content type is ignored, so that the calls are easy to make by hand. An empty body
/// counts as `{}`.
fn read<T: for<'de> Deserialize<'de>>(body: &Bytes) -> Result<T, Refused> {
    serde_json::from_slice(if body.is_empty() { b"{}" } else { body }).map_err(refused)
}

fn ndjson(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    since: u64,
}

/// Streams the log as NDJSON, from the number `since` on.
async fn log(State(service): State<Arc<Service>>, Query(Since { since }): Query<Since>) -> Response {
    let parts = stream::unfold(since, move |since| {
        let entries = service.log.since(since, LOG_ENTRIES);
        let next = entries.last().map(|entry: &LogEntry| entry.seq + 1);
        let lines: String = entries.iter().map(|entry| json!(entry).to_string() + "\n").collect();
        async move { next.map(|next| (Ok::<_, Infallible>(lines), next)) }
    });
    ndjson(Body::from_stream(parts))
}

async fn clear_log(State(service): State<Arc<Service>>) -> StatusCode {
    control(&service).clear_log();
    StatusCode::NO_CONTENT
}

/// Streams all records of a list as NDJSON.
async fn truth(State(service): State<Arc<Service>>, Path(list): Path<ListName>) -> Response {
    let control = control(&service);
    let parts = stream::unfold(None, move |after| {
        let (lines, next) = control.truth_part(list, after);
        async move { next.map(|next| (Ok::<_, Infallible>(lines), Some(next))) }
    });
    ndjson(Body::from_stream(parts))
}

async fn users(State(service): State<Arc<Service>>) -> Response {
    let lines: String = control(&service).upserted_users().iter().map(|user| json!(user).to_string() + "\n").collect();
    ndjson(Body::from(lines))
}

async fn stats(State(service): State<Arc<Service>>) -> Json<Stats> {
    Json(control(&service).stats())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance_ms: u64,
}

#[derive(Serialize)]
struct Now {
    now_ms: i64,
}

async fn advance(State(service): State<Arc<Service>>, body: Bytes) -> Answer<Now> {
    let Advance { advance_ms } = read(&body)?;
    Ok(Json(Now { now_ms: control(&service).advance_clock(advance_ms) }))
}

async fn changes(State(service): State<Arc<Service>>, body: Bytes) -> Answer<ChangeSummary> {
    let request: ChangeRequest = read(&body)?;
    Ok(Json(control(&service).apply_changes(&request)))
}

/// Changes to make and to report by webhooks. Without changes only the test webhook is sent.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Webhooks {
    target: WebhookTarget,
    #[serde(default)]
    changes: Option<ChangeRequest>,
}

/// Makes the requested changes, and sends webhooks about them or the test webhook.
async fn webhooks(State(service): State<Arc<Service>>, body: Bytes) -> Answer<Delivered> {
    let Webhooks { target, changes } = read(&body)?;
    let control = control(&service);
    let bodies = match changes {
        Some(changes) => control.webhook_bodies(&control.apply_changes(&changes)),
        None => vec![control.test_body()],
    };
    Ok(Json(deliver(&bodies, &target).await))
}

async fn faults(State(service): State<Arc<Service>>) -> Json<Faults> {
    Json(control(&service).faults())
}

async fn merge_faults(State(service): State<Arc<Service>>, body: Bytes) -> Answer<Faults> {
    let patch: Value = read(&body)?;
    control(&service).merge_faults(patch).map(Json).map_err(refused)
}

#[derive(Deserialize)]
struct Plant {
    #[serde(default)]
    list: ListName,
    created_ms: Option<i64>,
}

async fn plant(State(service): State<Arc<Service>>, Query(plant): Query<Plant>, record: String) -> Response {
    match control(&service).plant(plant.list, &record, plant.created_ms) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(reason) => refused(reason).into_response(),
    }
}

#[derive(Serialize)]
struct Removed {
    removed: usize,
}

async fn remove(State(service): State<Arc<Service>>, Query(key): Query<RowKey>) -> Json<Removed> {
    Json(Removed { removed: control(&service).remove_row(&key) })
}
