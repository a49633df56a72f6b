//! Sends a single list call, to measure how the service behaves. The call passes the gate and is retried as in a walk.
//! The caller interprets the answer.

use super::{
    address::{self, Call},
    error::{Failure, SourceError, Trouble},
    page_memory::PageShape,
    service::Source,
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

impl Source {
    /// Sends one list call without the guards of a walk; the caller interprets the answer. `range` chooses `start` and
    /// `end`. A 401 or 403 on a request without page token is an error; every other result is an [`Answer`].
    pub async fn ask(&self, request: &PageRequest, range: Range) -> Result<Answer, SourceError> {
        let (base_url, stream) = (&self.inner.base_url, request.scope.stream);
        let rows = stream.page_rows_max().map(|max| request.page_rows.clamp(1, max));
        let call = match range {
            Range::Window => address::of_page(base_url, request, rows),
            Range::Part => Call { is_tie_probe: false, ..address::of_moment(base_url, request, rows) },
            Range::Moment => address::of_moment(base_url, request, rows),
            Range::Exactly => address::of_exactly(base_url, request, rows),
        };
        let call = self.listed_at(stream, call);
        let url = call.shown.clone();
        let shape = PageShape { stream, rows: rows.unwrap_or(1), is_fixed: true, last_row_bytes: 0 };
        match self.fetch_list(call, shape, true).await {
            Ok((received, memory)) => {
                let latency_ms = u64::try_from(received.latency.as_millis()).unwrap_or(u64::MAX);
                Ok(Answer::Page { page: Page::new(received, memory, request.token.clone()), latency_ms })
            }
            Err(Trouble::Rejected(rejection)) if !rejection.is_about_key() || request.token.is_some() => {
                Ok(Answer::Rejected { status: rejection.status, is_web_page: rejection.is_html })
            }
            Err(Trouble::Failed { last, .. }) => Ok(Answer::Failed(last)),
            Err(trouble) => Err(trouble.into_error(url)),
        }
    }
}
