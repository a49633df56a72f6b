//! The learned rate: how far apart requests are sent so that the service rarely has to refuse one. Pure, and without a clock.
//!
//! There is no pacing until the first refusal. From one refusal to the next the service admitted what it allows, neither
//! more nor less, waits included: that quotient is the best measure of its limit, and the rate goes on a little below it.
//! From there it creeps up to and past the limit last met (additive), and once clearly away from it on either side it runs
//! (multiplicative): a limit that was raised, or was misjudged, is found again within a minute, not within hours.

use std::time::Duration;

use tokio::time::Instant;

/// No rate is learned below this.
const RATE_MIN: f64 = 1.0 / 60.0;
/// No rate is learned above this.
const RATE_MAX: f64 = 10_000.0;
/// The first refusal's rate: the measured one may stem from an allowance saved up before.
const FIRST_SHARE: f64 = 0.85;
/// A later refusal's rate as a share of the measured one, and the least that a refusal takes off.
const LATER_SHARE: f64 = 0.9;
/// The most that one refusal takes off.
const CUT_MAX: f64 = 0.5;
/// Limits are stated by the second or longer; nothing is concluded from less.
const MEASURED_MIN: Duration = Duration::from_secs(1);
/// How close to the limit last met a rate counts as near.
const NEAR: f64 = 0.05;
/// Growth near that limit, as a share of the limit a second.
const CREEP_PER_SEC: f64 = 0.002;
/// Growth away from it, as a share of the rate a second.
const RUN_PER_SEC: f64 = 0.05;
/// How far a late request may be made up for: timers and busy threads are late by about so much.
const SLACK: Duration = Duration::from_millis(50);
/// The same in requests, so that a slow pace stays even.
const SLACK_REQUESTS: f64 = 2.0;
/// A learned rate loses its force over this time; then it is forgotten.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// The pace.
#[derive(Debug)]
pub(in crate::source) struct Pace {
    /// What was learned, in requests a second.
    rate: Option<f64>,
    /// The limit last met.
    limit: Option<f64>,
    /// The settings' ceiling.
    rate_max: Option<f64>,
    /// When the next request is due.
    due: Option<Instant>,
    held_back_at: Option<Instant>,
    grown_at: Option<Instant>,
    measuring_since: Option<Instant>,
    admitted: u32,
    is_changed: bool,
}

impl Pace {
    /// A pace that begins at a rate learned earlier, if any, under the settings' ceiling, if any.
    pub fn new(learned: Option<f64>, rate_max: Option<f64>) -> Self {
        let rate = learned.filter(|rate| rate.is_finite() && *rate > 0.0).map(|rate| rate.clamp(RATE_MIN, RATE_MAX));
        Self {
            rate,
            limit: rate,
            rate_max,
            due: None,
            held_back_at: None,
            grown_at: None,
            measuring_since: None,
            admitted: 0,
            is_changed: false,
        }
    }

    /// A learned rate after some time: it grows without bound towards the end of [`MEMORY`], and then there is none.
    pub fn aged(rate: f64, age: Duration) -> Option<f64> {
        let left = 1.0 - age.as_secs_f64() / MEMORY.as_secs_f64();
        (left > 0.0).then(|| rate / left)
    }

    /// The learned rate, and whether it was learned here.
    pub fn learned(&self) -> (Option<f64>, bool) {
        (self.rate, self.is_changed)
    }

    /// When the next request may be sent, if that is not now.
    pub fn hold_back(&mut self, now: Instant) -> Option<Instant> {
        let until = self.due.filter(|due| *due > now)?;
        self.held_back_at = Some(now);
        Some(until)
    }

    /// A request is sent now. `was_idle`: nothing was going on for so long that the measure begins anew.
    pub fn sent(&mut self, now: Instant, was_idle: bool) {
        if was_idle || self.measuring_since.is_none() {
            self.measuring_since = Some(now);
            self.admitted = 0;
        }
        self.due = self.interval().map(|interval| {
            let slack = SLACK.min(interval.mul_f64(SLACK_REQUESTS));
            // On a clock younger than the slack there is nothing to make up for.
            let earliest = now.checked_sub(slack).unwrap_or(now);
            self.due.map_or(now, |due| due.max(earliest)) + interval
        });
    }

    /// The service took a request.
    pub fn admitted(&mut self, now: Instant) {
        self.admitted = self.admitted.saturating_add(1);
        let since = self.grown_at.replace(now);
        let (Some(rate), Some(since)) = (self.rate, since) else { return };
        // Only a rate that holds somebody back is tried out; any other would grow without ever being proven.
        let recently = Duration::from_secs_f64(2.0 / rate).max(Duration::from_secs(1));
        let is_tried = self.held_back_at.is_some_and(|at| now.saturating_duration_since(at) <= recently)
            && self.rate_max.is_none_or(|max| rate <= max);
        if !is_tried {
            return;
        }
        let secs = now.saturating_duration_since(since).min(recently).as_secs_f64();
        let limit = self.limit.unwrap_or(rate);
        let is_near = (rate / limit - 1.0).abs() <= NEAR;
        let grown = if is_near { rate + limit * CREEP_PER_SEC * secs } else { rate * (1.0 + RUN_PER_SEC * secs) };
        self.rate = Some(grown.min(RATE_MAX));
        self.is_changed = true;
    }

    /// The service refused a request because there were too many.
    pub fn refused(&mut self, now: Instant) {
        // Nothing admitted since the last refusal: the wait was too short, which says nothing about the rate.
        let Some(measured) = self.measured(now) else { return };
        let (rate, limit) = match self.rate {
            None => (measured * FIRST_SHARE, measured),
            Some(rate) => {
                let lower = (measured * LATER_SHARE).clamp(rate * CUT_MAX, rate * LATER_SHARE);
                (lower, lower / LATER_SHARE)
            }
        };
        self.rate = Some(rate.clamp(RATE_MIN, RATE_MAX));
        self.limit = Some(limit.clamp(RATE_MIN, RATE_MAX));
        self.is_changed = true;
        self.measuring_since = Some(now);
        self.grown_at = Some(now);
        self.admitted = 0;
    }

    fn measured(&self, now: Instant) -> Option<f64> {
        let span = now.saturating_duration_since(self.measuring_since?).max(MEASURED_MIN);
        (self.admitted > 0).then(|| f64::from(self.admitted) / span.as_secs_f64())
    }

    /// The time between two requests.
    fn interval(&self) -> Option<Duration> {
        let rates = [self.rate, self.rate_max];
        let rate = rates.into_iter().flatten().min_by(f64::total_cmp)?;
        Duration::try_from_secs_f64(1.0 / rate).ok()
    }
}

#[cfg(test)]
mod tests;
