//! Sends one request, reads its answer and says which kind it is. Asks the gate first and tells it what came of it. Does not
//! ask twice and does not judge what a kind means: `fetch` and `walk` do.

use std::{
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use reqwest::{
    Client, Method, Request, StatusCode,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION},
};
use tokio::time::{Instant, timeout};

use super::{
    address::Address,
    body::{self, BodyLimits},
    client,
    envelope::{self, Envelope},
    error::{Failure, SettingsError, Stop},
    excerpt,
    gate::{Gate, Permit},
    lists_seen::ListsSeen,
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
    redact::ApiKey,
};

/// The most bytes read of a body that is not a page.
const ERROR_BODY_BYTES_MAX: usize = 64 << 10;
/// The longest silence inside such a body.
const ERROR_BODY_IDLE: Duration = Duration::from_secs(2);
/// The longest address shown of a redirect.
const LOCATION_CHARS_MAX: usize = 200;

/// What came of one request.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A page.
    Page(Box<Received>),
    /// A page of which some records are no JSON. Another attempt tells whether they are so at the service, or broke on the way.
    Broken { page: Box<Received>, failure: Failure },
    /// The answer to what was posted.
    Posted { body: Bytes, service_now_ms: Option<i64> },
    /// Refused for now; the gate knows until when.
    Later,
    /// Any other 4xx.
    Rejected(Rejection),
    /// 3xx.
    Redirected { status: u16, location: String },
    /// Worth another attempt.
    Failed(Failure),
}

/// What became of a request before its answer's body is read.
#[derive(Debug)]
pub(super) enum Heard {
    /// The service took the request.
    Answer(Reply),
    /// Refused for now; the gate knows until when.
    Later,
    /// No answer.
    Nothing(Failure),
}

/// A page as it came.
#[derive(Debug)]
pub(super) struct Received {
    pub body: Bytes,
    pub envelope: Envelope,
    pub service_now_ms: Option<i64>,
    pub latency: Duration,
}

/// An answer that says no to this very request.
#[derive(Debug)]
pub(super) struct Rejection {
    pub status: u16,
    pub message: String,
    pub is_html: bool,
}

/// The connections to the service.
#[derive(Debug)]
pub(super) struct Wire {
    client: Client,
    /// The one for links of the service, once there was one to follow.
    pub download_client: OnceLock<Result<Client, String>>,
    transport: Transport,
    machine_clock: Clock,
    pub key: ApiKey,
    pub timeout: Duration,
    pub body_limits: BodyLimits,
    pub gate: Gate,
    pub clock: ServiceClock,
    pub counters: Counters,
    /// The key as it stands in requests about users.
    pub user_auth: HeaderValue,
    /// How the latest refusal said when to come back.
    pub refusal_form: Mutex<Option<RetryAfterForm>>,
    pub surveys_path: SurveysPath,
    /// The lists that have answered with a page.
    pub lists_seen: ListsSeen,
    /// The most attempts for one page.
    pub attempts_max: u32,
}

impl Rejection {
    /// Whether it may mean the key.
    pub fn is_about_key(&self) -> bool {
        matches!(self.status, 401 | 403)
    }
}

impl Wire {
    pub fn new(settings: &SourceSettings, gate: Gate) -> Result<Self, SettingsError> {
        Ok(Self {
            client: client::build(settings)?,
            download_client: OnceLock::new(),
            transport: settings.transport.clone(),
            machine_clock: settings.clock.clone(),
            key: settings.key.clone(),
            timeout: settings.timeout,
            body_limits: BodyLimits { bytes_max: settings.body_bytes_max, idle: settings.idle_timeout },
            gate,
            clock: ServiceClock::default(),
            counters: Counters::default(),
            user_auth: client::authorization(settings, settings.user_auth)?,
            refusal_form: Mutex::default(),
            surveys_path: SurveysPath::new(settings.surveys_are_studies),
            lists_seen: ListsSeen::default(),
            attempts_max: settings.attempts_max,
        })
    }

    /// Sends one request when the gate lets it, and reads the answer.
    pub async fn ask(&self, address: &Address) -> Result<Outcome, Stop> {
        let permit = self.gate.permit().await?;
        let _booked = self.gate.account().enter(Activity::Network);
        let mut tally = Tally::new(self, address.is_about_ties);
        let started = Instant::now();
        let exchange = timeout(self.timeout, self.exchange(address, &permit, &mut tally, started));
        let outcome = self
            .gate
            .unless_stopped(exchange)
            .await?
            .unwrap_or_else(|_| Outcome::Failed(Failure::timed_out(self.timeout)));
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, bytes) = (tally.status.unwrap_or(0), tally.read_bytes);
        match &outcome {
            Outcome::Page(page) => tracing::debug!(status, ms, rows = page.envelope.rows, bytes, url = address.shown),
            Outcome::Failed(failure) => {
                tracing::debug!(status, ms, bytes, url = address.shown, failure = failure.kind());
            }
            _ => tracing::debug!(status, ms, bytes, url = address.shown),
        }
        Ok(outcome)
    }

    async fn exchange(&self, address: &Address, permit: &Permit, tally: &mut Tally<'_>, started: Instant) -> Outcome {
        let request = match &address.posted {
            None => Request::new(Method::GET, address.url.clone()),
            Some(body) => {
                let mut request = Request::new(Method::POST, address.url.clone());
                request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                *request.body_mut() = Some(body.clone().into());
                request
            }
        };
        let mut response = match self.hear(request, permit, tally).await {
            Heard::Answer(response) => response,
            Heard::Later => return Outcome::Later,
            Heard::Nothing(failure) => return Outcome::Failed(failure),
        };
        let (status, date_ms) = (response.status(), service_clock::date_ms(response.headers()));
        if status.is_success() && address.posted.is_some() {
            let read = body::read(&mut response, self.body_limits, &self.key, &mut tally.read_bytes).await;
            return read.map_or_else(Outcome::Failed, |body| Outcome::Posted { body, service_now_ms: date_ms });
        }
        if status.is_success() {
            match self.read_page(&mut response, tally).await {
                Ok((body, envelope)) => {
                    self.lists_seen.note(address.list);
                    let broken = envelope.broken;
                    let latency = started.elapsed();
                    let page = Box::new(Received { body, envelope, service_now_ms: date_ms, latency });
                    match broken {
                        0 => Outcome::Page(page),
                        records => Outcome::Broken { page, failure: Failure::BrokenRecords { records } },
                    }
                }
                Err(failure) => Outcome::Failed(failure),
            }
        } else if status.is_redirection() {
            Outcome::Redirected { status: status.as_u16(), location: self.location(&response) }
        } else {
            match self.read_error(&mut response, tally).await {
                // The page is too large for something on its way: a smaller one may come.
                Outcome::Rejected(Rejection { status: status @ 413, message, .. }) if address.posted.is_none() => {
                    Outcome::Failed(Failure::Status { status, message })
                }
                other => other,
            }
        }
    }

    /// Sends a request and tells the gate what became of it: taken, or refused for now.
    pub(super) async fn hear(&self, request: Request, permit: &Permit, tally: &mut Tally<'_>) -> Heard {
        self.hear_with(&self.client, request, permit, tally).await
    }

    /// Sends a request by this client.
    pub(super) async fn send_with(&self, client: &Client, request: Request) -> Result<Reply, Failure> {
        self.transport.send(client, request, self.timeout).await
    }

    /// The same as [`Wire::hear`], by another client.
    pub(super) async fn hear_with(
        &self,
        client: &Client,
        request: Request,
        permit: &Permit,
        tally: &mut Tally<'_>,
    ) -> Heard {
        let response = match self.send_with(client, request).await {
            Ok(response) => response,
            Err(failure) => return Heard::Nothing(failure),
        };
        let now = Instant::now();
        let date_ms = service_clock::date_ms(response.headers());
        self.clock.note(date_ms, now);
        let status = response.status();
        tally.status = Some(status.as_u16());
        if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::SERVICE_UNAVAILABLE {
            // Without any `Date` this machine's clock is the only measure left.
            let date_ms = date_ms.or_else(|| self.clock.now_ms(now)).unwrap_or_else(|| self.machine_clock.now_ms());
            let told = retry_after::read(response.headers(), date_ms);
            let form = retry_after::form(response.headers(), date_ms);
            if status == StatusCode::TOO_MANY_REQUESTS || form != RetryAfterForm::Absent {
                *self.refusal_form.lock().unwrap_or_else(PoisonError::into_inner) = Some(form);
            }
            if told.is_some() || status == StatusCode::TOO_MANY_REQUESTS {
                permit.rate_limited(status.as_u16(), told);
                return Heard::Later;
            }
        }
        permit.accepted();
        Heard::Answer(response)
    }

    async fn read_page(&self, response: &mut Reply, tally: &mut Tally<'_>) -> Result<(Bytes, Envelope), Failure> {
        let body = body::read(response, self.body_limits, &self.key, &mut tally.read_bytes).await?;
        match envelope::parse(&body) {
            Ok(envelope) => Ok((body, envelope)),
            Err(problem) => {
                let content_type = content_type(response.headers());
                let came = excerpt::what_came(content_type, &body, &self.key);
                let is_html = excerpt::is_html(content_type, &body);
                Err(if is_html { Failure::Html { came } } else { Failure::NoPage { problem, came } })
            }
        }
    }

    /// An answer that is an error. Its body only explains, so a broken one is no further error.
    pub(super) async fn read_error(&self, response: &mut Reply, tally: &mut Tally<'_>) -> Outcome {
        let limits = BodyLimits { bytes_max: ERROR_BODY_BYTES_MAX, idle: ERROR_BODY_IDLE };
        let body = body::read(response, limits, &self.key, &mut tally.read_bytes).await.unwrap_or_default();
        let status = response.status();
        let is_html = excerpt::is_html(content_type(response.headers()), &body);
        let message = if is_html {
            format!("a web page ({})", excerpt::what_came(content_type(response.headers()), &body, &self.key))
        } else {
            excerpt::message(&body, &self.key)
        };
        let is_passing = matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY);
        let status = status.as_u16();
        if is_passing || status >= 500 {
            Outcome::Failed(Failure::Status { status, message })
        } else {
            Outcome::Rejected(Rejection { status, message, is_html })
        }
    }

    /// Where a redirect leads, without what could be secret: user, query and fragment.
    pub(super) fn location(&self, response: &Reply) -> String {
        let Some(location) = response.headers().get(LOCATION) else { return "nowhere".to_owned() };
        let text = String::from_utf8_lossy(location.as_bytes());
        let Ok(mut url) = response.url().join(&text) else { return "an unreadable address".to_owned() };
        // Only an address that can have neither refuses these, and then has nothing to hide there.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        excerpt::presentable(url.as_str(), &self.key, LOCATION_CHARS_MAX)
    }
}

/// One request's entry in the counts; it counts when it is dropped, however the request ends.
pub(super) struct Tally<'a> {
    wire: &'a Wire,
    pub status: Option<u16>,
    pub read_bytes: usize,
    is_about_ties: bool,
}

impl<'a> Tally<'a> {
    pub(super) fn new(wire: &'a Wire, is_about_ties: bool) -> Self {
        Self { wire, status: None, read_bytes: 0, is_about_ties }
    }
}

impl Drop for Tally<'_> {
    fn drop(&mut self) {
        self.wire.counters.count(self.status, self.read_bytes, self.is_about_ties);
    }
}

pub(super) fn content_type(headers: &HeaderMap) -> &str {
    headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
