//! People, one request each: reads one, or sends one. Goes through the gate like everything else. Says how sure the fate of what
//! was sent is, and leaves it to the caller what to do about it.
//!
//! An upsert carries events, which the service counts, so it may not be sent twice without being told. An id never stands in a log
//! or an error: those outlive the person.

use bytes::Bytes;
use reqwest::{Method, Url};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    call::{Call, Called},
    error::{Failure, SourceError, Stop},
    inner::Inner,
    probe::REFUSALS_MAX,
    settings::ATTEMPTS_MAX,
};
use crate::model::{Stream, can_be_asked};

/// The id of nobody: what the service says of it is about the key.
const NOBODY: &str = "studysync-checks-the-key";

/// What came of asking for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserAnswer {
    /// The exact body: JSON, whatever is in it.
    Found { body: Bytes },
    /// 404: the service does not know the person (yet).
    Absent,
    /// Any other 4xx: it does not want to be asked for this person.
    Refused { status: u16 },
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

/// What is known of the attempts to send a person so far.
#[derive(Default)]
struct Sent {
    /// The latest failure after which the service may have the person.
    may_have_left: Option<Failure>,
    /// How many such failures there were.
    unclear: u64,
    /// Answers that say that the key may not do this.
    refusals: u32,
}

impl Sent {
    /// No further attempt is made.
    fn given_up(self, failure: Failure) -> Upserted {
        match self.may_have_left {
            Some(failure) => Upserted::Unknown { failure },
            None => Upserted::NotSent { failure },
        }
    }

    /// The run ends before a further attempt.
    fn stopped(self, stop: Stop) -> Result<Upserted, SourceError> {
        match self.may_have_left {
            Some(failure) => Ok(Upserted::Unknown { failure }),
            None => Err(SourceError::Stopped(stop)),
        }
    }
}

impl Inner {
    pub async fn user(&self, user_id: &str) -> Result<UserAnswer, SourceError> {
        let call = self.call_for(user_id);
        if !can_be_asked(user_id) {
            let message = "an address cannot carry the id".to_owned();
            return Err(SourceError::Refused { status: 0, message, url: call.shown });
        }
        let (mut waits, mut attempts, mut refusals) = (self.backoff.series(), 0, 0);
        loop {
            let failure = match self.wire.call(&call).await? {
                Called::Answered { status, body, .. } if (200..300).contains(&status) => {
                    return Ok(UserAnswer::Found { body });
                }
                Called::Answered { status: status @ (401 | 403), is_html, .. } => {
                    refusals += 1;
                    if refusals >= REFUSALS_MAX {
                        // A web page may repeat the address, and with it the id.
                        let message = if is_html { "a web page" } else { "" }.to_owned();
                        return Err(SourceError::Forbidden { status, message, url: call.shown, is_html });
                    }
                    self.check_key_for_users().await?;
                    self.wire.gate.retry_delay(waits.next_wait(self.wire.gate.rng().share())).await?;
                    continue;
                }
                Called::Answered { status, message, is_html, .. } => match status {
                    // A web page comes from somewhere else.
                    _ if is_html => return Err(SourceError::Refused { status, message, url: call.shown }),
                    404 => return Ok(UserAnswer::Absent),
                    _ => return Ok(UserAnswer::Refused { status }),
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
            self.wire.gate.retry_delay(waits.next_wait(self.wire.gate.rng().share())).await?;
        }
    }

    pub async fn upsert(&self, body: Bytes, may_repeat: bool) -> Result<Upserted, SourceError> {
        let (url, shown) = (self.user_address(""), self.user_address("").to_string());
        let call = Call { method: Method::POST, url, shown, body: Some(body) };
        let (mut waits, mut attempts) = (self.backoff.series(), 0);
        let mut sent = Sent::default();
        loop {
            let failure = match self.wire.call(&call).await {
                // Nothing was sent this time.
                Err(stop) => return sent.stopped(stop),
                Ok(Called::Later) if sent.unclear == 0 => return Ok(Upserted::Later),
                Ok(Called::Later) => {
                    self.wire.gate.until_unblocked().await;
                    continue;
                }
                Ok(Called::Interrupted(stop)) => return Ok(Upserted::Interrupted { stop }),
                Ok(Called::Failed(failure)) => failure,
                Ok(Called::Redirected { status, location }) => {
                    return Err(SourceError::Redirected { status, location, url: call.shown });
                }
                Ok(Called::Answered { status: status @ (401 | 403), message, .. }) => {
                    sent.refusals += 1;
                    if sent.refusals == 1 {
                        self.check_key_for_users().await?;
                    }
                    let failure = Failure::Status { status, message };
                    if sent.refusals >= REFUSALS_MAX {
                        return Ok(sent.given_up(failure));
                    }
                    failure
                }
                Ok(Called::Answered { status, message, is_html, .. }) => match status {
                    200..300 => return Ok(Upserted::Accepted { status, unclear: sent.unclear }),
                    404 | 405 => return Err(SourceError::Refused { status, message, url: call.shown }),
                    _ if is_html => return Err(SourceError::Refused { status, message, url: call.shown }),
                    _ => return Ok(Upserted::Refused { status, message }),
                },
            };
            attempts += 1;
            if !was_not_taken(&failure) {
                sent.may_have_left = Some(failure.clone());
                sent.unclear += 1;
                if !may_repeat {
                    return Ok(Upserted::Unknown { failure });
                }
            }
            if attempts >= ATTEMPTS_MAX {
                return Ok(sent.given_up(failure));
            }
            if let Err(stop) = self.wire.gate.retry_delay(waits.next_wait(self.wire.gate.rng().share())).await {
                return sent.stopped(stop);
            }
        }
    }

    /// Whether the key is good for users as well, where it may be sent in another form: nobody is asked for. An error: it is not.
    async fn check_key_for_users(&self) -> Result<(), SourceError> {
        self.check_key().await?;
        match self.wire.call(&self.call_for(NOBODY)).await? {
            Called::Answered { status: status @ (401 | 403), is_html: false, .. } => Err(SourceError::KeyRefused {
                status,
                origin: self.key.origin().to_owned(),
                url: self.user_address("").to_string(),
                message: String::new(),
            }),
            _ => Ok(()),
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

/// Whether the service surely did not take what was sent: there was no connection, it was not in service, or it refused.
fn was_not_taken(failure: &Failure) -> bool {
    matches!(failure, Failure::Connect { .. } | Failure::Status { status: 401 | 403 | 503, .. })
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
