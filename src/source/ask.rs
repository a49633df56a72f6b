//! One list call for its own sake: to measure how the service behaves. It goes through the same gate and is repeated by
//! the same rules as a page of a walk; what the answer means is the caller's to say.

use super::{
    address::{self, Address},
    error::{Failure, SourceError},
    fetch::Fetched,
    inner::Inner,
    walk::Page,
};
use crate::model::PageRequest;

/// What goes into `start` and `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// The request's window, a millisecond wider on either side, as a walk asks for it.
    Window,
    /// The same, also where the stream is else read whole.
    Part,
    /// The same, for the rows of a millisecond; counted in [`super::RequestStats::ties_probed`].
    Moment,
    /// The window's start and end exactly as they are, to learn whether the service includes them;
    /// also where the stream is else read whole.
    Exactly,
}

/// What came of one list call.
#[derive(Debug)]
pub enum Answer {
    /// A page.
    Page {
        page: Page,
        /// From sending the request to the last byte of the answer, without waits before it.
        latency_ms: u64,
    },
    /// A 4xx that says something about the request. `is_web_page`: it did not come from the service.
    Rejected { status: u16, is_web_page: bool },
    /// It did not come, however often it was asked for.
    Failed(Failure),
}

pub(super) async fn ask(source: &Inner, request: &PageRequest, range: Range) -> Result<Answer, SourceError> {
    let rows_max = request.scope.stream.page_rows_max();
    let rows = rows_max.map(|max| request.page_rows.clamp(1, max));
    let at = match range {
        Range::Window => address::of_page(&source.base_url, request, rows),
        Range::Part => Address { is_about_ties: false, ..address::of_moment(&source.base_url, request, rows) },
        Range::Moment => address::of_moment(&source.base_url, request, rows),
        Range::Exactly => address::of_exactly(&source.base_url, request, rows),
    };
    let at = source.listed_at(request.scope.stream, at);
    Ok(match source.fetch_page(&at, true, request.token.is_some()).await? {
        Fetched::Page(came) => {
            let latency_ms = u64::try_from(came.latency.as_millis()).unwrap_or(u64::MAX);
            let page = Page {
                rows: came.envelope.rows,
                next: came.envelope.next,
                end: came.envelope.end,
                body: came.body,
                request_token: request.token.clone(),
                service_now_ms: came.service_now_ms,
            };
            Answer::Page { page, latency_ms }
        }
        Fetched::Rejected(no) if no.is_about_key() && request.token.is_none() => {
            return Err(source.refused(no, at.shown));
        }
        Fetched::Rejected(no) => Answer::Rejected { status: no.status, is_web_page: no.is_html },
        Fetched::Failed { last, .. } => Answer::Failed(last),
    })
}
