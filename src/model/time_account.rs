//! Accounts for a run's time. At any instant the run is in exactly one state, so the parts add up to the wall time.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// An activity of the run. While several activities overlap, the time counts for the first of them in this order. So
/// waiting counts only while the run does nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Applying a scan to the warehouse, archiving, checkpointing.
    Write,
    /// Turning pages into Arrow batches.
    Parse,
    /// A request is in flight.
    Network,
    /// The service rate limited the run (`Retry-After`).
    RateLimited,
    /// Waiting before a retry, or to stay below the learned rate limit.
    Pacing,
}

/// Number of activities.
const ACTIVITIES: usize = 5;

/// The run's time by activity, in milliseconds. All other fields add up to `wall`, except for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TimeParts {
    /// From the start of the run to its end.
    pub wall: u64,
    /// At least one request was in flight.
    pub network: u64,
    /// Waiting because the service rate limited the run (`Retry-After`).
    pub told_to_wait: u64,
    /// Waiting before a retry, or to stay below the learned rate limit.
    pub chose_to_wait: u64,
    /// Pages were turned into rows.
    pub parse: u64,
    /// Scans were committed, archived and checkpointed.
    pub write: u64,
    /// No activity.
    pub idle: u64,
}

/// The time account of a run. Clones share the same account.
#[derive(Clone, Debug)]
pub struct TimeAccount {
    inner: Arc<Mutex<Inner>>,
}

/// The state of an account. Arrays are indexed by [`Activity`].
#[derive(Debug)]
struct Inner {
    /// Start of the run.
    started: Instant,
    /// Up to when all time is counted.
    since: Instant,
    /// How many guards of each activity exist.
    running: [u32; ACTIVITIES],
    /// The counted time of each activity.
    spent: [Duration; ACTIVITIES],
    /// The counted time without an activity.
    idle: Duration,
}

impl Inner {
    /// Adds the time since the last change to the current activity. Adds nothing if `now` lies before that change,
    /// because another thread read a later time and took the lock first.
    fn add_elapsed(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.since);
        match self.running.iter().position(|count| *count > 0) {
            Some(activity) => self.spent[activity] += elapsed,
            None => self.idle += elapsed,
        }
        self.since = self.since.max(now);
    }
}

impl Default for TimeAccount {
    fn default() -> Self {
        Self::starting_at(Instant::now())
    }
}

impl TimeAccount {
    /// Creates an account that is idle from `now` on.
    pub fn starting_at(now: Instant) -> Self {
        let inner = Inner {
            started: now,
            since: now,
            running: [0; ACTIVITIES],
            spent: Default::default(),
            idle: Duration::ZERO,
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Starts an activity, which ends when the returned guard is dropped.
    pub fn enter(&self, activity: Activity) -> ActivityGuard {
        self.change(activity, 1, Instant::now());
        ActivityGuard { account: self.clone(), activity }
    }

    /// Returns the times by activity up to `now`, or up to a later change by another thread.
    pub fn parts_at(&self, now: Instant) -> TimeParts {
        let mut inner = self.lock();
        inner.add_elapsed(now);
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let [write, parse, network, rate_limited, pacing] = inner.spent;
        TimeParts {
            wall: ms(inner.since.saturating_duration_since(inner.started)),
            network: ms(network),
            told_to_wait: ms(rate_limited),
            chose_to_wait: ms(pacing),
            parse: ms(parse),
            write: ms(write),
            idle: ms(inner.idle),
        }
    }

    /// Returns the times by activity up to now.
    pub fn parts(&self) -> TimeParts {
        self.parts_at(Instant::now())
    }

    /// Counts the time up to `now`, then changes the number of guards of an activity.
    fn change(&self, activity: Activity, by: i32, now: Instant) {
        let mut inner = self.lock();
        inner.add_elapsed(now);
        let count = &mut inner.running[activity as usize];
        *count = count.saturating_add_signed(by);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        // The numbers stay valid after a panic under the lock, because each change is one statement.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard of a running activity. The activity ends when the guard is dropped.
#[derive(Debug)]
#[must_use = "dropping the guard ends the activity"]
pub struct ActivityGuard {
    account: TimeAccount,
    activity: Activity,
}

impl Drop for ActivityGuard {
    fn drop(&mut self) {
        self.account.change(self.activity, -1, Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p5_no_time_counts_twice_when_threads_overtake_each_other() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let account = TimeAccount::starting_at(start);
        account.change(Activity::Network, 1, at(10));
        account.change(Activity::Parse, 1, at(30));
        account.change(Activity::Network, -1, at(20));
        account.change(Activity::Parse, -1, at(50));
        let parts = account.parts_at(at(45));
        let expected = TimeParts { wall: 50, network: 20, parse: 20, idle: 10, ..TimeParts::default() };
        assert_eq!(parts, expected);
    }

    #[test]
    fn p5_the_parts_add_up_to_the_wall_time() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let account = TimeAccount::starting_at(start);
        account.change(Activity::Network, 1, at(10));
        account.change(Activity::Write, 1, at(30));
        account.change(Activity::Network, -1, at(40));
        account.change(Activity::RateLimited, 1, at(40));
        account.change(Activity::Write, -1, at(70));
        account.change(Activity::RateLimited, -1, at(100));
        let parts = account.parts_at(at(105));
        let expected =
            TimeParts { wall: 105, network: 20, told_to_wait: 30, chose_to_wait: 0, parse: 0, write: 40, idle: 15 };
        assert_eq!(parts, expected);
        assert_eq!(
            parts.wall,
            parts.network + parts.told_to_wait + parts.chose_to_wait + parts.parse + parts.write + parts.idle
        );
    }
}
