//! The exporter of a build without the feature `otlp`: it sends nothing.

use tracing_subscriber::Registry;

use crate::{config::OtlpSettings, metrics::MetricValues, telemetry::SpanLayer};

/// An exporter that sends nothing.
#[derive(Debug)]
pub struct OtlpExporter(());

impl OtlpExporter {
    /// Starts nothing.
    pub fn start(_: &OtlpSettings) -> OtlpExporter {
        OtlpExporter(())
    }

    /// Returns no layer: spans are not recorded.
    pub fn layer(&self) -> Option<SpanLayer<Registry>> {
        None
    }

    /// Does nothing.
    pub fn finish(self) {}
}

/// Returns true if metrics are sent: never in this build.
pub fn is_on() -> bool {
    false
}

/// Ignores the metrics.
pub fn record(_: &MetricValues) {}
