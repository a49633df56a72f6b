//! Accepts deliveries of webhooks. The secret is checked before a byte of the body is read. The body is read within
//! limits of size and time, and stored whatever its content. The answer is sent after the body is stored.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Extension, Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{AppendHeaders, IntoResponse, Response},
    routing::{get, post},
};
use http_body_util::BodyExt as _;
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

use crate::{
    clock::Clock,
    flatten::{body_hash, summarize_body},
    pipeline::{ByteBudget, Memory, Reservation},
    redact::bare_secret,
    state::{DeliveryReceipt, NewDelivery},
};

use super::{
    Counter, DeliveryQueue, HealthMonitor, ServeState, changing_secret::ChangingSecret, connections::Connection,
    delivery_queue::StoreError, monitoring,
};

/// The largest accepted body. The text of [`Refusal::TooLarge`] names it as 1 MiB. A survey's answers are far smaller.
const BODY_BYTES_MAX: usize = 1 << 20;
/// The largest inbox, on disk: days of deliveries while no warehouse can take them.
const INBOX_BYTES_MAX: u64 = 8 << 30;
/// The longest time for a body to arrive.
const BODY_WAIT: Duration = Duration::from_secs(10);
/// `Retry-After` in seconds if too many deliveries are waiting.
const OVERLOADED_RETRY_SECS: &str = "1";
// `Retry-After` in seconds if the inbox cannot be written.
const NOT_STORED_RETRY_SECS: &str = "30";

/// Receives deliveries at one path.
pub(super) struct Receiver {
    /// `None` if no deliveries are received.
    path: Option<String>,
    token: Option<ChangingSecret>,
    queue: DeliveryQueue,
    state: Arc<ServeState>,
    clock: Clock,
    /// The bodies that are being read or stored.
    body_memory: ByteBudget,
    refusal_log: RefusalLog,
}

/// Interval between two log lines about refusals of one kind.
const REFUSAL_LOG_EVERY: Duration = Duration::from_secs(60);

/// Logs refused deliveries: for each kind of refusal, at most one line in [`REFUSAL_LOG_EVERY`].
#[derive(Default)]
struct RefusalLog {
    /// For each kind: when its last line was written, and the number of refusals since then.
    kinds: Mutex<BTreeMap<&'static str, (Option<Instant>, u64)>>,
}

impl RefusalLog {
    fn add(&self, refusal: Refusal) {
        let reason = refusal.text();
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let (last, count) = kinds.entry(reason).or_default();
        *count += 1;
        if last.is_none_or(|last| last.elapsed() >= REFUSAL_LOG_EVERY) {
            tracing::warn!(reason, count, "refused deliveries of webhooks");
            (*last, *count) = (Some(Instant::now()), 0);
        }
    }
}

impl Receiver {
    pub fn new(
        path: Option<String>,
        token: Option<ChangingSecret>,
        queue: DeliveryQueue,
        state: Arc<ServeState>,
        clock: Clock,
        shares: Memory,
    ) -> Receiver {
        Receiver {
            path,
            token,
            queue,
            state,
            clock,
            body_memory: ByteBudget::new(shares.received),
            refusal_log: RefusalLog::default(),
        }
    }

    /// Returns the secret, to follow its changes.
    pub fn secret(&self) -> Option<ChangingSecret> {
        self.token.clone()
    }

    pub fn state(&self) -> &Arc<ServeState> {
        &self.state
    }

    /// Returns true if the header has the secret. If it has another one, the secret is read again, because it may have
    /// changed.
    async fn is_authorised(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return false };
        has_secret(token, headers) || (token.has_changed().await && has_secret(token, headers))
    }

    /// Checks, reads and stores a delivery. Returns when the delivery is durable, or why it was refused. The connection
    /// is protected from eviction while its delivery is stored.
    async fn accept(&self, connection: &Connection, request: Request) -> Result<DeliveryReceipt, Refusal> {
        if !self.is_authorised(request.headers()).await {
            return Err(Refusal::WrongSecret);
        }
        if self.state.pending_bytes() >= INBOX_BYTES_MAX {
            return Err(Refusal::Overloaded);
        }
        let read = timeout(BODY_WAIT, self.read_body(request.into_body()));
        let (body, memory) = read.await.unwrap_or(Err(Refusal::TooSlow))?;
        let summary = summarize_body(&body);
        let delivery = NewDelivery {
            received_ms: self.clock.now_ms(),
            body_hash: body_hash(&body),
            undated_subject: summary.timeless_subject.clone(),
            body,
        };
        let bytes = delivery.body.len() as u64;
        let _protected = connection.protect();
        let stored = self.queue.store(delivery, memory).await.map_err(|error| match error {
            StoreError::QueueFull => Refusal::Overloaded,
            StoreError::WriteFailed => Refusal::NotStored,
        })?;
        if stored == DeliveryReceipt::Stored {
            self.state.add_delivery(self.state.kind_of(&summary), bytes);
        }
        Ok(stored)
    }

    /// Reads a body. Returns the body and the reservation of its memory. Fails if the body is too large or breaks off,
    /// or if all bodies together need too much memory.
    async fn read_body(&self, mut body: Body) -> Result<(Vec<u8>, Reservation), Refusal> {
        let (mut bytes, mut memory) = (Vec::new(), self.body_memory.try_reserve(0).ok_or(Refusal::Overloaded)?);
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|_| Refusal::TooSlow)?.into_data() else { continue };
            if bytes.len() + data.len() > BODY_BYTES_MAX {
                return Err(Refusal::TooLarge);
            }
            if !memory.try_grow(data.len()) {
                return Err(Refusal::Overloaded);
            }
            bytes.extend_from_slice(&data);
        }
        Ok((bytes, memory))
    }
}

/// Returns true if the header has a valid secret. The duration of the comparison reveals at most the secret's length.
fn has_secret(token: &ChangingSecret, headers: &HeaderMap) -> bool {
    let sent = headers.get(header::AUTHORIZATION).map(header::HeaderValue::as_bytes);
    let Some((scheme, sent)) = sent.and_then(|value| value.split_at_checked(b"Bearer ".len())) else {
        return false;
    };
    // The service sends "Bearer" before the configured secret. The secret itself may begin with "Bearer" too.
    let sent = std::str::from_utf8(sent).map_or(sent, |sent| bare_secret(sent).0.as_bytes()).trim_ascii();
    scheme.eq_ignore_ascii_case(b"Bearer ") && token.any(|token| bool::from(sent.ct_eq(token.expose().as_bytes())))
}

/// Returns the routes of `serve`. `monitor` is `None` where only deliveries are received. `page` has the routes of the
/// status page.
pub(super) fn router(receiver: Arc<Receiver>, monitor: Option<Arc<HealthMonitor>>, page: Router) -> Router {
    let monitoring_routes = |monitor| {
        Router::new()
            .route("/healthz", get(monitoring::health))
            .route("/readyz", get(monitoring::ready))
            .route("/metrics", get(monitoring::metrics))
            .with_state(monitor)
    };
    let routes = page.merge(monitor.map(monitoring_routes).unwrap_or_default());
    match &receiver.path {
        // The path is that of the configuration: a segment like `:id` stands for itself.
        Some(path) => {
            let routes = routes.without_v07_checks();
            routes.route(path, post(receive).with_state(Arc::clone(&receiver)))
        }
        None => routes,
    }
}

/// Answers a delivery with 200 once it is stored, also if it is a duplicate, or with the reason of the refusal.
async fn receive(
    State(receiver): State<Arc<Receiver>>,
    Extension(connection): Extension<Arc<Connection>>,
    request: Request,
) -> Response {
    match receiver.accept(&connection, request).await {
        Ok(DeliveryReceipt::Stored) => (StatusCode::OK, "stored\n").into_response(),
        Ok(DeliveryReceipt::Duplicate) => {
            receiver.state.count(Counter::Repeats, 1);
            (StatusCode::OK, "known\n").into_response()
        }
        Err(refusal) => {
            if let Some(counter) = refusal.counter() {
                receiver.state.count(counter, 1);
            }
            receiver.refusal_log.add(refusal);
            refusal.into_response()
        }
    }
}

/// Why a delivery was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    WrongSecret,
    TooLarge,
    TooSlow,
    Overloaded,
    NotStored,
}

impl Refusal {
    /// Returns the counter of this kind of refusal; `None` if the refusal is counted elsewhere.
    fn counter(self) -> Option<Counter> {
        match self {
            Refusal::WrongSecret => Some(Counter::WrongSecret),
            Refusal::TooLarge => Some(Counter::TooLarge),
            Refusal::TooSlow => Some(Counter::TooSlow),
            Refusal::Overloaded => Some(Counter::Overloaded),
            // The writing thread has counted this delivery.
            Refusal::NotStored => None,
        }
    }
}

impl Refusal {
    /// Returns the reason, as the answer and the log have it.
    fn text(self) -> &'static str {
        match self {
            Refusal::WrongSecret => "wrong secret",
            Refusal::TooLarge => "the body is larger than 1 MiB",
            Refusal::TooSlow => "the body did not arrive in time",
            Refusal::Overloaded => "too many deliveries are waiting",
            Refusal::NotStored => "the delivery cannot be stored now",
        }
    }
}

impl IntoResponse for Refusal {
    /// Answers with the status, the headers and the text of this refusal.
    fn into_response(self) -> Response {
        let close = (header::CONNECTION, "close");
        let (status, headers) = match self {
            Refusal::WrongSecret => (StatusCode::UNAUTHORIZED, vec![(header::WWW_AUTHENTICATE, "Bearer"), close]),
            Refusal::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, vec![close]),
            Refusal::TooSlow => (StatusCode::REQUEST_TIMEOUT, vec![close]),
            Refusal::Overloaded => {
                (StatusCode::SERVICE_UNAVAILABLE, vec![(header::RETRY_AFTER, OVERLOADED_RETRY_SECS)])
            }
            Refusal::NotStored => (StatusCode::SERVICE_UNAVAILABLE, vec![(header::RETRY_AFTER, NOT_STORED_RETRY_SECS)]),
        };
        (status, AppendHeaders(headers), format!("{}\n", self.text())).into_response()
    }
}
