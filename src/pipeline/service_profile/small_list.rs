//! Reads a list of a few rows to its end.

use crate::{
    model::{EndStyle, PageRequest, Window},
    source::{Answer, Range},
};

use super::super::{
    PipelineError,
    ties::{MomentRequester, moments_of},
};

/// The maximum number of pages that are read of a small list.
const PAGES_MAX: usize = 4;

/// A list of a few rows.
pub(super) struct SmallList {
    /// True if the list has the row of the reader's key.
    pub has_row: bool,
    /// Number of rows on the pages that were read.
    pub rows: usize,
    /// How the service marked the end of the list. `None` if the end was not reached.
    pub end: Option<EndStyle>,
    /// True if an empty page or a 404 follows the first page.
    pub has_trailing_empty_page: bool,
}

/// Reads lists of a few rows, and looks for one row in them.
pub(super) struct SmallListReader<'a> {
    pub requester: &'a MomentRequester,
    /// The page size of requests, for streams with page sizes.
    pub page_rows: u32,
    /// The key hash of the row to look for.
    pub key: u128,
}

impl SmallListReader<'_> {
    /// Reads the list of a window of a few milliseconds, at most [`PAGES_MAX`] pages. `range` says how exactly the
    /// client requests the ends of the window. If a request fails, returns the list so far, without an end.
    pub async fn read(&self, window: Window, range: Range) -> Result<SmallList, PipelineError> {
        let Self { requester, key, .. } = self;
        let page_rows = requester.scope.stream.page_rows_max().map_or(0, |max| max.min(self.page_rows));
        let mut request =
            PageRequest { scope: requester.scope, window, flags: requester.flags, page_rows, token: None };
        let mut list = SmallList { has_row: false, rows: 0, end: None, has_trailing_empty_page: false };
        for page_index in 0..PAGES_MAX {
            match requester.source.ask(&request, range).await? {
                Answer::Page(page) => {
                    let flat = requester.flatten(page.body).await?;
                    let moments = moments_of(requester.scope.stream, &flat);
                    list.has_row |= moments.rows.iter().any(|(_, other)| other == key);
                    list.rows += page.rows;
                    list.has_trailing_empty_page = page_index > 0 && page.rows == 0;
                    list.end = page.end;
                    request.token = page.next;
                    if request.token.is_none() {
                        break;
                    }
                }
                Answer::Rejected { status: 404, is_web_page: false } => {
                    (list.end, list.has_trailing_empty_page) = (Some(EndStyle::NotFound), page_index > 0);
                    break;
                }
                Answer::Rejected { .. } | Answer::Failed(_) => break,
            }
        }
        Ok(list)
    }
}
