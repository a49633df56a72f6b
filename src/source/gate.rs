//! The gate that every request of the process passes (promise P5), as a pure state machine: callers pass time and
//! random numbers in. `shell` is the asynchronous part, `request_rate` adapts the rate.
//!
//! A 429, or a 503 with `Retry-After`, blocks all requests. After the wait, one request is sent as a probe, and all
//! other requests wait for the answer to the probe. If the service accepts the probe, the block ends; another 429
//! extends the block.

mod request_rate;
mod shell;

use std::time::Duration;

use tokio::time::Instant;

pub use self::request_rate::LearnedRate;
pub(super) use self::{
    request_rate::RequestRate,
    shell::{Gate, Permit},
};
use super::backoff::{Backoff, Series};

/// A wait before requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestWait {
    /// The end of the wait.
    pub until: Instant,
    /// The reason of the wait.
    pub reason: WaitReason,
}

/// Why a request must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// The service sent `Retry-After`.
    RateLimited,
    /// Backoff after a 429 without `Retry-After`, or before a retry.
    Backoff,
    /// The request keeps to the learned request rate, or to the configured maximum.
    Pacing,
}

/// The limits of all requests of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub in_flight_max: usize,
    /// The longest wait; a longer wait stops the run. The wait for a block is counted from the first of several
    /// consecutive 429s.
    pub patience: Duration,
    pub deadline: Option<Instant>,
    pub requests_max: Option<u64>,
}

/// The decision of the gate about the next request.
#[derive(Debug, PartialEq)]
pub(super) enum Decision {
    /// Send the request now. The caller returns the ticket with [`GateState::release`].
    Send(Ticket),
    /// Ask again at this time, or when the gate changes.
    Wait(RequestWait),
    /// Ask again when the gate changes: too many requests are in flight, or the probe of a block is in flight.
    Full,
    /// No further request may be sent in this run.
    Stop(StopCause),
}

/// Why no further request may be sent in this run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum StopCause {
    /// The next request may be sent at `until`, which is after the deadline. If the deadline has passed, `until` is
    /// now.
    Deadline { until: Instant },
    /// The run has sent as many requests as it may.
    Budget { requests: u64 },
    /// The next request may be sent at `until`, after a wait longer than the patience.
    Patience { until: Instant, is_retry_after: bool },
}

/// The permission to send one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ticket {
    /// The number of blocks when the request was sent. The answer to a request that was sent before the latest block
    /// does not end this block.
    blocks: u64,
}

/// A block of all requests.
#[derive(Clone, Copy, Debug)]
struct Block {
    waiting: RequestWait,
    /// When the first of several consecutive 429s came. The patience is counted from this time.
    since: Instant,
    /// True while the probe is in flight.
    is_probing: bool,
}

/// The state machine of the gate.
#[derive(Debug)]
pub(super) struct GateState {
    limits: Limits,
    rate: RequestRate,
    backoff: Series,
    in_flight: usize,
    sent: u64,
    block: Option<Block>,
    /// The number of blocks so far.
    blocks: u64,
    /// True if the service accepted a request and has not rate limited one since.
    is_accepting: bool,
    /// The end of the latest pacing wait; `None` before the first one.
    paced_until: Option<Instant>,
    /// The end of the latest retry delay of any request; `None` before the first one.
    retry_at: Option<Instant>,
    /// The failure before the latest block or retry delay, in few words: `429` or `connection refused`.
    wait_cause: Option<String>,
}

impl GateState {
    /// Creates an open gate that has sent no request.
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
            wait_cause: None,
        }
    }

    /// Blocks the gate for the rest of a `Retry-After` that another process received. Returns false if the gate is
    /// blocked as long already.
    pub fn block_until(&mut self, until: Instant, now: Instant) -> bool {
        if until <= now || self.block.is_some_and(|block| block.waiting.until >= until) {
            return false;
        }
        let waiting = RequestWait { until, reason: WaitReason::RateLimited };
        let since = self.block.map_or(now, |block| block.since);
        self.block = Some(Block { waiting, since, is_probing: false });
        self.blocks += 1;
        self.is_accepting = false;
        true
    }

    /// Decides whether a request may be sent now. `Send` counts the request as sent and in flight. Checks in this
    /// order: request budget, deadline, block, requests in flight, pacing.
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

    /// Returns `Wait` while a block lasts, or `Stop` if the block ends after the patience or the deadline. Returns
    /// `None` if no block is in force, or if its wait is over.
    pub fn blocked(&self, now: Instant) -> Option<Decision> {
        let Block { waiting, since, .. } = self.block?;
        let decision = self.wait(since, waiting);
        (now < waiting.until || matches!(decision, Decision::Stop(_))).then_some(decision)
    }

    /// Returns `Wait`, or `Stop` if the wait, counted from `since`, exceeds the patience or ends after the deadline.
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

    /// Records an answer that does not rate limit the request. The answer ends the block, unless the request was sent
    /// before the block began.
    pub fn accepted(&mut self, ticket: &Ticket, now: Instant) {
        self.rate.accepted(now);
        if ticket.blocks == self.blocks {
            self.block = None;
            self.is_accepting = true;
            self.backoff.reset();
        }
    }

    /// Blocks the gate after a 429, or a 503 with `Retry-After`. Only a 429 decreases the rate. Returns the wait until
    /// the block ends, or `None` if the answer does not change the block. `random` is a random number from `[0, 1)` for
    /// the backoff without `Retry-After`.
    pub fn rate_limited(
        &mut self,
        ticket: &Ticket,
        now: Instant,
        retry_after: Option<Duration>,
        is_429: bool,
        random: f64,
    ) -> Option<RequestWait> {
        // If the request was sent before the latest block, its answer neither decreases the rate nor lengthens the
        // backoff. Only a longer `Retry-After` of such an answer extends the block.
        let is_after_latest_block = ticket.blocks == self.blocks;
        if is_after_latest_block && is_429 {
            self.rate.rate_limited(now);
        }
        let waiting = match retry_after {
            Some(wait) => RequestWait { until: now + wait, reason: WaitReason::RateLimited },
            None if is_after_latest_block => {
                RequestWait { until: now + self.backoff.next_wait(random), reason: WaitReason::Backoff }
            }
            None => return None,
        };
        let longer = self.block.map(|block| block.waiting).filter(|current| current.until >= waiting.until);
        if longer.is_some() && !is_after_latest_block {
            return None;
        }
        let waiting = longer.unwrap_or(waiting);
        let since = self.block.map_or(now, |block| block.since);
        self.block = Some(Block { waiting, since, is_probing: false });
        self.blocks += 1;
        self.is_accepting = false;
        Some(waiting)
    }

    /// Ends the request of this ticket, with or without an answer.
    pub fn release(&mut self, ticket: Ticket) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if let Some(block) = self.block.as_mut().filter(|_| ticket.blocks == self.blocks) {
            // The block is still in force, so this request was the block's probe and got no answer. The next request
            // becomes the probe.
            block.is_probing = false;
        }
    }

    /// Returns the wait that delays the whole process; `None` if requests can go on. A block delays the process always.
    /// Pacing and retry delays count only while no request is in flight, and the one that ends first is returned.
    pub fn current_wait(&self, now: Instant) -> Option<RequestWait> {
        let is_ahead = |waiting: &RequestWait| waiting.until > now;
        let pacing = self.paced_until.map(|until| RequestWait { until, reason: WaitReason::Pacing });
        let retry = self.retry_at.map(|until| RequestWait { until, reason: WaitReason::Backoff });
        let earliest = pacing.into_iter().chain(retry).filter(is_ahead).min_by_key(|waiting| waiting.until);
        let blocked = self.block.map(|block| block.waiting).filter(is_ahead);
        blocked.or(earliest.filter(|_| self.in_flight == 0))
    }
}

#[cfg(test)]
mod tests;
