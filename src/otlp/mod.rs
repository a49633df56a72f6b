//! Sends traces and metrics to an OpenTelemetry collector, in builds with the feature `otlp`. Without the feature, or
//! without an endpoint in the environment, nothing is sent.
//!
//! The spans are those of `tracing` with the target `otlp`: run > window > page, and commit. A slow collector delays no
//! run: separate threads send spans and metrics. The process waits for these threads only at its end, for a limited
//! time.

#[cfg(not(feature = "otlp"))]
mod disabled;
#[cfg(feature = "otlp")]
mod exporters;

#[cfg(not(feature = "otlp"))]
pub use disabled::{OtlpExporter, is_on, record};
#[cfg(feature = "otlp")]
pub use exporters::{OtlpExporter, is_on, record};
