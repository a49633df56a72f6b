//! A fresh link to a recording: the service is asked for the answers of its moment.

use arrow::{
    array::{Array as _, AsArray as _},
    datatypes::Int64Type,
};

use super::wishes::STREAM;
use crate::{
    flatten::flatten_page,
    load::WantedRecording,
    model::{DriftRules, FlagSet, FlatPage, PageRequest, Scope, Window},
    source::{Answer, Range, Source, SourceError, Stop},
};

/// The most pages of answers of one moment that are looked at.
const PAGES_MAX: usize = 20;

/// What the service hands out now.
pub(super) enum Fresh {
    Link(String),
    /// It lists no such answer.
    None,
    /// The answer was deleted.
    Gone,
    /// It does not say so for now.
    Unknown(String),
}

/// The link that the service hands out now. An error: the run is to end.
pub(super) async fn fresh_link(source: &Source, flags: FlagSet, wanted: &WantedRecording) -> Result<Fresh, Stop> {
    let at_ms = wanted.created_us.div_euclid(1000);
    let page_rows = STREAM.page_rows_max().unwrap_or(0);
    let window = Window::new(at_ms, at_ms.saturating_add(1));
    let mut request = PageRequest { scope: Scope::all(STREAM), window, flags, page_rows, token: None };
    for _ in 0..PAGES_MAX {
        let page = match source.ask(&request, Range::Window).await {
            Ok(Answer::Page { page, .. }) => page,
            Err(SourceError::Stopped(stop)) => return Err(stop),
            Ok(Answer::Rejected { status: 404, is_web_page: false }) => return Ok(Fresh::None),
            Ok(Answer::Rejected { status, .. }) => {
                return Ok(Fresh::Unknown(format!("status {status} for a fresh link")));
            }
            Ok(Answer::Failed(failure)) => return Ok(Fresh::Unknown(failure.to_string())),
            Err(error) => return Ok(Fresh::Unknown(error.to_string())),
        };
        if let Some(found) = link_on(&page.body, wanted) {
            return Ok(found);
        }
        request.token = page.next;
        if request.token.is_none() {
            break;
        }
    }
    Ok(Fresh::None)
}

/// What the page says of the recording, if it is there.
fn link_on(body: &[u8], wanted: &WantedRecording) -> Option<Fresh> {
    let flat = flatten_page(STREAM, body, DriftRules::default()).ok()?;
    if is_deleted_on(&flat, wanted) == Some(true) {
        return Some(Fresh::Gone);
    }
    let media = flat.table("response_media")?;
    let text = |name: &str| media.column_by_name(name).and_then(|column| column.as_string_opt::<i32>());
    let (sessions, uploads, links) = (text("response_group_uid")?, text("upload_id")?, text("download_url")?);
    let questions = media.column_by_name("question_id")?.as_primitive_opt::<Int64Type>()?;
    let is_it = |at: &usize| {
        let upload = uploads.is_valid(*at).then(|| uploads.value(*at));
        sessions.value(*at) == wanted.response_group_uid
            && questions.value(*at) == wanted.question_id
            && upload == wanted.upload_id.as_deref()
            && links.is_valid(*at)
    };
    (0..media.num_rows()).find(is_it).map(|at| Fresh::Link(links.value(at).to_owned()))
}

/// Whether the answer is on the page, and deleted.
fn is_deleted_on(flat: &FlatPage, wanted: &WantedRecording) -> Option<bool> {
    let answers = flat.table(STREAM.name())?;
    let sessions = answers.column_by_name("response_group_uid")?.as_string_opt::<i32>()?;
    let questions = answers.column_by_name("question_id")?.as_primitive_opt::<Int64Type>()?;
    let deleted = answers.column_by_name("deleted_at")?;
    let is_it =
        |at: &usize| sessions.value(*at) == wanted.response_group_uid && questions.value(*at) == wanted.question_id;
    (0..answers.num_rows()).find(is_it).map(|at| deleted.is_valid(at))
}
