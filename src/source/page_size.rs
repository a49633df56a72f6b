//! The page size of a walk: halved if the service cannot deliver a page, and raised slowly afterwards. Pure.

/// The smallest page.
pub const ROWS_MIN: u32 = 10;
/// Consecutive successful pages before the size doubles. This number doubles each time the size shrinks after it has
/// grown.
const GOOD_PAGES: u32 = 5;
/// Maximum successful pages before the size doubles.
const GOOD_PAGES_MAX: u32 = 80;

/// The current page size of a walk.
#[derive(Clone, Debug)]
pub(super) struct PageSize {
    /// The configured size; `None` if the stream has no `limit`.
    full: Option<u32>,
    /// The current size; 0 if the stream has no `limit`.
    rows: u32,
    /// The largest page that fits into the memory.
    fitting: u32,
    /// True if the size must be `rows` even if the page does not fit.
    is_forced: bool,
    /// Consecutive successful pages at this size.
    good: u32,
    /// The number of `good` pages after which the size doubles.
    good_needed: u32,
    /// True if the size has been doubled in this walk.
    has_grown: bool,
    /// True if `shrink` goes to the smallest page in one step.
    shrinks_in_one_step: bool,
}

impl PageSize {
    /// Starts with `asked` rows, clamped to 1 to `rows_max`. `rows_max` is the contract's maximum; `None` if the stream
    /// has no `limit`.
    pub fn new(asked: u32, rows_max: Option<u32>) -> Self {
        let full = rows_max.map(|max| asked.clamp(1, max));
        Self {
            full,
            rows: full.unwrap_or(0),
            fitting: u32::MAX,
            is_forced: false,
            good: 0,
            good_needed: GOOD_PAGES,
            has_grown: false,
            shrinks_in_one_step: false,
        }
    }

    /// Makes `shrink` choose the smallest page in one step, because halving has already failed for the complete window.
    pub fn shrink_in_one_step(&mut self) {
        self.shrinks_in_one_step = true;
    }

    pub fn shrinks_in_one_step(&self) -> bool {
        self.shrinks_in_one_step
    }

    /// Returns the `limit` parameter to send; `None` if the stream has no `limit`.
    pub fn limit(&self) -> Option<u32> {
        self.full.map(|_| if self.is_forced { self.rows } else { self.rows.min(self.fitting) })
    }

    /// Returns the current size without regard to memory; 0 if the stream has no `limit`.
    pub fn rows(&self) -> u32 {
        self.rows
    }

    /// Returns true if the size says something about the list, so that the page must not be smaller for want of memory.
    pub fn is_forced(&self) -> bool {
        self.is_forced
    }

    /// Sets the largest page that fits into the memory. It may be smaller than [`ROWS_MIN`].
    pub fn limit_to(&mut self, rows: u32) {
        self.fitting = rows;
    }

    /// Returns true if [`PageSize::shrink`] would change the size.
    pub fn can_shrink(&self) -> bool {
        self.limit().is_some_and(|rows| rows > ROWS_MIN)
    }

    /// Shrinks the page after a failure: to half, or to [`ROWS_MIN`] in one step. Returns true if the size changed.
    pub fn shrink(&mut self) -> bool {
        if !self.can_shrink() {
            return false;
        }
        if self.has_grown {
            self.good_needed = (self.good_needed * 2).min(GOOD_PAGES_MAX);
        }
        self.rows = if self.shrinks_in_one_step { ROWS_MIN } else { (self.limit().unwrap_or(0) / 2).max(ROWS_MIN) };
        self.good = 0;
        true
    }

    /// Counts a successful page. Doubles the size after `good_needed` consecutive successes, up to the configured size.
    pub fn record_success(&mut self) {
        let Some(full) = self.full.filter(|full| self.rows < *full) else { return };
        self.good += 1;
        if self.good >= self.good_needed {
            self.rows = self.rows.saturating_mul(2).min(full);
            self.good = 0;
            self.has_grown = true;
        }
    }

    /// Sets the page size and the configured size to `rows`. No effect if the stream has no `limit`.
    pub fn fix(&mut self, rows: u32) {
        self.full = self.full.map(|_| rows);
        self.is_forced = true;
        self.rows = self.full.unwrap_or(0);
        self.good = 0;
    }

    /// Sets the page size and the configured size to `rows_max`, the contract's maximum. No effect if the stream has no
    /// `limit`.
    pub fn use_largest(&mut self, rows_max: Option<u32>) {
        self.full = self.full.and(rows_max);
        self.is_forced = true;
        self.rows = self.full.unwrap_or(0);
        self.good = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_halve_down_to_ten() {
        let mut size = PageSize::new(1000, Some(1000));
        let mut sizes = vec![size.limit().unwrap()];
        while size.shrink() {
            sizes.push(size.limit().unwrap());
        }
        assert_eq!(sizes, [1000, 500, 250, 125, 62, 31, 15, 10]);
        assert!(!size.can_shrink());
    }

    #[test]
    fn sizes_recover_slowly_and_more_slowly_after_a_relapse() {
        let mut size = PageSize::new(1000, Some(1000));
        let good_pages_to_grow = |size: &mut PageSize| {
            let before = size.limit();
            (1..).find(|_| {
                size.record_success();
                size.limit() != before
            })
        };
        assert!(size.shrink() && size.shrink());
        assert_eq!(good_pages_to_grow(&mut size), Some(5));
        assert_eq!(size.limit(), Some(500));
        assert!(size.shrink());
        assert_eq!(good_pages_to_grow(&mut size), Some(10));
        assert_eq!(good_pages_to_grow(&mut size), Some(10));
        assert_eq!(size.limit(), Some(1000));
        size.record_success();
        assert_eq!(size.limit(), Some(1000), "never more than asked for");
    }

    #[test]
    fn parts_of_a_failed_window_shrink_in_one_step() {
        let mut size = PageSize::new(1000, Some(1000));
        size.shrink_in_one_step();
        assert!(size.shrink() && size.limit() == Some(ROWS_MIN) && !size.shrink());
    }

    #[test]
    fn a_stream_without_a_limit_has_no_size() {
        let mut size = PageSize::new(1000, None);
        assert!(!size.can_shrink() && !size.shrink());
        size.record_success();
        size.use_largest(None);
        assert_eq!(size.limit(), None);
    }

    #[test]
    fn what_is_asked_is_brought_into_bounds() {
        assert_eq!(PageSize::new(0, Some(1000)).limit(), Some(1));
        assert_eq!(PageSize::new(5000, Some(1000)).limit(), Some(1000));
        let mut small = PageSize::new(300, Some(1000));
        small.use_largest(Some(1000));
        assert_eq!(small.limit(), Some(1000));
    }
}
