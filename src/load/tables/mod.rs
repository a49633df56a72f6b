//! Reads and writes the tables that no comparison with a scan fills: the ledger, runs, receipts, webhook events, status
//! changes and recordings. Also replaces time ranges of all other tables.
//!
//! The functions change rows of a [`super::store::BufferedStore`]; the caller commits.

mod access;
mod cells;
pub(in crate::load) mod events;
#[cfg(test)]
pub(in crate::load) mod fixture;
pub(in crate::load) mod ledger;
pub(in crate::load) mod ranges;
pub(in crate::load) mod receipts;
pub(in crate::load) mod recordings;
pub(in crate::load) mod runs;
pub(in crate::load) mod status_changes;

#[cfg(test)]
pub(in crate::load) use cells::Cell;
pub use cells::Stamp;
pub use receipts::ErasureRecord;
pub use recordings::{RecordingOutcome, StoredRecording, WantedRecording, WantedRecordings};
