//! Reads or upserts one person per request, through the gate. An upsert is reported as accepted, refused or unknown;
//! the caller decides what to do.
//!
//! An upsert carries events that the service counts. If the service may have accepted an attempt, the upsert is sent
//! again only if the caller allows retries. Logs and errors contain a hash instead of the id, because they may outlive
//! an erasure.

use bytes::Bytes;

use super::{
    address,
    error::{Failure, Rejection, SourceError, Trouble},
    fetch::Attempts,
    page_memory::PageShape,
    service::Source,
};
use crate::model::{Stream, can_request_user};

/// An id that no person has: the answer to a request for this id shows if the key is valid.
const NOBODY: &str = "studysync-checks-the-key";
/// Maximum attempts of an upsert that is answered with 401 or 403 although the key is valid.
const REFUSALS_MAX: u32 = 2;

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
#[derive(Debug)]
pub struct Upserted {
    /// `Err` is an error that every further upsert would meet too, or the stop of the run.
    pub outcome: Result<UpsertOutcome, SourceError>,
    /// Number of attempts without a clear answer: the service may have accepted each of them.
    pub unknown_sends: u64,
}

/// The answer to an upsert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpsertOutcome {
    /// 2xx.
    Accepted { status: u16 },
    /// 4xx: the service did not accept the person, and a retry will not help.
    Refused { status: u16, message: String },
    /// The upsert was sent, and no answer says whether the service accepted it.
    Unknown { failure: Failure },
    /// The upsert was not sent, or the service said that it was not accepted.
    NotSent { failure: Failure },
    /// Rate limited and not accepted. The gate stores how long requests have to wait.
    RateLimited,
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
    fn give_up(&self, failure: Failure) -> UpsertOutcome {
        match &self.maybe_delivered {
            Some(failure) => UpsertOutcome::Unknown { failure: failure.clone() },
            None => UpsertOutcome::NotSent { failure },
        }
    }
}

impl Source {
    /// Reads one person.
    ///
    /// # Errors
    /// `Refused` if a web page was returned or an address cannot contain the id; `Unreachable` or `BadAnswer` if all
    /// attempts failed. `KeyRefused` or `Forbidden` for a 401 or 403.
    pub async fn user(&self, user_id: &str) -> Result<UserAnswer, SourceError> {
        let call = address::of_user(&self.inner.base_url, user_id);
        if !can_request_user(user_id) {
            let message = "an address cannot contain the id".to_owned();
            return Err(SourceError::Refused { status: 0, message, url: call.shown });
        }
        let (page, url) = (PageShape::alone(Stream::Users), call.shown.clone());
        match self.fetch_page(call, page, false).await {
            Ok((received, _)) => {
                self.inner.page_memory.record_page(page, 1, received.body.len());
                Ok(UserAnswer::Found { body: received.body })
            }
            Err(Trouble::Rejected(Rejection { status: status @ (401 | 403), is_html, .. })) => {
                // A web page may contain the address, and with it the id.
                let message = if is_html { "a web page" } else { "" }.to_owned();
                Err(SourceError::Forbidden { status, message, url, is_html })
            }
            Err(Trouble::Rejected(Rejection { status, is_html: true, .. })) => Err(web_page(status, url)),
            Err(Trouble::Rejected(Rejection { status: 404, .. })) => Ok(UserAnswer::Absent),
            Err(Trouble::Rejected(Rejection { status, .. })) => Ok(UserAnswer::Refused { status }),
            Err(trouble) => Err(trouble.into_error(url)),
        }
    }

    /// Upserts one person: `body` is the JSON. `may_repeat` allows a retry even if the service may have accepted an
    /// earlier attempt. Returns `RateLimited` only if no attempt can have been accepted; otherwise waits and sends the
    /// upsert again. A 401 or 403 is retried once if the key is valid.
    pub async fn upsert(&self, body: Bytes, may_repeat: bool) -> Upserted {
        let mut sent = UpsertAttempts::default();
        let outcome = self.upsert_with_retries(body, may_repeat, &mut sent).await;
        Upserted { outcome, unknown_sends: sent.unknown_sends }
    }

    async fn upsert_with_retries(
        &self,
        body: Bytes,
        may_repeat: bool,
        sent: &mut UpsertAttempts,
    ) -> Result<UpsertOutcome, SourceError> {
        let call = address::of_upsert(&self.inner.base_url, body);
        let mut attempts = Attempts::new(self);
        loop {
            let failure = match self.inner.wire.attempt(&call).await {
                Ok(received) => return Ok(UpsertOutcome::Accepted { status: received.status }),
                Err(Trouble::RateLimited) if sent.unknown_sends == 0 => return Ok(UpsertOutcome::RateLimited),
                Err(Trouble::RateLimited) => {
                    self.until_unblocked().await;
                    continue;
                }
                Err(Trouble::Interrupted(stop)) => {
                    sent.unknown_sends += 1;
                    return Err(SourceError::Stopped(stop));
                }
                Err(Trouble::Failed { last, .. }) => last,
                Err(Trouble::Rejected(Rejection { status: status @ (401 | 403), message, .. })) => {
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
                Err(Trouble::Rejected(Rejection { status, message, is_html })) => {
                    return match status {
                        _ if is_html => Err(web_page(status, call.shown)),
                        404 | 405 => Err(SourceError::Refused { status, message, url: call.shown }),
                        _ => Ok(UpsertOutcome::Refused { status, message }),
                    };
                }
                Err(Trouble::Ended(error)) => return Err(error),
            };
            if !is_surely_undelivered(&failure) {
                sent.maybe_delivered = Some(failure.clone());
                sent.unknown_sends += 1;
                if !may_repeat {
                    return Ok(sent.give_up(failure));
                }
            }
            if !attempts.retry(attempts.max(&failure, false), failure.in_few_words()).await? {
                return Ok(sent.give_up(failure));
            }
        }
    }

    /// Checks the key with a list and with a request for a user, which may send the key in another form. Fails if the
    /// service refuses the key.
    pub(super) async fn check_key_for_users(&self) -> Result<(), SourceError> {
        self.check_key().await?;
        let inner = &self.inner;
        match inner.wire.attempt(&address::of_user(&inner.base_url, NOBODY)).await {
            Err(Trouble::Rejected(Rejection { status: status @ (401 | 403), is_html: false, .. })) => {
                let url = address::of_upsert(&inner.base_url, Bytes::new()).shown;
                Err(inner.wire.key_refused(status, url, String::new()))
            }
            Err(Trouble::Ended(error @ SourceError::Stopped(_))) => Err(error),
            _ => Ok(()),
        }
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
