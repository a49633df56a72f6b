//! What a run did about recordings.

use std::collections::HashSet;

use serde::Serialize;
use tokio::time::Instant;

use crate::recordings::UploadKey;

/// What a run did about recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordingsReport {
    /// Recordings that were fetched.
    pub fetched: u64,
    /// Bytes of them that came in this run.
    pub bytes: u64,
    /// Recordings that turned out not to be had, for now or for ever: `recording_status` says why.
    pub missing: u64,
    /// Recordings that are left to the next run.
    pub waiting: u64,
}

/// What a run knows of recordings.
#[derive(Debug, Default)]
pub struct RecordingsWork {
    pub report: RecordingsReport,
    /// What was tried in this run.
    pub tried: HashSet<UploadKey>,
    /// Why some wait for the next run.
    reasons: Vec<String>,
    pub looked_at: Option<Instant>,
    /// The hosts send nothing for now, or the allowance is used up.
    pub is_over: bool,
}

impl RecordingsWork {
    /// What people should know.
    pub fn note(&self) -> Option<String> {
        let waiting = self.report.waiting;
        (waiting > 0).then(|| {
            let reasons = self.reasons.join("; ");
            format!("{waiting} recordings wait for the next run{}{reasons}", if reasons.is_empty() { "" } else { ": " })
        })
    }

    /// One more is left to the next run.
    pub fn wait_because(&mut self, reason: String) {
        self.report.waiting += 1;
        if !reason.is_empty() && self.reasons.len() < 5 && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }
}
