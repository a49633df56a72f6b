//! One request about a person, sent once and read to its end. Nothing that the service says of the person reaches an
//! error or a log: those outlive the person. Does not ask twice and does not judge what an answer means: `users` does.

use bytes::Bytes;
use reqwest::{
    Method, Request, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::de::IgnoredAny;
use tokio::time::{Duration, Instant, timeout};

use super::{
    body,
    error::{Failure, Stop},
    excerpt,
    gate::Permit,
    wire::{Heard, Outcome, Tally, Wire, content_type},
};
use crate::{model::Activity, text::bytes_without_mark};

/// How long the answer to what was sent is still waited for when the run is to end:
/// without it the fate of a user is unknown.
const GRACE: Duration = Duration::from_secs(5);

/// One request about a person.
#[derive(Debug)]
pub(super) struct Call {
    pub method: Method,
    pub url: Url,
    /// The address without the id.
    pub shown: String,
    /// What is sent. Then the answer counts and not its body; without it, the body must be JSON.
    pub body: Option<Bytes>,
}

/// What came of one request.
#[derive(Debug)]
pub(super) enum Called {
    /// `message` is what an error said, for the one who sent the person.
    Answered {
        status: u16,
        body: Bytes,
        message: String,
        is_html: bool,
    },
    Redirected {
        status: u16,
        location: String,
    },
    /// Refused for now; the gate knows until when.
    Later,
    Failed(Failure),
    /// The run ended while the request was under way.
    Interrupted(Stop),
}

impl Wire {
    /// Sends one request when the gate lets it, and reads the answer. An error: nothing was sent.
    pub async fn call(&self, call: &Call) -> Result<Called, Stop> {
        let permit = match call.body {
            None => self.gate.permit().await?,
            // Whoever sends a person has noted it, and takes the note back as long as nothing may be sent.
            Some(_) => match self.gate.permit_if_open().await? {
                Some(permit) => permit,
                None => return Ok(Called::Later),
            },
        };
        let _booked = self.gate.account().enter(Activity::Network);
        let mut tally = Tally::new(self, false);
        let started = Instant::now();
        let called = {
            let mut exchange = std::pin::pin!(timeout(self.timeout, self.exchange_call(call, &permit, &mut tally)));
            let ended = match self.gate.unless_stopped(exchange.as_mut()).await {
                Ok(ended) => Ok(ended),
                Err(stop) if call.body.is_none() => Err(stop),
                Err(stop) => timeout(GRACE, exchange).await.map_err(|_| stop),
            };
            match ended {
                Ok(Ok(called)) => called,
                Ok(Err(_)) => Called::Failed(Failure::timed_out(self.timeout)),
                Err(stop) => Called::Interrupted(stop),
            }
        };
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, bytes) = (tally.status.unwrap_or(0), tally.read_bytes);
        tracing::debug!(status, ms, bytes, method = %call.method, url = call.shown);
        Ok(called)
    }

    async fn exchange_call(&self, call: &Call, permit: &Permit, tally: &mut Tally<'_>) -> Called {
        let mut request = Request::new(call.method.clone(), call.url.clone());
        request.headers_mut().insert(AUTHORIZATION, self.user_auth.clone());
        if let Some(body) = &call.body {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.clone().into());
        }
        let mut reply = match self.hear(request, permit, tally).await {
            Heard::Answer(reply) => reply,
            Heard::Later => return Called::Later,
            Heard::Nothing(failure) => return Called::Failed(failure),
        };
        let status = reply.status();
        if status.is_redirection() {
            return Called::Redirected { status: status.as_u16(), location: self.location(&reply) };
        }
        if !status.is_success() {
            return match self.read_error(&mut reply, tally).await {
                Outcome::Rejected(no) => {
                    Called::Answered { status: no.status, body: Bytes::new(), message: no.message, is_html: no.is_html }
                }
                Outcome::Failed(Failure::Status { status, .. }) => {
                    Called::Failed(Failure::Status { status, message: String::new() })
                }
                Outcome::Failed(failure) => Called::Failed(failure),
                // An error is none of these.
                Outcome::Page(_)
                | Outcome::Broken { .. }
                | Outcome::Posted { .. }
                | Outcome::Later
                | Outcome::Redirected { .. } => Called::Later,
            };
        }
        let read = body::read(&mut reply, self.body_limits, &self.key, &mut tally.read_bytes).await;
        let answered =
            |body| Called::Answered { status: status.as_u16(), body, message: String::new(), is_html: false };
        match read {
            // What was sent is taken, whatever the body says.
            read if call.body.is_some() => answered(read.unwrap_or_default()),
            Err(failure) => Called::Failed(failure),
            Ok(body) => match not_json(&body) {
                None => answered(body),
                Some(reason) => {
                    let came = format!("{} bytes", body.len());
                    Called::Failed(match excerpt::is_html(content_type(reply.headers()), &body) {
                        true => Failure::Html { came },
                        false => Failure::NotJson { reason, came },
                    })
                }
            },
        }
    }
}

/// Why a body is no JSON.
fn not_json(body: &[u8]) -> Option<String> {
    if let Err(error) = std::str::from_utf8(body) {
        return Some(format!("byte {} is not UTF-8", error.valid_up_to()));
    }
    serde_json::from_slice::<IgnoredAny>(bytes_without_mark(body)).err().map(|error| error.to_string())
}
