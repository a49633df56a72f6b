//! The metrics: one list, from which `/metrics`, the textfile, OTLP and the reference in `docs/monitoring.md` are made.
//!
//! Each label has few values, and all values are known in advance: no label names a survey, a person or an address.

mod list;
mod sync_metrics;
mod textfile;
mod values;

pub use list::{ALL, Kind, Metric};
pub use sync_metrics::add_sync_status;
pub use textfile::write_textfile;
pub use values::MetricValues;

#[cfg(test)]
mod tests;
