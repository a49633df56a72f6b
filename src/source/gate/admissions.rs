//! The latest requests that the service took, and what they tell of its limit.
//!
//! A service that saves up lets a rate above its limit pass until that allowance is used up. So what it admitted until a refusal is at
//! most its limit, over any time, and the allowance; and the burst that was refused first tells how much that is. And where nothing came
//! through for a while, what waited came at once: a refusal then says little of the limit.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// How far back admissions are remembered.
const REMEMBERED: Duration = Duration::from_secs(10);
/// The same in admissions, so that a fast service takes no more memory.
const REMEMBERED_MAX: usize = 4096;
/// A burst is not longer.
const BURST_MAX: Duration = Duration::from_millis(1_500);
/// How long ago something that stood still may have begun to move again.
const LATELY: Duration = Duration::from_secs(1);
/// From less time no rate is concluded: admissions come in twos and threes.
const SPAN_MIN: Duration = Duration::from_millis(500);

/// The latest admissions, and the allowance.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    admitted: VecDeque<Instant>,
    /// How many requests the service had saved up at the last burst; `None` before there was one.
    saved_up: Option<f64>,
}

impl Admissions {
    /// The service took a request.
    pub fn admitted(&mut self, now: Instant) {
        self.admitted.push_back(now);
        while self.admitted.len() > REMEMBERED_MAX
            || self.admitted.front().is_some_and(|at| now.saturating_duration_since(*at) > REMEMBERED)
        {
            self.admitted.pop_front();
        }
    }

    /// A burst ends here: what was admitted in it beyond a rate had been saved up.
    pub fn burst(&mut self, now: Instant, rate: f64) {
        let until_now = self.until(now).take_while(|(_, span)| *span <= BURST_MAX);
        self.saved_up = until_now.map(|(count, span)| count - rate * span.as_secs_f64()).reduce(f64::max);
    }

    /// The most that was admitted a second, over any time that ends now, beyond what may have been saved up before it. A limit is not
    /// lower. `None` where nothing is known of an allowance, or for less than [`SPAN_MIN`] of admissions.
    pub fn least_per_sec(&self, now: Instant) -> Option<f64> {
        let saved_up = self.saved_up?;
        let long_enough = self.until(now).filter(|(_, span)| *span >= SPAN_MIN);
        long_enough.map(|(count, span)| (count - saved_up) / span.as_secs_f64()).reduce(f64::max)
    }

    /// Whether nothing was admitted for so long, lately.
    pub fn stood_still(&self, now: Instant, time: Duration) -> bool {
        let spans = self.until(now).map(|(_, span)| span);
        let gaps = spans.scan(Duration::ZERO, |later, span| Some((std::mem::replace(later, span), span)));
        gaps.take_while(|(later, _)| *later <= LATELY).any(|(later, span)| span - later >= time)
    }

    /// The spans until now that begin with an admission, the shortest first, and how many were admitted in each.
    fn until(&self, now: Instant) -> impl Iterator<Item = (f64, Duration)> {
        let spans = self.admitted.iter().rev().map(move |at| now.saturating_duration_since(*at));
        spans.scan(0.0, |count, span| {
            *count += 1.0;
            Some((*count, span))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Fifty a second and an allowance of ten, as seen by a burst and then by a rate that is too high.
    fn seen() -> (Admissions, Instant) {
        let (mut admissions, start) = (Admissions::default(), Instant::now());
        (0..10).for_each(|_| admissions.admitted(start));
        admissions.burst(start, 8.5);
        // Idle for a second, then as much as comes through: 10 at once, and 50 a second.
        let again = start + ms(1_000);
        (0..10).for_each(|_| admissions.admitted(again));
        (1..=100).for_each(|at| admissions.admitted(again + ms(20 * at)));
        (admissions, again + ms(2_000))
    }

    #[test]
    fn p5_a_limit_is_told_from_what_was_saved_up() {
        let (admissions, now) = seen();
        let least = admissions.least_per_sec(now).unwrap();
        assert!((47.0..=51.0).contains(&least), "{least}");
    }

    #[test]
    fn p5_without_a_burst_or_from_too_little_nothing_is_told() {
        let (mut admissions, start) = (Admissions::default(), Instant::now());
        (0..100).for_each(|at| admissions.admitted(start + ms(20 * at)));
        assert_eq!(admissions.least_per_sec(start + ms(2_000)), None);
        let (mut admissions, start) = (Admissions::default(), Instant::now());
        (0..10).for_each(|_| admissions.admitted(start));
        admissions.burst(start, 8.5);
        assert_eq!(admissions.least_per_sec(start + ms(400)), None);
    }

    #[test]
    fn p5_what_stood_still_lately_is_known() {
        let (mut admissions, start) = (Admissions::default(), Instant::now());
        (0..50).for_each(|at| admissions.admitted(start + ms(20 * at)));
        let last = start + ms(980);
        assert!(!admissions.stood_still(last + ms(10), ms(150)));
        assert!(admissions.stood_still(last + ms(200), ms(150)), "it still does");
        (0..10).for_each(|_| admissions.admitted(last + ms(300)));
        assert!(admissions.stood_still(last + ms(900), ms(150)) && !admissions.stood_still(last + ms(400), ms(310)));
        (1..=100).for_each(|at| admissions.admitted(last + ms(300 + 20 * at)));
        assert!(!admissions.stood_still(last + ms(2_300), ms(150)), "that is long ago");
    }

    #[test]
    fn only_so_many_admissions_are_remembered() {
        let (mut admissions, start) = (Admissions::default(), Instant::now());
        (0..100_000).for_each(|at| admissions.admitted(start + Duration::from_micros(at)));
        assert_eq!(admissions.admitted.len(), REMEMBERED_MAX);
        admissions.admitted(start + ms(60_000));
        assert_eq!(admissions.admitted.len(), 1);
    }
}
