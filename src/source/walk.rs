//! Reads one window page by page up to the end of the list (promise P3). This module decides what each answer means for
//! the window; `fetch` retries single pages. Sends single list calls too, whose answers the caller interprets.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    address::Range,
    envelope::Envelope,
    error::{Failure, Rejection, SourceError, Trouble},
    guards::{Guards, NotFoundMeaning},
    lists::LastPage,
    page_memory::{PageReservation, PageShape, PageSize},
    service::Source,
    wire::Received,
};
use crate::model::{EndStyle, PageRequest, PageToken};

/// Maximum age at which a page token may count as alive because older tokens of the run were answered.
const FRESH: Duration = Duration::from_secs(10);

/// One step of a walk.
#[derive(Debug)]
pub enum WalkStep {
    /// A page.
    Page(Page),
    /// The window restarts at its first page: the caller discards the pages so far.
    Restarted {
        /// The reason, for people.
        reason: String,
    },
    /// The list has ended. `NotFound`: the service answered 404, which stands for an empty list, or for an empty page
    /// after the last one.
    End(EndStyle),
    /// A 404 on a page token: either the list has ended, or the service has forgotten the token. The caller finds out
    /// which, for example by reading halves of the window, and calls [`Walk::resolve_end`].
    UnprovenEnd,
}

/// The result of one list call.
#[derive(Debug)]
pub enum Answer {
    /// A page.
    Page(Page),
    /// A 4xx about this request. `is_web_page`: the answer came from a proxy, not from the service.
    Rejected { status: u16, is_web_page: bool },
    /// All attempts failed.
    Failed(Failure),
}

/// One page of a window.
#[derive(Debug)]
pub struct Page {
    /// The exact decompressed body: UTF-8 with an envelope that [`super::envelope::parse`] accepts.
    pub body: Bytes,
    /// The memory that the body and its rows take, until it is dropped. A task that waits for another page while it
    /// keeps this one's memory may wait for ever.
    pub memory: Option<PageReservation>,
    /// Number of items in the page's `data`.
    pub rows: usize,
    /// The next page token; `None` on the last page.
    pub next: Option<PageToken>,
    /// The form in which the page marks the end of the list; `None` if `next` is a token.
    pub end: Option<EndStyle>,
    /// The page token in the request for this page; `None` for the first page of the window.
    pub request_token: Option<PageToken>,
    /// The service's time when it sent this page, in epoch milliseconds; `None` if the answer had no `Date`.
    pub service_now_ms: Option<i64>,
    /// Milliseconds from sending the request to the last byte of the answer, without waits at the gate.
    pub latency_ms: u64,
}

impl Page {
    pub(super) fn new(received: Received, memory: PageReservation, request_token: Option<PageToken>) -> Self {
        let Received { body, envelope, service_now_ms, latency_ms, .. } = received;
        let Envelope { rows, next, end, .. } = envelope;
        Page { body, memory: Some(memory), rows, next, end, request_token, service_now_ms, latency_ms }
    }
}

/// Reads the pages of one window. After an error, a new walk can resume with the `next` of the last page.
#[derive(Debug)]
pub struct Walk {
    source: Source,
    /// The request for the next page.
    request: PageRequest,
    size: PageSize,
    guards: Guards,
    /// The form in which the list ended; `None` before its end.
    end: Option<EndStyle>,
    /// True if the list answered a minimal request, so that a failing page fails because of its rows.
    is_answering: bool,
    /// When the page with the current page token arrived; for a first page, when the walk was created.
    token_at: Instant,
    /// The age at which the current page token was first answered with 404; `None` if it was not.
    not_found_at: Option<Duration>,
    /// The last page of the walk; `None` before the first one.
    last_page: Option<LastPage>,
    /// True after [`Walk::resolve_end`] with false: the next call restarts the window.
    is_end_denied: bool,
    range: Range,
    /// True if a page since the start of the window was smaller than its size, because more did not fit into memory.
    is_cut_by_memory: bool,
    /// The average bytes of a row on the last page; 0 before the first page.
    last_row_bytes: usize,
}

impl Source {
    /// Starts a walk, which reads the pages of one window in the service's order. `request.token` resumes an earlier
    /// walk.
    pub fn walk(&self, request: PageRequest) -> Walk {
        Walk::new(self.clone(), request, Range::Window)
    }

    /// Starts a walk over the rows of one millisecond, `request.window`, for a tie probe. The pages may have rows of
    /// the neighbouring milliseconds, if the service includes the ends of a range. Requests count in
    /// [`super::RequestStats::ties_probed`].
    pub fn walk_moment(&self, request: PageRequest) -> Walk {
        Walk::new(self.clone(), request, Range::Moment)
    }

    /// Sends one list call without the guards of a walk, to measure how the service behaves. The caller interprets the
    /// answer. `range` chooses `start` and `end`. A 401 or 403 on a request without page token is an error; every other
    /// result is an [`Answer`].
    pub async fn ask(&self, request: &PageRequest, range: Range) -> Result<Answer, SourceError> {
        let stream = request.scope.stream;
        let rows = stream.page_rows_max().map(|max| request.page_rows.clamp(1, max));
        let call = self.list_call(request, rows, range);
        let url = call.shown.clone();
        let shape = PageShape { rows: rows.unwrap_or(1), ..PageShape::alone(stream) };
        match self.fetch_page(call, shape, true).await {
            Ok((received, memory)) => Ok(Answer::Page(Page::new(received, memory, request.token.clone()))),
            Err(Trouble::Rejected(rejection)) if !rejection.is_about_key() || request.token.is_some() => {
                Ok(Answer::Rejected { status: rejection.status, is_web_page: rejection.is_html })
            }
            Err(Trouble::Failed { last, .. }) => Ok(Answer::Failed(last)),
            Err(trouble) => Err(trouble.into_error(url)),
        }
    }
}

impl Walk {
    fn new(source: Source, request: PageRequest, range: Range) -> Self {
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
            last_page: None,
            is_end_denied: false,
            range,
            is_cut_by_memory: false,
            last_row_bytes: 0,
        }
    }

    /// Prepares the walk for a half of a window that the service could not deliver. After its first failure the walk
    /// uses the smallest page size at once, and its requests have few retries.
    #[must_use]
    pub fn part_of_a_failed_window(mut self) -> Self {
        self.size.shrinks_in_one_step = true;
        self
    }

    /// Reads the next page. After the last page every call returns `End`. The future is safe to drop: the next call
    /// requests the same page.
    pub async fn next(&mut self) -> Result<WalkStep, SourceError> {
        if let Some(end) = self.end {
            return Ok(WalkStep::End(end));
        }
        if std::mem::take(&mut self.is_end_denied) {
            let reason = "status 404 on a page token that was not the last";
            self.guards.restart_after_false_end(reason)?;
            return Ok(self.restarted(reason, reason.to_owned()));
        }
        loop {
            let stream = self.request.scope.stream;
            // A smaller page could hide rows of the millisecond.
            if !self.is_of_moment() {
                self.size.fitting = self.source.inner.page_memory.rows_max(stream, self.last_row_bytes);
            }
            let limit = self.size.limit();
            self.is_cut_by_memory |= limit.is_some_and(|rows| rows < self.size.rows);
            let call = self.source.list_call(&self.request, limit, self.range);
            let shown = call.shown.clone();
            let shape = PageShape {
                stream,
                rows: limit.unwrap_or(1),
                is_fixed: limit.is_none() || self.is_of_moment() || self.size.is_forced,
                last_row_bytes: self.last_row_bytes,
            };
            match self.source.fetch_page(call, shape, self.can_be_smaller()).await {
                Ok((page, memory)) => {
                    let rows = limit.map_or(1, |_| page.envelope.rows);
                    self.source.inner.page_memory.record_page(shape, rows, page.body.len());
                    self.last_row_bytes = page.body.len().checked_div(rows).unwrap_or(0);
                    return self.accept(page, memory);
                }
                Err(Trouble::Rejected(rejection)) => {
                    if let Some(step) = self.rejected(rejection, shown).await? {
                        return Ok(step);
                    }
                }
                Err(Trouble::Failed { last: Failure::BodyTooLarge { .. }, .. })
                    if self.source.inner.page_memory.should_have_fewer_rows(shape) => {}
                Err(Trouble::Failed { last, attempts }) => self.shrink_or_give_up(last, attempts, shown).await?,
                Err(trouble) => return Err(trouble.into_error(shown)),
            }
        }
    }

    /// Answers a [`WalkStep::UnprovenEnd`]. If `is_end`, the list has ended with the last page; otherwise the next call
    /// of [`Walk::next`] restarts the window.
    pub fn resolve_end(&mut self, is_end: bool) {
        if let Some(last) = self.last_page {
            let now_ms = self.source.inner.clock.now_ms();
            self.source.inner.list_ends.record_proof(self.request.scope.stream, last, is_end, now_ms);
        }
        if is_end {
            self.end = Some(EndStyle::NotFound);
        } else {
            self.is_end_denied = true;
        }
    }

    /// Returns true if the current page token cannot have died at this age. The proof is that this run got answers to
    /// older tokens and to tokens of later pages. A 404 on such a token is the end of the list. False for a resumed
    /// walk.
    fn is_token_alive(&self, age: Duration) -> bool {
        // Within one millisecond, the service may lose the rows after a page boundary. Only another page size shows
        // these rows.
        if self.is_of_moment() && self.size.limit().is_some() {
            return false;
        }
        let is_proven = |pages| self.source.inner.token_lifetimes.is_proven(self.request.scope.stream, pages, age);
        age < FRESH && self.guards.pages_from_start().is_some_and(is_proven)
    }

    /// Returns the current page size without regard to memory; 0 if the stream has no `limit`.
    pub fn page_rows(&self) -> u32 {
        self.size.rows
    }

    fn is_of_moment(&self) -> bool {
        self.range == Range::Moment
    }

    fn can_be_smaller(&self) -> bool {
        self.size.can_shrink() || self.size.shrinks_in_one_step
    }

    /// Counts a page and returns it. If the guards find that the list does not end, the window restarts or the walk
    /// fails.
    fn accept(&mut self, received: Received, memory: PageReservation) -> Result<WalkStep, SourceError> {
        let envelope = &received.envelope;
        if let Err(cause) = self.guards.record_page(envelope) {
            let reason = cause.to_string();
            self.guards.restart_after_loop(cause)?;
            // Some services return the same page again if it is full of rows of one millisecond. The largest page is
            // most likely to hold all these rows. Of larger pages, fewer are empty.
            self.request.scope.stream.page_rows_max().into_iter().for_each(|rows| self.size.fix(rows));
            return Ok(self.restarted("the list does not seem to end", reason));
        }
        self.size.record_success();
        let age = self.request.token.is_some().then(|| self.token_at.elapsed());
        (self.token_at, self.not_found_at) = (Instant::now(), None);
        if let Some(pages) = self.guards.pages_from_start() {
            self.source.inner.token_lifetimes.record_page(self.request.scope.stream, pages, age);
        }
        let page = LastPage { rows: envelope.rows as u64, limit: self.size.limit() };
        let (stream, before) = (self.request.scope.stream, self.last_page.replace(page));
        self.source.inner.list_ends.record_page(stream, page, before, self.source.inner.clock.now_ms());
        self.end = envelope.end;
        let request_token = std::mem::replace(&mut self.request.token, envelope.next.clone());
        Ok(WalkStep::Page(Page::new(received, memory, request_token)))
    }

    fn not_found(&mut self) -> Option<WalkStep> {
        self.end = Some(EndStyle::NotFound);
        self.end.map(WalkStep::End)
    }

    /// Interprets a 4xx answer: the end of the list, a restart of the window, or an error. `None` means that the caller
    /// repeats the request, perhaps with another page size.
    async fn rejected(&mut self, rejection: Rejection, url: String) -> Result<Option<WalkStep>, SourceError> {
        if self.request.token.is_none() {
            if rejection.is_missing() {
                self.source.require_list(self.request.scope.stream).await?;
                return Ok(self.not_found());
            }
            return Err(rejection.into_error(url));
        }
        if rejection.is_missing() {
            let (stream, now_ms) = (self.request.scope.stream, self.source.inner.clock.now_ms());
            if self.last_page.is_some_and(|last| self.source.inner.list_ends.is_end(stream, last, now_ms)) {
                return Ok(self.not_found());
            }
            let was_not_found = self.not_found_at.is_some();
            let age = *self.not_found_at.get_or_insert_with(|| self.token_at.elapsed());
            if self.is_token_alive(age) {
                // A token that failed at random succeeds on the second request.
                if !was_not_found {
                    return Ok(None);
                }
                return Ok(self.not_found());
            }
            let rows_max = self.request.scope.stream.page_rows_max();
            // Pages of other sizes prove nothing.
            let page_rows = self.size.limit().filter(|_| !self.is_cut_by_memory);
            match self.guards.not_found(page_rows, rows_max, !self.is_of_moment()) {
                NotFoundMeaning::End => {
                    return Ok(self.not_found());
                }
                NotFoundMeaning::Unproven => return Ok(Some(WalkStep::UnprovenEnd)),
                NotFoundMeaning::Again(page_rows) => page_rows.into_iter().for_each(|rows| self.size.fix(rows)),
            }
        }
        let Rejection { status, message, .. } = rejection;
        let cause = format!("status {status} on a page token");
        let reason = if message.is_empty() { cause.clone() } else { format!("{cause}: {message}") };
        self.guards.restart_after_dead_token(&reason)?;
        Ok(Some(self.restarted(&cause, reason)))
    }

    /// Restarts the window: the next request is for its first page. `cause` goes to the log, `reason` to the caller.
    fn restarted(&mut self, cause: &str, reason: String) -> WalkStep {
        // The service's message is shown by the caller; it does not belong in a log.
        tracing::warn!(scope = %self.request.scope, window = %self.request.window, cause, "restarting window");
        self.request.token = None;
        (self.not_found_at, self.last_page, self.is_cut_by_memory) = (None, None, false);
        WalkStep::Restarted { reason }
    }

    /// Reduces the page size after all attempts for a page failed. Fails with the last failure if a smaller page is
    /// impossible or would not help. `TooLarge` means that the service answers smaller requests than this page.
    async fn shrink_or_give_up(&mut self, last: Failure, attempts: u32, url: String) -> Result<(), SourceError> {
        if !last.may_be_size() && !last.may_be_a_record() {
            return Err(last.give_up(url, attempts));
        }
        // An answer that is not a page may come from a proxy: then smaller pages would not help.
        if last.may_be_a_record() && !self.is_answering(&last).await? {
            return Err(last.give_up(url, attempts));
        }
        let rows = self.size.limit().unwrap_or(0);
        if self.size.shrink() {
            tracing::info!(scope = %self.request.scope, rows, smaller = self.size.limit(), failure = last.kind(), "retrying with smaller pages");
            return Ok(());
        }
        // A service that answers nothing is down; a service that answers a minimal request finds this page too large.
        if self.is_answering(&last).await? {
            return Err(SourceError::TooLarge { url, page_rows: rows, last });
        }
        Err(last.give_up(url, attempts))
    }

    /// Returns true if the list answers a minimal request. After one success, or if `last` is a body over the size
    /// limit, which is an answer too, sends no minimal request.
    async fn is_answering(&mut self, last: &Failure) -> Result<bool, SourceError> {
        self.is_answering = self.is_answering
            || matches!(last, Failure::BodyTooLarge { .. })
            || self.source.answers_minimal_request(&self.request).await?;
        Ok(self.is_answering)
    }
}
