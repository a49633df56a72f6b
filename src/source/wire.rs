//! Sends one request, reads the answer and classifies it. Waits for the gate before the request, and reports the result
//! to the gate. The module `fetch` retries; `walk` interprets the answer.

use std::{
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use reqwest::{
    Client, Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};
use tokio::time::{Instant, timeout};

use super::{
    address::Address,
    body::{self, BodyLimits},
    client,
    credentials::{Credentials, SentKey},
    envelope::{self, Envelope},
    error::{Failure, SettingsError, Stop},
    excerpt,
    gate::{Gate, Permit},
    lists_seen::ListsSeen,
    proxies::Proxies,
    retry_after,
    service_clock::{self, ServiceClock},
    settings::SourceSettings,
    stats::Counters,
    surveys_path::SurveysPath,
    transport::{Reply, Transport},
};
use crate::{
    clock::Clock,
    model::{Activity, RetryAfterForm},
};

/// Maximum bytes read of an error body.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;
/// The longest pause inside an error body.
const ERROR_BODY_IDLE: Duration = Duration::from_secs(2);
/// Maximum characters shown of a redirect's target.
const LOCATION_CHARS_MAX: usize = 200;

/// The result of one request.
#[derive(Debug)]
pub(super) enum RequestOutcome {
    /// A page.
    Page(Box<ReceivedPage>),
    /// A page with records that are not JSON. If a second attempt returns the same records, the transfer did not break
    /// them.
    Broken { page: Box<ReceivedPage>, failure: Failure },
    /// The answer to a POST.
    Posted { body: Bytes, service_now_ms: Option<i64> },
    /// Rate limited: the gate knows the wait.
    RateLimited,
    /// Any other 4xx.
    Rejected(Rejection),
    /// 3xx.
    Redirected { status: u16, location: String },
    /// A failure. A retry may help unless [`Failure::is_permanent`].
    Failed(Failure),
}

/// The result of sending a request, before the body of the answer is read.
#[derive(Debug)]
pub(super) enum SendOutcome {
    /// An answer that is no rate limiting, with any status.
    Replied(Reply),
    /// Rate limited: the gate knows the wait.
    RateLimited,
    /// No answer.
    Failed(Failure),
}

/// A page as the service sent it.
#[derive(Debug)]
pub(super) struct ReceivedPage {
    pub body: Bytes,
    pub envelope: Envelope,
    /// The service's time when it answered, in epoch milliseconds.
    pub service_now_ms: Option<i64>,
    /// The time from sending the request to the last byte of the answer.
    pub latency: Duration,
}

/// A 4xx answer about this request.
#[derive(Debug)]
pub(super) struct Rejection {
    pub status: u16,
    /// The service's message, shortened.
    pub message: String,
    /// True if the body is a web page: a proxy sent it, not the service.
    pub is_html: bool,
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

impl Rejection {
    /// Returns true for 401 and 403: the key may be the reason.
    pub fn is_about_key(&self) -> bool {
        matches!(self.status, 401 | 403)
    }
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
    /// `Failed`. If the service refuses the key, and the key has been changed, the request is sent again. `Err` means
    /// that the run has to stop.
    pub async fn ask(&self, address: &Address) -> Result<RequestOutcome, Stop> {
        loop {
            let used = self.credentials.current();
            let outcome = self.ask_with(&used, address).await?;
            let is_about_key = matches!(&outcome, RequestOutcome::Rejected(rejection) if rejection.is_about_key());
            if !is_about_key || !self.has_another_key(&used).await? {
                return Ok(outcome);
            }
        }
    }

    /// Reads the key once more, because the service refused this one. Returns true if another key is in use now.
    pub(super) async fn has_another_key(&self, refused: &SentKey) -> Result<bool, Stop> {
        self.gate.unless_stopped(self.credentials.has_changed_since(refused)).await
    }

    /// [`Wire::ask`] with this key.
    async fn ask_with(&self, key: &SentKey, address: &Address) -> Result<RequestOutcome, Stop> {
        let permit = self.gate.permit().await?;
        let _booked = self.gate.account().enter(Activity::Network);
        let mut tally = Tally::new(self, address.is_tie_probe);
        let started = Instant::now();
        let exchange = timeout(self.timeout, self.exchange(key, address, &permit, &mut tally, started));
        let outcome = self
            .gate
            .unless_stopped(exchange)
            .await?
            .unwrap_or_else(|_| RequestOutcome::Failed(Failure::timed_out(self.timeout)));
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, bytes) = (tally.status.unwrap_or(0), tally.read_bytes);
        match &outcome {
            RequestOutcome::Page(page) => {
                tracing::debug!(status, ms, rows = page.envelope.rows, bytes, url = address.shown)
            }
            RequestOutcome::Failed(failure) => {
                tracing::debug!(status, ms, bytes, url = address.shown, failure = failure.kind());
            }
            _ => tracing::debug!(status, ms, bytes, url = address.shown),
        }
        Ok(outcome)
    }

    /// Sends the request, reads the answer and classifies it. `started` is the time from which the latency of a page is
    /// measured. A 413 on a GET is `Failed`, because a smaller page may succeed.
    async fn exchange(
        &self,
        key: &SentKey,
        address: &Address,
        permit: &Permit,
        tally: &mut Tally<'_>,
        started: Instant,
    ) -> RequestOutcome {
        let mut request = match &address.posted {
            None => Request::new(Method::GET, address.url.clone()),
            Some(body) => {
                let mut request = Request::new(Method::POST, address.url.clone());
                request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                *request.body_mut() = Some(body.clone().into());
                request
            }
        };
        request.headers_mut().insert(AUTHORIZATION, key.auth.clone());
        let mut response = match self.send(request, permit, tally).await {
            SendOutcome::Replied(response) => response,
            SendOutcome::RateLimited => return RequestOutcome::RateLimited,
            SendOutcome::Failed(failure) => return RequestOutcome::Failed(failure),
        };
        let (status, date_ms) = (response.status(), service_clock::date_ms(response.headers()));
        if status.is_success() && address.posted.is_some() {
            let read =
                body::read(&mut response, self.body_limits, &self.credentials.current().key, &mut tally.read_bytes)
                    .await;
            return read
                .map_or_else(RequestOutcome::Failed, |body| RequestOutcome::Posted { body, service_now_ms: date_ms });
        }
        if status.is_success() {
            match self.read_page(&mut response, address.body_bytes_max, tally).await {
                Ok((body, envelope)) => {
                    self.lists_seen.note_page(address.list);
                    let broken = envelope.broken;
                    let latency = started.elapsed();
                    let page = Box::new(ReceivedPage { body, envelope, service_now_ms: date_ms, latency });
                    match broken {
                        0 => RequestOutcome::Page(page),
                        records => RequestOutcome::Broken { page, failure: Failure::BrokenRecords { records } },
                    }
                }
                Err(failure) => RequestOutcome::Failed(failure),
            }
        } else if status.is_redirection() {
            RequestOutcome::Redirected { status: status.as_u16(), location: self.location(&response) }
        } else {
            match self.read_error(&mut response, tally).await {
                // The page is too large for the service or a proxy: a smaller page may succeed.
                RequestOutcome::Rejected(Rejection { status: status @ 413, message, .. })
                    if address.posted.is_none() =>
                {
                    RequestOutcome::Failed(Failure::Status { status, message })
                }
                other => other,
            }
        }
    }

    /// Sends a request with the client for the service, and reports to the gate: accepted or rate limited.
    pub(super) async fn send(&self, request: Request, permit: &Permit, tally: &mut Tally<'_>) -> SendOutcome {
        self.send_with(&self.client, request, permit, tally).await
    }

    /// Sends a request with this client, and returns an answer with any status. Reports nothing to the gate.
    pub(super) async fn transmit(&self, client: &Client, request: Request) -> Result<Reply, Failure> {
        self.transport.send(client, request, self.timeout).await
    }

    /// Sends a request with this client. Tells the gate if the service accepted or rate limited the request. Records
    /// the status, the service's time and the form of `Retry-After`. A 503 without a usable `Retry-After` is no rate
    /// limiting.
    pub(super) async fn send_with(
        &self,
        client: &Client,
        request: Request,
        permit: &Permit,
        tally: &mut Tally<'_>,
    ) -> SendOutcome {
        let response = match self.transmit(client, request).await {
            Ok(response) => response,
            Err(failure) => return SendOutcome::Failed(failure),
        };
        let now = Instant::now();
        let date_ms = service_clock::date_ms(response.headers());
        self.clock.note(date_ms, now);
        let status = response.status();
        tally.status = Some(status.as_u16());
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            // This machine's clock is used only if the service has never sent a `Date`.
            let date_ms = date_ms.or_else(|| self.clock.now_ms(now)).unwrap_or_else(|| self.machine_clock.now_ms());
            let wait = retry_after::read(response.headers(), date_ms);
            let form = retry_after::form(response.headers(), date_ms);
            if status == StatusCode::TOO_MANY_REQUESTS || form != RetryAfterForm::Absent {
                *self.refusal_form.lock().unwrap_or_else(PoisonError::into_inner) = Some(form);
            }
            if wait.is_some() || status == StatusCode::TOO_MANY_REQUESTS {
                permit.rate_limited(status.as_u16(), wait);
                return SendOutcome::RateLimited;
            }
        }
        permit.accepted();
        SendOutcome::Replied(response)
    }

    /// Reads a body and parses its envelope. Fails if the body is not a page, or longer than `bytes_max`.
    async fn read_page(
        &self,
        response: &mut Reply,
        bytes_max: Option<usize>,
        tally: &mut Tally<'_>,
    ) -> Result<(Bytes, Envelope), Failure> {
        let limits = BodyLimits { bytes_max: bytes_max.unwrap_or(self.body_limits.bytes_max), ..self.body_limits };
        let body = body::read(response, limits, &self.credentials.current().key, &mut tally.read_bytes).await?;
        match envelope::parse(&body) {
            Ok(envelope) => Ok((body, envelope)),
            Err(problem) => {
                let content_type = content_type(response.headers());
                let came = excerpt::describe_body(content_type, &body, &self.credentials.current().key);
                let is_html = excerpt::is_html(content_type, &body);
                Err(if is_html { Failure::Html { came } } else { Failure::NoPage { problem, came } })
            }
        }
    }

    /// Reads an error answer: 5xx, 408 and 425 are `Failed`, every other status is `Rejected`. If the body cannot be
    /// read, the message is empty.
    pub(super) async fn read_error(&self, response: &mut Reply, tally: &mut Tally<'_>) -> RequestOutcome {
        let limits = BodyLimits { bytes_max: ERROR_BODY_BYTES_MAX, idle: ERROR_BODY_IDLE };
        let body = body::read(response, limits, &self.credentials.current().key, &mut tally.read_bytes)
            .await
            .unwrap_or_default();
        let status = response.status();
        let is_html = excerpt::is_html(content_type(response.headers()), &body);
        let message = if is_html {
            format!(
                "a web page ({})",
                excerpt::describe_body(content_type(response.headers()), &body, &self.credentials.current().key)
            )
        } else {
            excerpt::message(&body, &self.credentials.current().key)
        };
        let is_passing = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY);
        let status = status.as_u16();
        if is_passing || status >= 500 {
            RequestOutcome::Failed(Failure::Status { status, message })
        } else {
            RequestOutcome::Rejected(Rejection { status, message, is_html })
        }
    }

    /// Returns the target of a redirect for people, without user, password, query and fragment, which may be secret.
    /// Returns a text such as `nowhere` if there is no readable target.
    pub(super) fn location(&self, response: &Reply) -> String {
        let Some(location) = response.headers().get(LOCATION) else { return "nowhere".to_owned() };
        let text = String::from_utf8_lossy(location.as_bytes());
        let Ok(mut url) = response.url().join(&text) else { return "an unreadable address".to_owned() };
        // Both calls fail only for addresses that cannot have a user or password.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        excerpt::presentable(url.as_str(), &self.credentials.current().key, LOCATION_CHARS_MAX)
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

/// Returns the `Content-Type` header; empty if there is none.
pub(super) fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
