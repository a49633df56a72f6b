//! Counts of what was asked and what came back, for the run's report.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use schemars::JsonSchema;
use serde::Serialize;

/// What a run asked of the service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequestStats {
    /// Requests sent, retries and probes included.
    pub total: u64,
    /// Requests by the status of their answer; 0 where no answer came.
    pub by_status: BTreeMap<u16, u64>,
    /// Bytes of the bodies that were read, decompressed.
    pub bytes: u64,
    /// Of all requests those that asked for the rows of one millisecond:
    /// what it costs that a page's edge can lose rows.
    pub ties_probed: u64,
}

/// The counts as they grow.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<RequestStats>);

impl Counters {
    /// One request came to its end, one way or another; a cancelled one counts as without an answer.
    pub fn count(&self, status: Option<u16>, bytes: usize, is_about_ties: bool) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.total += 1;
        stats.ties_probed += u64::from(is_about_ties);
        *stats.by_status.entry(status.unwrap_or(0)).or_default() += 1;
        stats.bytes = stats.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Whether any request of the run was answered, however.
    pub fn has_answers(&self) -> bool {
        let stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.by_status.keys().any(|status| *status != 0)
    }

    pub fn snapshot(&self) -> RequestStats {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
