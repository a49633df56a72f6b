//! [`Source`], the API of the HTTP client. The methods that send requests are in the modules `probe`, `walk`,
//! `purge`, `users` and `download`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::Url;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    address::{self, Call, Range},
    backoff::Backoff,
    error::{SourceError, Stop},
    gate::{Gate, GateState, LearnedRate, Limits, RequestRate, RequestWait},
    lists::{ListEnds, NotFoundEnd, TokenLifetimes},
    page_memory::PageMemory,
    settings::{KnownLists, SourceSettings},
    wire::{RequestStats, Wire},
};
use crate::{
    clock::Clock,
    model::{PageRequest, RetryAfterForm, StatusFilter, Stream, TimeAccount},
};

/// A client of the service, behind a gate. Cheap to clone; all clones share the gate, the counts and the clock.
#[derive(Clone, Debug)]
pub struct Source {
    pub(super) inner: Arc<Inner>,
}

/// The state that all clones of a source share: the connections, the gate and what the run has learned about the
/// service.
#[derive(Debug)]
pub(super) struct Inner {
    pub base_url: Url,
    pub backoff: Backoff,
    pub clock: Clock,
    /// The request rate that earlier runs learned.
    pub learned: LearnedRate,
    /// Number of processes that share the service's limit. The learned rate is that of all.
    pub workers: f64,
    pub token_lifetimes: TokenLifetimes,
    pub list_ends: ListEnds,
    pub known_lists: KnownLists,
    pub page_memory: PageMemory,
    /// The survey statuses to request; `None` leaves the choice to the service.
    pub statuses: Mutex<Option<StatusFilter>>,
    pub wire: Wire,
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
        let base_url = settings.check()?;
        let learned = learned.unwrap_or_default();
        let workers = f64::from(settings.workers.max(1));
        let limits = Limits {
            in_flight_max: settings.in_flight_max,
            patience: settings.patience,
            deadline: settings.deadline,
            requests_max: settings.requests_max,
        };
        let rate = RequestRate::new(
            learned.valid(settings.clock.now_ms()).map(|rate| rate / workers),
            settings.requests_per_sec_max.map(|rate| rate / workers),
        );
        let mut state = GateState::new(limits, rate, settings.backoff);
        if let Some(wait) = settings.not_before {
            let now = Instant::now();
            state.block_until(now + wait, now);
        }
        let gate = Gate::new(state, account, stop, settings.clock.clone(), settings.rng.clone());
        let inner = Inner {
            base_url,
            wire: Wire::new(&settings, gate)?,
            backoff: settings.backoff,
            clock: settings.clock,
            learned,
            workers,
            token_lifetimes: TokenLifetimes::default(),
            list_ends: ListEnds::new(&settings.known_lists.ends),
            known_lists: settings.known_lists,
            page_memory: PageMemory::new(settings.page_bytes_max, settings.in_flight_max, settings.body_bytes_max),
            statuses: Mutex::default(),
        };
        Ok(Source { inner: Arc::new(inner) })
    }

    /// Requests a list without a range, unless the run knows about it already. Afterwards [`Source::has_answered`] or
    /// [`Source::is_taken_as_empty`] says what came.
    ///
    /// # Errors
    /// The error with which a run would fail to read the list.
    pub async fn ask_whole_list(&self, list: Stream) -> Result<(), SourceError> {
        if self.has_answered(list) { Ok(()) } else { self.require_list(list).await }
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

    /// Sets the survey statuses of all further list calls; `None` uses the service's default.
    pub fn list_surveys_with(&self, filter: Option<StatusFilter>) {
        *self.inner.statuses.lock().unwrap_or_else(PoisonError::into_inner) = filter;
    }

    /// Waits until rate limiting no longer blocks requests. Returns early if the run has to stop.
    pub async fn until_unblocked(&self) {
        self.inner.wire.gate.until_unblocked().await;
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

    /// Returns when the service last answered a request, with whatever status, in epoch milliseconds by this machine.
    /// `None` before the first answer.
    pub fn last_answer_ms(&self) -> Option<i64> {
        self.inner.wire.counters.last_answer_ms()
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

    /// Sends no request before this time, in epoch milliseconds by this machine's clock: the end of a `Retry-After`
    /// that another process received.
    pub fn block_until_ms(&self, until_ms: i64) {
        self.inner.wire.gate.block_until_ms(until_ms);
    }

    /// Receives the end of every `Retry-After`, epoch milliseconds by this machine's clock.
    pub fn watch_retry_after(&self) -> watch::Receiver<Option<i64>> {
        self.inner.wire.gate.watch_retry_after()
    }

    /// Returns the request rate to store for the next run: the rate that this run changed, or else the stored one.
    pub fn learned_rate(&self) -> LearnedRate {
        match self.inner.wire.gate.learned() {
            (rate, true) => {
                let requests_per_sec = rate.map(|rate| rate * self.inner.workers);
                LearnedRate { requests_per_sec, measured_ms: self.inner.clock.now_ms() }
            }
            (_, false) => self.inner.learned,
        }
    }

    /// Returns the failure before the latest wait, in few words: `429` or `connection refused`.
    pub fn wait_cause(&self) -> Option<String> {
        self.inner.wire.gate.wait_cause()
    }

    /// Returns how long the run only waited so far because the service rate limited it.
    pub fn rate_limited_time(&self) -> Duration {
        Duration::from_millis(self.inner.wire.gate.account().parts().told_to_wait)
    }

    /// Returns the wait that delays the whole process, if there is one.
    pub fn current_wait(&self) -> Option<RequestWait> {
        self.inner.wire.gate.current_wait()
    }

    /// Returns the service's time in epoch milliseconds, or this machine's if the service has sent none.
    pub(super) fn now_ms(&self) -> i64 {
        self.service_now_ms().unwrap_or_else(|| self.inner.clock.now_ms())
    }

    /// Builds the request for one page of a list, with the requested survey statuses if the list is that of surveys.
    pub(super) fn list_call(&self, request: &PageRequest, page_rows: Option<u32>, range: Range) -> Call {
        let call = address::of_range(&self.inner.base_url, request, page_rows, range);
        let statuses = self.inner.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        match statuses.as_ref().filter(|_| request.scope.stream == Stream::Surveys) {
            Some(filter) => address::with_statuses(call, filter),
            None => call,
        }
    }
}
