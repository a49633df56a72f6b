//! The keys of uploads, and the outcome that is stored for each upload. An upload is a file that a visitor uploaded to
//! the media host; this program downloads it.

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::model::{Identifier, IdentifierKind, RowStamp};

/// The value of the column `recording_status` of a stored recording.
pub const STORED: &str = "stored";

/// Identifies an upload: the recording of one answer. A visitor who records an answer again makes another upload, with
/// another key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UploadKey {
    /// The session, normalized as in [`Identifier`].
    pub(super) session: String,
    /// The session as the service wrote it.
    response_group_uid: String,
    question_id: i64,
    /// The upload id, or the link without its query if the service sent no id.
    upload: String,
}

impl UploadKey {
    /// Returns the key of an answer's upload. Returns `None` if the session is not a usable identifier, because an
    /// erasure would not find the recording.
    pub fn of(response_group_uid: &str, question_id: i64, upload_id: Option<&str>, link: &str) -> Option<UploadKey> {
        let session = Identifier::read(IdentifierKind::Session, response_group_uid)?.value;
        let unsigned = || format!("link {}", link.split(['?', '#']).next().unwrap_or_default());
        let upload = upload_id.filter(|id| !id.is_empty()).map_or_else(unsigned, |id| format!("upload {id}"));
        Some(UploadKey { session, response_group_uid: response_group_uid.to_owned(), question_id, upload })
    }

    /// Returns the base name of the files of the upload.
    pub(super) fn name(&self) -> String {
        let mut name = hash(&[&self.response_group_uid, &self.question_id.to_string(), &self.upload]);
        // The name is shorter than the name of a recording, so that both cannot collide.
        name.truncate(32);
        name
    }
}

/// The outcome of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum UploadOutcome {
    /// The recording is stored.
    Stored(Recording),
    /// There is no recording.
    Missing(MissingRecording),
}

impl UploadOutcome {
    /// Returns when the outcome was written into the rows. `None` in notes of earlier versions of the program.
    pub fn written(&self) -> Option<&RowStamp> {
        match self {
            UploadOutcome::Stored(recording) => recording.written.as_ref(),
            UploadOutcome::Missing(missing) => missing.written.as_ref(),
        }
    }

    /// Returns the outcome with another [`UploadOutcome::written`].
    #[must_use]
    pub fn with_written(self, written: Option<RowStamp>) -> UploadOutcome {
        match self {
            UploadOutcome::Stored(recording) => UploadOutcome::Stored(Recording { written, ..recording }),
            UploadOutcome::Missing(missing) => UploadOutcome::Missing(MissingRecording { written, ..missing }),
        }
    }

    /// Returns the value of the column `recording_status`.
    pub fn status(&self) -> &'static str {
        match self {
            UploadOutcome::Stored(_) => STORED,
            UploadOutcome::Missing(missing) => missing.reason.name(),
        }
    }

    /// Returns the hash of the stored recording.
    pub fn sha256(&self) -> Option<&str> {
        match self {
            UploadOutcome::Stored(recording) => Some(&recording.sha256),
            UploadOutcome::Missing(_) => None,
        }
    }
}

/// A stored recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Hash of the content in lower-case hexadecimal, which is also the file name.
    pub sha256: String,
    pub bytes: u64,
    /// The media type that the host sent, such as `video/mp4`.
    pub media_type: Option<String>,
    /// When the download finished, epoch milliseconds.
    pub fetched_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<RowStamp>,
}

/// A recording that could not be stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingRecording {
    pub reason: MissingReason,
    /// Number of attempts that showed that there is no usable recording. An attempt that ends as `Failed` does not
    /// count.
    pub attempts: u32,
    /// When the last attempt to download the recording failed, epoch milliseconds.
    pub asked_ms: i64,
    /// The size limit that the file exceeds, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written: Option<RowStamp>,
}

/// Why a recording could not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// The host refused the link with a 4xx, and also a fresh link if the service offered one.
    Refused,
    /// The host sent no media: a web page, JSON, or nothing.
    NotMedia,
    /// The file is larger than `file_limit_mb`.
    TooLarge,
    /// The link is not https, or leads to too many redirects.
    BadLink,
    /// The host failed or sent an inconsistent response. The next run tries again, after all recordings that were not
    /// tried yet.
    Failed,
    /// The file was deleted here, and its answer at the service.
    Lost,
}

impl MissingReason {
    /// Returns the value of the column `recording_status`.
    pub fn name(self) -> &'static str {
        match self {
            MissingReason::Refused => "refused",
            MissingReason::NotMedia => "not_media",
            MissingReason::TooLarge => "too_large",
            MissingReason::BadLink => "bad_link",
            MissingReason::Failed => "failed",
            MissingReason::Lost => "lost",
        }
    }
}

/// Returns the SHA-256 of length-prefixed texts, in lower-case hexadecimal.
pub(super) fn hash(texts: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text.as_bytes());
    }
    hexadecimal(context.finish().as_ref())
}

/// Returns bytes in lower-case hexadecimal.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
