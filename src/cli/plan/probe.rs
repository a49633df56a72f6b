//! The sample of --probe.

use crate::{
    clock,
    config::Settings,
    pipeline::{self, PipelineError, Sample, ScopeBacklog},
    source::Source,
};

use super::super::{CommandError, Context, check, runtime::on_runtime};

/// The most that a sample sends, whatever the service answers: a guard, far above what is needed.
const REQUESTS_MAX: u64 = 1000;

/// What the requests of --probe showed.
pub(super) struct Probed {
    /// The service's time.
    pub now_ms: i64,
    /// What is due at that time.
    pub work: Vec<ScopeBacklog>,
    /// For each scope of the work, in order; `None` where nothing is due.
    pub samples: Vec<Option<Sample>>,
    pub requests: u64,
    /// One after the other, as they were sent.
    pub requests_per_sec: f64,
}

/// Asks the service for its time, and for a sample of each scope of the work that is due then.
pub(super) fn probe(
    settings: &Settings,
    context: &Context,
    work_at: impl FnOnce(i64) -> Result<Vec<ScopeBacklog>, CommandError>,
) -> Result<Probed, CommandError> {
    let mut probed = None;
    let failed = |error| CommandError::Pipeline(PipelineError::Source(error));
    let asked = async {
        let source: Source = check::client(settings, Some(REQUESTS_MAX)).map_err(CommandError::Pipeline)?;
        let base_url = settings.service.base_url.as_deref().unwrap_or_default();
        context.tell(&format!("asking {base_url} for a sample ...\n"));
        let started = tokio::time::Instant::now();
        let service_now_ms = source.probe().await.map_err(failed)?.service_now_ms;
        let now_ms = service_now_ms.unwrap_or_else(clock::now_ms);
        let work = work_at(now_ms)?;
        let mut samples = Vec::new();
        for work in &work {
            samples.push(pipeline::sample(&source, work).await.map_err(failed)?);
        }
        check::remember(&source, settings);
        let requests = source.request_stats().total;
        let requests_per_sec = requests as f64 / started.elapsed().as_secs_f64().max(0.001);
        probed = Some(Probed { now_ms, work, samples, requests, requests_per_sec });
        Ok(0)
    };
    on_runtime(asked)?;
    probed.ok_or_else(|| CommandError::Refused("the sample did not come to its end".to_owned()))
}
