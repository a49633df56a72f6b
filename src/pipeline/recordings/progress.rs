//! The progress of a run with recordings, and the numbers for the run's report.

use std::{collections::HashSet, time::Duration};

use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::Instant;

use crate::{load::RecordingOutcome, recordings::UploadKey};

/// A batch of this many outcomes is written into the rows. Outcomes are written in batches, because each write is a
/// commit.
const BATCH_ROWS: usize = 2000;
/// A batch of outcomes of this age is written into the rows.
const BATCH_AGE: Duration = Duration::from_secs(60);
/// The maximum number of different reasons in the note of the report.
const REASONS_MAX: usize = 5;

/// What a run did about recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecordingsReport {
    /// Recordings that were downloaded.
    pub fetched: u64,
    /// Bytes that this run downloaded.
    pub bytes: u64,
    /// Recordings that cannot be downloaded, for now or for ever: `recording_status` says why.
    pub missing: u64,
    /// Recordings that are left to the next run.
    pub waiting: u64,
}

/// The progress of a run with recordings.
#[derive(Debug, Default)]
pub struct RecordingsProgress {
    pub report: RecordingsReport,
    /// Outcomes that are not written into the rows yet.
    pub outcomes: Vec<RecordingOutcome>,
    /// When the current batch of outcomes began. `None` before the first batch.
    batch_begun_at: Option<Instant>,
    /// Recordings that this run has tried.
    pub tried: HashSet<UploadKey>,
    /// Different reasons why recordings wait for the next run, at most [`REASONS_MAX`].
    reasons: Vec<String>,
    /// When this run last went through the pending recordings; before that, when the first early pass was considered.
    pub last_pass_at: Option<Instant>,
    /// The creation time of the recording with which this run began, in epoch microseconds; `None` if it began with the
    /// newest one.
    pub began_with_us: Option<i64>,
    /// The creation time of the oldest recording that the limit of the run left over, in epoch microseconds.
    pub longest_waiting_us: Option<i64>,
    /// True if the folder of recordings cannot be used. The run then fetches no further recording.
    pub is_broken: bool,
}

impl RecordingsProgress {
    /// Returns true if the batch of outcomes is large or old enough to be written. An empty batch is never due.
    pub fn is_batch_due(&mut self) -> bool {
        let since = *self.batch_begun_at.get_or_insert_with(Instant::now);
        self.outcomes.len() >= BATCH_ROWS || (!self.outcomes.is_empty() && since.elapsed() >= BATCH_AGE)
    }

    /// Returns the batch of outcomes, and begins a new one.
    pub fn take_outcomes(&mut self) -> Vec<RecordingOutcome> {
        self.batch_begun_at = Some(Instant::now());
        std::mem::take(&mut self.outcomes)
    }

    /// Returns a note for the report if recordings wait for the next run, otherwise `None`.
    pub fn note(&self) -> Option<String> {
        let waiting = self.report.waiting;
        (waiting > 0).then(|| {
            let reasons = self.reasons.join("; ");
            format!("{waiting} recordings wait for the next run{}{reasons}", if reasons.is_empty() { "" } else { ": " })
        })
    }

    /// Counts a recording that the limit of the run left over. `created_us` is the creation time of its answer.
    pub fn leave_for_limit(&mut self, created_us: i64, reason: String) {
        if self.began_with_us != Some(created_us) {
            self.longest_waiting_us = Some(self.longest_waiting_us.map_or(created_us, |oldest| oldest.min(created_us)));
        }
        self.leave_to_next_run(reason);
    }

    /// Counts a recording that waits for the next run. An empty reason is only counted.
    pub fn leave_to_next_run(&mut self, reason: String) {
        self.report.waiting += 1;
        if !reason.is_empty() && self.reasons.len() < REASONS_MAX && !self.reasons.contains(&reason) {
            self.reasons.push(reason);
        }
    }
}
