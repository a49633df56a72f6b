//! Divides the memory for pages between the requests: wide pages are requested fewer at a time, or with fewer rows.
//!
//! The size of a page is known only after it was read. So a request reserves the bytes that its page takes if its rows
//! are as long as those before, and at least an equal share of the memory. The page is read up to the reserved bytes.
//!
//! The page size of a walk is halved if the service cannot deliver a page, and raised slowly afterwards.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::Stream;

/// Rows after which the average is half old and half new. After a full page with fewer rows it is half new as well, so
/// that pages grow soon after a long record. The last page of a window, which has few rows, counts less.
const HALF_LIFE_ROWS: usize = 500;
/// A page reserves this multiple of the bytes that are expected, because rows differ in length.
const MARGIN: usize = 2;
/// Memory is handed out in units of this size, because a semaphore counts with 32 bits.
const UNIT_BYTES: usize = 1 << 10;

/// The memory for the bodies of pages of all requests of a source.
#[derive(Debug)]
pub(super) struct PageMemory {
    free: Arc<Semaphore>,
    units: u32,
    /// The units that each request may reserve at the same time as all others.
    equal_share: u32,
    /// The longest body that is read with the complete memory reserved, if the page cannot be smaller.
    body_bytes_max: usize,
    /// The average bytes of the rows of each stream.
    row_bytes: Mutex<BTreeMap<Stream, usize>>,
}

/// What is known of a page before it is requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageShape {
    pub stream: Stream,
    /// The maximum number of rows; 1 for a list without `limit`.
    pub rows: u32,
    /// True if the page cannot be requested with fewer rows.
    pub is_fixed: bool,
    /// The average bytes of a row on the page before it; 0 for the first page.
    pub last_row_bytes: usize,
}

impl PageShape {
    /// Creates the shape of a page that cannot be smaller, such as one record.
    pub fn alone(stream: Stream) -> Self {
        PageShape { stream, rows: 1, is_fixed: true, last_row_bytes: 0 }
    }
}

/// Memory for the body of one page. Dropping it returns the memory.
#[derive(Debug)]
pub struct PageReservation {
    _memory: Option<OwnedSemaphorePermit>,
    /// The longest body that may be read.
    pub(super) body_bytes_max: usize,
}

impl PageMemory {
    /// Divides `bytes` between `in_flight_max` requests. No body is longer than `body_bytes_max`.
    pub fn new(bytes: usize, in_flight_max: usize, body_bytes_max: usize) -> Self {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX).clamp(1, Semaphore::MAX_PERMITS as u32);
        let requests = u32::try_from(in_flight_max).unwrap_or(u32::MAX).max(1);
        Self {
            free: Arc::new(Semaphore::new(units as usize)),
            units,
            equal_share: (units / requests).max(1),
            body_bytes_max,
            row_bytes: Mutex::default(),
        }
    }

    /// Returns the number of rows with which a page of the stream probably fits into the memory; at least 1.
    /// `last_row_bytes` is that of [`PageShape`].
    pub fn rows_max(&self, stream: Stream, last_row_bytes: usize) -> u32 {
        let row_bytes = self.expected_row_bytes(stream, last_row_bytes).max(1);
        u32::try_from(self.units as usize * UNIT_BYTES / MARGIN / row_bytes).unwrap_or(u32::MAX).max(1)
    }

    /// Returns true if a page with fewer rows should be requested in place of this one, which did not fit.
    pub fn should_have_fewer_rows(&self, page: PageShape) -> bool {
        !page.is_fixed && page.rows > self.rows_max(page.stream, page.last_row_bytes)
    }

    /// Waits for memory for a page. Cancel safe.
    pub async fn reserve(&self, page: PageShape) -> PageReservation {
        let units = self.units_for(page);
        // The semaphore is never closed.
        let memory = Arc::clone(&self.free).acquire_many_owned(units).await.ok();
        let is_all_needed = units == self.units && (page.is_fixed || page.rows <= 1);
        let bytes = if is_all_needed { usize::MAX } else { units as usize * UNIT_BYTES };
        PageReservation { _memory: memory, body_bytes_max: bytes.min(self.body_bytes_max) }
    }

    /// Rows of a window may be longer than those of other windows, which are read at the same time.
    fn expected_row_bytes(&self, stream: Stream, last_row_bytes: usize) -> usize {
        self.row_bytes().get(&stream).map_or(last_row_bytes, |average| last_row_bytes.max(*average))
    }

    fn units_for(&self, page: PageShape) -> u32 {
        let row_bytes = self.expected_row_bytes(page.stream, page.last_row_bytes);
        let expected = row_bytes.saturating_mul(page.rows as usize).saturating_mul(MARGIN);
        u32::try_from(expected / UNIT_BYTES).unwrap_or(u32::MAX).clamp(self.equal_share, self.units)
    }

    /// Includes a page with this many rows and bytes in the average of its stream.
    pub fn record_page(&self, page: PageShape, rows: usize, bytes: usize) {
        let Some(row_bytes) = bytes.checked_div(rows) else { return };
        let mut averages = self.row_bytes();
        let average = averages.entry(page.stream).or_default();
        let half_life = HALF_LIFE_ROWS.min(page.rows as usize);
        let weigh = |bytes: usize, weight: usize| bytes.saturating_mul(weight) / (half_life + rows);
        *average = weigh(*average, half_life).saturating_add(weigh(row_bytes, rows));
    }

    /// Raises the average of a stream, because a page was longer than its reservation. Returns false if no body may be
    /// longer, so that more memory would not help.
    pub fn record_too_large(&self, page: PageShape, reserved: &PageReservation) -> bool {
        if reserved.body_bytes_max >= self.body_bytes_max {
            return false;
        }
        let mut averages = self.row_bytes();
        let average = averages.entry(page.stream).or_default();
        *average = (*average).max(reserved.body_bytes_max / page.rows.max(1) as usize + 1);
        true
    }

    fn row_bytes(&self) -> MutexGuard<'_, BTreeMap<Stream, usize>> {
        self.row_bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
    /// The current size without regard to memory; 0 if the stream has no `limit`.
    pub rows: u32,
    /// The largest page that fits into the memory. It may be smaller than [`ROWS_MIN`].
    pub fitting: u32,
    /// True if the size says something about the list, so that the page must not be smaller for want of memory.
    pub is_forced: bool,
    /// Consecutive successful pages at this size.
    good: u32,
    /// The number of `good` pages after which the size doubles.
    good_needed: u32,
    /// True if the size has been doubled in this walk.
    has_grown: bool,
    /// True if `shrink` goes to the smallest page in one step, because halving has already failed for the complete
    /// window.
    pub shrinks_in_one_step: bool,
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

    /// Returns the `limit` parameter to send; `None` if the stream has no `limit`.
    pub fn limit(&self) -> Option<u32> {
        self.full.map(|_| if self.is_forced { self.rows } else { self.rows.min(self.fitting) })
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
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    const MIB: usize = 1 << 20;
    const IN_FLIGHT: usize = 4;
    const BODY_MAX: usize = 64 * MIB;

    fn memory() -> PageMemory {
        PageMemory::new(16 * MIB, IN_FLIGHT, BODY_MAX)
    }

    fn page(rows: u32) -> PageShape {
        PageShape { stream: Stream::Responses, rows, is_fixed: false, last_row_bytes: 0 }
    }

    /// Reserves without waiting.
    fn reserve(memory: &PageMemory, page: PageShape) -> Option<PageReservation> {
        memory.reserve(page).now_or_never()
    }

    #[test]
    fn p8_short_pages_share_the_memory() {
        let memory = memory();
        let held: Vec<_> = (0..IN_FLIGHT).map(|_| reserve(&memory, page(1000)).unwrap()).collect();
        assert!(held.iter().all(|reserved| reserved.body_bytes_max == 4 * MIB));
        assert!(reserve(&memory, page(1000)).is_none(), "all memory is reserved");
        drop(held);
        assert!(reserve(&memory, page(1000)).is_some());
    }

    #[test]
    fn p8_wide_pages_are_read_fewer_at_a_time_then_with_fewer_rows() {
        let memory = memory();
        (0..20).for_each(|_| memory.record_page(page(1000), 1000, 4 * MIB));
        let wide = reserve(&memory, page(1000)).unwrap();
        assert!(reserve(&memory, page(1000)).is_some() && memory.rows_max(Stream::Responses, 0) > 1900);
        assert!((7 * MIB..=8 * MIB).contains(&wide.body_bytes_max), "twice what is expected: {wide:?}");
        drop(wide);
        (0..20).for_each(|_| memory.record_page(page(1000), 1000, 64 * MIB));
        let rows_max = memory.rows_max(Stream::Responses, 0);
        assert!((120..=130).contains(&rows_max), "{rows_max}");
        assert_eq!(memory.rows_max(Stream::Themes, 0), 8_388_608, "another stream");
        let wide = reserve(&memory, page(rows_max)).unwrap();
        assert!(reserve(&memory, page(1)).is_none() && wide.body_bytes_max <= 16 * MIB, "{wide:?}");
    }

    #[test]
    fn p8_a_page_gets_more_memory_until_one_row_has_all() {
        let memory = memory();
        let mut rows = 1000;
        let mut tries = 0;
        loop {
            let reserved = reserve(&memory, page(rows)).unwrap();
            if !memory.record_too_large(page(rows), &reserved) {
                assert_eq!((rows, reserved.body_bytes_max), (1, BODY_MAX), "a record longer than any body");
                break;
            }
            rows = rows.min(memory.rows_max(Stream::Responses, 0));
            tries += 1;
            assert!(tries < 20, "no end");
        }
        let fixed = PageShape { is_fixed: true, ..page(1000) };
        assert_eq!(reserve(&memory, fixed).unwrap().body_bytes_max, BODY_MAX, "a page that cannot be smaller");
    }

    #[test]
    fn one_long_row_hardly_changes_the_average() {
        let memory = memory();
        (0..20).for_each(|_| memory.record_page(page(1000), 1000, MIB));
        memory.record_page(page(1000), 1, 4 * MIB);
        assert!(memory.rows_max(Stream::Responses, 0) > 800, "{}", memory.rows_max(Stream::Responses, 0));
        memory.record_page(page(1000), 0, 30);
    }

    #[test]
    fn pages_grow_soon_after_long_rows() {
        let memory = memory();
        let mut rows = 1;
        memory.record_page(page(1), 1, 8 * MIB);
        let pages = (0..100).take_while(|_| {
            rows = memory.rows_max(Stream::Responses, 0).min(1000);
            memory.record_page(page(rows), rows as usize, rows as usize * 300);
            rows < 1000
        });
        let pages = pages.count();
        assert!(pages <= 14, "{pages}");
    }

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
        size.shrinks_in_one_step = true;
        assert!(size.shrink() && size.limit() == Some(ROWS_MIN) && !size.shrink());
    }

    #[test]
    fn a_stream_without_a_limit_has_no_size() {
        let mut size = PageSize::new(1000, None);
        assert!(!size.can_shrink() && !size.shrink());
        size.record_success();
        size.fix(1000);
        assert_eq!(size.limit(), None);
    }

    #[test]
    fn what_is_asked_is_brought_into_bounds() {
        assert_eq!(PageSize::new(0, Some(1000)).limit(), Some(1));
        assert_eq!(PageSize::new(5000, Some(1000)).limit(), Some(1000));
        let mut small = PageSize::new(300, Some(1000));
        small.fix(1000);
        assert_eq!(small.limit(), Some(1000));
    }
}
