//! A client with few attempts and short waits, for a command that a person waits for, and for the test of the key when
//! `serve` starts.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{clock, config::Settings, model::TimeAccount, source::Source, state::State};

use super::{
    assemble::{identity, source_settings},
    error::{PipelineError, chain},
    limits::{recall, remember},
    threads::until_stopped,
};

/// The longest `Retry-After` that the client waits for. It is short, because a person waits for the result.
const PATIENCE: Duration = Duration::from_secs(5);
/// Attempts per request.
const ATTEMPTS_MAX: u32 = 2;
/// Longest time limit of a request.
const TIMEOUT_MAX: Duration = Duration::from_secs(20);

/// Requests one row, to test the key. `stop` ends the reading of the key, which may not come.
///
/// # Errors
/// The service refuses the key or does not answer, or no request may be sent before the end of a `Retry-After`.
pub async fn test_key(settings: &Settings, stop: &CancellationToken) -> Result<(), PipelineError> {
    let settings = settings.clone();
    let open = settings.clone();
    let source = until_stopped(stop, move || short_lived_source(&open, None)).await??;
    let probed = source.probe().await;
    store_rate_limits(&source, &settings);
    probed.map(drop).map_err(PipelineError::Source)
}

/// Returns a client for a command that a person waits for, with few attempts and short waits. The client obeys the rate
/// limits that earlier runs stored. `requests_max` is the maximum number of requests; `None` uses the configured one.
///
/// # Errors
/// The configuration or the key is missing or invalid, or the checkpoints cannot be read.
pub fn short_lived_source(settings: &Settings, requests_max: Option<u64>) -> Result<Source, PipelineError> {
    let mut source = source_settings(settings)?;
    source.requests_max = requests_max.or(source.requests_max);
    (source.attempts_max, source.timeout) = (ATTEMPTS_MAX, source.timeout.min(TIMEOUT_MAX));
    source.patience = source.patience.min(PATIENCE);
    let learned = match stored_state(settings)? {
        Some(state) => recall(&state, &mut source, settings.throttle.ignores_stored_retry_after)?,
        None => None,
    };
    Source::new(source, learned, TimeAccount::default(), CancellationToken::new()).map_err(PipelineError::Source)
}

/// Opens the checkpoints of this service, read-only; `None` if there are none, or if the file cannot be read. Another
/// check reports a file that cannot be read.
fn stored_state(settings: &Settings) -> Result<Option<State>, PipelineError> {
    let identity = identity(settings)?;
    let state = State::open_read_only(&settings.state_path).ok().flatten();
    Ok(state.filter(|state| state.belongs_to(&identity.base_url, &identity.environment).unwrap_or(false)))
}

/// Stores the `Retry-After` that the service sent, for the next command. With `--ignore-rate-limit`, ends a stored wait
/// if the service accepted requests. A failure is only logged, because the next command can learn the rate limit from
/// the service. Does nothing without checkpoints.
pub fn store_rate_limits(source: &Source, settings: &Settings) {
    let is_new = source.retry_after_until_ms().is_some() || settings.throttle.ignores_stored_retry_after;
    if !is_new || !matches!(stored_state(settings), Ok(Some(_))) {
        return;
    }
    let Ok(identity) = identity(settings) else { return };
    let state = State::open(&settings.state_path, &identity.base_url, &identity.environment);
    if let Err(error) = state.and_then(|state| remember(&state, source, clock::now_ms())) {
        tracing::warn!(why = chain(&error), "cannot store the rate limits that the service reported");
    }
}
