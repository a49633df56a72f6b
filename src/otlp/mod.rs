//! Traces and metrics for an OpenTelemetry collector, in builds with the feature `otlp`. Without it, or without an
//! endpoint in the environment, nothing here does anything.
//!
//! Spans are tracing's own, of the target `otlp`: run > window > page, and commit. No collector holds a run up: spans
//! and metrics are sent by threads of their own, and the end of the process waits for them a bounded time.

#[cfg(feature = "otlp")]
mod exporters;
#[cfg(not(feature = "otlp"))]
mod none;

#[cfg(feature = "otlp")]
pub use exporters::{Otlp, is_on, record};
#[cfg(not(feature = "otlp"))]
pub use none::{Otlp, is_on, record};
