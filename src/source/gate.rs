//! The gate: one for the process, asked before every request (promise P5). Here is its state machine, without a clock,
//! without randomness and without waiting: instants and random numbers are handed in, so that hours can be tried out in
//! milliseconds. `shell` is the thin asynchronous part, `pace` the learned rate,
//! `admissions` what the latest of them tell of a limit.
//!
//! A refusal (429, or a 503 that names a time) closes the gate for all. When its time is over the gate is half open:
//! one request goes and the others wait for what becomes of it. If it is admitted the gate is open, if it is refused
//! the gate closes again, for longer.

mod admissions;
mod pace;
mod shell;

use std::time::Duration;

use tokio::time::Instant;

pub(super) use self::{
    pace::Pace,
    shell::{Gate, Machine, Permit},
};
use super::{
    backoff::{Backoff, Series},
    waiting::{WaitReason, Waiting},
};

/// After this long without a request the service's allowance may have filled up again: what the pace measured before
/// says nothing about what comes after.
const IDLE: Duration = Duration::from_secs(2);

/// What the gate may never exceed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub in_flight_max: usize,
    pub patience: Duration,
    pub deadline: Option<Instant>,
    pub requests_max: Option<u64>,
}

/// What the gate says to somebody who wants to send a request.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    /// Send it now. The ticket goes back through [`GateState::released`].
    Go(Ticket),
    /// Ask again at this moment, or when the gate changed.
    Wait(Waiting),
    /// Ask again when the gate changed: others have to come back first.
    Crowded,
    /// Do not ask again in this run.
    Stop(Halt),
}

/// Why no further request may be sent in this run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Halt {
    Deadline { until: Instant },
    Budget { requests: u64 },
    Patience { until: Instant, told: bool },
}

/// A permission to send one request.
#[derive(Debug, PartialEq)]
pub(super) struct Ticket {
    /// The number of refusals before the request was sent. An answer to a request from before the latest refusal says
    /// nothing about the time after it.
    refusals: u64,
}

/// A refusal that holds.
#[derive(Clone, Copy, Debug)]
struct Closed {
    /// Nothing is sent before.
    until: Instant,
    /// Whether the service named that time.
    told: bool,
    /// When the first of the consecutive refusals came: patience is counted from there.
    since: Instant,
    /// Whether the one request of the half-open gate is under way.
    is_probing: bool,
}

impl Closed {
    fn waiting(self) -> Waiting {
        Waiting { until: self.until, why: if self.told { WaitReason::Told } else { WaitReason::Backoff } }
    }
}

/// The state machine.
#[derive(Debug)]
pub(super) struct GateState {
    limits: Limits,
    pace: Pace,
    backoff: Series,
    in_flight: usize,
    sent: u64,
    refusals: u64,
    closed: Option<Closed>,
    answered_at: Option<Instant>,
    /// Whether the latest word of the service on the matter is that it takes requests.
    is_open: bool,
    paced_until: Option<Instant>,
    naps: Vec<Instant>,
}

impl GateState {
    pub fn new(limits: Limits, pace: Pace, backoff: Backoff) -> Self {
        Self {
            limits,
            pace,
            backoff: backoff.series(),
            in_flight: 0,
            sent: 0,
            refusals: 0,
            closed: None,
            answered_at: None,
            is_open: false,
            paced_until: None,
            naps: Vec::new(),
        }
    }

    /// Nothing is sent before this moment: an earlier process was told so.
    pub fn close_until(&mut self, until: Instant, now: Instant) {
        self.closed = Some(Closed { until, told: true, since: now, is_probing: false });
    }

    /// Whether the service took a request, and refused none since.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Before this moment nothing may be sent, because the service said so.
    pub fn told_until(&self) -> Option<Instant> {
        self.closed.filter(|closed| closed.told).map(|closed| closed.until)
    }

    /// Whether a request may be sent at this very moment. The check and the taking are one step: after `Go` the request
    /// counts as sent.
    pub fn ask(&mut self, now: Instant) -> Decision {
        if let Some(requests) = self.limits.requests_max.filter(|max| self.sent >= *max) {
            return Decision::Stop(Halt::Budget { requests });
        }
        if self.limits.deadline.is_some_and(|deadline| now >= deadline) {
            return Decision::Stop(Halt::Deadline { until: now });
        }
        if let Some(closed) = self.closed {
            if closed.until.saturating_duration_since(closed.since) > self.limits.patience {
                return Decision::Stop(Halt::Patience { until: closed.until, told: closed.told });
            }
            if now < closed.until {
                return self.wait(now, closed.waiting());
            }
            if closed.is_probing {
                return Decision::Crowded;
            }
        }
        if self.in_flight >= self.limits.in_flight_max {
            return Decision::Crowded;
        }
        if let Some(until) = self.pace.hold_back(now) {
            self.paced_until = Some(until);
            return self.wait(now, Waiting { until, why: WaitReason::Pace });
        }
        Decision::Go(self.take(now))
    }

    /// A wait, unless it would run past the deadline or past patience: then it is not begun.
    pub fn wait(&self, now: Instant, waiting: Waiting) -> Decision {
        let Waiting { until, why } = waiting;
        if self.limits.deadline.is_some_and(|deadline| until > deadline) {
            return Decision::Stop(Halt::Deadline { until });
        }
        if until.saturating_duration_since(now) > self.limits.patience {
            return Decision::Stop(Halt::Patience { until, told: why == WaitReason::Told });
        }
        Decision::Wait(waiting)
    }

    fn take(&mut self, now: Instant) -> Ticket {
        let busy_until = [self.answered_at, self.paced_until, self.closed.map(|closed| closed.until)];
        let was_idle = self.in_flight == 0
            && busy_until.iter().flatten().max().is_some_and(|busy| now.saturating_duration_since(*busy) > IDLE);
        self.pace.sent(now, was_idle);
        self.in_flight += 1;
        self.sent += 1;
        if let Some(closed) = &mut self.closed {
            closed.is_probing = true;
        }
        Ticket { refusals: self.refusals }
    }

    /// The service took the request, whatever it answered.
    pub fn admitted(&mut self, ticket: &Ticket, now: Instant) {
        self.answered_at = Some(now);
        self.pace.admitted(now);
        if ticket.refusals == self.refusals {
            self.closed = None;
            self.is_open = true;
            self.backoff.reset();
        }
    }

    /// The service refused the request for now, and perhaps told for how long. `is_rate`: because there were too many.
    /// Returns the wait if this closed the gate or kept it closed for longer.
    pub fn refused(
        &mut self,
        ticket: &Ticket,
        now: Instant,
        told: Option<Duration>,
        is_rate: bool,
        random: f64,
    ) -> Option<Waiting> {
        self.answered_at = Some(now);
        // An answer to a request from before the latest refusal belongs to that one: no second cut, no longer backoff.
        // What it was told counts all the same.
        let is_news = ticket.refusals == self.refusals;
        if is_news && is_rate {
            self.pace.refused(now);
        }
        let wait = match told {
            Some(wait) => wait,
            None if is_news => self.backoff.next_wait(random),
            None => return None,
        };
        let until = now + wait;
        let before = self.closed;
        let outlasted = before.filter(|closed| closed.until >= until);
        if outlasted.is_some() && !is_news {
            return None;
        }
        let closed = Closed {
            until: outlasted.map_or(until, |closed| closed.until),
            told: outlasted.map_or(told.is_some(), |closed| closed.told),
            since: before.map_or(now, |closed| closed.since),
            is_probing: false,
        };
        self.closed = Some(closed);
        self.is_open = false;
        // From here on, only what is sent after this wait can open the gate.
        self.refusals += 1;
        Some(closed.waiting())
    }

    /// The request is over, answered or not.
    pub fn released(&mut self, ticket: Ticket) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if ticket.refusals == self.refusals
            && let Some(closed) = &mut self.closed
        {
            // The half-open gate's request came to nothing; somebody else may try.
            closed.is_probing = false;
        }
    }

    /// Somebody begins to wait before asking again for a page that failed.
    pub fn nap_begins(&mut self, until: Instant) {
        self.naps.push(until);
    }

    /// That wait is over.
    pub fn nap_ends(&mut self, until: Instant) {
        if let Some(at) = self.naps.iter().position(|nap| *nap == until) {
            self.naps.swap_remove(at);
        }
    }

    /// What everybody waits for, if nobody does anything else.
    pub fn waiting(&self, now: Instant) -> Option<Waiting> {
        if let Some(closed) = self.closed.filter(|closed| closed.until > now) {
            return Some(closed.waiting());
        }
        if self.in_flight > 0 {
            return None;
        }
        let paced = self.paced_until.map(|until| Waiting { until, why: WaitReason::Pace });
        let naps = self.naps.iter().map(|until| Waiting { until: *until, why: WaitReason::Backoff });
        naps.chain(paced).filter(|waiting| waiting.until > now).min_by_key(|waiting| waiting.until)
    }

    /// The deadline, for waits that the state machine does not time.
    pub fn deadline(&self) -> Option<Instant> {
        self.limits.deadline
    }

    /// The learned rate, and whether this run has changed it.
    pub fn learned(&self) -> (Option<f64>, bool) {
        self.pace.learned()
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
