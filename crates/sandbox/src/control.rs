//! The control operations. Programs that run the sandbox in their own process call the methods of [`Control`];
//! [`router`] serves the same methods over HTTP, under `/_sandbox/` and without a key. The crate's README.md documents
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
    faults::{Faults, Order},
    request_log::LogEntry,
    service::{Service, UpsertedUser},
    webhooks::{self, Delivered, WebhookTarget, deliver},
    world::{ChangeRequest, ChangeSummary, Flags, ListName, Ordered, Position, RowKey},
};

/// Maximum records that one call of [`Control::truth_part`] renders. Between two calls the service can answer requests.
const TRUTH_ROWS: usize = 1000;
/// Maximum log entries in one chunk of a streamed answer.
const LOG_ENTRIES: usize = 10_000;

/// The counts of records, requests and pending purges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The service's clock, epoch milliseconds.
    pub now_ms: i64,
    /// Responses, soft-deleted ones included.
    pub responses: usize,
    /// Soft-deleted responses.
    pub deleted_responses: usize,
    /// Surveys.
    pub surveys: usize,
    /// Themes.
    pub themes: usize,
    /// Visitors.
    pub visitors: usize,
    /// Purges whose delay has not passed.
    pub pending_purges: usize,
    /// Requests so far.
    pub requests: u64,
    /// Requests that are being answered.
    pub in_flight: u32,
    /// The largest number of concurrent requests since the log was cleared.
    pub in_flight_max: u32,
}

/// The control operations; clones act on the same sandbox.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) service: Arc<Service>,
}

impl Control {
    /// Returns the service's time, epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.service.clock.now_ms()
    }

    /// Moves the service's clock forward, and carries out the purges that are due. Returns the service's time.
    pub fn advance_clock(&self, by_ms: u64) -> i64 {
        let now_ms = self.service.clock.advance(by_ms);
        self.service.run_due_purges();
        now_ms
    }

    /// Changes the data as requested. Returns the changes that were made, which may be fewer than requested.
    pub fn apply_changes(&self, request: &ChangeRequest) -> ChangeSummary {
        self.service.run_due_purges();
        let now_ms = self.now_ms();
        self.service.world_mut().apply(request, now_ms)
    }

    /// Returns the current faults. `count` and `skip` of a schedule are the numbers that remain.
    pub fn faults(&self) -> Faults {
        Faults::clone(&self.service.faults())
    }

    /// Replaces the faults, from the next request on. The error says which value is invalid.
    pub fn set_faults(&self, faults: Faults) -> Result<(), String> {
        faults.validate()?;
        self.service.set_faults(faults);
        Ok(())
    }

    /// Accepts this key instead of the current one, from the next request on.
    pub fn set_api_key(&self, key: &str) {
        self.service.set_api_key(key);
    }

    /// Changes some of the faults by a JSON merge patch, and returns all faults. Fails if the patch or the result is
    /// invalid.
    pub fn merge_faults(&self, patch: Value) -> Result<Faults, String> {
        let faults = self.faults().merged(patch).map_err(|error| error.to_string())?;
        self.set_faults(faults.clone())?;
        Ok(faults)
    }

    /// Returns the logged requests whose number is `seq` or higher.
    pub fn log_since(&self, seq: u64) -> Vec<LogEntry> {
        self.service.log.since(seq, usize::MAX)
    }

    /// Clears the log. Numbers of later requests continue.
    pub fn clear_log(&self) {
        self.service.log.clear();
    }

    /// Calls `each` for each record of a list, in order of creation. Soft-deleted records and all optional members are
    /// included.
    pub fn truth(&self, list: ListName, mut each: impl FnMut(&str)) {
        let mut position = Position::Start;
        while let Some((lines, next)) = self.truth_part(list, position) {
            String::from_utf8_lossy(&lines).lines().for_each(&mut each);
            position = next;
        }
    }

    /// Returns the next [`TRUTH_ROWS`] records of a list as NDJSON, with all optional members, and the position after
    /// the last one; `None` if no record is at the position.
    fn truth_part(&self, list: ListName, position: Position) -> Option<(Vec<u8>, Position)> {
        self.service.run_due_purges();
        let world = self.service.world();
        let rows = Ordered::new(world.rows(list).span(i64::MIN..i64::MAX, None), Order::OldestFirst, Arc::default());
        let first = rows.seek(position);
        let mut lines = Vec::new();
        let mut next = None;
        for row in (first..first + TRUTH_ROWS).map_while(|at| rows.get(at)) {
            let begin = lines.len();
            world.write(list, &mut lines, row, Flags::ALL);
            // A planted record may have line breaks between tokens, which NDJSON does not allow. A space means the same
            // there.
            let line = lines.iter_mut().skip(begin);
            line.filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
            lines.push(b'\n');
            next = Some(Position::AfterRow(row.created_ms, row.serial));
        }
        next.map(|next| (lines, next))
    }

    /// Adds or replaces a record given as exact JSON text. The service lists exactly this text, whatever flags a
    /// request has. `created_ms` is the creation time in the list; by default the record's `createdAt`.
    pub fn plant(&self, list: ListName, record: &str, created_ms: Option<i64>) -> Result<(), String> {
        self.service.world_mut().plant(list, record, created_ms)
    }

    /// Removes a response and its themes. Returns the number of removed rows.
    pub fn remove_row(&self, key: &RowKey) -> usize {
        self.service.world_mut().remove_row(key)
    }

    /// Upserts a user as `POST /v2/users` does, but without a log entry, authorization or rate limit. Returns the
    /// status of the answer.
    pub fn upsert_user(&self, body: &str) -> u16 {
        self.service.upsert_user(body.as_bytes(), &self.service.faults()).status.as_u16()
    }

    /// Returns the upserted users, in the order of their ids.
    pub fn upserted_users(&self) -> Vec<UpsertedUser> {
        self.service.upserted_users()
    }

    /// Returns the bodies of the webhooks about these changes. Each new answer, change of status and new theme has one
    /// body. Each session of new answers has three: the study was sent, seen and submitted.
    pub fn webhook_bodies(&self, summary: &ChangeSummary) -> Vec<String> {
        webhooks::bodies(summary, self.now_ms(), |list| self.records(list))
    }

    /// Returns the body of a test webhook.
    pub fn test_body(&self) -> String {
        webhooks::test_body(self.records(ListName::Surveys))
    }

    fn records(&self, list: ListName) -> Vec<Value> {
        let mut records = Vec::new();
        self.truth(list, |record| records.extend(serde_json::from_str::<Value>(record)));
        records
    }

    /// Returns the counts of records, requests and pending purges.
    pub fn stats(&self) -> Stats {
        self.service.run_due_purges();
        let (requests, in_flight, in_flight_max) = self.service.log.counts();
        let world = self.service.world();
        Stats {
            now_ms: self.now_ms(),
            responses: world.responses.len(),
            deleted_responses: world.deleted_responses(),
            surveys: world.surveys.len(),
            themes: world.themes.len(),
            visitors: world.visitors().count(),
            pending_purges: self.service.pending_purges(),
            requests,
            in_flight,
            in_flight_max,
        }
    }
}

type Answer<T> = Result<Json<T>, Refused>;

/// An answer with status 400 and this reason.
struct Refused(String);

impl<E: Display> From<E> for Refused {
    fn from(reason: E) -> Self {
        Self(reason.to_string())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, Json(json!({ "error": self.0 }))).into_response()
    }
}

/// Returns the routes of the control interface.
pub(crate) fn router<S: Clone + Send + Sync + 'static>(control: Control) -> Router<S> {
    type Of = State<Control>;
    let router = Router::new()
        .route("/log", get(log).delete(clear_log))
        .route("/truth/{list}", get(truth))
        .route("/users", get(async |State(control): Of| ndjson(Body::from(lines(&control.upserted_users())))))
        .route("/stats", get(async |State(control): Of| Json(control.stats())))
        .route("/clock", post(advance))
        .route("/changes", post(changes))
        .route("/webhooks", post(webhooks))
        .route("/faults", get(async |State(control): Of| Json(control.faults())).post(merge_faults))
        .route("/row", post(plant).delete(remove));
    router.with_state(control)
}

/// Parses the body as JSON. The content type is ignored, so that the calls are easy to make by hand. An empty body
/// counts as `{}`.
fn read<T: for<'de> Deserialize<'de>>(body: &Bytes) -> Result<T, Refused> {
    Ok(serde_json::from_slice(if body.is_empty() { b"{}" } else { body })?)
}

fn ndjson(body: Body) -> Response {
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}

fn lines<T: Serialize>(values: &[T]) -> String {
    values.iter().map(|value| json!(value).to_string() + "\n").collect()
}

#[derive(Deserialize)]
struct Since {
    #[serde(default)]
    since: u64,
}

/// Streams the log as NDJSON, from the number `since` on.
async fn log(State(control): State<Control>, Query(Since { since }): Query<Since>) -> Response {
    let parts = stream::unfold(since, move |since| {
        let entries = control.service.log.since(since, LOG_ENTRIES);
        let next = entries.last().map(|entry| (Ok::<_, Infallible>(lines(&entries)), entry.seq + 1));
        async move { next }
    });
    ndjson(Body::from_stream(parts))
}

async fn clear_log(State(control): State<Control>) -> StatusCode {
    control.clear_log();
    StatusCode::NO_CONTENT
}

/// Streams all records of a list as NDJSON.
async fn truth(State(control): State<Control>, Path(list): Path<ListName>) -> Response {
    let parts = stream::unfold(Position::Start, move |position| {
        let part = control.truth_part(list, position);
        async move { part.map(|(lines, next)| (Ok::<_, Infallible>(lines), next)) }
    });
    ndjson(Body::from_stream(parts))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Advance {
    advance_ms: u64,
}

async fn advance(State(control): State<Control>, body: Bytes) -> Answer<Value> {
    let Advance { advance_ms } = read(&body)?;
    Ok(Json(json!({ "now_ms": control.advance_clock(advance_ms) })))
}

async fn changes(State(control): State<Control>, body: Bytes) -> Answer<ChangeSummary> {
    Ok(Json(control.apply_changes(&read(&body)?)))
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
async fn webhooks(State(control): State<Control>, body: Bytes) -> Answer<Delivered> {
    let Webhooks { target, changes } = read(&body)?;
    let bodies = match changes {
        Some(changes) => control.webhook_bodies(&control.apply_changes(&changes)),
        None => vec![control.test_body()],
    };
    Ok(Json(deliver(&bodies, &target).await))
}

async fn merge_faults(State(control): State<Control>, body: Bytes) -> Answer<Faults> {
    Ok(Json(control.merge_faults(read(&body)?)?))
}

#[derive(Deserialize)]
struct Plant {
    #[serde(default)]
    list: ListName,
    created_ms: Option<i64>,
}

async fn plant(
    State(control): State<Control>,
    Query(plant): Query<Plant>,
    record: String,
) -> Result<StatusCode, Refused> {
    control.plant(plant.list, &record, plant.created_ms)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(State(control): State<Control>, Query(key): Query<RowKey>) -> Json<Value> {
    Json(json!({ "removed": control.remove_row(&key) }))
}
