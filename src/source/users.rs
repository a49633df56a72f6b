//! Reads or upserts one person per request, through the gate. An upsert is reported as accepted, refused or unknown;
//! the caller decides what to do.
//!
//! An upsert carries events that the service counts. If the service may have accepted an attempt, the upsert is sent
//! again only if the caller allows retries. Logs and errors contain a hash instead of the id, because they may outlive
//! an erasure.

use bytes::Bytes;
use reqwest::{Method, Url};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    error::{Failure, SourceError},
    inner::Inner,
    probe::REFUSALS_MAX,
    settings::ATTEMPTS_MAX,
    user_request::{UserRequest, UserRequestOutcome},
};
use crate::model::{Stream, can_request_user};

/// An id that no person has: the answer to a request for this id shows if the key is valid.
const NOBODY: &str = "studysync-checks-the-key";

/// The answer to a request for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAnswer {
    /// The exact body: valid JSON of any content.
    Found { body: Bytes },
    /// 404: the service does not know the person, perhaps not yet.
    Absent,
    /// Any other 4xx for this person.
    Refused { status: u16 },
}

/// The result of an upsert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpsertOutcome {
    /// 2xx. `unknown_sends` counts the earlier attempts without a clear answer: the service may have accepted each of
    /// them too.
    Accepted { status: u16, unknown_sends: u64 },
    /// 4xx: the service did not accept the person, and a retry will not help. `unknown_sends` counts the earlier
    /// attempts without a clear answer.
    Refused { status: u16, message: String, unknown_sends: u64 },
    /// The upsert was sent, and no answer says whether the service accepted it. `unknown_sends` counts the attempts
    /// without a clear answer: at least 1.
    Unknown { failure: Failure, unknown_sends: u64 },
    /// The upsert was not sent, or the service said that it was not accepted.
    NotSent { failure: Failure },
    /// Rate limited and not accepted. The gate stores how long requests have to wait.
    RateLimited,
}

/// An error that every further upsert would meet too, or the stop of the run.
#[derive(Debug)]
pub struct UpsertError {
    pub error: SourceError,
    /// Number of attempts of this upsert without a clear answer: the service may have accepted each of them.
    pub unknown_sends: u64,
}

/// The results of the attempts to upsert one person so far.
#[derive(Default)]
struct UpsertAttempts {
    /// The latest failure after which the service may have accepted the person; `None` if there was none.
    maybe_delivered: Option<Failure>,
    /// Number of requests after which the service may have accepted the person.
    unknown_sends: u64,
    /// Number of 401 and 403 answers.
    refusals: u32,
}

impl UpsertAttempts {
    /// Returns the result if no further attempt is made. `failure` is that of the last attempt.
    fn give_up(&self, failure: Failure) -> UpsertOutcome {
        match &self.maybe_delivered {
            Some(failure) => UpsertOutcome::Unknown { failure: failure.clone(), unknown_sends: self.unknown_sends },
            None => UpsertOutcome::NotSent { failure },
        }
    }
}

impl Inner {
    /// Reads one person, with retries. A 401 or 403 is retried once if the key is valid. Fails without a request if an
    /// address cannot contain the id. A web page is an error whatever its status, because it comes from a proxy.
    pub async fn user(&self, user_id: &str) -> Result<UserAnswer, SourceError> {
        let call = self.call_for(user_id);
        if !can_request_user(user_id) {
            let message = "an address cannot contain the id".to_owned();
            return Err(SourceError::Refused { status: 0, message, url: call.shown });
        }
        let (mut waits, mut attempts, mut refusals) = (self.backoff.series(), 0, 0);
        loop {
            let failure = match self.wire.call(&call).await? {
                UserRequestOutcome::Answered { status, body, .. } if (200..300).contains(&status) => {
                    return Ok(UserAnswer::Found { body });
                }
                UserRequestOutcome::Answered { status: status @ (401 | 403), is_html, .. } => {
                    refusals += 1;
                    if refusals >= REFUSALS_MAX {
                        // A web page may contain the address, and with it the id.
                        let message = if is_html { "a web page" } else { "" }.to_owned();
                        return Err(SourceError::Forbidden { status, message, url: call.shown, is_html });
                    }
                    self.check_key_for_users().await?;
                    self.wire.gate.retry_delay(waits.next_wait(self.wire.gate.rng().fraction())).await?;
                    continue;
                }
                UserRequestOutcome::Answered { status, is_html, .. } => match status {
                    // A web page comes from a proxy, not from the service.
                    _ if is_html => return Err(web_page(status, call.shown)),
                    404 => return Ok(UserAnswer::Absent),
                    _ => return Ok(UserAnswer::Refused { status }),
                },
                UserRequestOutcome::Redirected { status, location } => {
                    return Err(SourceError::Redirected { status, location, url: call.shown });
                }
                UserRequestOutcome::RateLimited => continue,
                UserRequestOutcome::Interrupted(stop) => return Err(SourceError::Stopped(stop)),
                UserRequestOutcome::Failed(failure) => failure,
            };
            attempts += 1;
            if attempts >= self.attempts_max(&failure) {
                return Err(failure.give_up(call.shown, attempts));
            }
            self.wire.gate.retry_delay(waits.next_wait(self.wire.gate.rng().fraction())).await?;
        }
    }

    /// Upserts one person, with retries. If the service may have accepted an attempt and `may_repeat` is false, returns
    /// `Unknown` at once. Returns `RateLimited` only if no attempt can have been accepted; otherwise waits and sends
    /// the upsert again. A 401 or 403 is retried once if the key is valid.
    pub async fn upsert(&self, body: Bytes, may_repeat: bool) -> Result<UpsertOutcome, UpsertError> {
        let mut sent = UpsertAttempts::default();
        let outcome = self.upsert_with_retries(body, may_repeat, &mut sent).await;
        outcome.map_err(|error| UpsertError { error, unknown_sends: sent.unknown_sends })
    }

    async fn upsert_with_retries(
        &self,
        body: Bytes,
        may_repeat: bool,
        sent: &mut UpsertAttempts,
    ) -> Result<UpsertOutcome, SourceError> {
        let (url, shown) = (self.user_address(""), self.user_address("").to_string());
        let call = UserRequest { method: Method::POST, url, shown, body: Some(body) };
        let (mut waits, mut attempts) = (self.backoff.series(), 0);
        loop {
            let failure = match self.wire.call(&call).await? {
                UserRequestOutcome::RateLimited if sent.unknown_sends == 0 => return Ok(UpsertOutcome::RateLimited),
                UserRequestOutcome::RateLimited => {
                    self.wire.gate.until_unblocked().await;
                    continue;
                }
                UserRequestOutcome::Interrupted(stop) => {
                    sent.unknown_sends += 1;
                    return Err(SourceError::Stopped(stop));
                }
                UserRequestOutcome::Failed(failure) => failure,
                UserRequestOutcome::Redirected { status, location } => {
                    return Err(SourceError::Redirected { status, location, url: call.shown });
                }
                UserRequestOutcome::Answered { status: status @ (401 | 403), message, .. } => {
                    sent.refusals += 1;
                    if sent.refusals == 1 {
                        self.check_key_for_users().await?;
                    }
                    let failure = Failure::Status { status, message };
                    if sent.refusals >= REFUSALS_MAX {
                        return Ok(sent.give_up(failure));
                    }
                    failure
                }
                UserRequestOutcome::Answered { status, message, is_html, .. } => {
                    let unknown_sends = sent.unknown_sends;
                    return match status {
                        200..300 => Ok(UpsertOutcome::Accepted { status, unknown_sends }),
                        _ if is_html => Err(web_page(status, call.shown)),
                        404 | 405 => Err(SourceError::Refused { status, message, url: call.shown }),
                        _ => Ok(UpsertOutcome::Refused { status, message, unknown_sends }),
                    };
                }
            };
            attempts += 1;
            if !is_surely_undelivered(&failure) {
                sent.maybe_delivered = Some(failure.clone());
                sent.unknown_sends += 1;
                if !may_repeat {
                    return Ok(sent.give_up(failure));
                }
            }
            if attempts >= self.attempts_max(&failure) {
                return Ok(sent.give_up(failure));
            }
            self.wire.gate.retry_delay(waits.next_wait(self.wire.gate.rng().fraction())).await?;
        }
    }

    /// Returns the number of attempts after which a request that ended with this failure is given up.
    fn attempts_max(&self, failure: &Failure) -> u32 {
        if failure.is_permanent() { 1 } else { ATTEMPTS_MAX.min(self.wire.attempts_max) }
    }

    /// Checks the key with a list and with a request for a user, which may send the key in another form. Fails if the
    /// service refuses the key.
    async fn check_key_for_users(&self) -> Result<(), SourceError> {
        self.check_key().await?;
        match self.wire.call(&self.call_for(NOBODY)).await? {
            UserRequestOutcome::Answered { status: status @ (401 | 403), is_html: false, .. } => {
                Err(SourceError::KeyRefused {
                    status,
                    origin: self.wire.credentials.current().key.origin().to_owned(),
                    url: self.user_address("").to_string(),
                    message: String::new(),
                })
            }
            _ => Ok(()),
        }
    }

    /// Builds the request that reads a person. The address for people has a hash in place of the id.
    fn call_for(&self, user_id: &str) -> UserRequest {
        let shown = self.user_address(&format!("/#{:08x}", xxh3_64(user_id.as_bytes()) & 0xffff_ffff)).to_string();
        let url = self.user_address(&format!("/{}", escaped(user_id)));
        UserRequest { method: Method::GET, url, shown, body: None }
    }

    /// Builds the address of the path of users, followed by `suffix`.
    fn user_address(&self, suffix: &str) -> Url {
        let mut url = self.base_url.clone();
        let path = format!("{}{}{suffix}", self.base_url.path().trim_end_matches('/'), Stream::Users.path());
        url.set_path(&path);
        url
    }
}

/// Returns the error for a web page in place of an answer, from a proxy. The text of the page may contain the address,
/// and with it the id, so the error does not contain it.
fn web_page(status: u16, url: String) -> SourceError {
    SourceError::Refused { status, message: "a web page".to_owned(), url }
}

/// Returns true if the service certainly did not accept the upsert: no connection, or status 401, 403 or 503.
fn is_surely_undelivered(failure: &Failure) -> bool {
    matches!(failure, Failure::Connect { .. } | Failure::Status { status: 401 | 403 | 503, .. })
}

/// Percent-encodes every byte of a path segment except ASCII letters, digits, `-`, `_`, `.` and `~`.
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
        assert!(!can_request_user("..") && !can_request_user(".") && !can_request_user("") && can_request_user("..."));
    }
}
