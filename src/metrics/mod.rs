//! The metrics: one list, from which `/metrics`, the textfile, OTLP and the reference in `docs/monitoring.md` are made.
//!
//! Each label of a metric has few values, and all values are known in advance: no label names a survey, a person or an
//! address. Every series also has the labels of the installation: the environment and the host of the service.

mod list;

pub use list::{ALL, INSTALLATION_LABELS, Metric, MetricValues, add_sync_status, write_textfile};

#[cfg(test)]
mod tests;
