//! A list of a few rows, read to its end.

use crate::{
    model::{EndStyle, PageRequest, Window},
    source::{Answer, Range},
};

use super::super::ties::{Asker, TieProbeError, moments_of};

/// The most pages of a small list.
const PAGES_MAX: usize = 4;

/// What came of it.
pub(super) struct Small {
    /// Whether the row that was looked for is in it.
    pub has_row: bool,
    pub rows: usize,
    /// `None` if it did not come to one.
    pub end: Option<EndStyle>,
    /// Whether its last page held nothing, and was not its first.
    pub is_trailing: bool,
}

/// How small lists are asked for.
pub(super) struct SmallLists<'a> {
    pub asker: &'a Asker,
    /// Rows of a page, as many as come in time.
    pub page_rows: u32,
    /// The hash of the key of the row that is looked for.
    pub key: u128,
}

impl SmallLists<'_> {
    /// The list of a window of a few milliseconds, and whether the row is in it.
    pub async fn ask(&self, window: Window, range: Range) -> Result<Small, TieProbeError> {
        let Self { asker, key, .. } = self;
        let page_rows = asker.scope.stream.page_rows_max().map_or(0, |max| max.min(self.page_rows));
        let mut request = PageRequest { scope: asker.scope, window, flags: asker.flags, page_rows, token: None };
        let mut small = Small { has_row: false, rows: 0, end: None, is_trailing: false };
        for page_at in 0..PAGES_MAX {
            match asker.source.ask(&request, range).await.map_err(TieProbeError::Source)? {
                Answer::Page { page, .. } => {
                    let flat = asker.flatten(page.body).await?;
                    let moments = moments_of(asker.scope.stream, &flat);
                    small.has_row |= moments.rows.iter().any(|(_, other)| other == key);
                    small.rows += page.rows;
                    small.is_trailing = page_at > 0 && page.rows == 0;
                    small.end = page.end;
                    request.token = page.next;
                    if request.token.is_none() {
                        break;
                    }
                }
                Answer::Rejected { status: 404, is_web_page: false } => {
                    (small.end, small.is_trailing) = (Some(EndStyle::NotFound), page_at > 0);
                    break;
                }
                Answer::Rejected { .. } | Answer::Failed(_) => break,
            }
        }
        Ok(small)
    }
}
