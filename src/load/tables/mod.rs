//! Tables that are written without comparing a scan: the ledger, runs, receipts, webhook events, changes of status,
//! and complete ranges of the other tables.
//!
//! The functions read and change rows of a [`super::store::BufferedStore`]. None of them commits; the caller does.

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
