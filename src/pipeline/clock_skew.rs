//! The measured difference between the service's clock and this machine's, which runs store for other commands.

use crate::{
    model::is_in_future,
    state::{State, StateError},
};

/// Name of the behaviour that stores how far the service's clock is ahead of this machine's clock, in milliseconds.
pub(super) const CLOCK_SKEW: &str = "clock_skew_ms";

/// Returns the service's time at the time `here_ms` of this machine's clock, by the last comparison of the clocks.
/// Returns `here_ms` if they were never compared.
pub fn service_time_ms(state: &State, here_ms: i64) -> Result<i64, StateError> {
    Ok(here_ms.saturating_add(clock_skew_ms(state, here_ms)?.unwrap_or(0)))
}

/// Returns how far the service's clock was ahead of this machine's clock at the last comparison, in milliseconds.
/// Returns `None` if they were never compared, or if this machine's clock was ahead at that time and was set right
/// since.
pub fn clock_skew_ms(state: &State, here_ms: i64) -> Result<Option<i64>, StateError> {
    let compared = state.behaviour::<i64>(CLOCK_SKEW)?;
    Ok(compared.filter(|(_, compared_ms)| !is_in_future(*compared_ms, here_ms)).map(|(skew_ms, _)| skew_ms))
}
