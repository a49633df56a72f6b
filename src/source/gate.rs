//! The gate that every request of the process passes (promise P5), as a pure state machine: callers pass time and
//! random numbers in. `shell` is the asynchronous part, `request_rate` adapts the rate.
//!
//! A 429, or a 503 with `Retry-After`, blocks all requests. After the wait one request is sent as a probe, and the
//! others wait for its answer. An accepted probe lifts the block; another 429 extends it.

mod request_rate;
mod shell;

use std::time::Duration;

use tokio::time::Instant;

pub(super) use self::{
    request_rate::RequestRate,
    shell::{Gate, Permit},
};
use super::{
    backoff::{Backoff, Series},
    request_wait::{RequestWait, WaitReason},
};

/// What the gate never exceeds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub in_flight_max: usize,
    pub patience: Duration,
    pub deadline: Option<Instant>,
    pub requests_max: Option<u64>,
}

/// The decision about one request.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    /// Send it now. The ticket goes back through [`GateState::release`].
    Send(Ticket),
    /// Ask again at this time, or when the gate changes.
    Wait(RequestWait),
    /// Ask again when the gate changes: too many requests are in flight, or the probe is.
    Full,
    /// No further request in this run.
    Stop(StopCause),
}

/// Why no further request may be sent in this run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StopCause {
    Deadline { until: Instant },
    Budget { requests: u64 },
    Patience { until: Instant, is_retry_after: bool },
}

/// The permission to send one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ticket {
    /// The number of blocks so far. A request from before the latest block does not lift it.
    blocks: u64,
}

/// A block of all requests.
#[derive(Clone, Copy, Debug)]
struct Block {
    waiting: RequestWait,
    /// When the first 429 in a row came: patience counts from there.
    since: Instant,
    is_probing: bool,
}

/// The state machine.
#[derive(Debug)]
pub(super) struct GateState {
    limits: Limits,
    rate: RequestRate,
    backoff: Series,
    in_flight: usize,
    sent: u64,
    block: Option<Block>,
    blocks: u64,
    /// True if the service accepted a request and has not sent a 429 since.
    is_accepting: bool,
    paced_until: Option<Instant>,
    /// When the latest retry delay ends.
    retry_at: Option<Instant>,
}

impl GateState {
    pub fn new(limits: Limits, rate: RequestRate, backoff: Backoff) -> Self {
        Self {
            limits,
            rate,
            backoff: backoff.series(),
            in_flight: 0,
            sent: 0,
            block: None,
            blocks: 0,
            is_accepting: false,
            paced_until: None,
            retry_at: None,
        }
    }

    /// Blocks the gate for the rest of a `Retry-After` that an earlier process received.
    pub fn block_until(&mut self, until: Instant, now: Instant) {
        let waiting = RequestWait { until, reason: WaitReason::RateLimited };
        self.block = Some(Block { waiting, since: now, is_probing: false });
    }

    /// Decides whether a request may be sent now. After `Send` it counts as sent.
    pub fn try_acquire(&mut self, now: Instant) -> Decision {
        if let Some(requests) = self.limits.requests_max.filter(|max| self.sent >= *max) {
            return Decision::Stop(StopCause::Budget { requests });
        }
        if self.limits.deadline.is_some_and(|deadline| now >= deadline) {
            return Decision::Stop(StopCause::Deadline { until: now });
        }
        if let Some(decision) = self.blocked(now) {
            return decision;
        }
        if self.block.is_some_and(|block| block.is_probing) || self.in_flight >= self.limits.in_flight_max {
            return Decision::Full;
        }
        if let Some(until) = self.rate.next_token(now) {
            self.paced_until = Some(until);
            return self.wait(now, RequestWait { until, reason: WaitReason::Pacing });
        }
        self.rate.sent(now);
        self.in_flight += 1;
        self.sent += 1;
        if let Some(block) = &mut self.block {
            block.is_probing = true;
        }
        Decision::Send(Ticket { blocks: self.blocks })
    }

    /// The wait for the block in force, or the stop that it leads to.
    pub fn blocked(&self, now: Instant) -> Option<Decision> {
        let Block { waiting, since, .. } = self.block?;
        let decision = self.wait(since, waiting);
        (now < waiting.until || matches!(decision, Decision::Stop(_))).then_some(decision)
    }

    /// A wait since this time, or a stop if it exceeds patience or the deadline: such a wait is not begun.
    pub fn wait(&self, since: Instant, waiting: RequestWait) -> Decision {
        let RequestWait { until, reason } = waiting;
        if until.saturating_duration_since(since) > self.limits.patience {
            return Decision::Stop(StopCause::Patience { until, is_retry_after: reason == WaitReason::RateLimited });
        }
        if self.limits.deadline.is_some_and(|deadline| until > deadline) {
            return Decision::Stop(StopCause::Deadline { until });
        }
        Decision::Wait(waiting)
    }

    /// The service accepted the request, whatever it answered.
    pub fn accepted(&mut self, ticket: &Ticket, now: Instant) {
        self.rate.accepted(now);
        if ticket.blocks == self.blocks {
            self.block = None;
            self.is_accepting = true;
            self.backoff.reset();
        }
    }

    /// The service answered 429, or 503 with `Retry-After`. Only a 429 decreases the rate.
    /// Returns the wait if it is a new one.
    pub fn rate_limited(
        &mut self,
        ticket: &Ticket,
        now: Instant,
        retry_after: Option<Duration>,
        is_429: bool,
        random: f64,
    ) -> Option<RequestWait> {
        // A request from before the latest block neither decreases the rate nor lengthens the backoff again.
        // Its `Retry-After` counts.
        let is_first = ticket.blocks == self.blocks;
        if is_first && is_429 {
            self.rate.rate_limited(now);
        }
        let waiting = match retry_after {
            Some(wait) => RequestWait { until: now + wait, reason: WaitReason::RateLimited },
            None if is_first => {
                RequestWait { until: now + self.backoff.next_wait(random), reason: WaitReason::Backoff }
            }
            None => return None,
        };
        let longer = self.block.map(|block| block.waiting).filter(|before| before.until >= waiting.until);
        if longer.is_some() && !is_first {
            return None;
        }
        let waiting = longer.unwrap_or(waiting);
        let since = self.block.map_or(now, |block| block.since);
        self.block = Some(Block { waiting, since, is_probing: false });
        self.blocks += 1;
        self.is_accepting = false;
        Some(waiting)
    }

    /// The request ended, with or without an answer.
    pub fn release(&mut self, ticket: Ticket) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(block) = self.block.as_mut().filter(|_| ticket.blocks == self.blocks) {
            // The probe got no answer; another request may be the probe.
            block.is_probing = false;
        }
    }

    /// What the whole process waits for.
    pub fn current_wait(&self, now: Instant) -> Option<RequestWait> {
        let is_ahead = |waiting: &RequestWait| waiting.until > now;
        let pacing = self.paced_until.map(|until| RequestWait { until, reason: WaitReason::Pacing });
        let retry = self.retry_at.map(|until| RequestWait { until, reason: WaitReason::Backoff });
        let next = pacing.into_iter().chain(retry).filter(is_ahead).min_by_key(|waiting| waiting.until);
        let blocked = self.block.map(|block| block.waiting).filter(is_ahead);
        blocked.or(next.filter(|_| self.in_flight == 0))
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
