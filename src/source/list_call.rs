//! Sends a single list call, to measure how the service behaves. The call passes the gate and is retried as in a walk.
//! The caller interprets the answer.

use super::{
    address::{self, Address},
    error::{Failure, SourceError},
    fetch::FetchOutcome,
    inner::Inner,
    page_memory::PageShape,
    walk::Page,
};
use crate::model::PageRequest;

/// The values of `start` and `end` in a list call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// The request's window, with the margin that a walk adds. Streams that are not windowed are requested without
    /// bounds.
    Window,
    /// The request's window with the same margin, for every stream.
    Part,
    /// As `Part`, for a window of one millisecond. The call counts in [`super::RequestStats::ties_probed`].
    Moment,
    /// Exactly the window's start and end, for every stream: measures whether the service includes them.
    Exactly,
}

/// The result of one list call.
#[derive(Debug)]
pub enum Answer {
    /// A page.
    Page {
        page: Page,
        /// Milliseconds from sending the request to the last byte of the answer, without waits at the gate.
        latency_ms: u64,
    },
    /// A 4xx about this request. `is_web_page`: the answer came from a proxy, not from the service.
    Rejected { status: u16, is_web_page: bool },
    /// All attempts failed.
    Failed(Failure),
}

/// Sends one list call. A 401 or 403 on a request without page token is an error; every other result is an [`Answer`].
pub(super) async fn ask(source: &Inner, request: &PageRequest, range: Range) -> Result<Answer, SourceError> {
    let rows_max = request.scope.stream.page_rows_max();
    let rows = rows_max.map(|max| request.page_rows.clamp(1, max));
    let address = match range {
        Range::Window => address::of_page(&source.base_url, request, rows),
        Range::Part => Address { is_tie_probe: false, ..address::of_moment(&source.base_url, request, rows) },
        Range::Moment => address::of_moment(&source.base_url, request, rows),
        Range::Exactly => address::of_exactly(&source.base_url, request, rows),
    };
    let address = source.listed_at(request.scope.stream, address);
    let shown = address.shown.clone();
    let shape = PageShape { stream: request.scope.stream, rows: rows.unwrap_or(1), is_fixed: true, last_row_bytes: 0 };
    let (fetched, memory) = source.fetch_list(address, shape, true, request.token.is_some()).await?;
    Ok(match fetched {
        FetchOutcome::Page(page) => {
            let latency_ms = u64::try_from(page.latency.as_millis()).unwrap_or(u64::MAX);
            let page = Page {
                rows: page.envelope.rows,
                next: page.envelope.next,
                end: page.envelope.end,
                body: page.body,
                memory: Some(memory),
                request_token: request.token.clone(),
                service_now_ms: page.service_now_ms,
            };
            Answer::Page { page, latency_ms }
        }
        FetchOutcome::Rejected(rejection) if rejection.is_about_key() && request.token.is_none() => {
            return Err(source.rejection_error(rejection, shown));
        }
        FetchOutcome::Rejected(rejection) => {
            Answer::Rejected { status: rejection.status, is_web_page: rejection.is_html }
        }
        FetchOutcome::Failed { last, .. } => Answer::Failed(last),
    })
}
