//! Stores the learned rate and the end of a Retry-After wait between processes. Every command that sends requests
//! begins with [`recall`] and ends with [`remember`].

use std::{convert::Infallible, sync::PoisonError, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock,
    source::{KnownLists, LearnedRate, Source, SourceSettings},
    state::{State, StateError},
};

use super::{kept_state::StateKeeper, known_lists::recall_lists, threads::blocking};

/// Name of the behaviour that stores the learned rate between runs.
pub const LEARNED_RATE: &str = "learned_rate";
/// Name of the behaviour that stores the latest `Retry-After` wait between runs.
const RETRY_AFTER_WAIT: &str = "told_wait";
/// The longest wait that is stored. A longer `Retry-After` is cut, so that a wrong one costs a nightly run one night.
pub(super) const RETRY_AFTER_KEPT_MAX: Duration = Duration::from_secs(20 * 3600);
/// Two waits whose ends differ by less are the same wait.
pub(super) const SAME_WAIT_MS: i64 = 1_000;
/// A wait of at least this length is stored when it begins; a shorter wait is stored at the end of the run.
pub(super) const STORED_AT_ONCE_MS: i64 = 5_000;

/// A wait of at least this length is copied to the bucket of the warehouse when it begins.
const COPIED_AT_ONCE_MS: i64 = 60_000;

/// A `Retry-After` wait, by this machine's clock. Field names are those of the state file.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RetryAfterWait {
    #[serde(rename = "told_ms")]
    pub received_ms: i64,
    pub until_ms: i64,
}

impl RetryAfterWait {
    /// Creates a wait of at most [`RETRY_AFTER_KEPT_MAX`]. Both times are epoch milliseconds.
    pub fn new(received_ms: i64, until_ms: i64) -> Self {
        let longest_ms = i64::try_from(RETRY_AFTER_KEPT_MAX.as_millis()).unwrap_or(i64::MAX);
        Self { received_ms, until_ms: until_ms.min(received_ms.saturating_add(longest_ms)) }
    }

    fn stored(state: &State) -> Result<Option<RetryAfterWait>, StateError> {
        Ok(state.behaviour(RETRY_AFTER_WAIT)?.map(|(wait, _)| wait))
    }

    fn store(self, state: &State, now_ms: i64) -> Result<(), StateError> {
        state.remember_behaviour(RETRY_AFTER_WAIT, &self, now_ms)
    }

    /// Returns the wait by the clock of `now_ms`. A wait that was received in the future, because the clock was set
    /// back since, begins anew: nobody knows how much of it is over. [`recall`] stores the new times, so that the wait
    /// ends.
    fn anchored(self, now_ms: i64) -> Self {
        if self.received_ms <= now_ms {
            return self;
        }
        let length_ms = self.until_ms.saturating_sub(self.received_ms);
        Self::new(now_ms, now_ms.saturating_add(length_ms))
    }

    /// Returns the remaining wait, or `None` if the wait is over. A clock that was set back does not extend the wait.
    fn remaining(self, now_ms: i64) -> Option<Duration> {
        let remaining_ms = self.until_ms.saturating_sub(now_ms.max(self.received_ms));
        u64::try_from(remaining_ms).ok().filter(|remaining_ms| *remaining_ms > 0).map(Duration::from_millis)
    }
}

/// Reads what earlier processes stored: puts a remaining `Retry-After` wait into the settings of the client, unless
/// `ignores_stored_retry_after` is set, and what is known about the lists. Returns the learned rate.
pub fn recall(
    state: &State,
    settings: &mut SourceSettings,
    ignores_stored_retry_after: bool,
) -> Result<Option<LearnedRate>, StateError> {
    if !ignores_stored_retry_after {
        let now_ms = settings.clock.now_ms();
        let stored = RetryAfterWait::stored(state)?;
        let wait = stored.map(|wait| wait.anchored(now_ms));
        if let (Some(wait), true) = (wait, wait != stored)
            && let Err(error) = wait.store(state, now_ms)
        {
            // A command that only reads cannot store it; the next run does.
            tracing::debug!(why = super::error::chain(&error), "cannot store the end of Retry-After");
        }
        settings.not_before = wait.and_then(|wait| wait.remaining(now_ms));
    }
    let known_lists = recall_lists(state)?;
    // With --accept-vanished, a list may be empty although it had rows.
    let with_rows = if settings.accepts_gone_lists { Vec::new() } else { known_lists.with_rows };
    settings.known_lists = KnownLists { with_rows, ..known_lists };
    Ok(state.behaviour(LEARNED_RATE)?.map(|(learned, _)| learned))
}

/// Returns the end of the stored `Retry-After` wait in epoch milliseconds, or `None` if it is over.
pub fn retry_after_until_ms(state: &State, now_ms: i64) -> Result<Option<i64>, StateError> {
    let wait = RetryAfterWait::stored(state)?.map(|wait| wait.anchored(now_ms));
    Ok(wait.filter(|wait| wait.remaining(now_ms).is_some()).map(|wait| wait.until_ms))
}

/// Stores the learned rate and the `Retry-After` wait of this process, for the next one. Ends a stored wait if the
/// service accepts requests again.
pub fn remember(state: &State, source: &Source, now_ms: i64) -> Result<(), StateError> {
    match source.retry_after_until_ms() {
        Some(until_ms) => store_retry_after(state, until_ms, now_ms)?,
        None if source.is_accepting() => end_retry_after(state, now_ms)?,
        None => {}
    }
    state.remember_behaviour(LEARNED_RATE, &source.learned_rate(), now_ms)
}

/// Stores a wait that was received at `now_ms`. Keeps a stored wait with the same end, because its time of receipt must
/// not change.
fn store_retry_after(state: &State, until_ms: i64, now_ms: i64) -> Result<(), StateError> {
    match RetryAfterWait::stored(state)? {
        Some(before) if (until_ms - before.until_ms).abs() < SAME_WAIT_MS => Ok(()),
        _ => RetryAfterWait::new(now_ms, until_ms).store(state, now_ms),
    }
}

/// Ends a stored wait early, because the service accepts requests again. Changes nothing if no wait remains.
fn end_retry_after(state: &State, now_ms: i64) -> Result<(), StateError> {
    match RetryAfterWait::stored(state)?.and_then(|before| before.remaining(now_ms)) {
        Some(_) => RetryAfterWait::new(now_ms, now_ms).store(state, now_ms),
        None => Ok(()),
    }
}

/// Runs `work`, and meanwhile stores every long `Retry-After` wait when the wait begins, because the process may be
/// killed during it.
pub(super) async fn storing_retry_after<T>(
    work: impl Future<Output = T>,
    source: Source,
    keeper: StateKeeper,
    clock: Clock,
) -> T {
    tokio::select! {
        biased;
        done = work => done,
        never = store_each_retry_after(source, &keeper, clock) => match never {},
    }
}

/// Stores every long `Retry-After` wait of the client when the wait begins. Never returns; errors are only logged.
async fn store_each_retry_after(source: Source, keeper: &StateKeeper, clock: Clock) -> Infallible {
    let mut waits = source.watch_retry_after();
    loop {
        if waits.changed().await.is_err() {
            // Not reached: `source` keeps the sender alive.
            std::future::pending::<()>().await;
        }
        let until_ms = *waits.borrow_and_update();
        let now_ms = clock.now_ms();
        let Some(until_ms) = until_ms.filter(|until_ms| until_ms - now_ms >= STORED_AT_ONCE_MS) else { continue };
        let stored = store_retry_after(&keeper.state.lock().unwrap_or_else(PoisonError::into_inner), until_ms, now_ms);
        if let Err(error) = stored {
            tracing::warn!(why = super::error::chain(&error), "cannot store the end of Retry-After");
        }
        if until_ms - now_ms >= COPIED_AT_ONCE_MS {
            let keeper = keeper.clone();
            // A copy that fails says so itself.
            let _ = blocking(move || keeper.keep()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn remaining_hours(wait: RetryAfterWait, now_ms: i64) -> Option<u64> {
        wait.remaining(now_ms).map(|remaining| remaining.as_secs() / 3600)
    }

    #[test]
    fn p5_a_stored_wait_ends_at_its_time() {
        let wait = RetryAfterWait::new(0, 3 * HOUR_MS);
        assert_eq!(remaining_hours(wait, HOUR_MS), Some(2));
        assert_eq!(remaining_hours(wait, 3 * HOUR_MS), None);
        assert_eq!(remaining_hours(wait, i64::MAX), None);
        assert_eq!(remaining_hours(wait, -1000 * HOUR_MS), Some(3), "a clock that was set back extends the wait");
        let anchored = wait.anchored(-1000 * HOUR_MS);
        assert_eq!(
            remaining_hours(anchored, -999 * HOUR_MS),
            Some(2),
            "the wait of a clock that was set back has no end"
        );
        assert_eq!(remaining_hours(anchored, -997 * HOUR_MS), None);
        assert_eq!(wait.anchored(HOUR_MS), wait);
    }

    #[test]
    fn p5_a_wait_of_a_month_is_stored_as_20_hours() {
        let wait = RetryAfterWait::new(0, 30 * 24 * HOUR_MS);
        assert_eq!(remaining_hours(wait, 0), Some(20));
        assert_eq!(remaining_hours(wait, 21 * HOUR_MS), None);
    }
}
