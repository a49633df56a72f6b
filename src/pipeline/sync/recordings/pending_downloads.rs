//! Recordings whose rows do not have the outcome of the download yet, and the outcome to write into these rows.
//!
//! Requests a fresh link to a recording: reads from the service the answers that were created at the same time.

use std::collections::HashMap;

use arrow::{
    array::{Array as _, AsArray as _},
    datatypes::Int64Type,
};

use crate::{
    flatten::flatten_page,
    load::{RecordingOutcome, StoredRecording, WantedRecording, WantedRecordings},
    model::{DriftRules, FlagSet, FlatPage, PageRequest, Scope, Stream, Window},
    recordings::{Recordings, UploadKey, UploadOutcome},
    source::{Answer, Range, Source, SourceError, Stop},
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

/// The maximum number of pages that are read of the answers of one millisecond.
const PAGES_MAX: usize = 20;

/// The service's answer to a request for a fresh link.
pub(super) enum FreshLink {
    Link(String),
    /// The service does not list the answer at its creation time.
    NotListed,
    /// The answer was deleted.
    Deleted,
    /// The request failed, for this reason.
    Unknown(String),
}

/// Requests a fresh link to a recording. A failed request leads to `Unknown`.
///
/// # Errors
/// If the run has to stop.
pub(super) async fn fresh_link(source: &Source, flags: FlagSet, wanted: &WantedRecording) -> Result<FreshLink, Stop> {
    let at_ms = wanted.created_us.div_euclid(1000);
    let page_rows = STREAM.page_rows_max().unwrap_or(0);
    let window = Window::new(at_ms, at_ms.saturating_add(1));
    let mut request = PageRequest { scope: Scope::all(STREAM), window, flags, page_rows, token: None };
    for _ in 0..PAGES_MAX {
        let page = match source.ask(&request, Range::Window).await {
            Ok(Answer::Page(page)) => page,
            Err(SourceError::Stopped(stop)) => return Err(stop),
            Ok(Answer::Rejected { status: 404, is_web_page: false }) => return Ok(FreshLink::NotListed),
            Ok(Answer::Rejected { status, .. }) => {
                return Ok(FreshLink::Unknown(format!("status {status} for a fresh link")));
            }
            Ok(Answer::Failed(failure)) => return Ok(FreshLink::Unknown(failure.to_string())),
            Err(error) => return Ok(FreshLink::Unknown(error.to_string())),
        };
        if let Some(found) = link_on(&page.body, wanted) {
            return Ok(found);
        }
        request.token = page.next;
        if request.token.is_none() {
            break;
        }
    }
    Ok(FreshLink::NotListed)
}

/// Returns the link to a recording on a page of answers, or `Deleted` if the answer was deleted. Returns `None` if the
/// page cannot be parsed or lacks the answer, or if the answer has no link.
fn link_on(body: &[u8], wanted: &WantedRecording) -> Option<FreshLink> {
    let flat = flatten_page(STREAM, body, DriftRules::default()).ok()?;
    if is_deleted_on(&flat, wanted) == Some(true) {
        return Some(FreshLink::Deleted);
    }
    let media = flat.table("response_media")?;
    let text = |name: &str| media.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    let (sessions, uploads, links) = (text("response_group_uid")?, text("upload_id")?, text("download_url")?);
    let questions = media.column_by_name("question_id")?.as_primitive_opt::<Int64Type>()?;
    let is_wanted = |row: &usize| {
        let upload = uploads.is_valid(*row).then(|| uploads.value(*row));
        sessions.value(*row) == wanted.response_group_uid
            && questions.value(*row) == wanted.question_id
            && upload == wanted.upload_id.as_deref()
            && links.is_valid(*row)
    };
    (0..media.num_rows()).find(is_wanted).map(|row| FreshLink::Link(links.value(row).to_owned()))
}

/// Returns true if the answer on the page is deleted. Returns `None` if the page lacks the answer.
fn is_deleted_on(flat: &FlatPage, wanted: &WantedRecording) -> Option<bool> {
    let answers = flat.table(STREAM.name())?;
    let sessions = answers.column_by_name("response_group_uid")?.as_string_opt::<i32>()?;
    let questions = answers.column_by_name("question_id")?.as_primitive_opt::<Int64Type>()?;
    let deleted = answers.column_by_name("deleted_at")?;
    let is_wanted =
        |row: &usize| sessions.value(*row) == wanted.response_group_uid && questions.value(*row) == wanted.question_id;
    (0..answers.num_rows()).find(is_wanted).map(|row| deleted.is_valid(row))
}
