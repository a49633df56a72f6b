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
}

impl Guards {
    pub fn new(resumed_at: Option<&PageToken>) -> Self {
        Self { tokens: resumed_at.map(token_hash).into_iter().collect(), ..Self::default() }
    }

    /// A page came. An error is a list that does not end; whether a new start is worth it is [`Guards::looped`]'s to say.
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

    /// The list does not end. A repeated token is worth one new start: rows may have moved under the walk. `Err` otherwise.
    pub fn looped(&mut self, cause: LoopCause) -> Result<(), SourceError> {
        let is_worth_it = matches!(cause, LoopCause::RepeatedToken { .. }) && !self.has_looped;
        if !is_worth_it {
            return Err(SourceError::Looping { cause, pages: self.pages });
        }
        self.has_looped = true;
        self.start_over();
        Ok(())
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
            let (restarts, pages) = (self.restarts, self.furthest_pages);
            return Err(SourceError::TokensDie { restarts, pages, last: last.to_owned() });
        }
        self.restarts += 1;
        self.start_over();
        Ok(())
    }

    fn start_over(&mut self) {
        self.tokens.clear();
        self.pages = 0;
        self.rows = 0;
        self.empty_in_a_row = 0;
    }
}

#[cfg(test)]
mod tests;
