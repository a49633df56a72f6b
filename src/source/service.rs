//! The client as the other stages see it: one type, with a method for everything that can be asked of the service.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    ask::{self, Answer, Range},
    client,
    download::{DownloadRequest, DownloadSink, Downloaded},
    ends::TokenLives,
    error::{SourceError, Stop},
    gate::{Gate, GateState, Limits, RequestRate},
    inner::Inner,
    learned_rate::LearnedRate,
    probe::Probe,
    purge::{self, PurgeAnswer, PurgeRequest},
    settings::SourceSettings,
    stats::RequestStats,
    users::{Upserted, UserAnswer},
    waiting::Waiting,
    walk::Walk,
    wire::Wire,
};
use crate::model::{PageRequest, RetryAfterForm, StatusFilter, Stream, TimeAccount};

/// The service behind its gate. Cheap to clone; all clones share one gate, one count and one clock.
#[derive(Clone, Debug)]
pub struct Source {
    pub(super) inner: Arc<Inner>,
}

impl Source {
    /// A source that has not sent anything yet. `learned` is what [`Source::learned_rate`] said at the end of an earlier run;
    /// waits and requests are booked in `account`; `stop` ends every wait and every request under way within milliseconds.
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
            key: settings.key,
            backoff: settings.backoff,
            clock: settings.clock,
            learned,
            token_lives: TokenLives::default(),
            statuses: Mutex::default(),
        };
        Ok(Source { inner: Arc::new(inner) })
    }

    /// Asks the lists for one row, one list after the other until one answers: proves address and key.
    ///
    /// # Errors
    /// `KeyRefused` or `Blocked` if every list refuses, else what the last list answered.
    pub async fn probe(&self) -> Result<Probe, SourceError> {
        self.inner.probe().await
    }

    /// Asks one list for the rows of one minute: proves that a run can read it.
    ///
    /// # Errors
    /// What a run would fail with.
    pub async fn try_list(&self, list: Stream) -> Result<(), SourceError> {
        self.inner.try_list(list).await
    }

    /// The pages of one window, in the service's order; `request.token` is where to resume.
    pub fn walk(&self, request: PageRequest) -> Walk {
        Walk::new(Arc::clone(&self.inner), request)
    }

    /// The rows of a moment, `request.window`, and of the milliseconds beside it: on the wire that is as wide as needed,
    /// whether the ends are inclusive or not. Counted in [`RequestStats::ties_probed`].
    pub fn walk_moment(&self, request: PageRequest) -> Walk {
        Walk::of_moment(Arc::clone(&self.inner), request)
    }

    /// One list call as it is, without the guards of a walk: what it brings is for the caller to judge. `range` is what stands
    /// in `start` and `end`, word for word; without it the request's window goes onto the wire as it does in a walk.
    pub async fn ask(&self, request: &PageRequest, range: Range) -> Result<Answer, SourceError> {
        ask::ask(&self.inner, request, range).await
    }

    /// From here on, lists of surveys ask for these; `None`: for what the service lists by itself.
    pub fn list_surveys_with(&self, filter: Option<StatusFilter>) {
        *self.inner.statuses.lock().unwrap_or_else(PoisonError::into_inner) = filter;
    }

    /// Asks the service to purge people. Asked again it purges nobody twice, so a lost answer costs another request.
    pub async fn purge(&self, request: &PurgeRequest) -> Result<PurgeAnswer, SourceError> {
        purge::purge(&self.inner, request).await
    }

    /// Asks for one person.
    ///
    /// # Errors
    /// `Refused` if the address cannot be right, and `Unreachable` or `BadAnswer` if no answer came however often it was asked.
    pub async fn user(&self, user_id: &str) -> Result<UserAnswer, SourceError> {
        self.inner.user(user_id).await
    }

    /// Waits as long as the service is to be left alone.
    pub async fn until_open(&self) {
        self.inner.wire.gate.until_unblocked().await;
    }

    /// Sends one person: `body` is the JSON of an upsert. `may_repeat`: what the service may have taken may be sent once more.
    ///
    /// # Errors
    /// Only what makes every other request futile too.
    pub async fn upsert(&self, body: Bytes, may_repeat: bool) -> Result<Upserted, SourceError> {
        self.inner.upsert(body, may_repeat).await
    }

    /// Follows a link that the service handed out, without the key, and hands `sink` what is behind it.
    ///
    /// # Errors
    /// The run is to end.
    pub async fn download<S: DownloadSink>(
        &self,
        request: DownloadRequest<'_>,
        sink: &mut S,
    ) -> Result<Downloaded<S::Error>, Stop> {
        self.inner.wire.download(&self.inner.base_url, request, sink).await
    }

    /// Waits before something is tried again. An error: the run is to end.
    pub async fn nap(&self, wait: Duration) -> Result<(), Stop> {
        self.inner.wire.gate.retry_delay(wait).await
    }

    /// Whether a list has answered with a page: then this is the service, and it accepts the key.
    pub fn has_read_a_list(&self) -> bool {
        !self.inner.wire.lists_seen.is_empty()
    }

    /// The service's time in epoch milliseconds: its latest `Date` header, advanced by the time since.
    pub fn service_now_ms(&self) -> Option<i64> {
        self.inner.wire.clock.now_ms(Instant::now())
    }

    /// What was asked so far.
    pub fn request_stats(&self) -> RequestStats {
        self.inner.wire.counters.snapshot()
    }

    /// How the latest refusal said when to come back; `None` if there was none.
    pub fn retry_after_seen(&self) -> Option<RetryAfterForm> {
        *self.inner.wire.refusal_form.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the list of surveys is served under the name of studies; `None` until it answered.
    pub fn surveys_are_studies(&self) -> Option<bool> {
        self.inner.wire.surveys_path.is_studies()
    }

    /// Before this time nothing may be sent, because the service said so: epoch milliseconds by this machine's clock.
    pub fn told_until_ms(&self) -> Option<i64> {
        self.inner.wire.gate.retry_after_until_ms()
    }

    /// Whether the service took a request, and refused none since.
    pub fn takes_requests(&self) -> bool {
        self.inner.wire.gate.is_accepting()
    }

    /// Sees each such time as soon as the service names it.
    pub fn told(&self) -> watch::Receiver<Option<i64>> {
        self.inner.wire.gate.watch_retry_after()
    }

    /// What is known of the service's rate limit, to be handed to the next run.
    pub fn learned_rate(&self) -> LearnedRate {
        match self.inner.wire.gate.learned() {
            (rate, true) => LearnedRate { requests_per_sec: rate, measured_ms: self.inner.clock.now_ms() },
            (_, false) => self.inner.learned,
        }
    }

    /// What everything is waiting for, if it is.
    pub fn waiting(&self) -> Option<Waiting> {
        self.inner.wire.gate.waiting()
    }
}
