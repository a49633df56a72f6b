//! Reads and writes rows that are not records of a scan: the ledger, runs, receipts, webhook events and status changes.
//! Writes the outcomes of fetching recordings into `response_media`. For a replay, replaces a time range in the tables
//! of a stream.
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
pub use recordings::{LostRecordings, RecordingOutcome, StoredRecording, WantedRecording, WantedRecordings};
