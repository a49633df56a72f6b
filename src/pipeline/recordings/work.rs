//! What a run did about recordings.

use std::{collections::HashSet, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use crate::{load::RecordingOutcome, recordings::UploadKey};

/// Rows are told together: each time is a commit.
const SETTLED_ROWS: usize = 2000;
const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// What a run did about recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
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
    /// What rows are still to be told.
    pub outcomes: Vec<RecordingOutcome>,
    settled_at: Option<Instant>,
    /// What was tried in this run.
    pub tried: HashSet<UploadKey>,
    /// Why some wait for the next run.
    reasons: Vec<String>,
    pub looked_at: Option<Instant>,
    /// Their folder cannot be used.
    pub is_broken: bool,
}

impl RecordingsWork {
    /// Whether enough waits to be told, or some has waited long enough.
    pub fn is_settling_due(&mut self) -> bool {
        let since = *self.settled_at.get_or_insert_with(Instant::now);
        self.outcomes.len() >= SETTLED_ROWS || (!self.outcomes.is_empty() && since.elapsed() >= SETTLED_AFTER)
    }

    /// What is to be told now.
    pub fn take_outcomes(&mut self) -> Vec<RecordingOutcome> {
        self.settled_at = Some(Instant::now());
        std::mem::take(&mut self.outcomes)
    }

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
