//! Sends a request, with retries that depend on the kind of failure and on the kind of request. This module knows
//! nothing of windows.

use xxhash_rust::xxh3::xxh3_128;

use super::{
    address::{Call, CallKind},
    backoff::Series,
    error::{Failure, Stop, Trouble},
    page_memory::{PageReservation, PageShape},
    service::Source,
    settings::ATTEMPTS_MAX,
    wire::{Received, Wire},
};

/// Maximum attempts if the size of the page or one of its records may be the cause, and a smaller page or window can be
/// requested.
pub const SIZE_ATTEMPTS_MAX: u32 = 2;
/// Maximum attempts for a 4xx that may be transient, such as 421 or 499.
pub const PASSING_ATTEMPTS_MAX: u32 = 3;

/// The attempts of one request, and the waits between them.
pub(super) struct Attempts<'a> {
    wire: &'a Wire,
    waits: Series,
    /// Number of failed attempts.
    pub failed: u32,
}

impl<'a> Attempts<'a> {
    pub fn new(source: &'a Source) -> Self {
        Attempts { wire: &source.inner.wire, waits: source.inner.backoff.series(), failed: 0 }
    }

    /// Counts a failed attempt and waits before the next one. `cause` is the failure in few words. Returns false
    /// without a wait if there were `max`.
    pub async fn retry(&mut self, max: u32, cause: String) -> Result<bool, Stop> {
        self.wire.gate.waits_because(cause);
        self.failed += 1;
        if self.failed >= max {
            return Ok(false);
        }
        self.wait().await.map(|()| true)
    }

    /// Waits before the next attempt.
    pub async fn wait(&mut self) -> Result<(), Stop> {
        let gate = &self.wire.gate;
        gate.retry_delay(self.waits.next_wait(gate.rng().fraction())).await
    }

    /// Returns how many attempts a request gets in all, if its latest attempt failed with `failure`. `can_shrink`: the
    /// caller can request a smaller page or window.
    pub fn max(&self, failure: &Failure, can_shrink: bool) -> u32 {
        let max = match failure {
            failure if failure.is_permanent() => 1,
            // A retry would receive an equally large page.
            Failure::BodyTooLarge { .. } | Failure::Status { status: 413, .. } => 1,
            other if can_shrink && (other.may_be_size() || other.may_be_a_record()) => SIZE_ATTEMPTS_MAX,
            _ => ATTEMPTS_MAX,
        };
        max.min(self.wire.attempts_max)
    }
}

impl Source {
    /// Requests a page of a list, or a user, with memory for the body, and returns the memory too. A page that is
    /// longer than its memory is requested again with more, unless it should have fewer rows. `can_shrink`: see
    /// [`Source::fetch`].
    pub(super) async fn fetch_page(
        &self,
        mut call: Call,
        page: PageShape,
        can_shrink: bool,
    ) -> Result<(Received, PageReservation), Trouble> {
        let memory = &self.inner.page_memory;
        loop {
            let reserved = self.inner.wire.gate.unless_stopped(memory.reserve(page)).await?;
            call.body_bytes_max = Some(reserved.body_bytes_max);
            match self.fetch_checked(&call, can_shrink).await {
                Err(Trouble::Failed { last: Failure::BodyTooLarge { .. }, .. })
                    if memory.record_too_large(page, &reserved) && !memory.should_have_fewer_rows(page) => {}
                fetched => return fetched.map(|received| (received, reserved)),
            }
        }
    }

    /// [`Source::fetch`], repeated once if the service refuses the request with 401 or 403 although the key is valid. A
    /// request with a page token is not repeated, because the token may be the reason.
    pub(super) async fn fetch_checked(&self, call: &Call, can_shrink: bool) -> Result<Received, Trouble> {
        match self.fetch(call, can_shrink).await {
            Err(Trouble::Rejected(rejection)) if rejection.is_about_key() => {
                if call.is_about_person() {
                    self.check_key_for_users().await?;
                } else {
                    self.check_key().await?;
                }
                if call.has_token {
                    return Err(Trouble::Rejected(rejection));
                }
                Attempts::new(self).wait().await?;
                self.fetch(call, can_shrink).await
            }
            fetched => fetched,
        }
    }

    /// Sends a request, with retries. If the list of surveys is answered with 404, the other path of the list is tried
    /// too. `can_shrink`: the caller can request a smaller page or window, so fewer retries are useful.
    pub(super) async fn fetch(&self, call: &Call, can_shrink: bool) -> Result<Received, Trouble> {
        let path = &self.inner.wire.surveys_path;
        let in_use = path.in_use(call);
        let mut call = in_use.as_ref().unwrap_or(call);
        let mut fetched = self.send(call, can_shrink).await;
        let other = if is_missing(&fetched) { path.other(call) } else { None };
        if let Some(other) = &other {
            let second = self.send(other, can_shrink).await;
            if is_missing(&second) {
                path.neither_answered();
            } else {
                (call, fetched) = (other, second);
            }
        }
        if fetched.is_ok() {
            path.answered(call);
        }
        fetched
    }

    /// Sends a request until it is answered, the service rejects it, or the attempts are used up. Rate limiting does
    /// not count as an attempt. A page with broken records is a failure, unless the previous page with broken records
    /// had the same records: the transfer did not break them.
    async fn send(&self, call: &Call, can_shrink: bool) -> Result<Received, Trouble> {
        let wire = &self.inner.wire;
        let is_person = call.kind == CallKind::ReadUser;
        let mut attempts = Attempts::new(self);
        // Hash of the records of the latest page with broken records.
        let mut last_broken = None;
        loop {
            let last = match wire.attempt(call).await {
                Ok(page) if page.envelope.broken > 0 => {
                    let before = last_broken.replace(records_hash(&page));
                    if before == last_broken {
                        return Ok(page);
                    }
                    Failure::BrokenRecords { records: page.envelope.broken }
                }
                Err(Trouble::RateLimited) => continue,
                Err(Trouble::Rejected(rejection)) if is_passing(rejection.status) && !is_person => {
                    match attempts.retry(PASSING_ATTEMPTS_MAX, rejection.status.to_string()).await? {
                        true => continue,
                        false => return Err(Trouble::Rejected(rejection)),
                    }
                }
                Err(Trouble::Failed { last, .. }) => last,
                done => return done,
            };
            match attempts.retry(attempts.max(&last, can_shrink), last.in_few_words()).await {
                Ok(true) => continue,
                Ok(false) => {}
                // If no request of the run was answered, report the failure instead of the deadline: the service cannot
                // be reached.
                Err(Stop::Deadline { .. }) if !is_person && !wire.counters.has_answers() => {}
                Err(stop) => return Err(stop.into()),
            }
            return Err(Trouble::Failed { last, attempts: attempts.failed });
        }
    }
}

fn is_missing(fetched: &Result<Received, Trouble>) -> bool {
    matches!(fetched, Err(Trouble::Rejected(rejection)) if rejection.status == 404)
}

/// Returns true if a 4xx may be transient, so that the same request is worth a retry.
fn is_passing(status: u16) -> bool {
    !matches!(status, 400 | 401 | 403..=407 | 409..=411 | 413..=417 | 422 | 426 | 428 | 431 | 451)
}

/// Hashes the list of records of a page, without the page token, which may differ between attempts.
fn records_hash(page: &Received) -> u128 {
    let list = page.body.get(page.envelope.list.clone());
    xxh3_128(list.unwrap_or(&page.body))
}
