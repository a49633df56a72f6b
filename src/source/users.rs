//! People, one request each: reads one, or sends one. Goes through the gate like everything else. Says how sure the fate of what
//! was sent is, and leaves it to the caller what to do about it.
//!
//! An upsert carries events, which the service counts, so it may not be sent twice without being told. An id never stands in a log
//! or an error: those outlive the person.

use bytes::Bytes;
use reqwest::{
    Method, Request, Url,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue},
};
use serde::de::IgnoredAny;
use tokio::time::{Duration, Instant, timeout};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Inner, Source, body,
    error::{Failure, SourceError, Stop},
    excerpt,
    fetch::ATTEMPTS_MAX,
    service_clock,
    wire::{Heard, Outcome, Tally, Wire, content_type},
};
use crate::model::{Activity, Stream, can_be_asked};

/// How long the answer to what was sent is still waited for when the run is to end: without it the fate of a user is unknown.
const GRACE: Duration = Duration::from_secs(5);

/// What came of asking for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAnswer {
    /// The exact body: JSON, whatever is in it.
    Found { body: Bytes, service_now_ms: Option<i64> },
    /// 404: the service does not know the person (yet).
    Absent { service_now_ms: Option<i64> },
    /// Any other 4xx: it does not want to be asked for this person.
    Refused { status: u16, message: String, service_now_ms: Option<i64> },
}

/// What came of sending a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upserted {
    /// 2xx. `unclear`: how often it was sent before without an answer that tells what became of it.
    Accepted { status: u16, unclear: u64 },
    /// 4xx: it was not taken, and asking again will not help.
    Refused { status: u16, message: String },
    /// It left, and no answer tells what became of it.
    Unknown { failure: Failure },
    /// It left when the run was about to end, and the answer did not come in time.
    Interrupted { stop: Stop },
    /// It never left, or the service said that it did not take it.
    NotSent { failure: Failure },
    /// Refused for now, and surely not taken; the gate knows until when.
    Later,
}

/// What came of one request.
#[derive(Debug)]
enum Called {
    Answered { status: u16, body: Bytes, message: String, is_html: bool, service_now_ms: Option<i64> },
    Redirected { status: u16, location: String },
    Later,
    Failed(Failure),
    Interrupted(Stop),
}

/// One request about a person.
struct Call {
    method: Method,
    url: Url,
    /// The address without the id.
    shown: String,
    body: Option<Bytes>,
}

impl Source {
    /// Asks for one person.
    ///
    /// # Errors
    /// `Refused` if the address cannot be right, and `Unreachable` or `BadAnswer` if no answer came however often it was asked.
    pub async fn user(&self, user_id: &str) -> Result<UserAnswer, SourceError> {
        self.inner.user(user_id).await
    }

    /// Waits as long as the service is to be left alone.
    pub async fn until_open(&self) {
        self.inner.wire.gate.until_open().await;
    }

    /// Sends one person: `body` is the JSON of an upsert. `may_repeat`: what the service may have taken may be sent once more.
    ///
    /// # Errors
    /// Only what makes every other request futile too.
    pub async fn upsert(&self, body: Bytes, may_repeat: bool) -> Result<Upserted, SourceError> {
        self.inner.upsert(body, may_repeat).await
    }
}

impl Inner {
    async fn user(&self, user_id: &str) -> Result<UserAnswer, SourceError> {
        let call = self.call_for(user_id);
        if !can_be_asked(user_id) {
            let message = "an address cannot carry the id".to_owned();
            return Err(SourceError::Refused { status: 0, message, url: call.shown });
        }
        let (mut waits, mut attempts) = (self.backoff.series(), 0);
        loop {
            let failure = match self.wire.call(&call).await? {
                Called::Answered { status, body, service_now_ms, .. } if (200..300).contains(&status) => {
                    return Ok(UserAnswer::Found { body, service_now_ms });
                }
                Called::Answered { status, message, is_html, service_now_ms, .. } => match status {
                    401 | 403 => return Err(self.key_refused(status)),
                    // A web page comes from somewhere else.
                    _ if is_html => return Err(SourceError::Refused { status, message, url: call.shown }),
                    404 => return Ok(UserAnswer::Absent { service_now_ms }),
                    _ => return Ok(UserAnswer::Refused { status, message, service_now_ms }),
                },
                Called::Redirected { status, location } => {
                    return Err(SourceError::Redirected { status, location, url: call.shown });
                }
                Called::Later => continue,
                Called::Interrupted(stop) => return Err(SourceError::Stopped(stop)),
                Called::Failed(failure) => failure,
            };
            attempts += 1;
            if attempts >= ATTEMPTS_MAX {
                return Err(failure.give_up(call.shown, attempts));
            }
            self.wire.gate.nap(waits.next_wait(self.wire.gate.chance().share())).await?;
        }
    }

    async fn upsert(&self, body: Bytes, may_repeat: bool) -> Result<Upserted, SourceError> {
        let (url, shown) = (self.user_address(""), self.user_address("").to_string());
        let call = Call { method: Method::POST, url, shown, body: Some(body) };
        let (mut waits, mut attempts, mut unclear) = (self.backoff.series(), 0, 0);
        let mut may_have_left = None;
        let unless_known = |may_have_left: Option<Failure>, known: Upserted| match may_have_left {
            Some(failure) => Upserted::Unknown { failure },
            None => known,
        };
        loop {
            let failure = match self.wire.call(&call).await {
                // Nothing was sent this time.
                Err(stop) => match may_have_left {
                    Some(failure) => return Ok(Upserted::Unknown { failure }),
                    None => return Err(SourceError::Stopped(stop)),
                },
                Ok(Called::Answered { status, .. }) if (200..300).contains(&status) => {
                    return Ok(Upserted::Accepted { status, unclear });
                }
                Ok(Called::Answered { status, message, is_html, .. }) => match status {
                    401 | 403 => return Err(self.key_refused(status)),
                    404 | 405 => return Err(SourceError::Refused { status, message, url: call.shown }),
                    _ if is_html => return Err(SourceError::Refused { status, message, url: call.shown }),
                    _ => return Ok(Upserted::Refused { status, message }),
                },
                Ok(Called::Redirected { status, location }) => {
                    return Err(SourceError::Redirected { status, location, url: call.shown });
                }
                Ok(Called::Later) if unclear == 0 => return Ok(Upserted::Later),
                Ok(Called::Later) => continue,
                Ok(Called::Interrupted(stop)) => return Ok(Upserted::Interrupted { stop }),
                Ok(Called::Failed(failure)) => failure,
            };
            attempts += 1;
            if !was_not_taken(&failure) {
                may_have_left = Some(failure.clone());
                unclear += 1;
                if !may_repeat {
                    return Ok(Upserted::Unknown { failure });
                }
            }
            if attempts >= ATTEMPTS_MAX {
                return Ok(unless_known(may_have_left, Upserted::NotSent { failure }));
            }
            if let Err(stop) = self.wire.gate.nap(waits.next_wait(self.wire.gate.chance().share())).await {
                return match may_have_left {
                    Some(failure) => Ok(Upserted::Unknown { failure }),
                    None => Err(SourceError::Stopped(stop)),
                };
            }
        }
    }

    fn call_for(&self, user_id: &str) -> Call {
        let shown = self.user_address(&format!("/#{:08x}", xxh3_64(user_id.as_bytes()) & 0xffff_ffff)).to_string();
        let url = self.user_address(&format!("/{}", escaped(user_id)));
        Call { method: Method::GET, url, shown, body: None }
    }

    /// The address of users, with what stands behind it.
    fn user_address(&self, behind: &str) -> Url {
        let mut url = self.base_url.clone();
        let path = format!("{}{}{behind}", self.base_url.path().trim_end_matches('/'), Stream::Users.path());
        url.set_path(&path);
        url
    }
}

/// Whether the service surely did not take what was sent: there was no connection, or it was not in service.
fn was_not_taken(failure: &Failure) -> bool {
    matches!(failure, Failure::Connect { .. } | Failure::Status { status: 503, .. })
}

/// A path segment with every byte escaped that may mean something in an address.
fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => segment.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(segment, "%{byte:02X}")),
        }
    }
    segment
}

impl Wire {
    /// Sends one request when the gate lets it, and reads the answer. An error: nothing was sent.
    async fn call(&self, call: &Call) -> Result<Called, Stop> {
        let permit = self.gate.permit().await?;
        let _booked = self.gate.account().enter(Activity::Network);
        let mut tally = Tally::new(self, false);
        let started = Instant::now();
        let mut request = Request::new(call.method.clone(), call.url.clone());
        request.headers_mut().insert(AUTHORIZATION, self.user_auth.clone());
        if let Some(body) = &call.body {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(body.clone().into());
        }
        let is_read = call.body.is_none();
        let called = {
            let exchange = timeout(self.timeout, async {
                let mut reply = match self.hear(request, &permit, &mut tally).await {
                    Heard::Answer(reply) => reply,
                    Heard::Later => return Called::Later,
                    Heard::Nothing(failure) => return Called::Failed(failure),
                };
                let (status, service_now_ms) = (reply.status(), service_clock::date_ms(reply.headers()));
                if status.is_redirection() {
                    return Called::Redirected { status: status.as_u16(), location: self.location(&reply) };
                }
                if !status.is_success() {
                    return match self.read_error(&mut reply, &mut tally, started).await {
                        Outcome::Rejected(no) => Called::Answered {
                            status: no.status,
                            body: Bytes::new(),
                            message: no.message,
                            is_html: no.is_html,
                            service_now_ms,
                        },
                        Outcome::Failed(failure) => Called::Failed(failure),
                        Outcome::Page(_) | Outcome::Later | Outcome::Redirected { .. } => Called::Later,
                    };
                }
                let status = status.as_u16();
                let read = body::read(&mut reply, self.body_limits, &mut tally.read_bytes).await;
                let (message, is_html) = (String::new(), false);
                match read {
                    // What was sent is taken, whatever the body says.
                    read if !is_read => {
                        let body = read.unwrap_or_default();
                        Called::Answered { status, body, message, is_html, service_now_ms }
                    }
                    Err(failure) => Called::Failed(failure),
                    Ok(body) => match not_json(&body) {
                        None => Called::Answered { status, body, message, is_html, service_now_ms },
                        Some(reason) => {
                            let content_type = content_type(reply.headers());
                            let came = excerpt::what_came(content_type, &body, &self.key);
                            Called::Failed(match excerpt::is_html(content_type, &body) {
                                true => Failure::Html { came },
                                false => Failure::NotJson { reason, came },
                            })
                        }
                    },
                }
            });
            let mut exchange = std::pin::pin!(exchange);
            match self.gate.unless_stopped(exchange.as_mut()).await {
                Ok(called) => called.unwrap_or_else(|_| self.timed_out()),
                Err(stop) if is_read => Called::Interrupted(stop),
                Err(stop) => match timeout(GRACE, exchange).await {
                    Ok(called) => called.unwrap_or_else(|_| self.timed_out()),
                    Err(_) => Called::Interrupted(stop),
                },
            }
        };
        let ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (status, bytes) = (tally.status.unwrap_or(0), tally.read_bytes);
        tracing::debug!(status, ms, bytes, method = %call.method, url = call.shown);
        Ok(called)
    }

    fn timed_out(&self) -> Called {
        Called::Failed(Failure::TimedOut { after_ms: u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX) })
    }
}

/// Why a body is no JSON.
fn not_json(body: &[u8]) -> Option<String> {
    if let Err(error) = std::str::from_utf8(body) {
        return Some(format!("byte {} is not UTF-8", error.valid_up_to()));
    }
    serde_json::from_slice::<IgnoredAny>(body).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_stays_one_segment_of_the_address() {
        assert_eq!(escaped("user-1_2.3~x"), "user-1_2.3~x");
        assert_eq!(escaped("a/b"), "a%2Fb");
        assert_eq!(escaped("../../v1/surveys?x=1#y"), "..%2F..%2Fv1%2Fsurveys%3Fx%3D1%23y");
        assert_eq!(escaped("usér 日\u{0}%"), "us%C3%A9r%20%E6%97%A5%00%25");
        for id in ["../../x", "a\\..\\b", ";@:&=+$,", "%2e%2e", "..."] {
            let mut url = Url::parse("http://localhost/tenant").unwrap();
            url.set_path(&format!("/tenant/v2/users/{}", escaped(id)));
            assert_eq!(url.path_segments().unwrap().count(), 4, "{id}: {url}");
        }
        assert!(!can_be_asked("..") && !can_be_asked(".") && !can_be_asked("") && can_be_asked("..."));
    }
}
