//! The sample of --probe.

use crate::{
    config::Settings,
    pipeline::{self, PipelineError, SAMPLE_REQUESTS_MAX, Sample, ScopeWork},
    source::Source,
};

use super::super::{CommandError, check, runtime::on_runtime};

/// What the requests of --probe showed.
pub(super) struct Probed {
    /// For each scope of the work, in order; `None` where nothing is due.
    pub samples: Vec<Option<Sample>>,
    pub requests: u64,
    /// One after the other, as they were sent.
    pub requests_per_sec: f64,
}

/// Asks the service for a sample of each scope.
pub(super) fn probe(settings: &Settings, work: &[ScopeWork]) -> Result<Probed, CommandError> {
    let mut probed = None;
    let asked = async {
        let most = SAMPLE_REQUESTS_MAX * work.len() as u64 * 2;
        let source: Source = check::client(settings, Some(most)).map_err(CommandError::Pipeline)?;
        let started = tokio::time::Instant::now();
        let mut samples = Vec::new();
        for work in work {
            let sampled = pipeline::sample(&source, work).await;
            samples.push(sampled.map_err(|error| CommandError::Pipeline(PipelineError::Source(error)))?);
        }
        check::remember(&source, settings);
        let requests = source.request_stats().total;
        let requests_per_sec = requests as f64 / started.elapsed().as_secs_f64().max(0.001);
        probed = Some(Probed { samples, requests, requests_per_sec });
        Ok(0)
    };
    on_runtime(asked)?;
    probed.ok_or_else(|| CommandError::Refused("the sample did not come to its end".to_owned()))
}
