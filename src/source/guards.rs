//! Limits the pages and restarts of a walk, so that every walk ends. Also decides what a 404 on a page token means.
//! Pure.

use std::collections::HashSet;

use super::{
    address::{shortened, token_hash},
    envelope::Envelope,
    error::{LoopCause, SourceError},
};
use crate::model::PageToken;

/// Maximum pages of a window.
pub const PAGES_MAX: u64 = 100_000;
/// Maximum consecutive empty pages.
pub const EMPTY_PAGES_MAX: u32 = 5;
/// Maximum consecutive restarts after dead page tokens if no attempt reads more rows than an earlier one.
pub const IDLE_RESTARTS_MAX: u32 = 3;
/// Maximum restarts after dead page tokens.
pub const RESTARTS_MAX: u32 = 50;

/// The pages, rows, tokens and restarts of a walk so far.
#[derive(Debug, Default)]
pub(super) struct Guards {
    /// Hashes of the page tokens since the last restart: at most [`PAGES_MAX`] of 8 bytes.
    tokens: HashSet<u64>,
    pages: u64,
    rows: u64,
    empty_in_a_row: u32,
    /// The most pages that an attempt has read before its token died.
    furthest_pages: u64,
    /// The most rows that an attempt has read before its token died.
    furthest_rows: u64,
    restarts: u32,
    /// Consecutive restarts after attempts that read no more rows than an earlier attempt.
    idle_restarts: u32,
    /// True if the walk restarted after a repeated token or too many empty pages.
    has_looped: bool,
    /// True if `rows` counts from the window's first page; false for a resumed walk.
    is_from_start: bool,
    /// The position at which the previous attempt got a 404 on its token: the rows read from the window's start, and
    /// the page size. `None` before the first 404.
    not_found_at: Option<(u64, u32)>,
    /// True after the caller found that a 404 on a token was not the end of the list.
    was_end_denied: bool,
}

/// What a 404 on a page token means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotFoundMeaning {
    /// The list has ended: two attempts with different page sizes agree.
    End,
    /// The meaning is unknown. The walk restarts with this page size; `None` keeps the page size.
    Again(Option<u32>),
    /// The meaning is unknown, and another page size would not help. The caller has to compare the rows with those of
    /// other requests.
    Unproven,
}

impl Guards {
    pub fn new(resumed_at: Option<&PageToken>) -> Self {
        let tokens = resumed_at.map(token_hash).into_iter().collect();
        Self { tokens, is_from_start: resumed_at.is_none(), ..Self::default() }
    }

    /// Counts a page. Fails if the list does not seem to end; the caller passes the failure to
    /// [`Guards::restart_after_loop`].
    pub fn record_page(&mut self, envelope: &Envelope) -> Result<(), LoopCause> {
        if let Some(token) = &envelope.next {
            if !self.tokens.insert(token_hash(token)) {
                return Err(LoopCause::RepeatedToken { token: shortened(token) });
            }
            self.empty_in_a_row = if envelope.rows == 0 { self.empty_in_a_row + 1 } else { 0 };
            if self.empty_in_a_row > EMPTY_PAGES_MAX {
                return Err(LoopCause::EmptyPages { in_a_row: self.empty_in_a_row });
            }
            if self.pages + 1 >= PAGES_MAX {
                return Err(LoopCause::TooManyPages);
            }
        }
        self.pages += 1;
        self.rows = self.rows.saturating_add(u64::try_from(envelope.rows).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Allows one restart after a repeated token, because rows may have moved during the walk, or after too many empty
    /// pages, because the next attempt may get rows. A walk of too many pages is an error.
    pub fn restart_after_loop(&mut self, cause: LoopCause) -> Result<(), SourceError> {
        if self.has_looped || matches!(cause, LoopCause::TooManyPages) {
            return Err(SourceError::Looping { cause, pages: self.pages });
        }
        self.has_looped = true;
        self.reset();
        Ok(())
    }

    /// Returns the number of pages since the window's first page; `None` for a resumed walk.
    pub fn pages_from_start(&self) -> Option<u64> {
        self.is_from_start.then_some(self.pages)
    }

    /// Decides what a 404 on a page token means (promise P3). Some services answer with 404 at the end of a list,
    /// others if they have forgotten the token. A resumed walk restarts, because it does not know its number of rows.
    ///
    /// Two walks with different page sizes have page boundaries at multiples of different numbers. Both may get a 404
    /// after the same number of rows. Unless this number is a multiple of both page sizes, the last page of one of the
    /// walks was not full, so the list has ended.
    ///
    /// `has_parts`: the caller can read smaller windows to find out. In this case the first 404 is `Unproven`.
    /// `page_rows` and `rows_max` are the current and the largest page size; `None` if the stream has no `limit`.
    pub fn not_found(&mut self, page_rows: Option<u32>, rows_max: Option<u32>, has_parts: bool) -> NotFoundMeaning {
        if !self.is_from_start {
            return NotFoundMeaning::Again(None);
        }
        if has_parts && !self.was_end_denied {
            return NotFoundMeaning::Unproven;
        }
        let Some(page_rows) = page_rows.filter(|_| self.rows > 1) else { return NotFoundMeaning::Unproven };
        let before = self.not_found_at.replace((self.rows, page_rows));
        let is_page_boundary = |size: u32| self.rows.is_multiple_of(u64::from(size.max(1)));
        if before.is_some_and(|(rows, size)| {
            rows == self.rows && size != page_rows && !(is_page_boundary(size) && is_page_boundary(page_rows))
        }) {
            return NotFoundMeaning::End;
        }
        // Both attempts got the 404 after their first page. One millisecond may have more rows than a page, and some
        // services lose these rows at a page boundary. The largest page may contain all rows and need no token.
        let is_first_boundary = |rows: u64, size: u32| rows == u64::from(size);
        if is_first_boundary(self.rows, page_rows) && before.is_some_and(|(rows, size)| is_first_boundary(rows, size)) {
            return NotFoundMeaning::Again(rows_max.filter(|max| *max > page_rows));
        }
        NotFoundMeaning::Again(other_page_rows(self.rows, page_rows, rows_max.unwrap_or(page_rows)))
    }

    /// Allows one restart after a 404 on a page token that was not the end of the list. A second such 404 is an error.
    pub fn restart_after_false_end(&mut self, last: &str) -> Result<(), SourceError> {
        if std::mem::replace(&mut self.was_end_denied, true) {
            return Err(self.dead_tokens_error(last));
        }
        self.restart_after_dead_token(last)
    }

    fn dead_tokens_error(&self, last: &str) -> SourceError {
        SourceError::TokensDie {
            restarts: self.restarts,
            pages: self.furthest_pages.max(self.pages),
            last: last.to_owned(),
        }
    }

    /// Allows a restart after a dead page token, within [`IDLE_RESTARTS_MAX`] and [`RESTARTS_MAX`].
    pub fn restart_after_dead_token(&mut self, last: &str) -> Result<(), SourceError> {
        if self.rows > self.furthest_rows {
            self.idle_restarts = 0;
        } else {
            self.idle_restarts += 1;
        }
        self.furthest_rows = self.furthest_rows.max(self.rows);
        self.furthest_pages = self.furthest_pages.max(self.pages);
        if self.idle_restarts > IDLE_RESTARTS_MAX || self.restarts >= RESTARTS_MAX {
            return Err(self.dead_tokens_error(last));
        }
        self.restarts += 1;
        self.reset();
        Ok(())
    }

    /// Resets the counts of this attempt, because the next page is the window's first. The counts of restarts are kept.
    fn reset(&mut self) {
        self.is_from_start = true;
        self.tokens.clear();
        self.pages = 0;
        self.rows = 0;
        self.empty_in_a_row = 0;
    }
}

/// Finds a page size such that `rows` is not a multiple of both this size and `page_rows`. Returns `None` if there is
/// none up to `rows_max`.
///
/// The size is smaller than `rows`, so that a walk with this size gets an answer to at least one token. The largest
/// size below `page_rows` is preferred.
fn other_page_rows(rows: u64, page_rows: u32, rows_max: u32) -> Option<u32> {
    let is_other = |size: &u32| {
        let (size, other) = (u64::from(*size), u64::from(page_rows.max(1)));
        size < rows && !(rows.is_multiple_of(size) && rows.is_multiple_of(other))
    };
    let below = u32::try_from(rows).unwrap_or(u32::MAX).min(page_rows);
    (1..below).rev().find(is_other).or_else(|| (page_rows + 1..=rows_max).find(is_other))
}

#[cfg(test)]
mod tests;
