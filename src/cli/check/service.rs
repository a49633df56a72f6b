//! Checks that the service answers, accepts the key and has a correct clock.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    config::Settings,
    model::TimeAccount,
    pipeline::{self, ClockComparison, PipelineError},
    source::{SettingsError, Source, SourceError},
    state::State,
};

use super::{super::Context, finding::Finding};

/// The longest `Retry-After` that the command waits for. It is short, because a person waits for the result.
const PATIENCE: Duration = Duration::from_secs(5);
/// Rows of the sample that is compared with the service's clock.
const CLOCK_ROWS: u32 = 10;
/// Attempts per request.
const ATTEMPTS_MAX: u32 = 2;
/// Longest time limit of a request.
const TIMEOUT_MAX: Duration = Duration::from_secs(20);
/// The largest difference of the clocks that is not shown, in milliseconds.
const SKEW_MS_MAX: i64 = 60_000;

/// Returns findings about the service, the key, the clocks, and each list that does not answer.
pub(super) async fn findings(settings: &Settings, context: &Context) -> Vec<Finding> {
    let source = match short_lived_source(settings, None) {
        Ok(source) => source,
        // The finding about the proxy says so.
        Err(PipelineError::Source(SourceError::Settings(SettingsError::UnusableProxy { .. }))) => return Vec::new(),
        Err(error) => return vec![Finding::error("service", error)],
    };
    let base_url = settings.service.base_url.as_deref().unwrap_or_default();
    context.message(&format!("requesting {base_url} ...\n"));
    let findings = probe(&source, settings, base_url).await;
    store_rate_limits(&source, settings);
    findings
}

/// Returns a client for a command that a person waits for, with few attempts and short waits. The client obeys the rate
/// limits that earlier runs stored. `requests_max` is the maximum number of requests; `None` uses the configured one.
pub(in super::super) fn short_lived_source(
    settings: &Settings,
    requests_max: Option<u64>,
) -> Result<Source, PipelineError> {
    let mut source = pipeline::source_settings(settings)?;
    source.requests_max = requests_max.or(source.requests_max);
    (source.attempts_max, source.timeout) = (ATTEMPTS_MAX, source.timeout.min(TIMEOUT_MAX));
    source.patience = source.patience.min(PATIENCE);
    let learned = match stored_state(settings)? {
        Some(state) => pipeline::recall(&state, &mut source, settings.throttle.ignores_stored_retry_after)?,
        None => None,
    };
    Source::new(source, learned, TimeAccount::default(), CancellationToken::new()).map_err(PipelineError::Source)
}

/// Opens the checkpoints of this service, read-only; `None` if there are none, or if the file cannot be read. Another
/// check reports a file that cannot be read.
fn stored_state(settings: &Settings) -> Result<Option<State>, PipelineError> {
    let identity = pipeline::identity(settings)?;
    let state = State::open_read_only(&settings.state_path).ok().flatten();
    Ok(state.filter(|state| state.belongs_to(&identity.base_url, &identity.environment).unwrap_or(false)))
}

/// Stores the `Retry-After` that the service sent, for the next command. With `--ignore-rate-limit`, ends a stored wait
/// if the service accepted requests. A failure is only logged, because the next command can learn the rate limit from
/// the service. Does nothing without checkpoints.
pub(in super::super) fn store_rate_limits(source: &Source, settings: &Settings) {
    let is_new = source.retry_after_until_ms().is_some() || settings.throttle.ignores_stored_retry_after;
    if !is_new || !matches!(stored_state(settings), Ok(Some(_))) {
        return;
    }
    let Ok(identity) = pipeline::identity(settings) else { return };
    let state = State::open(&settings.state_path, &identity.base_url, &identity.environment);
    if let Err(error) = state.and_then(|state| pipeline::remember(&state, source, clock::now_ms())) {
        tracing::warn!(why = pipeline::chain(&error), "cannot store the rate limits that the service reported");
    }
}

/// Sends the requests that check the service, the key, the clocks and each configured list.
async fn probe(source: &Source, settings: &Settings, base_url: &str) -> Vec<Finding> {
    let probe = match source.probe().await {
        Err(error @ SourceError::KeyRefused { .. }) => {
            return vec![Finding::ok("service", "it answers"), Finding::error("key", PipelineError::Source(error))];
        }
        Err(error) => return vec![Finding::error("service", PipelineError::Source(error))],
        Ok(probe) => probe,
    };
    let mut findings = vec![
        Finding::ok("service", format!("{base_url} answers in {} ms", probe.latency_ms)),
        Finding::ok("key", "accepted"),
        clocks(source, settings, probe.service_now_ms).await,
    ];
    let lists = settings.streams.iter().map(|stream| stream.stream).filter(|list| *list != probe.list);
    for list in lists {
        match source.try_list(list).await {
            Err(error) => findings.push(Finding::error(list.name(), PipelineError::Source(error))),
            Ok(()) if source.is_taken_as_empty(list) => findings.push(Finding::ok(
                list.name(),
                "every request is answered with 404, so the list counts as empty; if it should not be, ask whether the key may read it",
            )),
            Ok(()) => {}
        }
    }
    findings
}

/// Compares the clocks of the service and of this machine. A difference is harmless for windows, which use the
/// service's clock, but it may surprise a reader of logs. Only a clock that is days off is a failure.
async fn clocks(source: &Source, settings: &Settings, service_now_ms: Option<i64>) -> Finding {
    let list = settings.streams.iter().find(|stream| stream.stream.is_windowed());
    let sample = list.map(|list| pipeline::ClockSample { list: list.stream, page_rows: CLOCK_ROWS });
    let Some(service_ms) = service_now_ms else {
        return Finding::ok("clock", "the service does not send its time; this machine's is used");
    };
    let comparison = pipeline::compare_clocks(source, sample, service_ms, clock::now_ms(), None).await;
    if let Ok(ClockComparison::Wrong(mismatch)) = comparison {
        let hint = "correct the wrong clock: rows that are newer than the service's clock are not read";
        return Finding::problem("clock", mismatch.to_string(), hint, 3);
    }
    let skew_ms = service_ms - clock::now_ms();
    if skew_ms.abs() <= SKEW_MS_MAX {
        return Finding::ok("clock", "both agree within a minute");
    }
    let minutes = skew_ms.abs() as f64 / 60_000.0;
    let relation = if skew_ms > 0 { "ahead of" } else { "behind" };
    Finding::ok("clock", format!("the service is {minutes:.1} min {relation} this machine; windows go by its clock"))
}
