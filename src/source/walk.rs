//! One window, page by page, up to the end of results (promise P3). Decides what an answer means for the window; how a page is
//! got is `fetch`'s business.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use reqwest::Url;
use tokio::time::Instant;

use super::{
    address::{self, Address},
    error::{Failure, SourceError},
    fetch::Fetched,
    guards::{Guards, NotFound},
    inner::Inner,
    page_size::PageSize,
    wire::{Received, Rejection},
};
use crate::model::{EndStyle, PageRequest, PageToken};

/// An older page token may have died of its age, whatever others lived.
const FRESH: Duration = Duration::from_secs(10);

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
    /// The page token was answered with 404: the end of the list, or a token that died. The caller finds out and says so with
    /// [`Walk::settle_end`].
    Unproven,
}

/// One page of a window.
#[derive(Clone, Debug)]
pub struct Page {
    /// The exact body, decompressed: UTF-8, and an envelope that [`super::envelope::parse`] reads.
    pub body: Bytes,
    /// Items in its `data`.
    pub rows: usize,
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
    /// Whether the service answers the least that can be asked of this list: then what does not come is a matter of its rows.
    is_answering: bool,
    /// When the page token came.
    token_at: Instant,
    /// The age at which this page token was first answered with 404.
    not_found_at: Option<Duration>,
    is_end_denied: bool,
    is_of_moment: bool,
    address_of: AddressOf,
}

/// How the address of a page is made.
type AddressOf = fn(&Url, &PageRequest, Option<u32>) -> Address;

impl Walk {
    pub(super) fn new(source: Arc<Inner>, request: PageRequest) -> Self {
        Self::at(source, request, address::of_page, false)
    }

    /// The rows of one millisecond.
    pub(super) fn of_moment(source: Arc<Inner>, request: PageRequest) -> Self {
        Self::at(source, request, address::of_moment, true)
    }

    fn at(source: Arc<Inner>, request: PageRequest, address_of: AddressOf, is_of_moment: bool) -> Self {
        let size = PageSize::new(request.page_rows, request.scope.stream.page_rows_max());
        let guards = Guards::new(request.token.as_ref());
        Self {
            source,
            request,
            size,
            guards,
            end: None,
            is_answering: false,
            token_at: Instant::now(),
            not_found_at: None,
            is_end_denied: false,
            is_of_moment,
            address_of,
        }
    }

    /// For a part of a window that did not come: asks for it in pages of the usual size, then of the smallest, and not for long.
    #[must_use]
    pub fn part_of_a_failed_window(mut self) -> Self {
        self.size.steep();
        self
    }

    /// What comes next. After the last page this is `End`, as often as asked. Dropping the future loses nothing: the next
    /// call asks for the same page.
    pub async fn next(&mut self) -> Result<Step, SourceError> {
        if let Some(end) = self.end {
            return Ok(Step::End(end));
        }
        if std::mem::take(&mut self.is_end_denied) {
            let reason = "status 404 on a page token that was not the last";
            self.guards.end_denied(reason)?;
            return Ok(self.restarted(reason, reason.to_owned()));
        }
        loop {
            let at = (self.address_of)(&self.source.base_url, &self.request, self.size.limit());
            let at = self.source.listed_at(self.request.scope.stream, at);
            let has_token = self.request.token.is_some();
            match self.source.fetch_page(&at, self.can_be_smaller(), has_token).await? {
                Fetched::Page(page) => return self.accept(page),
                Fetched::Rejected(rejection) => {
                    if let Some(step) = self.rejected(rejection, at.shown).await? {
                        return Ok(step);
                    }
                }
                Fetched::Failed { last, attempts } => self.shrink_or_give_up(last, attempts, at.shown).await?,
            }
        }
    }

    /// Says whether the list ended where a page token was answered with 404.
    pub fn settle_end(&mut self, is_end: bool) {
        if is_end {
            self.end = Some(EndStyle::NotFound);
        } else {
            self.is_end_denied = true;
        }
    }

    /// Whether the page token that was answered with 404 at this age is young, and others that stood deeper in a list, and were as old, lived.
    fn is_token_alive(&self, age: Duration) -> bool {
        // Rows of one moment may stand behind its last page: only pages of another size tell.
        if self.is_of_moment && self.size.limit().is_some() {
            return false;
        }
        let has_lived = |pages| self.source.token_lives.has_lived(self.request.scope.stream, pages, age);
        age < FRESH && self.guards.pages_from_start().is_some_and(has_lived)
    }

    /// The rows a page is asked for at the moment; 0 where the stream has no `limit`.
    pub fn page_rows(&self) -> u32 {
        self.size.limit().unwrap_or(0)
    }

    /// Whether a page that does not come can be asked for otherwise.
    fn can_be_smaller(&self) -> bool {
        self.size.can_shrink() || self.size.is_steep()
    }

    fn accept(&mut self, page: Received) -> Result<Step, SourceError> {
        let Received { body, envelope, service_now_ms, .. } = page;
        if let Err(cause) = self.guards.page(&envelope) {
            let reason = cause.to_string();
            self.guards.looped(cause)?;
            // A page full of rows of one millisecond leads to itself; the largest page has the best rng to get past.
            self.size.widen(self.request.scope.stream.page_rows_max());
            return Ok(self.restarted("a page token came twice", reason));
        }
        self.size.good_page();
        let age = self.request.token.is_some().then(|| self.token_at.elapsed());
        (self.token_at, self.not_found_at) = (Instant::now(), None);
        if let Some(pages) = self.guards.pages_from_start() {
            self.source.token_lives.came(self.request.scope.stream, pages, age);
        }
        self.end = envelope.end;
        let request_token = std::mem::replace(&mut self.request.token, envelope.next.clone());
        Ok(Step::Page(Page {
            body,
            rows: envelope.rows,
            next: envelope.next,
            end: envelope.end,
            request_token,
            service_now_ms,
        }))
    }

    /// `None`: the same is asked for again.
    async fn rejected(&mut self, rejection: Rejection, url: String) -> Result<Option<Step>, SourceError> {
        if self.request.token.is_none() {
            // A web page with 404 comes from a wrong address, and proves nothing about the window.
            let is_none = rejection.status == 404 && !rejection.is_html;
            if is_none && self.source.is_list_there(self.request.scope.stream).await? {
                self.end = Some(EndStyle::NotFound);
                return Ok(self.end.map(Step::End));
            }
            return Err(self.source.refused(rejection, url));
        }
        let Rejection { status, message, is_html, .. } = rejection;
        if status == 404 && !is_html {
            let was_not_found = self.not_found_at.is_some();
            let age = *self.not_found_at.get_or_insert_with(|| self.token_at.elapsed());
            if self.is_token_alive(age) {
                // Tokens that die at random are answered when they are asked for again.
                if !was_not_found {
                    return Ok(None);
                }
                self.end = Some(EndStyle::NotFound);
                return Ok(self.end.map(Step::End));
            }
            let rows_max = self.request.scope.stream.page_rows_max();
            match self.guards.not_found(self.size.limit(), rows_max, !self.is_of_moment) {
                NotFound::End => {
                    self.end = Some(EndStyle::NotFound);
                    return Ok(self.end.map(Step::End));
                }
                NotFound::Unproven => return Ok(Some(Step::Unproven)),
                NotFound::Again(smaller) => smaller.into_iter().for_each(|rows| self.size.fix(rows)),
            }
        }
        let cause = format!("status {status} on a page token");
        let reason = if message.is_empty() { cause.clone() } else { format!("{cause}: {message}") };
        self.guards.token_died(&reason)?;
        Ok(Some(self.restarted(&cause, reason)))
    }

    fn restarted(&mut self, cause: &str, reason: String) -> Step {
        // What the service said is for the caller to show; it does not belong in a log.
        tracing::warn!(scope = %self.request.scope, window = %self.request.window, cause, "the window starts over");
        self.request.token = None;
        self.not_found_at = None;
        Step::Restarted { reason }
    }

    /// A page did not come: asks for smaller ones from here on, or says which error it is.
    async fn shrink_or_give_up(&mut self, last: Failure, attempts: u32, url: String) -> Result<(), SourceError> {
        if !last.may_be_size() && !last.may_be_a_record() {
            return Err(last.give_up(url, attempts));
        }
        // What is no page comes perhaps from something else than the service: then no smaller one is a page either.
        if last.may_be_a_record() && !self.is_answering(&last).await? {
            return Err(last.give_up(url, attempts));
        }
        let rows = self.page_rows();
        if self.size.shrink() {
            tracing::info!(scope = %self.request.scope, rows, smaller = self.page_rows(), failure = last.kind(), "asking for smaller pages");
            return Ok(());
        }
        // A service that answers nothing at all is down; one that answers a small question finds this one too large.
        Err(match self.is_answering(&last).await? {
            false => last.give_up(url, attempts),
            true => SourceError::TooLarge { url, page_rows: rows, last },
        })
    }

    async fn is_answering(&mut self, last: &Failure) -> Result<bool, SourceError> {
        self.is_answering = self.is_answering
            || matches!(last, Failure::BodyTooLarge { .. })
            || self.source.answers_a_small_question(&self.request).await?;
        Ok(self.is_answering)
    }
}
