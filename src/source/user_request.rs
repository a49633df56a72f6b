//! Sends one request about a person and reads its answer. Errors and logs contain nothing about the person, because
//! they may outlive an erasure. The module `users` retries the request and interprets the answer.

use bytes::Bytes;
use reqwest::{
    Method, Request, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::de::IgnoredAny;
use tokio::time::{Duration, Instant, timeout};

use super::{
    body,
    credentials::SentKey,
    error::{Failure, Stop},
    excerpt,
    gate::Permit,
    wire::{RequestOutcome, SendOutcome, Tally, Wire, content_type},
};
use crate::{model::Activity, text::bytes_without_mark};

/// How long a stopping run still waits for the answer to an upsert. Without the answer, it is unknown whether the
/// service accepted the upsert.
const GRACE: Duration = Duration::from_secs(5);

/// One request about a person.
#[derive(Debug)]
pub(super) struct UserRequest {
    pub method: Method,
    pub url: Url,
    /// The address for people, with a hash in place of the id.
    pub shown: String,
    /// The body of a POST; the answer to a POST may have any body. `None` for a GET; the answer to a GET must be JSON.
    pub body: Option<Bytes>,
}

/// The result of one request about a person.
#[derive(Debug)]
pub(super) enum UserRequestOutcome {
    /// An answer that is neither a redirect nor rate limiting, and no failure that is worth a retry. `message` is the
    /// text of an error, and may name the person.
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
    /// Rate limited; the gate stores how long requests have to wait. If the gate was blocked, an upsert was not sent at
    /// all.
    RateLimited,
    /// A failure that is worth a retry.
    Failed(Failure),
    /// The run was stopped during the request.
    Interrupted(Stop),
}

impl Wire {
    /// Waits for the gate, sends one request and reads the answer. If the service refuses the key, and the key has been
    /// changed, the request is sent again. `Err` means that nothing was sent. If the run stops during an upsert, waits
    /// at most [`GRACE`] for the answer.
    pub async fn call(&self, call: &UserRequest) -> Result<UserRequestOutcome, Stop> {
        loop {
            let used = self.credentials.current();
            let outcome = self.call_with(&used, call).await?;
            let is_about_key = matches!(&outcome, UserRequestOutcome::Answered { status: 401 | 403, .. });
            if !is_about_key || !self.has_another_key(&used).await.unwrap_or(false) {
                return Ok(outcome);
            }
        }
    }

    /// [`Wire::call`] with this key.
    async fn call_with(&self, key: &SentKey, call: &UserRequest) -> Result<UserRequestOutcome, Stop> {
        let permit = match call.body {
            None => self.gate.permit().await?,
            // An upsert does not wait at a blocked gate: the caller has recorded it as sent, and undoes the record.
            Some(_) => match self.gate.permit_if_open().await? {
                Some(permit) => permit,
                None => return Ok(UserRequestOutcome::RateLimited),
            },
        };
        let _booked = self.gate.account().enter(Activity::Network);
        let mut tally = Tally::new(self, false);
        let started = Instant::now();
        let called = {
            let mut exchange =
                std::pin::pin!(timeout(self.timeout, self.exchange_call(key, call, &permit, &mut tally)));
            let ended = match self.gate.unless_stopped(exchange.as_mut()).await {
                Ok(ended) => Ok(ended),
                Err(stop) if call.body.is_none() => Err(stop),
                Err(stop) => timeout(GRACE, exchange).await.map_err(|_| stop),
            };
            match ended {
                Ok(Ok(called)) => called,
                Ok(Err(_)) => UserRequestOutcome::Failed(Failure::timed_out(self.timeout)),
                Err(stop) => UserRequestOutcome::Interrupted(stop),
            }
        };
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, bytes) = (tally.status.unwrap_or(0), tally.read_bytes);
        tracing::debug!(status, ms, bytes, method = %call.method, url = call.shown);
        Ok(called)
    }

    /// Sends the request, reads the answer and classifies it. Tells the gate if the request was accepted or rate
    /// limited.
    async fn exchange_call(
        &self,
        key: &SentKey,
        call: &UserRequest,
        permit: &Permit,
        tally: &mut Tally<'_>,
    ) -> UserRequestOutcome {
        let mut request = Request::new(call.method.clone(), call.url.clone());
        request.headers_mut().insert(AUTHORIZATION, key.user_auth.clone());
        if let Some(body) = &call.body {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.clone().into());
        }
        let mut reply = match self.send(request, permit, tally).await {
            SendOutcome::Replied(reply) => reply,
            SendOutcome::RateLimited => return UserRequestOutcome::RateLimited,
            SendOutcome::Failed(failure) => return UserRequestOutcome::Failed(failure),
        };
        let status = reply.status();
        if status.is_redirection() {
            return UserRequestOutcome::Redirected { status: status.as_u16(), location: self.location(&reply) };
        }
        if !status.is_success() {
            return refused(self.read_error(&mut reply, tally).await);
        }
        let read =
            body::read(&mut reply, self.body_limits, &self.credentials.current().key, &mut tally.read_bytes).await;
        let answered = |body| UserRequestOutcome::Answered {
            status: status.as_u16(),
            body,
            message: String::new(),
            is_html: false,
        };
        match read {
            // A 2xx accepts the upsert, even if its body cannot be read.
            read if call.body.is_some() => answered(read.unwrap_or_default()),
            Err(failure) => UserRequestOutcome::Failed(failure),
            Ok(body) => match not_json(&body) {
                None => answered(body),
                Some(reason) => {
                    let came = format!("{} bytes", body.len());
                    let is_html = excerpt::is_html(content_type(reply.headers()), &body);
                    let failure = if is_html { Failure::Html { came } } else { Failure::NotJson { reason, came } };
                    UserRequestOutcome::Failed(failure)
                }
            },
        }
    }
}

/// Returns the outcome of a call for an answer that [`Wire::read_error`] has read.
fn refused(outcome: RequestOutcome) -> UserRequestOutcome {
    match outcome {
        RequestOutcome::Rejected(no) => UserRequestOutcome::Answered {
            status: no.status,
            body: Bytes::new(),
            message: no.message,
            is_html: no.is_html,
        },
        RequestOutcome::Failed(Failure::Status { status, .. }) => {
            UserRequestOutcome::Failed(Failure::Status { status, message: String::new() })
        }
        RequestOutcome::Failed(failure) => UserRequestOutcome::Failed(failure),
        // Not reached: `read_error` returns only `Rejected` and `Failed`.
        RequestOutcome::Page(_)
        | RequestOutcome::Broken { .. }
        | RequestOutcome::Posted { .. }
        | RequestOutcome::RateLimited
        | RequestOutcome::Redirected { .. } => UserRequestOutcome::RateLimited,
    }
}

/// Returns the reason why a body is not JSON; `None` for JSON.
fn not_json(body: &[u8]) -> Option<String> {
    if let Err(error) = std::str::from_utf8(body) {
        return Some(format!("byte {} is not UTF-8", error.valid_up_to()));
    }
    serde_json::from_slice::<IgnoredAny>(bytes_without_mark(body)).err().map(|error| error.to_string())
}
