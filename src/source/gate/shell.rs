//! The gate's asynchronous part: waits for the state machine, books the waits, and gives permits. Decides nothing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::{Decision, GateState, Halt, Ticket};
use crate::{
    clock::Clock,
    model::{Activity, Chance, TimeAccount, format_ms},
    source::{Stop, WaitReason, Waiting},
};

/// A wait of this length is worth a log line of its own; shorter ones are counted in the report.
const WAIT_WORTH_A_WARNING: Duration = Duration::from_secs(60);

/// What a gate takes from this machine: a clock that only stamps, and jitter.
#[derive(Clone, Debug, Default)]
pub(in crate::source) struct Machine {
    pub clock: Clock,
    pub chance: Chance,
}

/// The gate; clones are the same gate.
#[derive(Clone, Debug)]
pub(in crate::source) struct Gate {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<GateState>,
    changed: Notify,
    account: TimeAccount,
    stop: CancellationToken,
    machine: Machine,
    /// Until when the service is to be left alone, by its latest word: epoch milliseconds.
    told: watch::Sender<Option<i64>>,
}

impl Gate {
    pub fn new(state: GateState, account: TimeAccount, stop: CancellationToken, machine: Machine) -> Self {
        let (state, changed, told) = (Mutex::new(state), Notify::new(), watch::Sender::new(None));
        Self { shared: Arc::new(Shared { state, changed, account, stop, machine, told }) }
    }

    /// Sees each time that the service names, as epoch milliseconds by this machine's clock.
    pub fn told(&self) -> watch::Receiver<Option<i64>> {
        self.shared.told.subscribe()
    }

    /// Before this time nothing may be sent, because the service said so: epoch milliseconds.
    pub fn told_until_ms(&self) -> Option<i64> {
        let now = Instant::now();
        let until = self.state().told_until().filter(|until| *until > now)?;
        Some(self.epoch_ms(until, now))
    }

    /// Waits until a request may be sent, which is then to be done at once: nothing may be awaited in between.
    pub async fn permit(&self) -> Result<Permit, Stop> {
        loop {
            if let Some(permit) = self.permit_or_closed(true).await? {
                return Ok(permit);
            }
        }
    }

    /// The same, but `None` as soon as the service is to be left alone: for whoever must not stand there with a note of
    /// having sent something. [`Gate::until_open`] then waits.
    pub async fn permit_if_open(&self) -> Result<Option<Permit>, Stop> {
        self.permit_or_closed(false).await
    }

    async fn permit_or_closed(&self, waits: bool) -> Result<Option<Permit>, Stop> {
        loop {
            if self.shared.stop.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            // Registered before asking, so that no change between asking and waiting is missed.
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            changed.as_mut().enable();
            let now = Instant::now();
            let decision = self.state().ask(now);
            let (until, why) = match decision {
                Decision::Go(ticket) => return Ok(Some(Permit { gate: self.clone(), ticket: Some(ticket) })),
                Decision::Stop(halt) => return Err(self.stop_of(halt, now)),
                Decision::Wait(waiting) if !waits && waiting.why != WaitReason::Pace => return Ok(None),
                Decision::Wait(waiting) => (Some(waiting.until), Some(waiting.why)),
                Decision::Crowded => (self.state().deadline(), None),
            };
            // Waiting for others to come back is neither told nor chosen.
            let _booked = why.map(|why| self.shared.account.enter(activity(why)));
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return Err(Stop::Cancelled),
                () = changed => {}
                () = sleep_to(until) => {}
            }
        }
    }

    /// Waits as long as the service is to be left alone. Not a permit, and no promise of one: whoever must write
    /// something down before a request does not do so hours ahead.
    /// A wait that [`Gate::permit`] would refuse is not begun.
    pub async fn until_open(&self) {
        loop {
            let now = Instant::now();
            let waiting = {
                let state = self.state();
                let told = state.waiting(now).filter(|waiting| waiting.why != WaitReason::Pace);
                told.filter(|waiting| matches!(state.wait(now, *waiting), Decision::Wait(_)))
            };
            let Some(Waiting { until, why }) = waiting else { return };
            let _booked = self.shared.account.enter(activity(why));
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return,
                () = sleep_until(until) => {}
            }
        }
    }

    /// Waits before asking again for something that failed. Not a wait for the gate: only the caller waits.
    pub async fn nap(&self, wait: Duration) -> Result<(), Stop> {
        let now = Instant::now();
        let until = now + wait;
        if let Decision::Stop(halt) = self.state().wait(now, Waiting { until, why: WaitReason::Backoff }) {
            return Err(self.stop_of(halt, now));
        }
        let _nap = Nap::begin(self, until);
        let _booked = self.shared.account.enter(Activity::ChoseToWait);
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(Stop::Cancelled),
            () = sleep_until(until) => Ok(()),
        }
    }

    /// Does something for as long as the run may go on: until it is done, cancelled or past the deadline.
    pub async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T, Stop> {
        let deadline = self.state().deadline();
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => Err(Stop::Cancelled),
            done = work => Ok(done),
            () = sleep_to(deadline) => Err(Stop::Deadline { until_ms: self.shared.machine.clock.now_ms() }),
        }
    }

    /// Whether the service took a request, and refused none since.
    pub fn is_open(&self) -> bool {
        self.state().is_open()
    }

    pub fn waiting(&self) -> Option<Waiting> {
        self.state().waiting(Instant::now())
    }

    /// The learned rate, and whether this run has changed it.
    pub fn learned(&self) -> (Option<f64>, bool) {
        self.state().learned()
    }

    pub fn account(&self) -> &TimeAccount {
        &self.shared.account
    }

    /// Where jitter comes from.
    pub fn chance(&self) -> &Chance {
        &self.shared.machine.chance
    }

    fn stop_of(&self, halt: Halt, now: Instant) -> Stop {
        match halt {
            Halt::Deadline { until } => Stop::Deadline { until_ms: self.epoch_ms(until, now) },
            Halt::Budget { requests } => Stop::Budget { requests },
            Halt::Patience { until, told } => Stop::Patience { until_ms: self.epoch_ms(until, now), told },
        }
    }

    /// A moment of the monotonic clock in epoch milliseconds of this machine's clock.
    fn epoch_ms(&self, at: Instant, now: Instant) -> i64 {
        let ahead_ms = at.saturating_duration_since(now).as_millis();
        self.shared.machine.clock.now_ms().saturating_add(i64::try_from(ahead_ms).unwrap_or(i64::MAX))
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        // Nothing in the state machine panics half-way through a change.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permission to send one request; dropping it says that the request is over.
#[derive(Debug)]
pub(in crate::source) struct Permit {
    gate: Gate,
    /// Taken by `drop` alone.
    ticket: Option<Ticket>,
}

impl Permit {
    /// The service took the request. To be called as soon as that is known: others may be waiting for it.
    pub fn admitted(&self) {
        if let Some(ticket) = &self.ticket {
            self.gate.state().admitted(ticket, Instant::now());
        }
        self.gate.shared.changed.notify_waiters();
    }

    /// The service refused the request for now. To be called as soon as that is known: nobody else may ask.
    pub fn refused(&self, status: u16, told: Option<Duration>) {
        let now = Instant::now();
        let random = self.gate.chance().share();
        let refused =
            self.ticket.as_ref().and_then(|ticket| self.gate.state().refused(ticket, now, told, status == 429, random));
        if let Some(waiting) = refused {
            let until_ms = self.gate.epoch_ms(waiting.until, now);
            let why = if waiting.why == WaitReason::Told { "rate limited" } else { "backing off" };
            if waiting.why == WaitReason::Told {
                self.gate.shared.told.send_replace(Some(until_ms));
            }
            let (until, wait) = (format_ms(until_ms), waiting.until.saturating_duration_since(now));
            // Short waits are ordinary: the progress and the run's report count them.
            match wait >= WAIT_WORTH_A_WARNING {
                true => tracing::warn!(status, until, wait_secs = wait.as_secs(), "{why}"),
                false => tracing::debug!(status, until, wait_ms = wait.as_millis(), "{why}"),
            }
        }
        self.gate.shared.changed.notify_waiters();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.gate.state().released(ticket);
        }
        self.gate.shared.changed.notify_waiters();
    }
}

/// A nap as the gate knows it, also if it is cut short.
struct Nap<'a> {
    gate: &'a Gate,
    until: Instant,
}

impl<'a> Nap<'a> {
    fn begin(gate: &'a Gate, until: Instant) -> Self {
        gate.state().nap_begins(until);
        Self { gate, until }
    }
}

impl Drop for Nap<'_> {
    fn drop(&mut self) {
        self.gate.state().nap_ends(self.until);
    }
}

async fn sleep_to(until: Option<Instant>) {
    match until {
        Some(until) => sleep_until(until).await,
        None => std::future::pending().await,
    }
}

fn activity(why: WaitReason) -> Activity {
    match why {
        WaitReason::Told => Activity::ToldToWait,
        WaitReason::Backoff | WaitReason::Pace => Activity::ChoseToWait,
    }
}

#[cfg(test)]
mod tests;
