//! The progress of a run with recordings.
//!
//! Stores the folders to which any run has written recordings. An erasure searches all of these folders, also those
//! that the settings no longer name.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    config::RecordingsSettings,
    files,
    load::RecordingOutcome,
    pipeline::report::RecordingsReport,
    recordings::UploadKey,
    state::{State, StateError},
};

/// A batch of this many outcomes is written into the rows. Outcomes are written in batches, because each write is a
/// commit.
const BATCH_ROWS: usize = 2000;
/// A batch of outcomes of this age is written into the rows.
const BATCH_AGE: Duration = Duration::from_secs(60);
/// The maximum number of different reasons in the note of the report.
const REASONS_MAX: usize = 5;

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

/// Name of the behaviour that stores the folders.
const FOLDERS: &str = "recordings_folders";

/// Stores the folder of the settings, before a run writes a file to it.
pub(super) fn remember_folder(state: &State, settings: &RecordingsSettings, now_ms: i64) -> Result<(), StateError> {
    let mut folders = stored_folders(state)?;
    let folder = relative_to_installation(&settings.path, state.path());
    if !folders.contains(&folder) {
        folders.push(folder);
        state.remember_behaviour(FOLDERS, &folders, now_ms)?;
    }
    Ok(())
}

/// Returns the absolute paths of the folders to which any run has written recordings.
pub fn recordings_folders(state: &State) -> Result<Vec<PathBuf>, StateError> {
    let installation = installation_folder(state.path());
    // `join` leaves an absolute path as it is.
    Ok(stored_folders(state)?.into_iter().map(|folder| installation.join(folder)).collect())
}

fn stored_folders(state: &State) -> Result<Vec<PathBuf>, StateError> {
    Ok(state.behaviour::<Vec<PathBuf>>(FOLDERS)?.map(|(folders, _)| folders).unwrap_or_default())
}

/// Returns the folder of the installation: the parent of the state file's folder. Paths inside this folder are stored
/// as relative paths, so that a copy of an installation has its own recordings.
fn installation_folder(state: &Path) -> PathBuf {
    let state = absolute(state);
    files::folder_of(files::folder_of(&state)).to_owned()
}

fn relative_to_installation(folder: &Path, state: &Path) -> PathBuf {
    let folder = absolute(folder);
    folder.strip_prefix(installation_folder(state)).map(Path::to_owned).unwrap_or(folder)
}

/// Returns the absolute path, with symbolic links resolved if possible.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    files::real_path(&path).unwrap_or(path)
}
