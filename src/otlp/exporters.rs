//! A build with the feature `otlp`: what sends spans and metrics, over HTTP with protobuf.

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

use crate::{config::OtlpSettings, metrics::Exposition, source::install_crypto, telemetry::SpanLayer};

/// How long the end of the process waits for a collector that does not answer.
const END_WAIT: Duration = Duration::from_secs(5);
/// Names the program in the collector, unless OTEL_SERVICE_NAME does.
const NAME: &str = "studysync";

static IS_ON: AtomicBool = AtomicBool::new(false);

/// The senders of this process, if an endpoint is named.
#[derive(Debug)]
pub struct Otlp(Option<Senders>);

#[derive(Debug)]
struct Senders {
    traces: SdkTracerProvider,
    metrics: SdkMeterProvider,
}

impl Otlp {
    /// Starts them. Where they go, and with which headers, is in the standard variables OTEL_EXPORTER_OTLP_*, which the
    /// library reads. To be called before a runtime is started.
    pub fn start(settings: &OtlpSettings) -> Otlp {
        if !settings.is_wanted {
            return Otlp(None);
        }
        install_crypto();
        match Senders::start(settings) {
            Ok(senders) => {
                global::set_meter_provider(senders.metrics.clone());
                IS_ON.store(true, Ordering::Relaxed);
                Otlp(Some(senders))
            }
            // There is no log yet; who asks for traces and gets none looks at the variables.
            Err(_) => Otlp(None),
        }
    }

    /// What takes the spans of runs.
    pub fn layer(&self) -> Option<SpanLayer<Registry>> {
        let tracer = self.0.as_ref()?.traces.tracer(NAME);
        let spans_alone = Targets::new().with_target("otlp", tracing::Level::INFO);
        Some(Box::new(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(spans_alone)))
    }

    /// Sends what is left, and waits for it a bounded time.
    pub fn finish(self) {
        let Some(Senders { traces, metrics }) = self.0 else { return };
        let ends = [("traces", end(move || traces.shutdown())), ("metrics", end(move || metrics.shutdown()))];
        let begun = Instant::now();
        for (what, end) in ends {
            let why = match end.recv_timeout(END_WAIT.saturating_sub(begun.elapsed())) {
                Ok(Ok(())) => continue,
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", END_WAIT.as_secs()),
            };
            tracing::warn!(why, "not all {what} could be sent to the collector");
        }
    }
}

/// Ends a sender on a thread of its own: not every one keeps to a time limit by itself.
fn end(shutdown: impl FnOnce() -> OTelSdkResult + Send + 'static) -> mpsc::Receiver<OTelSdkResult> {
    let (sender, receiver) = mpsc::channel();
    // Whoever waits may have given up.
    std::thread::spawn(move || sender.send(shutdown()));
    receiver
}

impl Senders {
    fn start(settings: &OtlpSettings) -> Result<Senders, opentelemetry_otlp::ExporterBuildError> {
        let resource = match settings.has_service_name {
            true => Resource::builder(),
            false => Resource::builder().with_service_name(NAME),
        };
        let resource = resource.with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION"))).build();
        let (spans, metrics) =
            (SpanExporter::builder().with_http().build()?, MetricExporter::builder().with_http().build()?);
        Ok(Senders {
            traces: SdkTracerProvider::builder().with_batch_exporter(spans).with_resource(resource.clone()).build(),
            metrics: SdkMeterProvider::builder().with_periodic_exporter(metrics).with_resource(resource).build(),
        })
    }
}

/// Whether metrics are sent.
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// The values as they are now; they go out with the next turn of the sender, or at the end of the process.
pub fn record(metrics: &Exposition) {
    if !is_on() {
        return;
    }
    let meter = global::meter(NAME);
    for (name, labels, value) in metrics.values() {
        let labels: Vec<_> = labels.into_iter().map(|(name, value)| KeyValue::new(name, value.to_owned())).collect();
        meter.f64_gauge(name).build().record(value, &labels);
    }
}
