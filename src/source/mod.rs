//! The HTTP client: the only part that speaks to the service. It yields the pages of a window under one gate for the whole
//! process, and says what the caller can do when there are none. It does not look into rows, keep anything on disk, or know
//! what a page is for.
//!
//! A request's way, outside in: [`Walk`] guards a window's pages against ends that are none; `fetch` asks for one page until
//! it comes or there is no use in asking; the gate says when a request may be sent; `wire` sends it and reads the answer.

mod walk;

mod guards;
mod page_size;

mod fetch;
mod probe;

mod backoff;
mod gate;

mod ends;

mod client;
mod connection;
mod transport;
mod wire;

mod address;
mod ask;
mod body;
mod call;
pub mod envelope;
mod excerpt;
mod purge;
mod retry_after;
mod service_clock;
mod surveys_path;
mod users;

#[cfg(fuzzing)]
pub mod fuzzing;

mod error;
mod settings;
mod stats;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::Url;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use self::{
    address::Address,
    backoff::Backoff,
    ends::TokenDepths,
    gate::{Gate, GateState, Limits, Machine, Pace},
    wire::Wire,
};
pub use self::{
    ask::{Answer, Range},
    connection::TlsProblem,
    error::{Failure, LoopCause, SettingsError, SourceError, Stop},
    probe::Probe,
    purge::{PURGE_DELETIONS_MAX, PurgeAnswer, PurgeRequest},
    settings::{AuthForm, SourceSettings, checked_address},
    stats::RequestStats,
    transport::{Reply, Transport},
    users::{Upserted, UserAnswer},
    walk::{Page, Step, Walk},
};
use crate::{
    clock::Clock,
    model::{PageRequest, RetryAfterForm, StatusFilter, Stream, TimeAccount},
    redact::ApiKey,
};

/// The service behind its gate. Cheap to clone; all clones share one gate, one count and one clock.
#[derive(Clone, Debug)]
pub struct Source {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    base_url: Url,
    key: ApiKey,
    backoff: Backoff,
    clock: Clock,
    /// What was learned before this run.
    learned: LearnedRate,
    token_depths: TokenDepths,
    /// Which surveys are asked for; `None`: those that the service lists by itself.
    statuses: Mutex<Option<StatusFilter>>,
    wire: Wire,
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
        let pace = Pace::new(learned.aged(settings.clock.now_ms()), settings.requests_per_sec_max);
        let machine = Machine { clock: settings.clock.clone(), chance: settings.chance.clone() };
        let mut state = GateState::new(limits, pace, settings.backoff);
        if let Some(wait) = settings.not_before {
            let now = Instant::now();
            state.close_until(now + wait, now);
        }
        let gate = Gate::new(state, account, stop, machine);
        let inner = Inner {
            base_url: client::base_url(&settings)?,
            wire: Wire::new(&settings, gate)?,
            key: settings.key,
            backoff: settings.backoff,
            clock: settings.clock,
            learned,
            token_depths: TokenDepths::default(),
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
        self.inner.wire.gate.told_until_ms()
    }

    /// Whether the service took a request, and refused none since.
    pub fn takes_requests(&self) -> bool {
        self.inner.wire.gate.is_open()
    }

    /// Sees each such time as soon as the service names it.
    pub fn told(&self) -> watch::Receiver<Option<i64>> {
        self.inner.wire.gate.told()
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

impl Inner {
    /// The address of a list call with what else is asked for.
    fn listed_at(&self, stream: Stream, at: Address) -> Address {
        let statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        match statuses.as_ref().filter(|_| stream == Stream::Surveys) {
            Some(filter) => address::with_statuses(at, filter),
            None => at,
        }
    }
}

/// The rate at which the service was found to answer, as kept between runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRate {
    /// `None`: no limit was met.
    pub requests_per_sec: Option<f64>,
    /// When that was found, epoch milliseconds by this machine's clock.
    pub measured_ms: i64,
}

impl LearnedRate {
    /// The rate that is left of it: an old measure binds less, and none at all after a day.
    fn aged(self, now_ms: i64) -> Option<f64> {
        let age_ms = u64::try_from(now_ms.saturating_sub(self.measured_ms)).unwrap_or(0);
        Pace::aged(self.requests_per_sec?, Duration::from_millis(age_ms))
    }
}

/// A wait, for the progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// When it will be over.
    pub until: Instant,
    /// Who said so.
    pub why: WaitReason,
}

/// Why a request is not sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The service named a time (`Retry-After`).
    Told,
    /// Our own backoff after a refusal or a failure.
    Backoff,
    /// The learned rate, or the ceiling of the settings.
    Pace,
}

#[cfg(test)]
mod tests;
