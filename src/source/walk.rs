//! One window, page by page, up to the end of results (promise P3). Decides what an answer means for the window; how a page is
//! got is `fetch`'s business.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use reqwest::Url;

use super::{
    Inner,
    address::{self, Address},
    error::{Failure, SourceError},
    fetch::Fetched,
    guards::Guards,
    page_size::PageSize,
    wire::{Received, Rejection},
};
use crate::model::{EndStyle, PageRequest, PageToken};

/// One step of a walk.
#[derive(Debug)]
pub enum Step {
    /// A page.
    Page(Page),
    /// The window starts over from its first page: the caller discards its pages so far.
    Restarted {
        /// Why, for people.
        reason: String,
    },
    /// There is no further page. `NotFound`: the service answered 404, an empty and complete result.
    End(EndStyle),
}

/// One page of a window.
#[derive(Clone, Debug)]
pub struct Page {
    /// The exact body, decompressed: UTF-8, and an envelope that [`super::envelope::parse`] reads.
    pub body: Bytes,
    /// Items in its `data`.
    pub rows: usize,
    /// Where that list stands in the body, in bytes, if that is known.
    pub list: Option<Range<usize>>,
    /// Where to continue. `None`: this page carried the end.
    pub next: Option<PageToken>,
    /// How the end was said; present exactly when `next` is not.
    pub end: Option<EndStyle>,
    /// The page token that this page was asked for with.
    pub request_token: Option<PageToken>,
    /// The service's time when it sent this page, epoch milliseconds.
    pub service_now_ms: Option<i64>,
}

/// A window's pages, one by one. After an error the walk may be dropped, and resumed later from the last page's `next`.
#[derive(Debug)]
pub struct Walk {
    source: Arc<Inner>,
    /// With the page token of the page to come.
    request: PageRequest,
    size: PageSize,
    guards: Guards,
    end: Option<EndStyle>,
    address_of: AddressOf,
}

/// How the address of a page is made.
type AddressOf = fn(&Url, &PageRequest, Option<u32>) -> Address;

impl Walk {
    pub(super) fn new(source: Arc<Inner>, request: PageRequest) -> Self {
        Self::at(source, request, address::of_page)
    }

    /// The rows of one millisecond.
    pub(super) fn of_moment(source: Arc<Inner>, request: PageRequest) -> Self {
        Self::at(source, request, address::of_moment)
    }

    fn at(source: Arc<Inner>, request: PageRequest, address_of: AddressOf) -> Self {
        let size = PageSize::new(request.page_rows, request.scope.stream.page_rows_max());
        let guards = Guards::new(request.token.as_ref());
        Self { source, request, size, guards, end: None, address_of }
    }

    /// What comes next. After the last page this is `End`, as often as asked. Dropping the future loses nothing: the next
    /// call asks for the same page.
    pub async fn next(&mut self) -> Result<Step, SourceError> {
        if let Some(end) = self.end {
            return Ok(Step::End(end));
        }
        loop {
            let at = (self.address_of)(&self.source.base_url, &self.request, self.size.limit());
            let has_token = self.request.token.is_some();
            match self.source.fetch_page(&at, self.size.can_shrink(), has_token).await? {
                Fetched::Page(page) => return self.accept(page),
                Fetched::Rejected(rejection) => return self.rejected(rejection, at.shown).await,
                Fetched::Failed { last, attempts } => self.shrink_or_give_up(last, attempts, at.shown).await?,
            }
        }
    }

    /// The rows a page is asked for at the moment; 0 where the stream has no `limit`.
    pub fn page_rows(&self) -> u32 {
        self.size.limit().unwrap_or(0)
    }

    fn accept(&mut self, page: Received) -> Result<Step, SourceError> {
        let Received { body, envelope, service_now_ms, .. } = page;
        if let Err(cause) = self.guards.page(&envelope) {
            let reason = cause.to_string();
            self.guards.looped(cause)?;
            // A page full of rows of one millisecond leads to itself; the largest page has the best chance to get past.
            self.size.widen(self.request.scope.stream.page_rows_max());
            return Ok(self.restarted("a page token came twice", reason));
        }
        self.size.good_page();
        self.end = envelope.end;
        let request_token = std::mem::replace(&mut self.request.token, envelope.next.clone());
        Ok(Step::Page(Page {
            body,
            rows: envelope.rows,
            list: envelope.list,
            next: envelope.next,
            end: envelope.end,
            request_token,
            service_now_ms,
        }))
    }

    async fn rejected(&mut self, rejection: Rejection, url: String) -> Result<Step, SourceError> {
        if self.request.token.is_none() {
            // A web page with 404 comes from a wrong address, and proves nothing about the window.
            let is_none = rejection.status == 404 && !rejection.is_html;
            if is_none && self.source.is_list_there(self.request.scope.stream).await? {
                self.end = Some(EndStyle::NotFound);
                return Ok(Step::End(EndStyle::NotFound));
            }
            return Err(self.source.refused(rejection, url));
        }
        let Rejection { status, message, is_html, .. } = rejection;
        if status == 404 && !is_html {
            match self.guards.not_found(self.size.limit(), self.request.scope.stream.page_rows_max()) {
                Ok(()) => {
                    self.end = Some(EndStyle::NotFound);
                    return Ok(Step::End(EndStyle::NotFound));
                }
                Err(Some(smaller)) => self.size.fix(smaller),
                Err(None) => {}
            }
        }
        let cause = format!("status {status} on a page token");
        let reason = if message.is_empty() { cause.clone() } else { format!("{cause}: {message}") };
        self.guards.token_died(&reason)?;
        Ok(self.restarted(&cause, reason))
    }

    fn restarted(&mut self, cause: &str, reason: String) -> Step {
        // What the service said is for the caller to show; it does not belong in a log.
        tracing::warn!(scope = %self.request.scope, window = %self.request.window, cause, "the window starts over");
        self.request.token = None;
        Step::Restarted { reason }
    }

    /// A page did not come: asks for smaller ones from here on, or says which error it is.
    async fn shrink_or_give_up(&mut self, last: Failure, attempts: u32, url: String) -> Result<(), SourceError> {
        if !last.may_be_size() {
            return Err(last.give_up(url, attempts));
        }
        let rows = self.page_rows();
        if self.size.shrink() {
            tracing::info!(scope = %self.request.scope, rows, smaller = self.page_rows(), failure = last.kind(), "asking for smaller pages");
            return Ok(());
        }
        // A service that answers nothing at all is down; one that answers a small question finds this one too large.
        let is_down = !matches!(last, Failure::BodyTooLarge { .. })
            && !self.source.answers_a_small_question(&self.request).await?;
        Err(match is_down {
            true => last.give_up(url, attempts),
            false => SourceError::TooLarge { url, page_rows: rows, last },
        })
    }
}
