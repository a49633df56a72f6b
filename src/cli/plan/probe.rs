//! Requests the sample of --probe.

use crate::{
    clock,
    config::Settings,
    pipeline::{self, PipelineError, Sample, ScopeBacklog},
};

use super::super::{
    CommandError, Context,
    check::{short_lived_source, store_rate_limits},
    runtime::on_runtime,
    signals::end_on_signal,
};

/// Maximum requests of all samples together, far above the usual number.
const REQUESTS_MAX: u64 = 1000;

/// The result of --probe.
pub(super) struct ProbeResult {
    /// The service's time.
    pub now_ms: i64,
    /// The backlog of each scope at the service's time.
    pub backlog: Vec<ScopeBacklog>,
    /// The sample of each scope of the backlog, in order; `None` for a scope that has nothing due, or whose sampled
    /// windows have no row.
    pub samples: Vec<Option<Sample>>,
    pub requests: u64,
    /// The speed of the sample's requests, which are sent one after the other.
    pub requests_per_sec: f64,
}

/// Requests the service's time, and a sample of each scope that is due at this time. `backlog_at` returns the backlog
/// of each scope at a time. If the service sends no time, this machine's time is used.
pub(super) fn probe(
    settings: &Settings,
    context: &Context,
    backlog_at: impl FnOnce(i64) -> Result<Vec<ScopeBacklog>, CommandError>,
) -> Result<ProbeResult, CommandError> {
    let failed = |error| CommandError::Pipeline(PipelineError::Source(error));
    on_runtime(async {
        end_on_signal();
        let source = short_lived_source(settings, Some(REQUESTS_MAX))?;
        let base_url = settings.service.base_url.as_deref().unwrap_or_default();
        context.message(&format!("requesting a sample from {base_url} ...\n"));
        let started = tokio::time::Instant::now();
        let sampled = async {
            let now_ms = source.probe().await.map_err(failed)?.service_now_ms.unwrap_or_else(clock::now_ms);
            let backlog = backlog_at(now_ms)?;
            let mut samples = Vec::new();
            for scope in &backlog {
                samples.push(pipeline::sample(&source, scope).await.map_err(failed)?);
            }
            Ok::<_, CommandError>((now_ms, backlog, samples))
        };
        let sampled = sampled.await;
        // Also after an error: the next command must know a `Retry-After`.
        store_rate_limits(&source, settings);
        let (now_ms, backlog, samples) = sampled?;
        let requests = source.request_stats().total;
        let requests_per_sec = requests as f64 / started.elapsed().as_secs_f64().max(0.001);
        Ok(ProbeResult { now_ms, backlog, samples, requests, requests_per_sec })
    })
}
