//! Reads and writes tables whose rows do not come from comparing a scan: the ledger, runs, receipts, webhook events,
//! status changes and recordings. Also replaces time ranges of the other tables.
//!
//! The functions change rows of a [`super::store::BufferedStore`], and leave the commit to the caller.

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
