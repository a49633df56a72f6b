//! Recordings whose rows do not have the outcome of the download yet, and the outcome to write into these rows.

use std::collections::HashMap;

use crate::{
    load::{RecordingOutcome, StoredRecording, WantedRecording, WantedRecordings},
    model::Stream,
    recordings::{Recordings, UploadKey, UploadOutcome},
};

/// The stream whose rows name recordings.
pub(super) const STREAM: Stream = Stream::Responses;

/// The recordings of all warehouses whose rows do not have the outcome of the download yet.
#[derive(Debug, Default)]
pub(super) struct PendingDownloads {
    pub downloads: Vec<PendingDownload>,
    /// For each key, the index in `uploads`.
    index_of: HashMap<UploadKey, usize>,
    /// The next batch has answers created up to this time, in epoch microseconds. `None` if this is the last batch.
    pub next_until_us: Option<i64>,
}

impl PendingDownloads {
    /// Adds the rows of a warehouse.
    pub fn add_all(&mut self, wanted: WantedRecordings) {
        self.next_until_us = self.next_until_us.max(wanted.next_until_us);
        wanted.rows.into_iter().for_each(|row| self.add(row));
    }

    /// Adds a row. A recording that several warehouses have is added once.
    fn add(&mut self, row: WantedRecording) {
        let Some(key) = key_of(&row) else { return };
        match self.index_of.get(&key).and_then(|index| self.downloads.get_mut(*index)) {
            Some(upload) => {
                upload.rows_agree &= (&row.status, &row.sha256) == (&upload.row.status, &upload.row.sha256);
            }
            None => {
                self.index_of.insert(key.clone(), self.downloads.len());
                self.downloads.push(PendingDownload { key, row, rows_agree: true });
            }
        }
    }
}

/// Returns the key of the upload that a row names. Returns `None` if the session of the row is not a usable identifier:
/// an erasure could not find the file of such an upload, so it is not fetched.
pub(super) fn key_of(row: &WantedRecording) -> Option<UploadKey> {
    UploadKey::of(&row.response_group_uid, row.question_id, row.upload_id.as_deref(), &row.link)
}

/// A recording whose rows do not have the outcome of its download yet.
#[derive(Debug)]
pub(super) struct PendingDownload {
    pub key: UploadKey,
    /// The row in the first warehouse that has the recording.
    pub row: WantedRecording,
    /// True if the rows of all warehouses have the same outcome.
    rows_agree: bool,
}

impl PendingDownload {
    /// Returns true if all rows already have an outcome: this status, and the file with this hash.
    pub fn has(&self, status: &str, sha256: Option<&str>) -> bool {
        self.rows_agree && self.row.status.as_deref() == Some(status) && self.row.sha256.as_deref() == sha256
    }

    /// Returns the outcome to write into the rows, or `None` if all rows already have this outcome.
    pub fn outcome(&self, recordings: &Recordings, upload: &UploadOutcome) -> Option<RecordingOutcome> {
        let is_written = self.has(upload.status(), upload.sha256());
        (!is_written).then(|| outcome_of(&self.row, &self.key, recordings, upload))
    }
}

/// Returns the outcome to write into a row: the status, and the details of a stored file.
pub(super) fn outcome_of(
    row: &WantedRecording,
    key: &UploadKey,
    recordings: &Recordings,
    upload: &UploadOutcome,
) -> RecordingOutcome {
    let stored = match upload {
        UploadOutcome::Missing(_) => None,
        UploadOutcome::Stored(recording) => Some(StoredRecording {
            sha256: recording.sha256.clone(),
            bytes: recording.bytes,
            media_type: recording.media_type.clone(),
            path: recordings.relative_path(key, recording).display().to_string(),
            fetched_ms: recording.fetched_ms,
        }),
    };
    let (status, stamp) = (upload.status().to_owned(), upload.written().cloned());
    RecordingOutcome { wanted: row.clone(), status, stored, stamp }
}
