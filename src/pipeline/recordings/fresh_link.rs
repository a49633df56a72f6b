//! Requests a fresh link to a recording: reads from the service the answers that were created at the same time.

use arrow::{
    array::{Array as _, AsArray as _},
    datatypes::Int64Type,
};

use super::pending_downloads::STREAM;
use crate::{
    flatten::flatten_page,
    load::WantedRecording,
    model::{DriftRules, FlagSet, FlatPage, PageRequest, Scope, Window},
    source::{Answer, Range, Source, SourceError, Stop},
};

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
