//! The proof that an erasure was done: a file of JSON, and a row of `erasures` in each warehouse. It says what was
//! searched, found and removed, and when; nothing in it says of whom.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Serialize;

use super::{EraseError, journal::PurgeNote, verify::Verified};
use crate::{files, load::ErasureRecord, model::RunId};

/// What an erasure did.
#[derive(Clone, Debug, Serialize)]
pub struct Receipt {
    pub erasure_id: String,
    pub run_id: RunId,
    /// "service_and_local", "local_only" or "vanished".
    pub kind: &'static str,
    /// RFC 3339, by this machine.
    pub requested_at: String,
    /// RFC 3339, by this machine.
    pub finished_at: String,
    /// Identifiers that were named.
    pub people: usize,
    /// Identifiers that the erasure went by.
    pub identifiers: usize,
    /// Identifiers that were met and belong to others as well.
    pub not_followed: usize,
    /// Whether every lead was followed to its end.
    pub leads_are_complete: bool,
    pub(super) purge_requests: Vec<PurgeNote>,
    /// Names that the service does not have.
    pub unknown_to_the_service: u64,
    /// Whether it took none of the names, although they were held here: it may refuse such requests for another reason.
    pub service_refused_all: bool,
    /// What was asked of the service; null leaves it its own delay.
    pub delay_seconds: Option<u64>,
    /// From here on they are kept out of scans, replays and webhooks; by the service's clock.
    pub suppressed_from: Option<String>,
    /// Rows, records and files that were removed, by place.
    pub removed: BTreeMap<String, u64>,
    /// Files that were written anew while another name (a hard link) keeps their old bytes. Those are not searched.
    pub kept_under_other_names: usize,
    /// What was searched afterwards, and what was found.
    pub verified: Verified,
    /// Rows and pages of others in which the identifier was replaced.
    pub redacted: u64,
    /// "done" or "needs_a_look".
    pub outcome: &'static str,
    pub exit_code: u8,
    #[serde(skip)]
    pub(super) requested_ms: i64,
    #[serde(skip)]
    pub(super) finished_ms: i64,
    #[serde(skip)]
    pub(super) suppressed_from_ms: Option<i64>,
}

impl Receipt {
    /// The row of `erasures`.
    pub(super) fn record(&self) -> ErasureRecord {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        // These are maps and lists of texts and numbers: they always have a form in JSON.
        let json = |text: serde_json::Result<String>| text.unwrap_or_default();
        ErasureRecord {
            erasure_id: self.erasure_id.clone(),
            kind: self.kind.to_owned(),
            requested_ms: self.requested_ms,
            finished_ms: self.finished_ms,
            people: count(self.people),
            identifiers: count(self.identifiers),
            not_followed: count(self.not_followed),
            purge_requests: json(serde_json::to_string(&self.purge_requests)),
            delay_seconds: self.delay_seconds.and_then(|seconds| i64::try_from(seconds).ok()),
            suppressed_from_ms: self.suppressed_from_ms,
            removed: json(serde_json::to_string(&self.removed)),
            searched: json(serde_json::to_string(&self.verified)),
            mentions: i64::try_from(self.verified.mentions()).unwrap_or(i64::MAX),
            redacted: i64::try_from(self.redacted).unwrap_or(i64::MAX),
            outcome: self.outcome.to_owned(),
            service_checked_ms: None,
            service_users_checked: None,
            run_id: self.run_id.clone(),
        }
    }

    /// Writes the file, durably, and returns where it is.
    pub(super) fn write(&self, folder: &Path) -> Result<PathBuf, EraseError> {
        let path = folder.join(format!("{}.json", self.erasure_id));
        let text = serde_json::to_vec_pretty(self).map_err(|error| EraseError::io("write", &path)(error.into()))?;
        files::write_private(&path, &text).map_err(EraseError::io("write", &path))?;
        Ok(path)
    }
}
