//! Retry delays without a `Retry-After`: exponential intervals with full jitter above a floor.
//!
//! The `backoff` crate computes the intervals. The crate is unmaintained, so no other file uses it. The randomness and
//! the clock of the crate are switched off: the caller passes random numbers in, and the gate decides when to stop.

use std::time::{Duration, Instant};

use backoff::{Clock, backoff::Backoff as _, exponential::ExponentialBackoff};

/// The lower bound of each wait.
pub const FLOOR: Duration = Duration::from_millis(500);
/// The upper bound of the first wait.
pub const FIRST: Duration = Duration::from_secs(1);
/// The upper bound of every wait.
pub const LONGEST: Duration = Duration::from_secs(60);
const MULTIPLIER: f64 = 2.0;

/// The bounds of retry delays. The upper bound grows from `first` to `longest`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backoff {
    pub floor: Duration,
    pub first: Duration,
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { floor: FLOOR, first: FIRST, longest: LONGEST }
    }
}

impl Backoff {
    /// Starts a series of waits.
    pub fn series(self) -> Series {
        let started = Instant::now();
        let policy = ExponentialBackoff {
            current_interval: self.first,
            initial_interval: self.first,
            randomization_factor: 0.0,
            multiplier: MULTIPLIER,
            max_interval: self.longest,
            start_time: started,
            max_elapsed_time: None,
            clock: StoppedClock(started),
        };
        Series { policy, bounds: self }
    }
}

/// A series of waits; the upper bound doubles with each wait.
#[derive(Clone, Debug)]
pub(super) struct Series {
    policy: ExponentialBackoff<StoppedClock>,
    bounds: Backoff,
}

impl Series {
    /// Returns the next wait, uniform over `[floor, interval]`. `random` is a random number from `[0, 1)`.
    pub fn next_wait(&mut self, random: f64) -> Duration {
        // `max_elapsed_time` is `None`, so the policy always returns an interval.
        let interval = self.policy.next_backoff().unwrap_or(self.bounds.longest);
        let spread = interval.saturating_sub(self.bounds.floor);
        self.bounds.floor + spread.mul_f64(random.clamp(0.0, 1.0))
    }

    /// Returns to the first interval, after a success.
    pub fn reset(&mut self) {
        self.policy.reset();
    }
}

/// A clock that stands still. The policy needs a clock only for `max_elapsed_time`, which is unset.
#[derive(Clone, Copy, Debug)]
struct StoppedClock(Instant);

impl Clock for StoppedClock {
    fn now(&self) -> Instant {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits_ms(random: f64, count: usize) -> Vec<u128> {
        let mut series = Backoff::default().series();
        (0..count).map(|_| series.next_wait(random).as_millis()).collect()
    }

    #[test]
    fn p5_no_wait_is_shorter_than_the_floor() {
        assert_eq!(waits_ms(0.0, 9), [500; 9]);
    }

    #[test]
    fn p5_bounds_double_up_to_the_longest() {
        assert_eq!(waits_ms(1.0, 9), [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]);
    }

    #[test]
    fn p5_the_jitter_is_full() {
        assert_eq!(waits_ms(0.5, 4), [750, 1_250, 2_250, 4_250]);
    }

    #[test]
    fn p5_a_success_begins_anew() {
        let mut series = Backoff::default().series();
        (0..5).for_each(|_| _ = series.next_wait(1.0));
        series.reset();
        assert_eq!(series.next_wait(1.0), FIRST);
    }
}
