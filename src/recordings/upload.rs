//! Uploads, and what is noted of them.

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use crate::model::{Identifier, IdentifierKind};

/// Names an upload: the recording of one answer. An answer that is recorded anew has another upload.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UploadKey {
    /// As [`Identifier`] compares it.
    pub(super) session: String,
    /// As the service wrote it.
    response_group_uid: String,
    question_id: i64,
    /// Where the service names none, its link without what is signed.
    upload: String,
}

impl UploadKey {
    /// The upload of an answer. `None` for an answer whose session is no identifier:
    /// an erasure would not find its recording.
    pub fn of(response_group_uid: &str, question_id: i64, upload_id: Option<&str>, link: &str) -> Option<UploadKey> {
        let session = Identifier::read(IdentifierKind::Session, response_group_uid)?.value;
        let unsigned = || format!("link {}", link.split(['?', '#']).next().unwrap_or_default());
        let upload = upload_id.filter(|id| !id.is_empty()).map_or_else(unsigned, |id| format!("upload {id}"));
        Some(UploadKey { session, response_group_uid: response_group_uid.to_owned(), question_id, upload })
    }

    /// The name of its files, without what follows it.
    pub(super) fn name(&self) -> String {
        let mut name = hash(&[&self.response_group_uid, &self.question_id.to_string(), &self.upload]);
        // Shorter than the name of a recording, so that no upload has the name of one.
        name.truncate(32);
        name
    }
}

/// What became of an upload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Upload {
    /// It is here.
    Stored(Recording),
    /// It is not.
    Missing(Missing),
}

/// A recording that is here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// Of its content, in lower-case hexadecimal: also its name.
    pub sha256: String,
    pub bytes: u64,
    /// The media type that came with it, such as `video/mp4`.
    pub media_type: Option<String>,
    /// When its last byte came, epoch milliseconds.
    pub fetched_ms: i64,
}

/// Why a recording is not here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub reason: Reason,
    /// How often it was asked for in vain, each time by a fresh link.
    pub attempts: u32,
    /// The last time, epoch milliseconds.
    pub asked_ms: i64,
    /// The limit that it is larger than, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}

/// Why a recording is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A fresh link was refused (401, 403, 404, 410 and other 4xx).
    Refused,
    /// What came was no recording: a web page, JSON, nothing.
    NotMedia,
    /// It is larger than `file_limit_mb`.
    TooLarge,
    /// The link is none that may be followed: not https.
    BadLink,
    /// Its host failed, or sent something else than it said:
    /// the next run tries again, after those that were not tried yet.
    Failed,
}

impl Reason {
    /// The word in `recording_status`.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Refused => "refused",
            Reason::NotMedia => "not_media",
            Reason::TooLarge => "too_large",
            Reason::BadLink => "bad_link",
            Reason::Failed => "failed",
        }
    }
}

/// The SHA-256 of some texts, each with its length, in lower-case hexadecimal.
pub(super) fn hash(texts: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    for text in texts {
        context.update(&(text.len() as u64).to_le_bytes());
        context.update(text.as_bytes());
    }
    hexadecimal(context.finish().as_ref())
}

/// Bytes in lower-case hexadecimal.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
