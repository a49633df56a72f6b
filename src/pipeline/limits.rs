//! Stores the learned rate and the end of a Retry-After wait between processes. Every command that sends requests
//! begins with [`recall`] and ends with [`remember`].

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock,
    source::{LearnedRate, Source, SourceSettings},
    state::{State, StateError},
};

/// The learned rate, as remembered between runs.
pub const LEARNED_RATE: &str = "learned_rate";
/// The stored wait: no request before its end.
const TOLD_WAIT: &str = "told_wait";
/// A wait is kept for so long at most, and then one request asks again: a nightly run goes ahead each night, and a
/// header that was a mistake costs a night.
pub(super) const KEPT_WAIT_MAX: Duration = Duration::from_secs(20 * 3600);
/// Two waits whose ends differ by less are the same wait.
const SAME_WAIT_MS: i64 = 1_000;
/// A shorter wait is only stored at the end of the run.
const WRITTEN_AT_ONCE_MS: i64 = 5_000;

/// A wait that the service requested, by this machine's clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct ToldWait {
    told_ms: i64,
    until_ms: i64,
}

impl ToldWait {
    fn new(told_ms: i64, until_ms: i64) -> Self {
        let longest_ms = i64::try_from(KEPT_WAIT_MAX.as_millis()).unwrap_or(i64::MAX);
        Self { told_ms, until_ms: until_ms.min(told_ms.saturating_add(longest_ms)) }
    }

    /// Returns the remaining wait. A clock that was set back does not extend the wait.
    fn left(self, now_ms: i64) -> Option<Duration> {
        let left_ms = self.until_ms.saturating_sub(now_ms.max(self.told_ms));
        u64::try_from(left_ms).ok().filter(|left_ms| *left_ms > 0).map(Duration::from_millis)
    }
}

/// What earlier processes learned goes into the settings of the client, and the rate to whoever makes it.
pub fn recall(
    state: &State,
    settings: &mut SourceSettings,
    ignores_retry_after: bool,
) -> Result<Option<LearnedRate>, StateError> {
    if !ignores_retry_after {
        let told = state.behaviour::<ToldWait>(TOLD_WAIT)?;
        settings.not_before = told.and_then(|(told, _)| told.left(settings.clock.now_ms()));
    }
    Ok(state.behaviour(LEARNED_RATE)?.map(|(learned, _)| learned))
}

/// Before this time no command asks the service, which told so: epoch milliseconds.
pub fn told_wait_until(state: &State, now_ms: i64) -> Result<Option<i64>, StateError> {
    let told = state.behaviour::<ToldWait>(TOLD_WAIT)?;
    Ok(told.and_then(|(told, _)| told.left(now_ms).map(|_| told.until_ms)))
}

/// Stores what this process learned, for the next one.
pub fn remember(state: &State, source: &Source, now_ms: i64) -> Result<(), StateError> {
    match source.told_until_ms() {
        Some(until_ms) => remember_told(state, until_ms, now_ms)?,
        None if source.takes_requests() => forget_told(state, now_ms)?,
        None => {}
    }
    state.remember_behaviour(LEARNED_RATE, &source.learned_rate(), now_ms)
}

/// A wait that is the same as before counts from when it was told first.
fn remember_told(state: &State, until_ms: i64, now_ms: i64) -> Result<(), StateError> {
    let before = state.behaviour::<ToldWait>(TOLD_WAIT)?;
    if before.is_some_and(|(before, _)| (until_ms - before.until_ms).abs() < SAME_WAIT_MS) {
        return Ok(());
    }
    state.remember_behaviour(TOLD_WAIT, &ToldWait::new(now_ms, until_ms), now_ms)
}

/// The service takes requests again before its time.
fn forget_told(state: &State, now_ms: i64) -> Result<(), StateError> {
    let before = state.behaviour::<ToldWait>(TOLD_WAIT)?;
    match before.and_then(|(before, _)| before.left(now_ms)) {
        Some(_) => state.remember_behaviour(TOLD_WAIT, &ToldWait::new(now_ms, now_ms), now_ms),
        None => Ok(()),
    }
}

/// Does the work, and writes a long wait down as soon as the service tells it:
/// a process that sits it out may be killed.
pub(super) async fn noting_told_waits<T>(
    work: impl Future<Output = T>,
    source: Source,
    state: Arc<Mutex<State>>,
    clock: Clock,
) -> T {
    tokio::select! {
        biased;
        done = work => done,
        never = note_told_waits(source, &state, clock) => match never {},
    }
}

async fn note_told_waits(source: Source, state: &Mutex<State>, clock: Clock) -> Infallible {
    let mut told = source.told();
    loop {
        if told.changed().await.is_err() {
            // The source is held here, so that it does not go.
            std::future::pending::<()>().await;
        }
        let until_ms = *told.borrow_and_update();
        let now_ms = clock.now_ms();
        let Some(until_ms) = until_ms.filter(|until_ms| until_ms - now_ms >= WRITTEN_AT_ONCE_MS) else { continue };
        let noted = remember_told(&state.lock().unwrap_or_else(PoisonError::into_inner), until_ms, now_ms);
        if let Err(error) = noted {
            tracing::warn!(
                why = super::error::chain(&error),
                "cannot write down until when the service is to be left alone"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;

    fn left_hours(told: ToldWait, now_ms: i64) -> Option<u64> {
        told.left(now_ms).map(|left| left.as_secs() / 3600)
    }

    #[test]
    fn p5_a_told_wait_holds_until_its_time_and_no_longer() {
        let told = ToldWait::new(0, 3 * HOUR_MS);
        assert_eq!(left_hours(told, HOUR_MS), Some(2));
        assert_eq!(left_hours(told, 3 * HOUR_MS), None);
        assert_eq!(left_hours(told, i64::MAX), None);
        assert_eq!(left_hours(told, -1000 * HOUR_MS), Some(3), "a clock that was set back draws nothing out");
    }

    #[test]
    fn p5_a_wait_of_a_month_is_kept_for_less_than_a_day() {
        let told = ToldWait::new(0, 30 * 24 * HOUR_MS);
        assert_eq!(left_hours(told, 0), Some(20));
        assert_eq!(left_hours(told, 21 * HOUR_MS), None);
    }
}
