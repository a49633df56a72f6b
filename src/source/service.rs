//! [`Source`], the API of the HTTP client, with a method for each kind of request.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    client,
    download::{DownloadOutcome, DownloadRequest, DownloadSink},
    error::{SourceError, Stop},
    gate::{Gate, GateState, Limits, RequestRate},
    inner::Inner,
    learned_rate::LearnedRate,
    list_call::{self, Answer, Range},
    list_ends::{ListEnds, NotFoundEnd},
    page_memory::PageMemory,
    probe::Probe,
    purge::{self, PurgeAnswer, PurgeRequest},
    request_wait::RequestWait,
    settings::SourceSettings,
    stats::RequestStats,
    token_lifetimes::TokenLifetimes,
    users::{UpsertError, UpsertOutcome, UserAnswer},
    walk::Walk,
    wire::Wire,
};
use crate::model::{PageRequest, RetryAfterForm, StatusFilter, Stream, TimeAccount};

/// A client of the service, behind a gate. Cheap to clone; all clones share the gate, the counts and the clock.
#[derive(Clone, Debug)]
pub struct Source {
    pub(super) inner: Arc<Inner>,
}

impl Source {
    /// Sets up a source; sends nothing. `learned` is the [`Source::learned_rate`] of an earlier run. `account` records
    /// the time of waits and requests. `stop` cancels every wait and every request within milliseconds.
    pub fn new(
        settings: SourceSettings,
        learned: Option<LearnedRate>,
        account: TimeAccount,
        stop: CancellationToken,
    ) -> Result<Source, SourceError> {
        settings.check()?;
        let learned = learned.unwrap_or_default();
        let limits = Limits {
            in_flight_max: settings.in_flight_max,
            patience: settings.patience,
            deadline: settings.deadline,
            requests_max: settings.requests_max,
        };
        let rate = RequestRate::new(learned.valid(settings.clock.now_ms()), settings.requests_per_sec_max);
        let mut state = GateState::new(limits, rate, settings.backoff);
        if let Some(wait) = settings.not_before {
            let now = Instant::now();
            state.block_until(now + wait, now);
        }
        let gate = Gate::new(state, account, stop, settings.clock.clone(), settings.rng.clone());
        let inner = Inner {
            base_url: client::base_url(&settings)?,
            wire: Wire::new(&settings, gate)?,
            backoff: settings.backoff,
            clock: settings.clock,
            learned,
            token_lifetimes: TokenLifetimes::default(),
            list_ends: ListEnds::new(&settings.known_lists.ends),
            known_lists: settings.known_lists,
            page_memory: PageMemory::new(settings.page_bytes_max, settings.in_flight_max, settings.body_bytes_max),
            statuses: Mutex::default(),
        };
        Ok(Source { inner: Arc::new(inner) })
    }

    /// Requests one row from one list after the other until one answers with a page, which proves that base URL and key
    /// are right.
    ///
    /// # Errors
    /// `KeyRefused` or `Blocked` if every list refuses, otherwise the error of a list.
    pub async fn probe(&self) -> Result<Probe, SourceError> {
        self.inner.probe().await
    }

    /// Requests the rows of the last minute from a list, to prove that a run can read the list.
    ///
    /// # Errors
    /// The error with which a run would fail to read the list.
    pub async fn try_list(&self, list: Stream) -> Result<(), SourceError> {
        self.inner.try_list(list).await
    }

    /// Requests a list without a range, unless the run knows about it already. Afterwards [`Source::has_answered`] or
    /// [`Source::is_taken_as_empty`] says what came.
    ///
    /// # Errors
    /// The error with which a run would fail to read the list.
    pub async fn ask_whole_list(&self, list: Stream) -> Result<(), SourceError> {
        if self.has_answered(list) { Ok(()) } else { self.inner.require_list(list).await }
    }

    /// Returns true if the list has answered a request of this run with a page.
    pub fn has_answered(&self, list: Stream) -> bool {
        self.inner.wire.lists_seen.has_answered(list)
    }

    /// Returns true if the list answers every request with 404, also without a range, and counts as empty because
    /// other lists answer.
    pub fn is_taken_as_empty(&self, list: Stream) -> bool {
        self.inner.wire.lists_seen.is_taken_as_empty(list)
    }

    /// Returns what earlier runs and this run have proven about the 404 at the end of lists.
    pub fn not_found_end(&self, list: Stream) -> NotFoundEnd {
        self.inner.list_ends.known(list)
    }

    /// Returns true if earlier runs took the list as empty.
    pub fn was_taken_as_empty(&self, list: Stream) -> bool {
        self.inner.known_lists.empty.contains(&list)
    }

    /// Starts a walk, which reads the pages of one window in the service's order. `request.token` resumes an earlier
    /// walk.
    pub fn walk(&self, request: PageRequest) -> Walk {
        Walk::new(Arc::clone(&self.inner), request)
    }

    /// Starts a walk over the rows of one millisecond, `request.window`, for a tie probe. The pages may have rows of
    /// the neighbouring milliseconds, if the service includes the ends of a range. Requests count in
    /// [`RequestStats::ties_probed`].
    pub fn walk_moment(&self, request: PageRequest) -> Walk {
        Walk::of_moment(Arc::clone(&self.inner), request)
    }

    /// Sends one list call without the guards of a walk; the caller interprets the answer. `range` chooses `start` and
    /// `end`.
    pub async fn ask(&self, request: &PageRequest, range: Range) -> Result<Answer, SourceError> {
        list_call::ask(&self.inner, request, range).await
    }

    /// Sets the survey statuses of all further list calls; `None` uses the service's default.
    pub fn list_surveys_with(&self, filter: Option<StatusFilter>) {
        *self.inner.statuses.lock().unwrap_or_else(PoisonError::into_inner) = filter;
    }

    /// Asks the service to purge people. The request is idempotent, so it is repeated after a lost answer.
    pub async fn purge(&self, request: &PurgeRequest) -> Result<PurgeAnswer, SourceError> {
        purge::purge(&self.inner, request).await
    }

    /// Reads one person.
    ///
    /// # Errors
    /// `Refused` if a web page was returned or an address cannot contain the id; `Unreachable` or `BadAnswer` if all
    /// attempts failed. `KeyRefused` or `Forbidden` for a 401 or 403.
    pub async fn user(&self, user_id: &str) -> Result<UserAnswer, SourceError> {
        self.inner.user(user_id).await
    }

    /// Waits until rate limiting no longer blocks requests. Returns early if the run has to stop.
    pub async fn until_unblocked(&self) {
        self.inner.wire.gate.until_unblocked().await;
    }

    /// Upserts one person: `body` is the JSON. `may_repeat` allows a retry even if the service may have accepted an
    /// earlier attempt.
    ///
    /// # Errors
    /// Only errors that every further upsert would meet too, and the stop of the run.
    pub async fn upsert(&self, body: Bytes, may_repeat: bool) -> Result<UpsertOutcome, UpsertError> {
        self.inner.upsert(body, may_repeat).await
    }

    /// Downloads a link that the service returned into `sink`, without sending the key.
    ///
    /// # Errors
    /// If the run has to stop.
    pub async fn download<S: DownloadSink>(
        &self,
        request: DownloadRequest<'_>,
        sink: &mut S,
    ) -> Result<DownloadOutcome<S::Error>, Stop> {
        self.inner.wire.download(&self.inner.base_url, request, sink).await
    }

    /// Waits before a retry. Other requests are not delayed.
    ///
    /// # Errors
    /// If the run has to stop.
    pub async fn retry_delay(&self, wait: Duration) -> Result<(), Stop> {
        self.inner.wire.gate.retry_delay(wait).await
    }

    /// Returns true if a list has answered a request of this run, which proves address and key.
    pub fn has_read_a_list(&self) -> bool {
        !self.inner.wire.lists_seen.is_empty()
    }

    /// Returns the service's time in epoch milliseconds: the latest `Date` header plus the time since. `None` before
    /// the first answer with a `Date`.
    pub fn service_now_ms(&self) -> Option<i64> {
        self.inner.wire.clock.now_ms(Instant::now())
    }

    /// Returns the counts of the run's requests so far.
    pub fn request_stats(&self) -> RequestStats {
        self.inner.wire.counters.snapshot()
    }

    /// Returns the form of the latest `Retry-After`; `None` if the run was not rate limited.
    pub fn retry_after_form(&self) -> Option<RetryAfterForm> {
        *self.inner.wire.refusal_form.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if the list of surveys is served at `/v1/studies`, false if at `/v1/surveys`. `None` until a page
    /// of the list was read.
    pub fn surveys_are_studies(&self) -> Option<bool> {
        self.inner.wire.surveys_path.is_studies()
    }

    /// Returns the time before which no request may be sent because of `Retry-After`: epoch milliseconds by this
    /// machine's clock. `None` if no `Retry-After` is in force.
    pub fn retry_after_until_ms(&self) -> Option<i64> {
        self.inner.wire.gate.retry_after_until_ms()
    }

    /// Returns true if the service accepted a request and has not rate limited one since.
    pub fn is_accepting(&self) -> bool {
        self.inner.wire.gate.is_accepting()
    }

    /// Receives the end of every `Retry-After`, epoch milliseconds by this machine's clock.
    pub fn watch_retry_after(&self) -> watch::Receiver<Option<i64>> {
        self.inner.wire.gate.watch_retry_after()
    }

    /// Returns the request rate to store for the next run: the rate that this run changed, or else the stored one.
    pub fn learned_rate(&self) -> LearnedRate {
        match self.inner.wire.gate.learned() {
            (rate, true) => LearnedRate { requests_per_sec: rate, measured_ms: self.inner.clock.now_ms() },
            (_, false) => self.inner.learned,
        }
    }

    /// Returns the wait that delays the whole process, if there is one.
    pub fn current_wait(&self) -> Option<RequestWait> {
        self.inner.wire.gate.current_wait()
    }
}
