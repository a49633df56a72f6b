//! Remembers what is proven about the 404 with which the lists of a stream end, so that the proof is rarely repeated.
//!
//! A full proof compares the rows of a list with those of its parts (`pipeline::list_end`). It also shows what full
//! pages look like. Later a 404 on the token of a page that is not full needs no proof of its own: the service had no
//! more rows for that page. After a full page, a 404 may as well be an expired token, and is proven each time.
//!
//! The rule holds while every page before the last one is full. A shorter page with rows behind it contradicts the
//! rule, and so does a failed proof after a short page. All lists that ended by the rule are then read again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::model::{DAY_MS, Stream};

/// A proof counts for this time; then the next list with such an end is proven again.
const PROVEN_FOR_MS: i64 = 7 * DAY_MS;
/// After a contradiction, each end is proven for this time.
const CONTRADICTED_FOR_MS: i64 = 30 * DAY_MS;

/// What is known about the 404 at the end of the lists of one stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotFoundEnd {
    /// True if a 404 after a page that is not full was proven to be the end of a list. False if that was contradicted.
    /// `None` if neither happened.
    pub is_end: Option<bool>,
    /// When this was proven or contradicted, in epoch milliseconds by this machine's clock.
    pub at_ms: i64,
    /// Rows of the largest page so far.
    pub page_rows: u64,
    /// True if this run proved or contradicted it.
    pub is_new: bool,
    /// True if this run contradicted what was proven before.
    pub is_contradicted: bool,
}

impl NotFoundEnd {
    /// Returns true if a page with these rows was not full. `limit` is the requested page size, if any.
    fn is_short(&self, page: LastPage) -> bool {
        let full = page.limit.map_or(self.page_rows, |limit| self.page_rows.min(limit.into()));
        page.rows < full
    }

    /// Records that a short page was not the end of its list.
    fn contradict(&mut self, now_ms: i64) {
        let was_proven = self.is_end == Some(true);
        let is_contradicted = self.is_contradicted || was_proven;
        *self = NotFoundEnd { is_end: Some(false), at_ms: now_ms, is_new: true, is_contradicted, ..*self };
    }
}

/// The last page that a walk has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastPage {
    pub rows: u64,
    /// The requested page size; `None` if the stream has no `limit`.
    pub limit: Option<u32>,
}

/// What is known about the end of lists, by stream.
#[derive(Debug, Default)]
pub(super) struct ListEnds([Mutex<NotFoundEnd>; Stream::ALL.len()]);

impl ListEnds {
    /// Starts with what earlier runs have stored.
    pub fn new(stored: &[(Stream, NotFoundEnd)]) -> ListEnds {
        let ends = ListEnds::default();
        for (stream, end) in stored {
            *ends.of(*stream) = *end;
        }
        ends
    }

    fn of(&self, stream: Stream) -> MutexGuard<'_, NotFoundEnd> {
        let index = Stream::ALL.iter().position(|known| *known == stream).unwrap_or(0);
        self.0[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what is known about a stream.
    pub fn known(&self, stream: Stream) -> NotFoundEnd {
        *self.of(stream)
    }

    /// Records a page. `before` is the page before it in the same list.
    pub fn record_page(&self, stream: Stream, page: LastPage, before: Option<LastPage>, now_ms: i64) {
        let mut end = self.of(stream);
        end.page_rows = end.page_rows.max(page.rows);
        if page.rows > 0 && before.is_some_and(|before| end.is_short(before)) {
            end.contradict(now_ms);
        }
    }

    /// Returns true if a 404 on the token of this page is known to be the end of the list.
    pub fn is_end(&self, stream: Stream, last: LastPage, now_ms: i64) -> bool {
        let end = self.known(stream);
        let is_recent = (0..PROVEN_FOR_MS).contains(&now_ms.saturating_sub(end.at_ms));
        // An empty page whose token expires looks like an end, so that it proves nothing.
        end.is_end == Some(true) && is_recent && last.rows > 0 && end.is_short(last)
    }

    /// Records the result of a full proof after this page.
    pub fn record_proof(&self, stream: Stream, last: LastPage, is_end: bool, now_ms: i64) {
        let mut end = self.of(stream);
        let age_ms = now_ms.saturating_sub(end.at_ms);
        let was_contradicted = end.is_end == Some(false) && (0..CONTRADICTED_FOR_MS).contains(&age_ms);
        if is_end && last.rows > 0 && !was_contradicted {
            *end = NotFoundEnd { is_end: Some(true), at_ms: now_ms, is_new: true, ..*end };
        } else if !is_end && end.is_short(last) {
            end.contradict(now_ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 100 * DAY_MS;
    const THEMES: Stream = Stream::Themes;

    fn page(rows: u64, limit: Option<u32>) -> LastPage {
        LastPage { rows, limit }
    }

    /// A service whose pages of 10 rows end with a proven 404.
    fn proven() -> ListEnds {
        let ends = ListEnds::default();
        ends.record_page(THEMES, page(10, None), None, NOW);
        ends.record_page(THEMES, page(3, None), Some(page(10, None)), NOW);
        ends.record_proof(THEMES, page(3, None), true, NOW);
        ends
    }

    #[test]
    fn p3_only_a_404_after_a_short_page_is_a_known_end() {
        let ends = proven();
        for (rows, limit, is_end) in [
            (1, None, true),
            (9, None, true),
            (10, None, false),
            (0, None, false),
            (4, Some(5), true),
            (5, Some(5), false),
            (10, Some(1000), false),
        ] {
            assert_eq!(ends.is_end(THEMES, page(rows, limit), NOW + 1), is_end, "{rows} {limit:?}");
        }
        assert!(!ends.is_end(Stream::Responses, page(1, None), NOW), "another list");
    }

    #[test]
    fn p3_a_proof_counts_for_a_week() {
        let ends = proven();
        for (later_ms, is_end) in [(0, true), (PROVEN_FOR_MS - 1, true), (PROVEN_FOR_MS, false), (-1, false)] {
            assert_eq!(ends.is_end(THEMES, page(3, None), NOW + later_ms), is_end, "{later_ms}");
        }
        let later = NOW + PROVEN_FOR_MS;
        ends.record_proof(THEMES, page(3, None), true, later);
        assert!(ends.is_end(THEMES, page(3, None), later) && !ends.known(THEMES).is_contradicted);
    }

    #[test]
    fn p3_a_service_that_changes_its_habit_is_noticed() {
        let contradictions: [fn(&ListEnds); 3] = [
            // A shorter page has rows behind it.
            |ends| ends.record_page(THEMES, page(4, None), Some(page(7, None)), NOW),
            |ends| ends.record_page(THEMES, page(4, None), Some(page(0, None)), NOW),
            // A proof fails.
            |ends| ends.record_proof(THEMES, page(4, None), false, NOW),
        ];
        for contradict in contradictions {
            let ends = proven();
            contradict(&ends);
            let end = ends.known(THEMES);
            assert!(end.is_contradicted && end.is_end == Some(false) && end.is_new);
            // One proof does not bring it back within a month.
            ends.record_proof(THEMES, page(3, None), true, NOW + CONTRADICTED_FOR_MS - 1);
            assert!(!ends.is_end(THEMES, page(3, None), NOW + CONTRADICTED_FOR_MS - 1));
            ends.record_proof(THEMES, page(3, None), true, NOW + CONTRADICTED_FOR_MS);
            assert!(ends.is_end(THEMES, page(3, None), NOW + CONTRADICTED_FOR_MS));
        }
        // A token that dies after a full page says nothing about the end, and neither does an empty last page.
        let ends = proven();
        ends.record_proof(THEMES, page(10, None), false, NOW);
        ends.record_page(THEMES, page(0, None), Some(page(4, None)), NOW);
        assert!(ends.is_end(THEMES, page(3, None), NOW));
    }
}
