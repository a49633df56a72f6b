//! Counters of a replay, for the progress bar.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a replay in progress.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    pub(super) scans: AtomicU64,
    pub(super) scans_done: AtomicU64,
    pub(super) pages_done: AtomicU64,
    pub(super) records_done: AtomicU64,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaySnapshot {
    pub scans: u64,
    pub scans_done: u64,
    pub pages_done: u64,
    pub records_done: u64,
}

impl ReplayProgress {
    /// Reads the counters.
    pub fn snapshot(&self) -> ReplaySnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReplaySnapshot {
            scans: read(&self.scans),
            scans_done: read(&self.scans_done),
            pages_done: read(&self.pages_done),
            records_done: read(&self.records_done),
        }
    }
}
