//! Counts requests and answers for the run's report.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use schemars::JsonSchema;
use serde::Serialize;

/// The requests of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RequestStats {
    /// Requests sent, retries and probes included.
    pub total: u64,
    /// Requests by status of the answer; 0 stands for no answer.
    pub by_status: BTreeMap<u16, u64>,
    /// Decompressed bytes of all bodies read.
    pub bytes: u64,
    /// Requests for the rows of one millisecond, sent because a page boundary can lose rows.
    pub ties_probed: u64,
}

/// The request counts of the run so far.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<RequestStats>);

impl Counters {
    /// Counts a request that ended. `status` is `None` if no answer came: the request failed or was cancelled.
    pub fn count(&self, status: Option<u16>, bytes: usize, is_tie_probe: bool) {
        let mut stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.total += 1;
        stats.ties_probed += u64::from(is_tie_probe);
        *stats.by_status.entry(status.unwrap_or(0)).or_default() += 1;
        stats.bytes = stats.bytes.saturating_add(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Returns true if any request of the run was answered, with whatever status.
    pub fn has_answers(&self) -> bool {
        let stats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        stats.by_status.keys().any(|status| *status != 0)
    }

    pub fn snapshot(&self) -> RequestStats {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
