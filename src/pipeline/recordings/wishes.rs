//! Recordings that rows name, and what rows are to say of them.

use std::collections::HashMap;

use crate::{
    load::{RecordingOutcome, StoredRecording, WantedRecording, WantedRecordings},
    model::Stream,
    recordings::{Recordings, UploadKey, UploadOutcome},
};

/// The stream whose rows name recordings.
pub(super) const STREAM: Stream = Stream::Responses;

/// Recordings that rows name and that are not told in them.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    pub wishes: Vec<Wish>,
    places: HashMap<UploadKey, usize>,
    /// Up to which moment (epoch microseconds) those were created that come next; `None` if these are all.
    pub next_until_us: Option<i64>,
}

impl Wishes {
    /// Takes in what a warehouse wants.
    pub fn add_all(&mut self, wanted: WantedRecordings) {
        self.next_until_us = self.next_until_us.max(wanted.next_until_us);
        wanted.rows.into_iter().for_each(|wanted| self.add(wanted));
    }

    fn add(&mut self, wanted: WantedRecording) {
        let Some(key) = key_of(&wanted) else { return };
        match self.places.get(&key).and_then(|at| self.wishes.get_mut(*at)) {
            Some(wish) => wish.are_alike &= wanted.status == wish.wanted.status,
            None => {
                self.places.insert(key.clone(), self.wishes.len());
                self.wishes.push(Wish { key, wanted, are_alike: true });
            }
        }
    }
}

/// The upload that a row names; `None` if no erasure would find it.
pub(super) fn key_of(wanted: &WantedRecording) -> Option<UploadKey> {
    UploadKey::of(&wanted.response_group_uid, wanted.question_id, wanted.upload_id.as_deref(), &wanted.link)
}

/// A recording that a row names and that is not told in it.
#[derive(Debug)]
pub(super) struct Wish {
    pub key: UploadKey,
    pub wanted: WantedRecording,
    /// The rows of all warehouses say the same of it.
    are_alike: bool,
}

impl Wish {
    /// What the rows are to say; `None` if they say it.
    pub fn outcome(&self, recordings: &Recordings, upload: &UploadOutcome) -> Option<RecordingOutcome> {
        let outcome = outcome_of(&self.wanted, &self.key, recordings, upload);
        let is_said = self.are_alike && self.wanted.status.as_ref() == Some(&outcome.status);
        (!is_said).then_some(outcome)
    }
}

/// What a row is to say of a recording.
pub(super) fn outcome_of(
    wanted: &WantedRecording,
    key: &UploadKey,
    recordings: &Recordings,
    upload: &UploadOutcome,
) -> RecordingOutcome {
    let (status, stored) = match upload {
        UploadOutcome::Missing(missing) => (missing.reason.name(), None),
        UploadOutcome::Stored(recording) => {
            let stored = StoredRecording {
                sha256: recording.sha256.clone(),
                bytes: recording.bytes,
                media_type: recording.media_type.clone(),
                path: recordings.relative_path(key, recording).display().to_string(),
                fetched_ms: recording.fetched_ms,
            };
            ("stored", Some(stored))
        }
    };
    RecordingOutcome { wanted: wanted.clone(), status: status.to_owned(), stored }
}
