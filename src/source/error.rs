//! The errors of the HTTP client, one variant for each reaction of the caller. The modules `fetch` and `walk` decide
//! which error applies.

use std::time::Duration;

use thiserror::Error;

use super::{settings_error::SettingsError, tls_problem::TlsProblem};
use crate::model::{Fault, RunReason, format_ms, format_second};

/// Why a request, or a walk through the pages of a list, failed. Retries are used up, or would not help.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The run stops early and can be resumed later.
    #[error("stopped: {0}")]
    Stopped(#[from] Stop),

    /// 401 or 403 from every list, or from the users although the lists accept the key: the key is wrong.
    #[error("the service refused the key from {origin} (status {status} at {url}){}", body_of(message))]
    KeyRefused { status: u16, origin: String, url: String, message: String },

    /// 401 or 403 with a web page from every list. The service sends no web pages, so a proxy answered and the key was
    /// not checked.
    #[error("a proxy or firewall refuses every request (status {status} with {message} at {url})")]
    Blocked { status: u16, url: String, message: String },

    /// 401 or 403 for this address only: the service accepts the key at other addresses.
    #[error("the service refused {url} (status {status}) but accepts the key elsewhere{}", body_of(message))]
    Forbidden { status: u16, url: String, message: String, is_html: bool },

    /// 404 from a list, also without a range, although the warehouses have rows of it. Nothing is known to be deleted:
    /// the key may have lost a permission, or the service an address.
    #[error("the service answered {url} with 404 as if the list were empty, although it had rows before")]
    ListGone { url: String },

    /// 404 from a list that no answer of the run proves to exist.
    #[error("the service answered {url} with 404, and no other answer shows that this list exists")]
    NotFound { url: String },

    /// Any other 4xx on a request without a page token: the request is wrong, and a retry will not help. Status 0: the
    /// request was not sent.
    #[error("the service refused {url} (status {status}): {message}")]
    Refused { status: u16, message: String, url: String },

    /// A redirect. Redirects are not followed, because the key is sent to the configured address only.
    #[error("the service redirects {url} to {location} (status {status}): correct the service's address")]
    Redirected { status: u16, location: String, url: String },

    /// No answer or server errors in all attempts: try later.
    /// `answered_ms` is when the service last answered in this run, in epoch milliseconds by this machine; `None` if it
    /// did not, or if it is not known.
    #[error("{} {url} in {}: {last}{}", last.verb(), attempts_of(*attempts), answered_until(*answered_ms))]
    Unreachable { url: String, attempts: u32, last: Failure, answered_ms: Option<i64> },

    /// The answers of all attempts are not pages: check the address and the proxies.
    #[error("the answer to {url} is not a page, in {}: {last}", attempts_of(*attempts))]
    BadAnswer { url: String, attempts: u32, last: Failure },

    /// The page fails at every page size while the service answers smaller requests: use a smaller window.
    #[error("cannot read {url}, even in pages of {page_rows} rows, although smaller requests succeed: {last}")]
    TooLarge { url: String, page_rows: u32, last: Failure },

    /// The page tokens die before the window's end: use a smaller window.
    #[error(
        "page tokens die before the end of the window, after at most {pages} pages in {restarts} restarts ({last}): \
         use a smaller window"
    )]
    TokensDie { restarts: u32, pages: u64, last: String },

    /// The pages of the list do not end.
    #[error("the list does not end: {cause} after {}", crate::wording::counted(*.pages, "page"))]
    Looping { cause: LoopCause, pages: u64 },

    /// The settings cannot work.
    #[error("{0}")]
    Settings(#[from] SettingsError),
}

fn attempts_of(attempts: u32) -> String {
    if attempts == 1 { "one attempt".to_owned() } else { format!("{attempts} attempts") }
}

/// Returns the end of an error about a 401 or 403 with this body. Empty without a body, because the service's own
/// refusals have none.
fn body_of(message: &str) -> String {
    match message {
        "" => String::new(),
        message => format!("; the refusal has a body, so it may come from a proxy or firewall: {message}"),
    }
}

/// Returns the end of an error about a service that answered before.
fn answered_until(answered_ms: Option<i64>) -> String {
    answered_ms.map(|at_ms| format!("; the service answered until {}", format_second(at_ms))).unwrap_or_default()
}

impl SourceError {
    /// Adds to an error without an answer when the service last answered in this run, in epoch milliseconds.
    #[must_use]
    pub fn after_answer(mut self, last_answer_ms: Option<i64>) -> SourceError {
        if let SourceError::Unreachable {
            last: Failure::Connect { .. } | Failure::TimedOut { .. }, answered_ms, ..
        } = &mut self
        {
            *answered_ms = last_answer_ms;
        }
        self
    }

    /// Describes the error without the address of the request, if it is not about this request alone: the same for
    /// every window of an outage.
    pub fn cause_of_outage(&self) -> Option<String> {
        match self {
            SourceError::Unreachable { attempts, last, answered_ms, .. } => Some(format!(
                "{} the service in {}: {last}{}",
                last.verb(),
                attempts_of(*attempts),
                answered_until(*answered_ms)
            )),
            _ => None,
        }
    }

    /// Returns true if every further request of the run would fail too.
    pub fn ends_the_run(&self) -> bool {
        matches!(
            self,
            SourceError::Stopped(_)
                | SourceError::KeyRefused { .. }
                | SourceError::Blocked { .. }
                | SourceError::Settings(_)
        )
    }

    /// Returns true if no HTTP server was reached, so that requests for other lists will fail too.
    pub fn is_no_connection(&self) -> bool {
        matches!(
            self,
            SourceError::Unreachable {
                last: Failure::Connect { .. } | Failure::Tls { .. } | Failure::TimedOut { .. },
                ..
            } | SourceError::BadAnswer { last: Failure::NotHttp { .. }, .. }
        )
    }
}

impl Fault for SourceError {
    fn reason(&self) -> RunReason {
        match self {
            SourceError::Settings(_) => RunReason::Configuration,
            SourceError::KeyRefused { .. } => RunReason::KeyRefused,
            SourceError::Stopped(stop) => stop.reason(),
            _ => RunReason::ServiceFailed,
        }
    }

    fn hint(&self) -> Option<&str> {
        Some(match self {
            SourceError::KeyRefused { .. } => {
                "check the key and that it belongs to this environment of the service; for users also its form: auth under [service]"
            }
            SourceError::Blocked { .. } => "ask the operator of the proxy or firewall to let this program through",
            SourceError::Stopped(stop) => stop.hint()?,
            SourceError::Forbidden { .. } => {
                "ask the operator of the service whether this key may read that, and the operator of your proxy or firewall what it blocks"
            }
            SourceError::ListGone { .. } => {
                "ask the operator of the service whether the key may still read this list; if all its rows were really deleted, run \
                 `studysync sync --accept-vanished`"
            }
            SourceError::NotFound { .. } => {
                "check --base-url, with its path: it is the address before /v1/responses. If the environment is new and the service answers \
                 404 for empty lists, try again when it has a survey"
            }
            SourceError::Unreachable { answered_ms: Some(_), .. } => OUTAGE,
            SourceError::Unreachable { last: Failure::Tls { problem, .. }, .. } if problem.is_certificate() => {
                CERTIFICATE
            }
            SourceError::Unreachable {
                last: Failure::Tls { .. } | Failure::Connect { .. } | Failure::TimedOut { .. },
                ..
            } => CONNECTION,
            SourceError::Unreachable { .. } => "check the address and the network; then run the same command again",
            SourceError::BadAnswer { last: Failure::NotHttp { .. }, .. } => {
                "check --base-url: if the port uses https, write https://"
            }
            SourceError::BadAnswer { .. } => {
                "check that --base-url is the service itself, and not a web page or a proxy"
            }
            SourceError::Settings(SettingsError::Client { .. }) => CERTIFICATE,
            SourceError::Settings(SettingsError::UnusableProxy { .. }) => {
                "write http://HOST:PORT (or https://, socks5://, socks5h://, socks4://, socks4a://; special characters of a user or password as %XX), \
                 or unset the variable for requests without a proxy"
            }
            _ => return None,
        })
    }
}

const CERTIFICATE: &str = "if your own authority or a company's proxy signed it, name a PEM file with the certificates of all \
    trusted authorities in the environment variable SSL_CERT_FILE";
const OUTAGE: &str = "the address and the key are right, so the service or the network is down: run the same command again later; \
    it resumes";
const CONNECTION: &str = "check the address (https:// or http://, host, port) and the network; if this machine reaches the internet \
    through a proxy, name it in the environment variable HTTPS_PROXY; then run the same command again";

/// A 4xx answer about this request.
#[derive(Debug)]
pub(super) struct Rejection {
    pub status: u16,
    /// The service's message, shortened. The message of an answer about a person may name the person.
    pub message: String,
    /// True if the body is a web page: a proxy sent it, not the service.
    pub is_html: bool,
}

impl Rejection {
    /// Returns true for 401 and 403: the key may be the reason.
    pub fn is_about_key(&self) -> bool {
        matches!(self.status, 401 | 403)
    }

    /// Returns true for a 404 of the service. A web page with status 404 comes from a wrong address and proves nothing.
    pub fn is_missing(&self) -> bool {
        self.status == 404 && !self.is_html
    }

    /// Returns true if the service itself refused the request as invalid: status 400 or 422, and no web page from a
    /// proxy.
    pub fn is_invalid(&self) -> bool {
        matches!(self.status, 400 | 422) && !self.is_html
    }

    /// Builds the error of the rejected request.
    pub fn into_error(self, url: String) -> SourceError {
        let is_missing = self.is_missing();
        let Rejection { status, message, is_html } = self;
        match status {
            401 | 403 => SourceError::Forbidden { status, url, message, is_html },
            _ if is_missing => SourceError::NotFound { url },
            _ => SourceError::Refused { status, message, url },
        }
    }
}

/// Why a request brought no usable answer.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Rate limited: the gate knows the wait. If the gate was blocked, an upsert was not sent at all.
    RateLimited,
    /// A 4xx about this request.
    Rejected(Rejection),
    /// The failure of the last of `attempts` attempts.
    Failed { last: Failure, attempts: u32 },
    /// The run was stopped while the request was in flight.
    Interrupted(Stop),
    /// An error that no retry changes, or the stop of the run before the request was sent.
    Ended(SourceError),
}

impl Trouble {
    /// Builds the error of a request that is given up.
    pub fn into_error(self, url: String) -> SourceError {
        match self {
            // Rate limited requests are sent again, so that this variant does not reach an error.
            Trouble::RateLimited => Failure::Status { status: 429, message: String::new() }.give_up(url, 1),
            Trouble::Rejected(rejection) => rejection.into_error(url),
            Trouble::Failed { last, attempts } => last.give_up(url, attempts),
            Trouble::Interrupted(stop) => SourceError::Stopped(stop),
            Trouble::Ended(error) => error,
        }
    }
}

impl From<Failure> for Trouble {
    fn from(last: Failure) -> Self {
        Trouble::Failed { last, attempts: 1 }
    }
}

impl From<SourceError> for Trouble {
    fn from(error: SourceError) -> Self {
        Trouble::Ended(error)
    }
}

impl From<Stop> for Trouble {
    fn from(stop: Stop) -> Self {
        Trouble::Ended(stop.into())
    }
}

/// Why the run stops early without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Stop {
    /// The run was cancelled, which only a signal does.
    #[error("the run was stopped by Ctrl-C, SIGTERM or SIGHUP")]
    Cancelled,
    /// The deadline has passed, or passes before the next request may be sent at `until_ms` (epoch milliseconds by this
    /// machine's clock).
    #[error("the deadline leaves no time for a request: the next one may be sent at {}", format_ms(*until_ms))]
    Deadline { until_ms: i64 },
    /// The request budget of the run is used up.
    #[error("the allowance of {} is used up", crate::wording::counted(*.requests, "request"))]
    Budget { requests: u64 },
    /// The wait until `until_ms` (epoch milliseconds by this machine's clock) is longer than the run's patience.
    /// `is_retry_after`: the wait comes from `Retry-After`; otherwise from backoff or pacing.
    #[error("no request before {}{}", format_ms(*until_ms), if *is_retry_after { ", as the service asked" } else { "" })]
    Patience { until_ms: i64, is_retry_after: bool },
}

impl Fault for Stop {
    fn reason(&self) -> RunReason {
        match self {
            Stop::Cancelled => RunReason::Interrupted,
            Stop::Patience { .. } => RunReason::RateLimited,
            Stop::Deadline { .. } | Stop::Budget { .. } => RunReason::StoppedEarly,
        }
    }

    fn hint(&self) -> Option<&str> {
        match self {
            Stop::Patience { is_retry_after: true, .. } => Some(
                "run the same command again after that time; --ignore-rate-limit sends requests earlier, against the service's limit",
            ),
            _ => None,
        }
    }
}

/// Why a walk assumes that a list has no end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoopCause {
    /// The service returned a page token twice in one walk. `token` is a hash of the page token.
    #[error("the page token {token} came twice")]
    RepeatedToken { token: String },
    /// Too many consecutive pages were empty.
    #[error("{in_a_row} pages in a row were empty")]
    EmptyPages { in_a_row: u32 },
    /// The window has more pages than allowed.
    #[error("the limit for a window is reached")]
    TooManyPages,
}

/// The failure of one attempt. Failures are retried, except for those that are [`Failure::is_permanent`] and for a page
/// that is too large, which is requested again only in a smaller size.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// The connection could not be established; a retry may succeed.
    #[error("{detail}")]
    Connect { detail: String },
    /// TLS could not be established, and a retry will fail until somebody fixes the problem.
    #[error("{problem} ({detail})")]
    Tls { problem: TlsProblem, detail: String },
    /// The answer is not HTTP.
    #[error("the answer is not HTTP: the port may be one for https ({detail})")]
    NotHttp { detail: String },
    /// The body has an encoding that was not requested.
    #[error("the body is encoded as '{encoding}': only gzip is supported")]
    UnknownEncoding { encoding: String },
    /// The complete answer did not arrive in time.
    #[error("no complete answer within {after_ms} ms")]
    TimedOut { after_ms: u64 },
    /// The body stalled.
    #[error("the body stopped for {idle_ms} ms after {bytes} bytes")]
    Hung { idle_ms: u64, bytes: usize },
    /// The connection or the compressed stream broke off, or the body is not the announced part of a file.
    #[error("the answer broke off after {bytes} bytes: {detail}")]
    Cut { bytes: usize, detail: String },
    /// The decompressed body is larger than allowed.
    #[error("the body is larger than {limit_bytes} bytes")]
    BodyTooLarge { limit_bytes: usize },
    /// 5xx, 408 or 425; also 413 in a list call, 416 in a download, and 401 or 403 in an upsert. `message` is the
    /// shortened message of the body.
    #[error("status {status}{}{message}", if message.is_empty() { "" } else { ": " })]
    Status { status: u16, message: String },
    /// The body is a web page; `came` describes it.
    #[error("a web page instead of JSON ({came})")]
    Html { came: String },
    /// The body is not a page of a list; `came` describes it.
    #[error("{problem} ({came})")]
    NoPage { problem: crate::page::PageError, came: String },
    /// Some records of the page are not JSON.
    #[error("not JSON: {} on the page", crate::wording::counted(*.records as u64, "record"))]
    BrokenRecords { records: usize },
    /// The body is not JSON; `came` describes it.
    #[error("the body is not JSON: {reason} ({came})")]
    NotJson { reason: String, came: String },
}

impl Failure {
    fn verb(&self) -> &'static str {
        match self {
            Failure::Connect { .. } | Failure::Tls { .. } => "cannot reach",
            _ => "no usable answer from",
        }
    }

    /// Describes the failure in few words, for the progress line.
    pub(super) fn in_few_words(&self) -> String {
        match self {
            Failure::Connect { detail } if detail.to_lowercase().contains("refused") => "connection refused",
            Failure::Connect { .. } | Failure::Tls { .. } => "no connection",
            Failure::TimedOut { .. } | Failure::Hung { .. } => "no answer in time",
            Failure::Cut { .. } => "answer broke off",
            Failure::Status { status, .. } => return status.to_string(),
            _ => "unusable answer",
        }
        .to_owned()
    }

    /// Builds the failure of an answer that did not arrive completely within `after`.
    pub(super) fn timed_out(after: Duration) -> Failure {
        Failure::TimedOut { after_ms: millis(after) }
    }

    /// Builds the failure of a body that stalled for `idle` after `bytes` bytes.
    pub(super) fn hung(idle: Duration, bytes: usize) -> Failure {
        Failure::Hung { idle_ms: millis(idle), bytes }
    }

    /// Returns true if every retry will fail in the same way until somebody fixes the problem.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Failure::Tls { .. } | Failure::NotHttp { .. } | Failure::UnknownEncoding { .. })
    }

    /// Returns true if the page may be too large, so that a smaller one may succeed.
    pub(super) fn may_be_size(&self) -> bool {
        match self {
            Failure::TimedOut { .. } | Failure::Hung { .. } | Failure::Cut { .. } | Failure::BodyTooLarge { .. } => {
                true
            }
            Failure::Status { status, .. } => *status >= 500 || matches!(*status, 408 | 413),
            _ => false,
        }
    }

    /// Returns true if one record may be the cause, so that smaller pages without the record may succeed.
    pub(super) fn may_be_a_record(&self) -> bool {
        matches!(self, Failure::NoPage { .. } | Failure::BrokenRecords { .. })
    }

    /// Returns the kind of failure as one word, for logs, which must not contain anything of an answer.
    pub fn kind(&self) -> &'static str {
        match self {
            Failure::Connect { .. } => "connect",
            Failure::Tls { .. } => "tls",
            Failure::NotHttp { .. } => "not_http",
            Failure::UnknownEncoding { .. } => "unknown_encoding",
            Failure::TimedOut { .. } => "timed_out",
            Failure::Hung { .. } => "hung",
            Failure::Cut { .. } => "cut",
            Failure::BodyTooLarge { .. } => "body_too_large",
            Failure::Status { .. } => "status",
            Failure::Html { .. } => "html",
            Failure::NoPage { .. } => "no_page",
            Failure::BrokenRecords { .. } => "broken_records",
            Failure::NotJson { .. } => "not_json",
        }
    }

    /// Returns true if the service did not answer, or answered with a server error; false for an answer that is not a
    /// page.
    fn is_silence(&self) -> bool {
        matches!(
            self,
            Failure::Connect { .. } | Failure::Tls { .. } | Failure::TimedOut { .. } | Failure::Status { .. }
        )
    }

    /// Builds the error of a request whose last attempt ended with this failure.
    pub(super) fn give_up(self, url: String, attempts: u32) -> SourceError {
        if self.is_silence() {
            SourceError::Unreachable { url, attempts, last: self, answered_ms: None }
        } else {
            SourceError::BadAnswer { url, attempts, last: self }
        }
    }
}

/// Returns a time in milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
