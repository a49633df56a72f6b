//! Sends one request, reads the answer and classifies it. Waits for the gate before the request, reports the result to
//! the gate, and counts the request for the run's report. The module `fetch` retries; `walk` and `users` interpret the
//! answer. Errors and logs contain nothing about a person, because they may outlive an erasure.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use reqwest::{
    Client, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};
use schemars::JsonSchema;
use serde::{Serialize, de::IgnoredAny};
use tokio::time::{Instant, timeout};

use super::{
    address::{Call, CallKind},
    body::{self, BodyLimits, content_type},
    client::{self, Credentials, SentKey},
    envelope::{self, Envelope},
    error::{Failure, Rejection, SourceError, Trouble, millis},
    gate::{Gate, Permit},
    header_times::{self, ServiceClock},
    lists::{ListsSeen, SurveysPath},
    proxies::Proxies,
    settings::SourceSettings,
    settings_error::SettingsError,
    transport::{Reply, Transport},
};
use crate::{
    clock::Clock,
    model::{Activity, RetryAfterForm},
    text::bytes_without_mark,
};

/// Maximum bytes read of an error body.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;
/// The longest pause inside an error body.
const ERROR_BODY_IDLE: Duration = Duration::from_secs(2);
/// Maximum characters shown of a redirect's target.
const LOCATION_CHARS_MAX: usize = 200;
/// How long a stopping run still waits for the answer to an upsert. Without the answer, it is unknown whether the
/// service accepted the upsert.
const GRACE: Duration = Duration::from_secs(5);

/// A 2xx answer, completely read.
#[derive(Debug)]
pub(super) struct Received {
    pub status: u16,
    pub body: Bytes,
    /// The envelope of a page; empty for requests that are not for a list. Some of its records may be broken.
    pub envelope: Envelope,
    /// The service's time when it answered, in epoch milliseconds.
    pub service_now_ms: Option<i64>,
    /// Milliseconds from sending the request to the last byte of the answer.
    pub latency_ms: u64,
}

/// The connections to the service.
#[derive(Debug)]
pub(super) struct Wire {
    client: Client,
    /// The client for links of the service, built for the first link.
    pub download_client: OnceLock<Result<Client, String>>,
    /// The proxies of links to other machines.
    pub proxies: Proxies,
    transport: Transport,
    machine_clock: Clock,
    pub credentials: Credentials,
    pub timeout: Duration,
    pub body_limits: BodyLimits,
    pub gate: Gate,
    pub clock: ServiceClock,
    pub counters: Counters,
    /// The form of the latest `Retry-After`; `None` if the run was not rate limited.
    pub refusal_form: Mutex<Option<RetryAfterForm>>,
    pub surveys_path: SurveysPath,
    /// What the run has seen of the lists.
    pub lists_seen: ListsSeen,
    /// Maximum attempts for one page.
    pub attempts_max: u32,
}

impl Wire {
    /// Builds the connections to the service. Fails if the HTTP client cannot be built or the key cannot be sent in a
    /// header.
    pub fn new(settings: &SourceSettings, gate: Gate) -> Result<Self, SettingsError> {
        Ok(Self {
            client: client::build(settings)?,
            download_client: OnceLock::new(),
            proxies: settings.proxies.clone(),
            transport: settings.transport.clone(),
            machine_clock: settings.clock.clone(),
            credentials: Credentials::new(settings)?,
            timeout: settings.timeout,
            body_limits: BodyLimits { bytes_max: settings.body_bytes_max, idle: settings.idle_timeout },
            gate,
            clock: ServiceClock::default(),
            counters: Counters::default(),
            refusal_form: Mutex::default(),
            surveys_path: SurveysPath::new(settings.surveys_are_studies),
            lists_seen: ListsSeen::default(),
            attempts_max: settings.attempts_max,
        })
    }

    /// Waits for the gate, sends one request and reads the answer. A request that takes longer than the time-out is
    /// `Failed`. If the service refuses the key, and the key has been changed, the request is sent again. If the run
    /// stops during an upsert, waits at most [`GRACE`] for the answer.
    pub async fn attempt(&self, call: &Call) -> Result<Received, Trouble> {
        loop {
            let used = self.credentials.current();
            let outcome = self.attempt_with(&used, call).await;
            let is_about_key = matches!(&outcome, Err(Trouble::Rejected(rejection)) if rejection.is_about_key());
            if !is_about_key || !self.gate.unless_stopped(self.credentials.has_changed_since(&used)).await? {
                return outcome;
            }
        }
    }

    async fn attempt_with(&self, key: &SentKey, call: &Call) -> Result<Received, Trouble> {
        let is_upsert = call.kind == CallKind::UpsertUser;
        let permit = match is_upsert {
            // An upsert does not wait at a blocked gate: the caller has recorded it as sent, and undoes the record.
            true => self.gate.permit_if_open().await?.ok_or(Trouble::RateLimited)?,
            false => self.gate.permit().await?,
        };
        let _booked = self.gate.account().enter(Activity::Network);
        let mut tally = Tally::new(self, call.is_tie_probe);
        let started = Instant::now();
        let outcome = {
            let exchange = timeout(self.timeout, self.exchange(key, call, &permit, &mut tally, started));
            let mut exchange = std::pin::pin!(exchange);
            let ended = match self.gate.unless_stopped(exchange.as_mut()).await {
                Err(stop) if is_upsert => timeout(GRACE, exchange).await.map_err(|_| stop),
                ended => ended,
            };
            match ended {
                Ok(exchanged) => exchanged.unwrap_or_else(|_| Err(Failure::timed_out(self.timeout).into())),
                Err(stop) => Err(Trouble::Interrupted(stop)),
            }
        };
        let ms = millis(started.elapsed());
        if tally.status.is_some() {
            self.counters.note_answer(self.machine_clock.now_ms());
        }
        let (status, bytes, url) = (tally.status.unwrap_or(0), tally.read_bytes, &call.shown);
        match &outcome {
            _ if call.is_about_person() => tracing::debug!(status, ms, bytes, method = %call.method(), url),
            Ok(Received { envelope: Envelope { rows, broken: 0, .. }, .. }) if call.posted.is_none() => {
                tracing::debug!(status, ms, rows, bytes, url);
            }
            Err(Trouble::Failed { last, .. }) => tracing::debug!(status, ms, bytes, url, failure = last.kind()),
            Err(Trouble::Interrupted(_)) => {}
            _ => tracing::debug!(status, ms, bytes, url),
        }
        outcome
    }

    /// Sends the request, reads the answer and classifies it. `started` is the time from which the latency of a page is
    /// measured.
    async fn exchange(
        &self,
        key: &SentKey,
        call: &Call,
        permit: &Permit,
        tally: &mut Tally<'_>,
        started: Instant,
    ) -> Result<Received, Trouble> {
        let mut request = Request::new(call.method(), call.url.clone());
        if let Some(body) = &call.posted {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.clone().into());
        }
        let auth = if call.is_about_person() { &key.user_auth } else { &key.auth };
        request.headers_mut().insert(AUTHORIZATION, auth.clone());
        let mut reply = self.send_with(&self.client, request, permit, tally).await?;
        let (status, service_now_ms) = (reply.status(), header_times::date_ms(reply.headers()));
        if status.is_redirection() {
            let (status, location) = (status.as_u16(), self.location(&reply));
            return Err(Trouble::Ended(SourceError::Redirected { status, location, url: call.shown.clone() }));
        }
        if !status.is_success() {
            return Err(self.read_error(&mut reply, call, tally).await);
        }
        let bytes_max = call.body_bytes_max.unwrap_or(self.body_limits.bytes_max);
        let limits = BodyLimits { bytes_max, ..self.body_limits };
        let read = body::read(&mut reply, limits, &self.credentials.current().key, &mut tally.read_bytes).await;
        let body = match call.kind {
            // A 2xx accepts the upsert, even if its body cannot be read.
            CallKind::UpsertUser => read.unwrap_or_default(),
            _ => read?,
        };
        let envelope = self.read_envelope(call.kind, reply.headers(), &body)?;
        Ok(Received { status: status.as_u16(), body, envelope, service_now_ms, latency_ms: millis(started.elapsed()) })
    }

    /// Sends a request with this client, and returns an answer with any status. Reports nothing to the gate.
    pub async fn transmit(&self, client: &Client, request: Request) -> Result<Reply, Failure> {
        self.transport.send(client, request, self.timeout).await
    }

    /// Sends a request with this client. Tells the gate if the service accepted or rate limited the request. Records
    /// the status, the service's time and the form of `Retry-After`. A 503 without a usable `Retry-After` is no rate
    /// limiting.
    pub async fn send_with(
        &self,
        client: &Client,
        request: Request,
        permit: &Permit,
        tally: &mut Tally<'_>,
    ) -> Result<Reply, Trouble> {
        let response = self.transmit(client, request).await?;
        let now = Instant::now();
        let date_ms = header_times::date_ms(response.headers());
        self.clock.note(date_ms, now);
        let status = response.status();
        tally.status = Some(status.as_u16());
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            // This machine's clock is used only if the service has never sent a `Date`.
            let date_ms = date_ms.or_else(|| self.clock.now_ms(now)).unwrap_or_else(|| self.machine_clock.now_ms());
            let wait = header_times::retry_after(response.headers(), date_ms);
            let form = header_times::retry_after_form(response.headers(), date_ms);
            if status == StatusCode::TOO_MANY_REQUESTS || form != RetryAfterForm::Absent {
                *self.refusal_form.lock().unwrap_or_else(PoisonError::into_inner) = Some(form);
            }
            if wait.is_some() || status == StatusCode::TOO_MANY_REQUESTS {
                permit.rate_limited(status.as_u16(), wait);
                return Err(Trouble::RateLimited);
            }
        }
        permit.accepted();
        Ok(response)
    }

    /// Parses the envelope of a page, and checks that the answer about a person is JSON. Any other answer has no
    /// envelope. Notes the list that answered with a page.
    fn read_envelope(&self, kind: CallKind, headers: &HeaderMap, body: &[u8]) -> Result<Envelope, Failure> {
        let content_type = content_type(headers);
        let is_html = || body::is_html(content_type, body);
        match kind {
            CallKind::List(list) => {
                let envelope = envelope::parse(body).map_err(|problem| {
                    let came = body::describe_body(content_type, body, &self.credentials.current().key);
                    if is_html() { Failure::Html { came } } else { Failure::NoPage { problem, came } }
                })?;
                self.lists_seen.note_page(list);
                Ok(envelope)
            }
            CallKind::ReadUser => match not_json(body) {
                None => Ok(Envelope::default()),
                Some(reason) => {
                    let came = format!("{} bytes", body.len());
                    Err(if is_html() { Failure::Html { came } } else { Failure::NotJson { reason, came } })
                }
            },
            CallKind::Purge | CallKind::UpsertUser => Ok(Envelope::default()),
        }
    }

    /// Reads an error answer: 5xx, 408 and 425 are `Failed`, and 413 for a list, because a smaller page may succeed.
    /// Every other status is `Rejected`. If the body cannot be read, the message is empty.
    async fn read_error(&self, reply: &mut Reply, call: &Call, tally: &mut Tally<'_>) -> Trouble {
        let limits = BodyLimits { bytes_max: ERROR_BODY_BYTES_MAX, idle: ERROR_BODY_IDLE };
        let key = &self.credentials.current().key;
        let body = body::read(reply, limits, key, &mut tally.read_bytes).await.unwrap_or_default();
        let content_type = content_type(reply.headers());
        let is_html = body::is_html(content_type, &body);
        let message = match is_html {
            true => format!("a web page ({})", body::describe_body(content_type, &body, key)),
            false => body::message(&body, key),
        };
        match reply.status().as_u16() {
            // The message may name the person.
            status @ (408 | 425 | 500..) if call.is_about_person() => {
                Failure::Status { status, message: String::new() }.into()
            }
            status @ (408 | 425 | 500..) => Failure::Status { status, message }.into(),
            status @ 413 if matches!(call.kind, CallKind::List(_)) => Failure::Status { status, message }.into(),
            status => Trouble::Rejected(Rejection { status, message, is_html }),
        }
    }

    /// Builds the error of a key that the service refuses.
    pub fn key_refused(&self, status: u16, url: String, message: String) -> SourceError {
        let origin = self.credentials.current().key.origin().to_owned();
        SourceError::KeyRefused { status, origin, url, message }
    }

    /// Returns the target of a redirect for people, without user, password, query and fragment, which may be secret.
    /// Returns a text such as `nowhere` if there is no readable target.
    fn location(&self, response: &Reply) -> String {
        let Some(location) = response.headers().get(LOCATION) else { return "nowhere".to_owned() };
        let text = String::from_utf8_lossy(location.as_bytes());
        let Ok(mut url) = response.url().join(&text) else { return "an unreadable address".to_owned() };
        // Both calls fail only for addresses that cannot have a user or password.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        body::presentable(url.as_str(), &self.credentials.current().key, LOCATION_CHARS_MAX)
    }
}

/// Counts one request when it is dropped, however the request ends.
pub(super) struct Tally<'a> {
    wire: &'a Wire,
    /// The status of the answer; `None` until it arrives.
    pub status: Option<u16>,
    /// Decompressed bytes of the body read so far.
    pub read_bytes: usize,
    is_tie_probe: bool,
}

impl<'a> Tally<'a> {
    pub(super) fn new(wire: &'a Wire, is_tie_probe: bool) -> Self {
        Self { wire, status: None, read_bytes: 0, is_tie_probe }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.wire.counters.count(self.status, self.read_bytes, self.is_tie_probe);
    }
}

/// The requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequestStats {
    /// Requests sent, retries and probes included.
    pub total: u64,
    /// Requests by status of the answer; 0 stands for no answer.
    pub by_status: BTreeMap<u16, u64>,
    /// Decompressed bytes of all bodies read.
    pub bytes: u64,
    /// Requests for the rows of one millisecond, sent because a page boundary can lose rows.
    pub ties_probed: u64,
}

/// The request counts of the run so far.
#[derive(Debug, Default)]
pub(super) struct Counters {
    stats: Mutex<RequestStats>,
    /// When the newest answer came, with whatever status, in epoch milliseconds by this machine; 0 for none.
    answered_ms: AtomicI64,
}

impl Counters {
    /// Counts a request that ended. `status` is `None` if no answer came: the request failed or was cancelled.
    pub fn count(&self, status: Option<u16>, bytes: usize, is_tie_probe: bool) {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.total += 1;
        stats.ties_probed += u64::from(is_tie_probe);
        *stats.by_status.entry(status.unwrap_or(0)).or_default() += 1;
        stats.bytes = stats.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Records that an answer came now, in epoch milliseconds.
    pub fn note_answer(&self, now_ms: i64) {
        self.answered_ms.store(now_ms, Ordering::Relaxed);
    }

    /// Returns when the newest answer came, in epoch milliseconds; `None` before the first.
    pub fn last_answer_ms(&self) -> Option<i64> {
        Some(self.answered_ms.load(Ordering::Relaxed)).filter(|at_ms| *at_ms > 0)
    }

    /// Returns true if any request of the run was answered, with whatever status.
    pub fn has_answers(&self) -> bool {
        let stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.by_status.keys().any(|status| *status != 0)
    }

    pub fn snapshot(&self) -> RequestStats {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn not_json(body: &[u8]) -> Option<String> {
    if let Err(error) = std::str::from_utf8(body) {
        return Some(format!("byte {} is not UTF-8", error.valid_up_to()));
    }
    serde_json::from_slice::<IgnoredAny>(bytes_without_mark(body)).err().map(|error| error.to_string())
}
