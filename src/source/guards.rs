//! What keeps a walk from going on for ever or from starting over for ever. Pure.

use std::collections::HashSet;

use super::{
    address::{shortened, token_hash},
    envelope::Envelope,
    error::{LoopCause, SourceError},
};
use crate::model::PageToken;

/// The most pages of a window.
pub const PAGES_MAX: u64 = 100_000;
/// The most empty pages in a row.
pub const EMPTY_PAGES_MAX: u32 = 5;
/// The most restarts after dead page tokens without getting further than before.
pub const IDLE_RESTARTS_MAX: u32 = 3;
/// The most restarts after dead page tokens, however far they got.
pub const RESTARTS_MAX: u32 = 50;

/// What a walk has seen.
#[derive(Debug, Default)]
pub(super) struct Guards {
    /// Hashes of the page tokens since the last start: at most [`PAGES_MAX`] of 8 bytes.
    tokens: HashSet<u64>,
    pages: u64,
    rows: u64,
    empty_in_a_row: u32,
    furthest_pages: u64,
    furthest_rows: u64,
    restarts: u32,
    idle_restarts: u32,
    has_looped: bool,
    /// Whether the rows are counted from the window's first page on, and not from where a walk was resumed.
    is_from_start: bool,
    /// Where the walk before met a 404 on its token: rows since the window's start, and the page size.
    not_found_at: Option<(u64, u32)>,
    /// Whether a 404 on a token turned out not to be the end.
    was_denied: bool,
}

/// What a 404 on a page token means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotFound {
    /// The end of the list: two walks agree.
    End,
    /// Another walk in pages of this size, if one can be asked for, tells more.
    Again(Option<u32>),
    /// Other windows tell more than other page sizes.
    Unproven,
}

impl Guards {
    pub fn new(resumed_at: Option<&PageToken>) -> Self {
        let tokens = resumed_at.map(token_hash).into_iter().collect();
        Self { tokens, is_from_start: resumed_at.is_none(), ..Self::default() }
    }

    /// A page came. An error is a list that does not end;
    /// whether a new start is worth it is [`Guards::looped`]'s to say.
    pub fn page(&mut self, envelope: &Envelope) -> Result<(), LoopCause> {
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

    /// The list does not end. A repeated token is worth one new start: rows may have moved under the walk.
    /// `Err` otherwise.
    pub fn looped(&mut self, cause: LoopCause) -> Result<(), SourceError> {
        let is_worth_it = matches!(cause, LoopCause::RepeatedToken { .. }) && !self.has_looped;
        if !is_worth_it {
            return Err(SourceError::Looping { cause, pages: self.pages });
        }
        self.has_looped = true;
        self.start_over();
        Ok(())
    }

    /// Pages since the window's first one; `None` where a walk was resumed.
    pub fn pages_from_start(&self) -> Option<u64> {
        self.is_from_start.then_some(self.pages)
    }

    /// A page token was answered with 404, which is what some services say at the end of a list, and others of a token
    /// that is dead. Two walks from the start in pages of different sizes have edges at the multiples of the one and of
    /// the other: where both meet a 404 behind the same rows, and that is no common multiple, no token died,
    /// the list is over (promise P3).
    ///
    /// `has_parts`: first of all the caller can look at parts of the window.
    pub fn not_found(&mut self, page_rows: Option<u32>, rows_max: Option<u32>, has_parts: bool) -> NotFound {
        if !self.is_from_start {
            return NotFound::Again(None);
        }
        if has_parts && !self.was_denied {
            return NotFound::Unproven;
        }
        let Some(page_rows) = page_rows.filter(|_| self.rows > 1) else { return NotFound::Unproven };
        let before = self.not_found_at.replace((self.rows, page_rows));
        let is_edge = |size: u32| self.rows.is_multiple_of(u64::from(size.max(1)));
        if before.is_some_and(|(rows, size)| {
            rows == self.rows && size != page_rows && !(is_edge(size) && is_edge(page_rows))
        }) {
            return NotFound::End;
        }
        // Behind the first page of two sizes: the rows of one moment may fill more than either, at a service that loses
        // such rows at an edge. The largest page may need no token at all.
        let is_first_edge = |rows: u64, size: u32| rows == u64::from(size);
        if is_first_edge(self.rows, page_rows) && before.is_some_and(|(rows, size)| is_first_edge(rows, size)) {
            return NotFound::Again(rows_max.filter(|max| *max > page_rows));
        }
        NotFound::Again(other_page_rows(self.rows, page_rows, rows_max.unwrap_or(page_rows)))
    }

    /// A 404 on a token was not the end. Starting over is worth it once: perhaps that token alone died.
    pub fn end_denied(&mut self, last: &str) -> Result<(), SourceError> {
        match std::mem::replace(&mut self.was_denied, true) {
            false => self.token_died(last),
            true => Err(self.tokens_die(last)),
        }
    }

    fn tokens_die(&self, last: &str) -> SourceError {
        SourceError::TokensDie {
            restarts: self.restarts,
            pages: self.furthest_pages.max(self.pages),
            last: last.to_owned(),
        }
    }

    /// A page token died. Starting over is worth it while that gets further than before, and a few times more.
    pub fn token_died(&mut self, last: &str) -> Result<(), SourceError> {
        if self.rows > self.furthest_rows {
            self.idle_restarts = 0;
        } else {
            self.idle_restarts += 1;
        }
        self.furthest_rows = self.furthest_rows.max(self.rows);
        self.furthest_pages = self.furthest_pages.max(self.pages);
        if self.idle_restarts > IDLE_RESTARTS_MAX || self.restarts >= RESTARTS_MAX {
            return Err(self.tokens_die(last));
        }
        self.restarts += 1;
        self.start_over();
        Ok(())
    }

    fn start_over(&mut self) {
        self.is_from_start = true;
        self.tokens.clear();
        self.pages = 0;
        self.rows = 0;
        self.empty_in_a_row = 0;
    }
}

/// A page size whose edges are not those of another one at the end of so many rows: smaller than the list, so that at
/// least one of its tokens is seen to be alive, and rather below the other size than above.
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
