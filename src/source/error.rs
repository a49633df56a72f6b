//! What can go wrong, by what the caller can do about it. Nothing here decides: `fetch` and `walk` do.

use std::time::Duration;

use thiserror::Error;

use super::tls_problem::TlsProblem;
use crate::model::format_ms;

/// Why no further page can be had.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The run is over for now, and what is durable stays: resume later.
    #[error("stopped: {0}")]
    Stopped(Stop),

    /// 401 or 403 from every list: the key is wrong.
    #[error("the service refused the key from {origin} (status {status} at {url}){}", body_of(message))]
    KeyRefused { status: u16, origin: String, url: String, message: String },

    /// Every list is answered with 403 and a web page, which the service never sends: the key was not looked at.
    #[error("a proxy or firewall refuses every request (status {status} with {message} at {url})")]
    Blocked { status: u16, url: String, message: String },

    /// 401 or 403 for this address alone: the service accepts the key elsewhere.
    #[error("{url} is refused (status {status}), though the key is accepted elsewhere{}", body_of(message))]
    Forbidden { status: u16, url: String, message: String, is_html: bool },

    /// 404 where no answer of the run shows that the list is there: it proves nothing.
    #[error("{url} is answered with 404, and nothing shows that this list exists: a 404 proves nothing then")]
    NotFound { url: String },

    /// Any other 4xx on a request without a page token: the request itself is wrong, asking again will not help.
    #[error("the service refused {url} (status {status}): {message}")]
    Refused { status: u16, message: String, url: String },

    /// The service wants the request to go elsewhere. The key is never sent to another place than the configured one.
    #[error(
        "{url} is redirected to {location} (status {status}), which is not followed: correct the service's address"
    )]
    Redirected { status: u16, location: String, url: String },

    /// The service gave no answer, or only server errors, however often it was asked: try later.
    #[error("{} {url} in {}: {last}", last.verb(), attempts_of(*attempts))]
    Unreachable { url: String, attempts: u32, last: Failure },

    /// The service answered, however often it was asked, with something that is no page: look at the address and at what
    /// stands between.
    #[error("the answer to {url} is no page, in {}: {last}", attempts_of(*attempts))]
    BadAnswer { url: String, attempts: u32, last: Failure },

    /// The page cannot be had at any page size while the service answers smaller questions: ask for a smaller window.
    #[error(
        "{url} does not come, even in pages of {page_rows} rows, while the service answers smaller questions: {last}"
    )]
    TooLarge { url: String, page_rows: u32, last: Failure },

    /// The page tokens die before the window's end: ask for a smaller window.
    #[error(
        "the page tokens die before the window's end, after {pages} pages at best in {restarts} restarts ({last}): \
         use a smaller window"
    )]
    TokensDie { restarts: u32, pages: u64, last: String },

    /// The list does not come to an end.
    #[error("the list does not end: {cause} after {pages} pages")]
    Looping { cause: LoopCause, pages: u64 },

    /// The settings cannot work.
    #[error("{0}")]
    Settings(#[from] SettingsError),
}

fn attempts_of(attempts: u32) -> String {
    if attempts == 1 { "one attempt".to_owned() } else { format!("{attempts} attempts") }
}

/// What is said of the body of a 401 or 403: the service's own refusals have none.
fn body_of(message: &str) -> String {
    match message {
        "" => String::new(),
        message => format!("; the refusal has a body, so it may come from a proxy or firewall: {message}"),
    }
}

impl SourceError {
    /// Whether no other request will go better: the run is over, or the key is no good.
    pub fn ends_the_run(&self) -> bool {
        matches!(
            self,
            SourceError::Stopped(_)
                | SourceError::KeyRefused { .. }
                | SourceError::Blocked { .. }
                | SourceError::Settings(_)
        )
    }

    /// Whether nothing that speaks HTTP was reached: then another list will not answer either.
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

impl From<Stop> for SourceError {
    fn from(stop: Stop) -> Self {
        SourceError::Stopped(stop)
    }
}

/// Why the run ends early although nothing failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Stop {
    /// Somebody asked for it.
    #[error("cancelled")]
    Cancelled,
    /// The deadline is there, or will be before the next request may be sent: at `until_ms` (epoch milliseconds, this
    /// machine's clock).
    #[error("the deadline leaves no time for a request, the next may be sent at {}", format_ms(*until_ms))]
    Deadline { until_ms: i64 },
    /// The run's allowance of requests is used up.
    #[error("the allowance of {requests} requests is used up")]
    Budget { requests: u64 },
    /// The service must be left alone for longer than the run is willing to wait: until `until_ms` (epoch milliseconds, this
    /// machine's clock). `told` says whether the service named that time or it is our own backoff.
    #[error("no request before {}{}", format_ms(*until_ms), if *told { ", as the service told" } else { "" })]
    Patience { until_ms: i64, told: bool },
}

/// Why a list does not end.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoopCause {
    /// The service handed out a page token a second time, even after a new start. The token is shortened.
    #[error("the page token {token} came twice")]
    RepeatedToken { token: String },
    /// Too many pages in a row held no row.
    #[error("{in_a_row} pages in a row were empty")]
    EmptyPages { in_a_row: u32 },
    /// More pages than any window may have.
    #[error("the limit for a window is reached")]
    TooManyPages,
}

/// What went wrong with one attempt. All of it is worth another attempt.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// No connection.
    #[error("{detail}")]
    Connect { detail: String },
    /// No TLS connection, before somebody changes something.
    #[error("{problem} ({detail})")]
    Tls { problem: TlsProblem, detail: String },
    /// The answer is no HTTP.
    #[error("the answer is no HTTP: the port may be one for https ({detail})")]
    NotHttp { detail: String },
    /// The body is packed in a way that was not asked for.
    #[error("the body is encoded as '{encoding}', which cannot be read: gzip is asked for")]
    UnknownEncoding { encoding: String },
    /// The whole answer did not arrive in time.
    #[error("no complete answer within {after_ms} ms")]
    TimedOut { after_ms: u64 },
    /// The body stopped coming.
    #[error("the body stopped for {idle_ms} ms after {bytes} bytes")]
    Hung { idle_ms: u64, bytes: usize },
    /// The connection or the compressed stream broke off, or the answer was no HTTP.
    #[error("the answer broke off after {bytes} bytes: {detail}")]
    Cut { bytes: usize, detail: String },
    /// The decompressed body is larger than allowed.
    #[error("the body is larger than {limit_bytes} bytes")]
    BodyTooLarge { limit_bytes: usize },
    /// 5xx, or 408 or 425. `message` is what the body says, shortened.
    #[error("status {status}{}{message}", if message.is_empty() { "" } else { ": " })]
    Status { status: u16, message: String },
    /// The body is a web page; `came` says what came.
    #[error("a web page instead of JSON ({came})")]
    Html { came: String },
    /// The body is no page of a list; `came` says what came.
    #[error("{problem} ({came})")]
    NoPage { problem: crate::page::PageError, came: String },
    /// Some records of the page are no JSON.
    #[error("{records} records on the page are not JSON")]
    BrokenRecords { records: usize },
    /// The body is no JSON; `came` says what came.
    #[error("the body is not JSON: {reason} ({came})")]
    NotJson { reason: String, came: String },
}

impl Failure {
    /// What an error that gives up says before the address.
    fn verb(&self) -> &'static str {
        match self {
            Failure::Connect { .. } | Failure::Tls { .. } => "cannot reach",
            _ => "no usable answer from",
        }
    }
}

impl Failure {
    /// The whole answer did not arrive in this time.
    pub(super) fn timed_out(after: Duration) -> Failure {
        Failure::TimedOut { after_ms: millis(after) }
    }

    /// The body stopped coming for so long, after so many bytes.
    pub(super) fn hung(idle: Duration, bytes: usize) -> Failure {
        Failure::Hung { idle_ms: millis(idle), bytes }
    }

    /// Whether the same request would fail in the same way, until somebody changes something.
    pub(super) fn is_permanent(&self) -> bool {
        matches!(self, Failure::Tls { .. } | Failure::NotHttp { .. } | Failure::UnknownEncoding { .. })
    }

    /// Whether a smaller page could help: the service or the way to it had too much to carry.
    pub(super) fn may_be_size(&self) -> bool {
        match self {
            Failure::TimedOut { .. } | Failure::Hung { .. } | Failure::Cut { .. } | Failure::BodyTooLarge { .. } => {
                true
            }
            Failure::Status { status, .. } => *status >= 500 || matches!(*status, 408 | 413),
            Failure::Connect { .. }
            | Failure::Tls { .. }
            | Failure::NotHttp { .. }
            | Failure::UnknownEncoding { .. }
            | Failure::Html { .. }
            | Failure::NoPage { .. }
            | Failure::BrokenRecords { .. }
            | Failure::NotJson { .. } => false,
        }
    }

    /// Whether one record may be to blame, so that pages and windows without it can be read.
    pub(super) fn may_be_a_record(&self) -> bool {
        matches!(self, Failure::NoPage { .. } | Failure::BrokenRecords { .. })
    }

    /// What went wrong in a word, for logs: an answer's content does not belong there.
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

    /// Whether the service did not answer at all, as against answering with something that is no page.
    fn is_silence(&self) -> bool {
        matches!(
            self,
            Failure::Connect { .. } | Failure::Tls { .. } | Failure::TimedOut { .. } | Failure::Status { .. }
        )
    }

    /// The error of a request that failed this way to the last.
    pub(super) fn give_up(self, url: String, attempts: u32) -> SourceError {
        if self.is_silence() {
            SourceError::Unreachable { url, attempts, last: self }
        } else {
            SourceError::BadAnswer { url, attempts, last: self }
        }
    }
}

/// Why a source cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SettingsError {
    /// The address is none. It is not repeated here, as it could carry a password.
    #[error("the service's address is not an address: {reason}")]
    NotAnAddress { reason: String },
    /// The key would travel unencrypted.
    #[error("the service's address must be https (http is allowed on loopback only), not {scheme}://{host}")]
    Unencrypted { scheme: String, host: String },
    /// The address carries something that does not belong there.
    #[error("the service's address must not carry {what}")]
    Surplus { what: &'static str },
    /// The key is empty or cannot stand in a header.
    #[error("the key from {origin} {problem}")]
    UnusableKey { origin: String, problem: &'static str },
    /// A limit that would allow nothing.
    #[error("{name} must be {requirement}")]
    OutOfRange { name: &'static str, requirement: &'static str },
    /// The HTTP client cannot be built.
    #[error("cannot set up the HTTP client: {reason}")]
    Client { reason: String },
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
