//! The asynchronous part of the gate: queues callers, sleeps, and accounts for the time of waits. The state machine in
//! the parent module decides who may send.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{Decision, GateState, RequestWait, StopCause, Ticket, WaitReason};
use crate::{
    clock::Clock,
    model::{Activity, Rng, TimeAccount, format_ms},
    source::Stop,
};

/// A wait of this length or longer is logged as a warning.
const WARNED_WAIT: Duration = Duration::from_secs(60);

/// The gate. Clones share one state.
#[derive(Clone, Debug)]
pub(in crate::source) struct Gate {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<GateState>,
    /// Callers wait here in the order of their calls; only the first asks the state machine.
    queue: tokio::sync::Mutex<()>,
    /// Notifies sleeping callers that the state has changed.
    changed: Notify,
    account: TimeAccount,
    /// Cancelled if the run has to stop.
    stop: CancellationToken,
    clock: Clock,
    rng: Rng,
    /// The end of the latest `Retry-After`, epoch milliseconds.
    retry_after_ms: watch::Sender<Option<i64>>,
}

impl Gate {
    pub fn new(state: GateState, account: TimeAccount, stop: CancellationToken, clock: Clock, rng: Rng) -> Self {
        let (state, queue, changed) = (Mutex::new(state), tokio::sync::Mutex::default(), Notify::new());
        let retry_after_ms = watch::Sender::new(None);
        Self { shared: Arc::new(Shared { state, queue, changed, account, stop, clock, rng, retry_after_ms }) }
    }

    /// Receives the end of every `Retry-After`, epoch milliseconds by this machine's clock.
    pub fn watch_retry_after(&self) -> watch::Receiver<Option<i64>> {
        self.shared.retry_after_ms.subscribe()
    }

    /// Returns the end of the `Retry-After` in force, in epoch milliseconds; `None` if no `Retry-After` blocks the
    /// gate.
    pub fn retry_after_until_ms(&self) -> Option<i64> {
        let now = Instant::now();
        let waiting = self.state().block?.waiting;
        let is_retry_after = waiting.reason == WaitReason::RateLimited && waiting.until > now;
        is_retry_after.then(|| self.epoch_ms(waiting.until, now))
    }

    /// Blocks the gate until this time, in epoch milliseconds, for a `Retry-After` that another process received.
    pub fn block_until_ms(&self, until_ms: i64) {
        let (now, now_ms) = (Instant::now(), self.shared.clock.now_ms());
        let ahead = Duration::from_millis(u64::try_from(until_ms.saturating_sub(now_ms)).unwrap_or(0));
        let is_blocked = now.checked_add(ahead).is_some_and(|until| self.state().block_until(until, now));
        if is_blocked {
            self.waits_because("429 of another worker".to_owned());
            self.shared.retry_after_ms.send_replace(Some(until_ms));
            self.shared.changed.notify_waiters();
        }
    }

    /// Waits until a request may be sent; callers are served in the order of their calls. The caller sends the request
    /// at once, without another await. Fails if the run is cancelled, or if the request budget, the patience or the
    /// deadline does not allow the request.
    pub async fn permit(&self) -> Result<Permit, Stop> {
        let _first = self.shared.queue.lock().await;
        loop {
            if self.shared.stop.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            // The notification is registered before the state is read, so that no change between the two is missed.
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let now = Instant::now();
            let decision = self.state().try_acquire(now);
            let (until, _booked) = match decision {
                Decision::Send(ticket) => return Ok(Permit { gate: self.clone(), ticket }),
                Decision::Stop(cause) => return Err(self.stop_of(cause, now)),
                Decision::Wait(waiting) => (Some(waiting.until), Some(self.shared.account.enter(activity(waiting)))),
                Decision::Full => (self.state().limits.deadline, None),
            };
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return Err(Stop::Cancelled),
                () = changed => {}
                () = sleep_to(until) => {}
            }
        }
    }

    /// Waits for a permit as [`Gate::permit`] does, but returns `None` as soon as the gate is blocked. A caller that
    /// has recorded the request as sent can undo the record at once.
    pub async fn permit_if_open(&self) -> Result<Option<Permit>, Stop> {
        tokio::select! {
            biased;
            permit = self.permit() => permit.map(Some),
            () = self.until_blocked() => Ok(None),
        }
    }

    async fn until_blocked(&self) {
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            if self.state().blocked(Instant::now()).is_some() {
                return;
            }
            changed.await;
        }
    }

    /// Waits until the block ends. Returns early if the run stops or passes its deadline. Does not wait if
    /// [`Gate::permit`] would refuse the wait.
    pub async fn until_unblocked(&self) {
        loop {
            let blocked = self.state().blocked(Instant::now());
            let Some(Decision::Wait(waiting)) = blocked else { return };
            let _booked = self.shared.account.enter(activity(waiting));
            if self.unless_stopped(sleep_until(waiting.until)).await.is_err() {
                return;
            }
        }
    }

    /// Records the failure that the next retry delay follows, in few words.
    pub fn waits_because(&self, cause: String) {
        self.state().wait_cause = Some(cause);
    }

    /// Returns the failure before the latest block or retry delay; `None` before the first one.
    pub fn wait_cause(&self) -> Option<String> {
        self.state().wait_cause.clone()
    }

    /// Waits before the caller retries one request. Other callers are not delayed. Fails at once if the wait exceeds
    /// the patience or the deadline.
    pub async fn retry_delay(&self, wait: Duration) -> Result<(), Stop> {
        let now = Instant::now();
        let waiting = RequestWait { until: now + wait, reason: WaitReason::Backoff };
        if let Decision::Stop(cause) = self.state().wait(now, waiting) {
            return Err(self.stop_of(cause, now));
        }
        self.state().retry_at = Some(waiting.until);
        let _booked = self.shared.account.enter(activity(waiting));
        self.unless_stopped(sleep_until(waiting.until)).await
    }

    /// Awaits `work`. Fails if the run is cancelled or passes its deadline before `work` is done; `work` is then
    /// dropped.
    pub async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let deadline = self.state().limits.deadline;
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(Stop::Cancelled),
            done = work => Ok(done),
            () = sleep_to(deadline) => Err(Stop::Deadline { until_ms: self.shared.clock.now_ms() }),
        }
    }

    /// Returns true if the service accepted a request and has not rate limited one since.
    pub fn is_accepting(&self) -> bool {
        self.state().is_accepting
    }

    /// Returns the wait that delays the whole process, if there is one.
    pub fn current_wait(&self) -> Option<RequestWait> {
        self.state().current_wait(Instant::now())
    }

    /// Returns the rate to store, and true if this process changed the rate.
    pub fn learned(&self) -> (Option<f64>, bool) {
        self.state().rate.learned()
    }

    pub fn account(&self) -> &TimeAccount {
        &self.shared.account
    }

    /// Returns the random numbers for the jitter of waits.
    pub fn rng(&self) -> &Rng {
        &self.shared.rng
    }

    fn stop_of(&self, cause: StopCause, now: Instant) -> Stop {
        match cause {
            StopCause::Deadline { until } => Stop::Deadline { until_ms: self.epoch_ms(until, now) },
            StopCause::Budget { requests } => Stop::Budget { requests },
            StopCause::Patience { until, is_retry_after } => {
                Stop::Patience { until_ms: self.epoch_ms(until, now), is_retry_after }
            }
        }
    }

    fn epoch_ms(&self, at: Instant, now: Instant) -> i64 {
        let ahead_ms = at.saturating_duration_since(now).as_millis();
        self.shared.clock.now_ms().saturating_add(i64::try_from(ahead_ms).unwrap_or(i64::MAX))
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        // Nothing in the state machine panics half-way through a change, so the state of a poisoned lock is usable.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permission to send one request. Dropping the permit tells the gate that the request has ended.
#[derive(Debug)]
pub(in crate::source) struct Permit {
    gate: Gate,
    ticket: Ticket,
}

impl Permit {
    /// Tells the gate that the service accepted the request. Called as soon as the status is known, because other
    /// callers may wait for it.
    pub fn accepted(&self) {
        self.gate.state().accepted(&self.ticket, Instant::now());
        self.gate.shared.changed.notify_waiters();
    }

    /// Tells the gate that the service answered 429, or 503 with `Retry-After`. Called as soon as the status is known,
    /// so that no other request is sent meanwhile.
    pub fn rate_limited(&self, status: u16, retry_after: Option<Duration>) {
        let (now, random) = (Instant::now(), self.gate.rng().fraction());
        let waiting = self.gate.state().rate_limited(&self.ticket, now, retry_after, status == 429, random);
        if let Some(RequestWait { until, reason }) = waiting {
            self.gate.waits_because(status.to_string());
            let until_ms = self.gate.epoch_ms(until, now);
            let is_retry_after = reason == WaitReason::RateLimited;
            if is_retry_after {
                self.gate.shared.retry_after_ms.send_replace(Some(until_ms));
            }
            let message = if is_retry_after { "rate limited" } else { "backing off" };
            let (until, wait) = (format_ms(until_ms), until.saturating_duration_since(now));
            if wait >= WARNED_WAIT {
                tracing::warn!(status, until, wait_secs = wait.as_secs(), "{message}");
            } else {
                tracing::debug!(status, until, wait_ms = wait.as_millis(), "{message}");
            }
        }
        self.gate.shared.changed.notify_waiters();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.gate.state().release(self.ticket);
        self.gate.shared.changed.notify_waiters();
    }
}

fn activity(waiting: RequestWait) -> Activity {
    if waiting.reason == WaitReason::RateLimited { Activity::RateLimited } else { Activity::Pacing }
}

async fn sleep_to(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}
