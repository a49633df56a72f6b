//! The metrics: one list, from which `/metrics`, the textfile of one-shot runs and the reference in
//! `docs/monitoring.md` are made.
//!
//! Labels have few values, all known beforehand: no survey, no person, no address. Knows no socket and no exporter.

mod exposition;
mod list;
mod reference;
mod samples;
mod textfile;

pub use exposition::Exposition;
pub use list::{ALL, Kind, Metric, named};
pub use reference::reference;
pub use samples::add_sync_status;
pub use textfile::write_textfile;

#[cfg(test)]
mod tests;
