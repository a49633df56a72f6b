//! The report of a replay: the JSON of `--json` and of the history of runs.
//!
//! Counters of a replay, for the progress bar.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use serde::Serialize;

use crate::{
    model::{Outcome, RunId},
    pipeline::report::ReportHeader,
};

/// What a replay did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ReplayResult {
    /// Scans that were applied again.
    pub scans: u64,
    /// Pages of the applied scans.
    pub pages: u64,
    /// Records on the pages of the applied scans.
    pub records: u64,
    /// The warehouses that were rebuilt.
    pub warehouses: Vec<RebuiltWarehouse>,
    /// The ranges that were replaced; empty for a full replay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stretches: Vec<ReplacedRange>,
    /// Further notes for the reader.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// True if the checkpoints cover less than before. The next sync pulls the rest.
    #[serde(skip)]
    pub has_gaps: bool,
    /// True if the replay was stopped. A stopped full replay changed nothing; of a range, `stretches` were replaced.
    #[serde(skip)]
    pub is_stopped: bool,
}

/// A warehouse that was rebuilt.
#[derive(Clone, Debug, Serialize)]
pub struct RebuiltWarehouse {
    pub name: &'static str,
    pub location: String,
    /// Number of scans in the ledger of the warehouse.
    pub ledger_scans: u64,
}

/// A range that was replaced.
#[derive(Clone, Debug, Serialize)]
pub struct ReplacedRange {
    pub stream: &'static str,
    pub start: String,
    pub end: String,
    /// Rows inserted into all tables of the stream, by warehouse.
    pub rows: std::collections::BTreeMap<&'static str, u64>,
}

impl ReplayResult {
    pub(super) fn outcome(&self) -> Outcome {
        match (self.is_stopped, self.has_gaps) {
            (true, _) => Outcome::Interrupted,
            (false, true) => Outcome::NeedsALook,
            (false, false) => Outcome::Done,
        }
    }
}

/// The report of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    pub run_id: RunId,
    #[serde(flatten)]
    pub header: ReportHeader,
    #[serde(flatten)]
    pub replayed: ReplayResult,
}

/// Counters of a replay in progress.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    scans: AtomicU64,
    pub(super) scans_done: AtomicU64,
    pub(super) pages_done: AtomicU64,
    pub(super) records_done: AtomicU64,
    phase: Mutex<Option<&'static str>>,
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaySnapshot {
    pub scans: u64,
    pub scans_done: u64,
    pub pages_done: u64,
    pub records_done: u64,
    /// The step after the last scan; `None` before it.
    pub phase: Option<&'static str>,
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
            phase: *self.phase.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Records that the replay begins to read this number of scans.
    pub(super) fn begin(&self, scans: u64) {
        self.scans.store(scans, Ordering::Relaxed);
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Records that the replay begins a step after its last scan.
    pub(super) fn enter(&self, phase: &'static str) {
        tracing::info!("{phase}");
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = Some(phase);
    }
}
