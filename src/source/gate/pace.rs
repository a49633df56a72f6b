//! The learned rate: how far apart requests are sent so that the service rarely has to refuse one.
//! Pure, and without a clock.
//!
//! There is no pacing until the first refusal. A refusal cuts the rate to a little below what the service admitted over
//! the last seconds (multiplicative); while it is searched for, to what [`Admissions`] tell of it. From there the rate
//! creeps up to and past the limit last met (additive), and once clearly away from it on either side it runs: a limit
//! that was raised, or was misjudged, is found again within a minute or two, not within hours.

use std::time::Duration;

use tokio::time::Instant;

use super::admissions::Admissions;

/// No rate is learned below this.
const RATE_MIN: f64 = 1.0 / 60.0;
/// No rate is learned above this.
const RATE_MAX: f64 = 10_000.0;
/// The rate after a refusal as a share of the one met, while that is a guess:
/// it may stem from an allowance saved up before.
const FIRST_SHARE: f64 = 0.85;
/// A later refusal's rate as a share of the measured one, and the least that a refusal takes off.
const LATER_SHARE: f64 = 0.9;
/// A refusal's rate as a share of a limit that was told from the allowance saved up before.
const TOLD_SHARE: f64 = 0.98;
/// Such a limit is believed if it is not below this share of what the rate would be without it.
const TOLD_MIN: f64 = 0.5;
/// The most that one refusal takes off.
const CUT_MAX: f64 = 0.5;
/// Limits are stated by the second or longer; nothing is concluded from less.
const MEASURED_MIN: Duration = Duration::from_secs(1);
/// How far back the measure reaches: an admission counts for a third after this long.
const MEASURED_OVER: Duration = Duration::from_secs(5);
/// The same in requests, for slow paces.
const MEASURED_OVER_REQUESTS: f64 = 10.0;
/// So many admissions are needed for a first guess:
/// a service whose allowance was used up by somebody else refuses early.
const GUESS_ADMISSIONS_MIN: u32 = 5;
/// The service stood still if it took nothing for so long, and for the time of so many requests.
const STILL_MIN: Duration = Duration::from_millis(150);
const STILL_REQUESTS: f64 = 8.0;
/// How close to the limit last met a rate counts as near.
const NEAR: f64 = 0.05;
/// From where on it counts as far.
const FAR: f64 = 0.2;
/// The rate at which another run begins then, as a share of the limit.
const BEGIN_SHARE: f64 = 0.98;
/// Growth near that limit, as a share of the limit a second.
const CREEP_PER_SEC: f64 = 0.002;
/// The same where that limit was told from the allowance: it may be a little off.
const TOLD_CREEP_PER_SEC: f64 = 0.003;
/// Growth away from it, as a share of the rate a second.
const RUN_PER_SEC: f64 = 0.05;
/// Growth while no limit was met by a paced request, as a share of the rate a second: the rate is a first guess.
const SEARCH_PER_SEC: f64 = 0.5;
/// How far a late request may be made up for: timers and busy threads are late by about so much.
const SLACK: Duration = Duration::from_millis(50);
/// The same in requests, so that a slow pace stays even.
const SLACK_REQUESTS: f64 = 1.0;
/// A learned rate loses its force over this time; then it is forgotten.
const MEMORY: Duration = Duration::from_secs(24 * 3600);

/// The pace.
#[derive(Debug)]
pub(in crate::source) struct Pace {
    /// What was learned, in requests a second.
    rate: Option<f64>,
    /// The limit last met by requests that were paced.
    limit: Option<Limit>,
    /// The settings' ceiling.
    rate_max: Option<f64>,
    /// When the next request is due.
    due: Option<Instant>,
    held_back_at: Option<Instant>,
    grown_at: Option<Instant>,
    measure: Measure,
    /// What a first guess was made from, until something is sent again: what was under way is still being answered.
    guessed_by: Option<Measure>,
    admissions: Admissions,
    /// Whether the last answer was a refusal.
    is_met: bool,
    is_changed: bool,
}

/// A limit that was met.
#[derive(Clone, Copy, Debug)]
struct Limit {
    per_sec: f64,
    /// Whether it was told from the allowance saved up before.
    is_told: bool,
    /// The limit before, where this one is doubted:
    /// met clearly lower after something stood still, it may be that what waited came at once.
    before_doubt: Option<f64>,
}

impl Limit {
    fn of(per_sec: f64) -> Self {
        Self { per_sec, is_told: false, before_doubt: None }
    }

    /// By how much a rate grows a second near this limit, or away from it.
    fn growth_per_sec(&self, rate: f64) -> f64 {
        let is_near = (rate / self.per_sec - 1.0).abs() <= NEAR && self.before_doubt.is_none();
        match is_near {
            true => self.per_sec * if self.is_told { TOLD_CREEP_PER_SEC } else { CREEP_PER_SEC },
            false => rate * RUN_PER_SEC,
        }
    }
}

impl Pace {
    /// A pace that begins at a rate learned earlier, if any, under the settings' ceiling, if any.
    pub fn new(learned: Option<f64>, rate_max: Option<f64>) -> Self {
        let rate = learned.filter(|rate| rate.is_finite() && *rate > 0.0).map(|rate| rate.clamp(RATE_MIN, RATE_MAX));
        Self {
            rate,
            limit: rate.map(Limit::of),
            rate_max,
            due: None,
            held_back_at: None,
            grown_at: None,
            measure: Measure::default(),
            guessed_by: None,
            admissions: Admissions::default(),
            is_met: false,
            is_changed: false,
        }
    }

    /// A learned rate after some time: it grows without bound towards the end of [`MEMORY`], and then there is none.
    pub fn aged(rate: f64, age: Duration) -> Option<f64> {
        let left = 1.0 - age.as_secs_f64() / MEMORY.as_secs_f64();
        (left > 0.0).then(|| rate / left)
    }

    /// The rate at which another run had better begin, and whether it was learned here: just below the limit, if it
    /// crept past that. It lives on what was saved up then, until that is used up.
    /// A rate that went far past the limit found a higher one.
    pub fn learned(&self) -> (Option<f64>, bool) {
        let is_past = |rate: f64, limit: f64| rate > limit && rate <= limit * (1.0 + FAR);
        let begin = |rate: f64| match self.limit {
            Some(limit) if is_past(rate, limit.per_sec) => limit.per_sec * BEGIN_SHARE,
            _ => rate,
        };
        (self.rate.map(begin), self.is_changed)
    }

    /// When the next request may be sent, if that is not now.
    pub fn hold_back(&mut self, now: Instant) -> Option<Instant> {
        let until = self.due.filter(|due| *due > now)?;
        self.held_back_at = Some(now);
        Some(until)
    }

    /// A request is sent now. `was_idle`: nothing was going on for so long that the measure begins anew.
    pub fn sent(&mut self, now: Instant, was_idle: bool) {
        self.guessed_by = None;
        if was_idle || self.measure.since.is_none() {
            self.measure = Measure { since: Some(now), ..Measure::default() };
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
        self.admissions.admitted(now);
        if self.admitted_late(now) {
            return;
        }
        self.measure.admitted(now, self.reach());
        self.is_met = false;
        let since = self.grown_at.replace(now);
        let (Some(rate), Some(since)) = (self.rate, since) else { return };
        // Only a rate that holds somebody back is tried out; any other would grow without ever being proven.
        if !self.is_tried(rate, now) {
            return;
        }
        if let Some(before) =
            self.limit.and_then(|limit| limit.before_doubt).filter(|before| rate >= before * (1.0 - NEAR))
        {
            self.limit = Some(Limit::of(before));
        }
        let secs = now.saturating_duration_since(since).min(recently(rate)).as_secs_f64();
        let per_sec = self.limit.map_or(rate * SEARCH_PER_SEC, |limit| limit.growth_per_sec(rate));
        self.rate = Some((rate + per_sec * secs).min(RATE_MAX));
        self.is_changed = true;
    }

    /// Whether it took a request that was under way when another one's refusal made the first guess. All come at once
    /// then, and the refusal may well be the first answer of many:
    /// with those that were taken, the guess is that much higher.
    fn admitted_late(&mut self, now: Instant) -> bool {
        let reach = self.reach();
        let Some(measure) = &mut self.guessed_by else { return false };
        measure.admitted(now, reach);
        if let (Some(rate), Some(measured)) = (self.rate, measure.per_sec(now, reach)) {
            let rate = rate.max(measured * FIRST_SHARE).min(RATE_MAX);
            self.admissions.burst(now, rate);
            self.rate = Some(rate);
        }
        true
    }

    /// The service refused a request because there were too many.
    pub fn refused(&mut self, now: Instant) {
        // Nothing admitted since the last refusal: the wait was too short, which says nothing about the rate.
        if std::mem::replace(&mut self.is_met, true) {
            return;
        }
        let Some(measured) = self.measure.per_sec(now, self.reach()) else { return };
        let rate = match self.rate {
            Some(rate) if self.is_tried(rate, now) => {
                let span = self.measure.span(now);
                let (met, share) = match self.limit {
                    // The measure lags behind a rate that is still searched for.
                    None => ((measured * growth(span, self.reach())).min(rate), FIRST_SHARE),
                    // Right after a pause it says little; the rate is far off still.
                    Some(_) if span < self.reach() / 2 => (rate, FIRST_SHARE),
                    Some(_) => (measured, LATER_SHARE),
                };
                let lower = (met * share).clamp(rate * CUT_MAX, rate * LATER_SHARE);
                let beyond_burst = self.admissions.per_sec_beyond_burst(now).filter(|_| self.limit.is_none());
                // Far below, what was taken for an allowance is a limit's own: so many a second, say.
                let told = beyond_burst.filter(|told| *told >= lower * TOLD_MIN && told * TOLD_SHARE <= lower);
                let (lower, limit) = told.map_or((lower, lower / share), |told| (told * TOLD_SHARE, told));
                let is_doubtful = self.admissions.stood_still(now, still(rate));
                let before = self.limit.map(|before| before.per_sec);
                self.limit = Some(Limit {
                    per_sec: limit.clamp(RATE_MIN, RATE_MAX),
                    is_told: told.is_some(),
                    before_doubt: before.filter(|before| is_doubtful && limit < before * (1.0 - NEAR)),
                });
                lower
            }
            _ if self.measure.admissions < GUESS_ADMISSIONS_MIN => return,
            // There was no rate, or it held nobody back and had no part in this.
            _ => {
                self.limit = None;
                self.guessed_by = Some(self.measure);
                self.admissions.burst(now, measured * FIRST_SHARE);
                measured * FIRST_SHARE
            }
        };
        self.rate = Some(rate.clamp(RATE_MIN, RATE_MAX));
        self.is_changed = true;
        self.grown_at = Some(now);
        // What is admitted from here on is measured by itself: the pause that follows is the service's.
        self.measure = Measure::default();
    }

    /// Whether the learned rate is what held somebody back, a moment ago.
    fn is_tried(&self, rate: f64, now: Instant) -> bool {
        self.held_back_at.is_some_and(|at| now.saturating_duration_since(at) <= recently(rate))
            && self.rate_max.is_none_or(|max| rate <= max)
    }

    /// How far back the measure reaches.
    fn reach(&self) -> Duration {
        let slow = self.rate.map_or(Duration::ZERO, |rate| Duration::from_secs_f64(MEASURED_OVER_REQUESTS / rate));
        slow.max(MEASURED_OVER)
    }

    /// The time between two requests.
    fn interval(&self) -> Option<Duration> {
        let rates = [self.rate, self.rate_max];
        let rate = rates.into_iter().flatten().min_by(f64::total_cmp)?;
        Duration::try_from_secs_f64(1.0 / rate).ok()
    }
}

/// How far a rate that grew for so long at [`SEARCH_PER_SEC`] is above its fading mean.
fn growth(span: Duration, reach: Duration) -> f64 {
    let fading = 1.0 / reach.as_secs_f64();
    let weight = |per_sec: f64| (1.0 - (-per_sec * span.as_secs_f64()).exp()) / per_sec;
    let grown = weight(fading) / weight(fading + SEARCH_PER_SEC);
    if grown.is_finite() { grown } else { 1.0 }
}

/// How long nothing comes through at a rate if something stands still.
fn still(rate: f64) -> Duration {
    Duration::from_secs_f64(STILL_REQUESTS / rate).max(STILL_MIN)
}

/// What counts as a moment ago at a rate: two requests, or a second.
fn recently(rate: f64) -> Duration {
    Duration::from_secs_f64(2.0 / rate).max(Duration::from_secs(1))
}

/// What the service admitted lately: a count that fades.
#[derive(Clone, Copy, Debug, Default)]
struct Measure {
    since: Option<Instant>,
    counted_at: Option<Instant>,
    count: f64,
    /// The same without fading.
    admissions: u32,
}

impl Measure {
    fn admitted(&mut self, now: Instant, reach: Duration) {
        self.count = self.faded(now, reach) + 1.0;
        self.counted_at = Some(now);
        self.admissions = self.admissions.saturating_add(1);
    }

    /// Since when it counts.
    fn span(&self, now: Instant) -> Duration {
        self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Admissions a second; `None` without any.
    fn per_sec(&self, now: Instant, reach: Duration) -> Option<f64> {
        self.since?;
        let span = self.span(now).max(MEASURED_MIN);
        // A steady rate sums up to this many seconds of it.
        let secs = reach.as_secs_f64() * (1.0 - (-span.as_secs_f64() / reach.as_secs_f64()).exp());
        self.counted_at.map(|_| self.faded(now, reach) / secs)
    }

    fn faded(&self, now: Instant, reach: Duration) -> f64 {
        let age = self.counted_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.count * (-age.as_secs_f64() / reach.as_secs_f64()).exp()
    }
}

#[cfg(test)]
mod tests;
