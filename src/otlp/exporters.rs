//! The exporter of a build with the feature `otlp`: sends spans and metrics over HTTP with protobuf.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use opentelemetry::{KeyValue, global, trace::TracerProvider as _};
use opentelemetry_otlp::{MetricExporter, SpanExporter};
use opentelemetry_sdk::{Resource, error::OTelSdkResult, metrics::SdkMeterProvider, trace::SdkTracerProvider};
use tracing_subscriber::{Layer as _, Registry, filter::Targets};

use crate::{config::OtlpSettings, metrics::MetricValues, telemetry::SpanLayer, tls::install_crypto};

/// How long the process waits at its end for a collector that does not answer.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The service name in the collector, unless OTEL_SERVICE_NAME sets one.
const SERVICE_NAME: &str = "studysync";

// True after the export has started.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Sends the spans and metrics of this process. Contains `None` if no endpoint is configured or the export cannot
/// start.
#[derive(Debug)]
pub struct OtlpExporter(Option<Providers>);

#[derive(Debug)]
struct Providers {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl OtlpExporter {
    /// Starts the export. The library reads the endpoint and the headers from the variables OTEL_EXPORTER_OTLP_*. Must
    /// be called before an async runtime starts. A failure is not reported.
    pub fn start(settings: &OtlpSettings) -> OtlpExporter {
        if !settings.is_wanted {
            return OtlpExporter(None);
        }
        install_crypto();
        match Providers::start(settings) {
            Ok(providers) => {
                global::set_meter_provider(providers.metrics.clone());
                IS_ON.store(true, Ordering::Relaxed);
                OtlpExporter(Some(providers))
            }
            // Logging has not started yet, so a wrong variable cannot be reported here.
            Err(_) => OtlpExporter(None),
        }
    }

    /// Returns the layer that records the spans of runs; `None` without an endpoint.
    pub fn layer(&self) -> Option<SpanLayer<Registry>> {
        let tracer = self.0.as_ref()?.traces.tracer(SERVICE_NAME);
        let only_spans = Targets::new().with_target("otlp", tracing::Level::INFO);
        Some(Box::new(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(only_spans)))
    }

    /// Sends the remaining spans and metrics. Waits at most five seconds; a failure is only logged.
    pub fn finish(self) {
        let Some(Providers { traces, metrics }) = self.0 else { return };
        let shutdowns =
            [("traces", on_thread(move || traces.shutdown())), ("metrics", on_thread(move || metrics.shutdown()))];
        let started = Instant::now();
        for (signal, result) in shutdowns {
            let why = match result.recv_timeout(SHUTDOWN_TIMEOUT.saturating_sub(started.elapsed())) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", SHUTDOWN_TIMEOUT.as_secs()),
            };
            tracing::warn!(why, "not all {signal} could be sent to the collector");
        }
    }
}

/// Runs a shutdown on its own thread, because some shutdowns have no time limit. Returns a channel with the result.
fn on_thread(shutdown: impl FnOnce() -> OTelSdkResult + Send + 'static) -> mpsc::Receiver<OTelSdkResult> {
    let (sender, receiver) = mpsc::channel();
    // The send fails if the receiver no longer waits.
    std::thread::spawn(move || sender.send(shutdown()));
    receiver
}

impl Providers {
    /// Builds the providers of spans and metrics. Fails if a variable is invalid.
    fn start(settings: &OtlpSettings) -> Result<Providers, opentelemetry_otlp::ExporterBuildError> {
        let resource = match settings.has_service_name {
            true => Resource::builder(),
            false => Resource::builder().with_service_name(SERVICE_NAME),
        };
        let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build();
        let (spans, metrics) =
            (SpanExporter::builder().with_http().build()?, MetricExporter::builder().with_http().build()?);
        Ok(Providers {
            traces: SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.clone()).build(),
            metrics: SdkMeterProvider::builder().with_periodic_exporter(metrics).with_resource(resource).build(),
        })
    }
}

/// Returns true if metrics are sent.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Sets the values that the exporter sends at its next interval, or at the end of the process.
pub fn record(values: &MetricValues) {
    if !is_on() {
        return;
    }
    let meter = global::meter(SERVICE_NAME);
    for (name, labels, value) in values.values() {
        let labels: Vec<_> = labels.into_iter().map(|(name, value)| KeyValue::new(name, value.to_owned())).collect();
        meter.f64_gauge(name).build().record(value, &labels);
    }
}
