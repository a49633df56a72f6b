//! The latest requests that the service took, and what they tell of its limit.
//!
//! A service that saves up lets a rate above its limit pass until that allowance is used up. So what it admitted until
//! a refusal is at most its limit, over any time, and the allowance; and the burst that was refused first tells how
//! much that is. And where nothing came through for a while, what waited came at once:
//! a refusal then says little of the limit.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// How far back admissions are remembered.
const REMEMBERED: Duration = Duration::from_secs(10);
/// The same in admissions, so that a fast service takes no more memory.
const REMEMBERED_MAX: usize = 4096;
/// A burst is not longer.
const BURST_SECS_MAX: f64 = 1.5;
/// How long ago something that stood still may have begun to move again.
const LATELY_SECS: f64 = 1.0;
/// How often the allowance and the limit are told from each other, and from how many times the length of the burst.
const ROUNDS: u32 = 8;
const BURSTS_MIN: f64 = 1.7;
/// What is told by less time than that after a burst that took long, as a share:
/// it makes the limit look higher than it is.
const SLOW_BURST_SHARE: f64 = 0.8;
/// From less time no rate is concluded: admissions come in twos and threes.
const SPAN_SECS_MIN: f64 = 0.5;

/// The latest admissions, and the allowance.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    admitted: VecDeque<Instant>,
    /// What was admitted until the end of the last burst.
    burst: Vec<Span>,
    /// What the limit may be, by the burst alone.
    rate: f64,
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

    /// A burst ends here: what was admitted in it beyond the limit had been saved up. `rate`:
    /// what it may be, by the burst alone.
    pub fn burst(&mut self, now: Instant, rate: f64) {
        self.burst = self.until(now).take_while(|span| span.secs <= BURST_SECS_MAX).collect();
        self.rate = rate;
    }

    /// What was admitted a second until a refusal now, beyond what may have been saved up before: over the time for
    /// which that is the most. `None` where nothing is known of an allowance,
    /// or for less than [`SPAN_SECS_MIN`] of admissions.
    pub fn per_sec_beyond_burst(&self, now: Instant) -> Option<f64> {
        let spans: Vec<Span> = self.until(now).filter(|span| span.secs >= SPAN_SECS_MIN).collect();
        let saved_up = |per_sec: f64| self.burst.iter().map(|span| span.beyond(per_sec)).reduce(f64::max);
        let most = |secs_min: f64, saved_up: f64| {
            let long = spans.iter().filter(|span| span.secs >= secs_min);
            long.map(|span| (span.count - saved_up) / span.secs).reduce(f64::max)
        };
        let by_itself = |span: &&Span| span.beyond(self.rate);
        let burst = self.burst.iter().max_by(|one, other| by_itself(one).total_cmp(&by_itself(other)))?;
        let likely = most(SPAN_SECS_MIN, burst.beyond(self.rate))?;
        let likely = if burst.secs > SPAN_SECS_MIN { likely * SLOW_BURST_SHARE } else { likely };
        // The limit tells how much of the burst had been saved up, and that the limit,
        // if over far more time than the burst took.
        let long = BURSTS_MIN * self.burst.last()?.secs;
        (0..ROUNDS).try_fold(likely, |per_sec, _| {
            Some(most(long, saved_up(per_sec)?).map_or(per_sec, |more| more.max(per_sec)))
        })
    }

    /// Whether nothing was admitted for so long, lately.
    pub fn stood_still(&self, now: Instant, time: Duration) -> bool {
        let spans = self.until(now).map(|span| span.secs);
        let gaps = spans.scan(0.0, |later, secs| Some((std::mem::replace(later, secs), secs)));
        gaps.take_while(|(later, _)| *later <= LATELY_SECS).any(|(later, secs)| secs - later >= time.as_secs_f64())
    }

    /// The spans until now that begin with an admission, the shortest first.
    fn until(&self, now: Instant) -> impl Iterator<Item = Span> {
        let counts = (1_u32..).map(f64::from);
        let secs = self.admitted.iter().rev().map(move |at| now.saturating_duration_since(*at).as_secs_f64());
        counts.zip(secs).map(|(count, secs)| Span { count, secs })
    }
}

/// How many requests were admitted in how much time.
#[derive(Clone, Copy, Debug)]
struct Span {
    count: f64,
    secs: f64,
}

impl Span {
    /// What was admitted beyond a rate.
    fn beyond(self, per_sec: f64) -> f64 {
        self.count - per_sec * self.secs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Fifty a second and an allowance of ten: a burst of so long, then a second without anything, and then a rate that
    /// is too high for three seconds.
    fn seen(burst: Duration, rate: f64) -> (Admissions, Instant) {
        let (mut admissions, mut now) = (Admissions::default(), Instant::now());
        let admit = |admissions: &mut Admissions, begin: Instant, time: Duration| {
            (0..10).for_each(|_| admissions.admitted(begin));
            (1..=time.as_millis() / 20).for_each(|at| admissions.admitted(begin + ms(20) * at as u32));
        };
        admit(&mut admissions, now, burst);
        now += burst;
        admissions.burst(now, rate);
        admit(&mut admissions, now + ms(1_000), ms(3_000));
        (admissions, now + ms(4_000))
    }

    #[test]
    fn p5_a_limit_is_told_from_what_was_saved_up() {
        // However little the burst itself tells of the limit.
        for (burst_ms, rate) in [(0, 8.5), (400, 20.0), (1_000, 30.0)] {
            let (admissions, now) = seen(ms(burst_ms), rate);
            let told = admissions.per_sec_beyond_burst(now).unwrap();
            assert!((48.5..=50.5).contains(&told), "a burst of {burst_ms} ms: {told}");
        }
    }

    #[test]
    fn p5_a_burst_as_long_as_what_came_after_it_tells_the_least() {
        let (mut admissions, now) = seen(ms(1_400), 30.0);
        admissions.admitted.truncate(10 + 70 + 10 + 20);
        let told = admissions.per_sec_beyond_burst(now - ms(2_600)).unwrap();
        assert!((20.0..=50.5).contains(&told), "{told}");
    }

    #[test]
    fn p5_without_a_burst_or_from_too_little_nothing_is_told() {
        let (mut admissions, start) = (Admissions::default(), Instant::now());
        (0..100).for_each(|at| admissions.admitted(start + ms(20 * at)));
        assert_eq!(admissions.per_sec_beyond_burst(start + ms(2_000)), None);
        let (mut admissions, start) = (Admissions::default(), Instant::now());
        (0..10).for_each(|_| admissions.admitted(start));
        admissions.burst(start, 8.5);
        assert_eq!(admissions.per_sec_beyond_burst(start + ms(400)), None);
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
