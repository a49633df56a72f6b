//! What is accepted, and how it is answered. The secret first, before a byte of the body is read; then the body within
//! its limits of size and time; then it is stored, whatever it is; then it is answered.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http_body_util::BodyExt as _;
use subtle::ConstantTimeEq as _;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::{
    clock::Clock,
    flatten::{body_hash, tell},
    redact::{ApiKey, bare_secret},
    state::{Accepted, NewDelivery},
};

use super::{Board, Count, Queue, Watch, connections::Connection, health, queue::Refused};

/// The largest body: far above any answer, whose longest part is an open text.
const BODY_BYTES_MAX: usize = 1 << 20;
/// All bodies that are being read or written at one moment.
const BODIES_BYTES_MAX: usize = 64 << 20;
/// What may wait in the inbox while no warehouse can take it: days of deliveries.
const INBOX_BYTES_MAX: u64 = 8 << 30;
/// How long a body may take.
const BODY_WAIT: Duration = Duration::from_secs(10);
/// When to come back, in seconds: after a moment of too much, and when the inbox cannot be written.
const FULL_RETRY_SECS: &str = "1";
const FAILED_RETRY_SECS: &str = "30";

/// What the handlers share.
pub(super) struct Door {
    path: Option<String>,
    token: Option<ApiKey>,
    queue: Queue,
    board: Arc<Board>,
    clock: Clock,
    room: Arc<Semaphore>,
}

impl Door {
    pub fn new(path: Option<String>, token: Option<ApiKey>, queue: Queue, board: Arc<Board>, clock: Clock) -> Door {
        Door { path, token, queue, board, clock, room: Arc::new(Semaphore::new(BODIES_BYTES_MAX)) }
    }

    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Whether the header carries the secret. How long that takes tells the secret's length at most.
    fn is_authorised(&self, headers: &HeaderMap) -> bool {
        let sent = headers.get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes);
        let Some((form, sent)) = sent.and_then(|value| value.split_at_checked(b"Bearer ".len())) else { return false };
        let Some(token) = &self.token else { return false };
        // The service puts "Bearer" before whatever was pasted there, which may begin with it as well.
        let sent = std::str::from_utf8(sent).map_or(sent, |sent| bare_secret(sent).0.as_bytes()).trim_ascii();
        form.eq_ignore_ascii_case(b"Bearer ") && bool::from(sent.ct_eq(token.expose().as_bytes()))
    }
}

/// The paths of `serve`. Without a watch only deliveries are received. `people`: the paths of the status page.
pub(super) fn router(door: Arc<Door>, watch: Option<Arc<Watch>>, people: Router) -> Router {
    let machines = |watch| {
        Router::new()
            .route("/healthz", get(health::health))
            .route("/readyz", get(health::ready))
            .route("/metrics", get(health::metrics))
            .with_state(watch)
    };
    let pages = people.merge(watch.map(machines).unwrap_or_default());
    match &door.path {
        Some(path) => pages.merge(Router::new().route(path, post(receive)).with_state(Arc::clone(&door))),
        None => pages,
    }
}

async fn receive(
    State(door): State<Arc<Door>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Response {
    match accept(&door, &connection, request).await {
        Ok(Accepted::Stored) => (StatusCode::OK, "stored\n").into_response(),
        Ok(Accepted::Repeat) => {
            door.board.count(Count::Repeats, 1);
            (StatusCode::OK, "known\n").into_response()
        }
        Err(refusal) => {
            if let Some(count) = refusal.count() {
                door.board.count(count, 1);
            }
            refusal.into_response()
        }
    }
}

async fn accept(door: &Door, connection: &Connection, request: Request) -> Result<Accepted, Refusal> {
    if !door.is_authorised(request.headers()) {
        return Err(Refusal::WrongSecret);
    }
    if door.board.waiting_bytes() >= INBOX_BYTES_MAX {
        return Err(Refusal::Overloaded);
    }
    let read = timeout(BODY_WAIT, read_body(door, request.into_body()));
    let (body, room) = read.await.unwrap_or(Err(Refusal::TooSlow))?;
    let told = tell(&body);
    let delivery = NewDelivery {
        received_ms: door.clock.now_ms(),
        body_hash: body_hash(&body),
        timeless_subject: told.timeless_subject.clone(),
        body,
    };
    let bytes = delivery.body.len() as u64;
    let _busy = connection.commits();
    let stored = door.queue.store(delivery, room).await.map_err(|refused| match refused {
        Refused::Full => Refusal::Overloaded,
        Refused::Failed => Refusal::NotStored,
    })?;
    if stored == Accepted::Stored {
        door.board.told(door.board.kind_of(&told), bytes);
    }
    Ok(stored)
}

/// The body, and the room in memory that it takes.
async fn read_body(door: &Door, mut body: Body) -> Result<(Vec<u8>, OwnedSemaphorePermit), Refusal> {
    let take = |bytes: usize| {
        let bytes = u32::try_from(bytes).map_err(|_| Refusal::TooLarge)?;
        Arc::clone(&door.room).try_acquire_many_owned(bytes).map_err(|_| Refusal::Overloaded)
    };
    let (mut bytes, mut room) = (Vec::new(), take(0)?);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Refusal::TooSlow)?.into_data() else { continue };
        if bytes.len() + data.len() > BODY_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
        room.merge(take(data.len())?);
        bytes.extend_from_slice(&data);
    }
    Ok((bytes, room))
}

/// Why a post was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    WrongSecret,
    TooLarge,
    TooSlow,
    Overloaded,
    NotStored,
}

impl Refusal {
    fn count(self) -> Option<Count> {
        match self {
            Refusal::WrongSecret => Some(Count::WrongSecret),
            Refusal::TooLarge => Some(Count::TooLarge),
            Refusal::TooSlow => Some(Count::TooSlow),
            Refusal::Overloaded => Some(Count::Overloaded),
            // Counted by the thread that could not store it.
            Refusal::NotStored => None,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let close = (header::CONNECTION, "close");
        match self {
            Refusal::WrongSecret => {
                (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer"), close], "wrong secret\n")
                    .into_response()
            }
            Refusal::TooLarge => {
                let text = format!("the body is larger than {BODY_BYTES_MAX} bytes\n");
                (StatusCode::PAYLOAD_TOO_LARGE, [close], text).into_response()
            }
            Refusal::TooSlow => {
                (StatusCode::REQUEST_TIMEOUT, [close], "the body did not come in time\n").into_response()
            }
            Refusal::Overloaded => {
                let retry = [(header::RETRY_AFTER, FULL_RETRY_SECS)];
                (StatusCode::SERVICE_UNAVAILABLE, retry, "too much at once\n").into_response()
            }
            Refusal::NotStored => {
                let retry = [(header::RETRY_AFTER, FAILED_RETRY_SECS)];
                (StatusCode::SERVICE_UNAVAILABLE, retry, "it cannot be stored now\n").into_response()
            }
        }
    }
}
