//! The request rate: additive increase, multiplicative decrease (AIMD), spent by a token bucket. Pure:
//! callers pass the time in.
//!
//! Without a stored rate or a configured maximum, there is no pacing before the first 429. The first 429 sets the rate
//! to a share of the measured rate. In the slow start after the first 429, the rate grows fast until a 429 comes in
//! spite of pacing. After the slow start, each 429 decreases the rate by a tenth, and each second adds a little. Growth
//! is slow near the rate at the latest 429, and fast far from this rate. So the rate reaches a raised limit within a
//! minute or two.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::model::is_recent;

/// The lowest rate, in requests per second.
const RATE_MIN: f64 = 1.0 / 60.0;
/// The highest rate, in requests per second.
const RATE_MAX: f64 = 10_000.0;
/// The rate after the first 429, as a share of the measured rate.
const MEASURED_SHARE: f64 = 0.85;
/// Multiplicative decrease at the 429 that ends slow start. The decrease is large, because the service allows bursts,
/// which let the rate grow beyond the limit.
const SLOW_START_DECREASE: f64 = 0.6;
/// Multiplicative decrease at every later 429.
const DECREASE: f64 = 0.9;
/// Growth per second in slow start, as a share of the rate.
const SLOW_START_INCREASE: f64 = 0.2;
/// Additive increase per second if the rate is near `RequestRate::limit`, as a share of this limit.
const INCREASE: f64 = 0.002;
/// A rate is near `RequestRate::limit` if they differ by at most this share.
const NEAR: f64 = 0.05;
/// Growth per second if the rate is not near `RequestRate::limit`, as a share of the rate.
const FAST_INCREASE: f64 = 0.05;
/// Minimum accepted requests for a measured rate. After fewer requests, another process may have caused the 429.
const MEASURED_MIN: f64 = 5.0;
/// If a request is sent later than pacing allowed, the next request may be sent earlier by this delay: at most by this
/// time or by one request interval, whichever is shorter.
const LATE_MAX: Duration = Duration::from_millis(50);

/// The request rate and its token bucket.
#[derive(Debug, Default)]
pub(in crate::source) struct RequestRate {
    /// Requests per second. `None`: no 429 so far.
    rate: Option<f64>,
    /// The rate at the latest 429 that came in spite of pacing: the service's supposed limit. `None` in slow start.
    limit: Option<f64>,
    /// The configured maximum; `None` if there is none.
    rate_max: Option<f64>,
    /// When the next request may be sent; `None` if there is no pacing.
    token_at: Option<Instant>,
    /// When the empty bucket last delayed a request.
    paced_at: Option<Instant>,
    /// The time up to which growth is computed.
    increased_at: Option<Instant>,
    /// When the first request since the latest decrease was sent; `None` if none was.
    measured_since: Option<Instant>,
    /// The requests that the service accepted since the latest decrease.
    measured: f64,
    /// True if the service accepted a request and has not sent a 429 since.
    has_accepted_since_429: bool,
    /// True if this process changed the rate.
    is_changed: bool,
}

impl RequestRate {
    /// Creates a rate that starts at `stored`, the rate that an earlier run learned. Requests are never sent faster
    /// than `rate_max`, the configured maximum.
    pub fn new(stored: Option<f64>, rate_max: Option<f64>) -> Self {
        let rate = stored.filter(|rate| rate.is_finite() && *rate > 0.0).map(|rate| rate.clamp(RATE_MIN, RATE_MAX));
        Self { rate, limit: rate, rate_max, ..Self::default() }
    }

    /// Returns the rate to store, and true if this process changed the rate.
    pub fn learned(&self) -> (Option<f64>, bool) {
        (self.rate, self.is_changed)
    }

    /// Returns the time at which a request may be sent, or `None` if it may be sent now. A returned time is recorded as
    /// a delay by pacing.
    pub fn next_token(&mut self, now: Instant) -> Option<Instant> {
        let at = self.token_at.filter(|at| *at > now)?;
        self.paced_at = Some(now);
        Some(at)
    }

    /// Takes a token for a request that is sent now.
    pub fn sent(&mut self, now: Instant) {
        self.measured_since.get_or_insert(now);
        let rate = self.rate.into_iter().chain(self.rate_max).min_by(f64::total_cmp);
        let interval = rate.and_then(|rate| Duration::try_from_secs_f64(1.0 / rate).ok());
        self.token_at = interval.map(|interval| {
            // A clock that has just started has no earlier time.
            let earliest = now.checked_sub(LATE_MAX.min(interval)).unwrap_or(now);
            self.token_at.map_or(now, |at| at.max(earliest)) + interval
        });
    }

    /// Records that the service accepted a request. Increases the rate if pacing delayed a request recently; otherwise
    /// a higher rate would change nothing.
    pub fn accepted(&mut self, now: Instant) {
        self.has_accepted_since_429 = true;
        self.measured += 1.0;
        let since = self.increased_at.replace(now);
        let (Some(rate), Some(since)) = (self.rate, since) else { return };
        if !self.is_pacing(rate, now) {
            return;
        }
        let per_sec = match self.limit {
            None => rate * SLOW_START_INCREASE,
            Some(limit) if (rate / limit - 1.0).abs() <= NEAR => limit * INCREASE,
            Some(_) => rate * FAST_INCREASE,
        };
        let secs = now.saturating_duration_since(since).min(recently(rate)).as_secs_f64();
        self.set_rate(rate + per_sec * secs);
    }

    /// Decreases the rate after a 429. If pacing did not delay requests recently, sets the rate to a share of the
    /// measured rate. Keeps the rate if the answer before was a 429 too, or if too few requests were measured.
    pub fn rate_limited(&mut self, now: Instant) {
        // A second 429 in a row means that the wait was too short. The second 429 says nothing about the rate.
        if !std::mem::take(&mut self.has_accepted_since_429) {
            return;
        }
        let rate = match (self.rate.filter(|rate| self.is_pacing(*rate, now)), self.measured_since) {
            (Some(rate), _) => {
                let is_slow_start = self.limit.replace(rate).is_none();
                rate * if is_slow_start { SLOW_START_DECREASE } else { DECREASE }
            }
            (None, Some(since)) if self.measured >= MEASURED_MIN => {
                self.limit = None;
                self.measured / now.saturating_duration_since(since).as_secs_f64().max(1.0) * MEASURED_SHARE
            }
            _ => return,
        };
        self.set_rate(rate);
        self.increased_at = Some(now);
        (self.measured_since, self.measured) = (None, 0.0);
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = Some(rate.clamp(RATE_MIN, RATE_MAX));
        self.is_changed = true;
    }

    /// Returns true if this rate limits the requests: pacing delayed a request recently, and the configured maximum is
    /// not lower.
    fn is_pacing(&self, rate: f64, now: Instant) -> bool {
        self.paced_at.is_some_and(|at| now.saturating_duration_since(at) <= recently(rate))
            && self.rate_max.is_none_or(|max| rate <= max)
    }
}

/// Returns the age up to which an event counts as recent: two request intervals at this rate, at least one second.
fn recently(rate: f64) -> Duration {
    Duration::from_secs_f64((2.0 / rate).max(1.0))
}

/// How long a stored rate is valid: 30 days, so that nightly and weekly runs start with it.
const VALID_MS: i64 = 30 * 24 * 3_600_000;

/// The request rate that a run has learned, as stored for later runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LearnedRate {
    /// `None`: the service has not rate limited the run.
    pub requests_per_sec: Option<f64>,
    /// When the rate was learned, in epoch milliseconds by this machine's clock.
    pub measured_ms: i64,
}

impl LearnedRate {
    /// Returns the rate; `None` if no rate was learned, or if the rate is older than 30 days, or of the future.
    pub(in crate::source) fn valid(self, now_ms: i64) -> Option<f64> {
        self.requests_per_sec.filter(|_| is_recent(self.measured_ms, now_ms, VALID_MS))
    }
}
