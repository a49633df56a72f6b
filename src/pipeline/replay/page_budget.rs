//! Limits the bytes of flattened pages between the reader and the writers of a replay. While a writer applies a scan,
//! the reader prepares the pages of the next scan.
//!
//! A page that every writer has applied is sent back to the thread that flattened it, which frees the page. Memory that
//! one thread allocates and another frees slows both threads down.

use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc::Sender};

use crate::model::FlatPage;

/// Counts the bytes of queued pages. Clones share the count.
#[derive(Clone, Debug)]
pub(super) struct PageBudget {
    /// The maximum size of the queued pages. A larger page is queued alone.
    bytes_max: usize,
    queued: Arc<(Mutex<usize>, Condvar)>,
}

/// The reserved bytes of one queued page. Dropping the reservation returns them to the budget, when the last writer has
/// taken the page.
#[derive(Debug)]
pub(super) struct PageReservation {
    bytes: usize,
    budget: PageBudget,
    /// The thread that flattened the page, and frees it.
    owner: Sender<Arc<FlatPage>>,
}

impl PageBudget {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, queued: Arc::default() }
    }

    /// Returns true if the writers are the bottleneck and should get the processors, so that the reader should slow
    /// down.
    pub fn are_writers_busy(&self) -> bool {
        *self.queued.0.lock().unwrap_or_else(PoisonError::into_inner) >= self.bytes_max / 4
    }

    /// Waits until the page fits into the budget, and reserves its bytes. `owner` is the thread that frees the page.
    pub fn reserve(&self, page: &FlatPage, owner: Sender<Arc<FlatPage>>) -> Arc<PageReservation> {
        let bytes = page.memory_bytes();
        let (queued, changed) = &*self.queued;
        let queued = queued.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |queued: &mut usize| *queued > 0 && queued.saturating_add(bytes) > self.bytes_max;
        *changed.wait_while(queued, is_full).unwrap_or_else(PoisonError::into_inner) += bytes;
        Arc::new(PageReservation { bytes, budget: self.clone(), owner })
    }
}

impl Drop for PageReservation {
    fn drop(&mut self) {
        let (queued, changed) = &*self.budget.queued;
        *queued.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        changed.notify_one();
    }
}

/// Buffers the pages of a scan until the writer applies the scan. Buffers no page if all pages together are too large.
#[derive(Debug)]
pub(super) struct ScanPageBuffer {
    bytes_max: usize,
    pages: Vec<(Arc<FlatPage>, Sender<Arc<FlatPage>>)>,
    bytes: usize,
    has_overflowed: bool,
}

impl ScanPageBuffer {
    /// Creates a buffer for pages of this size.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, pages: Vec::new(), bytes: 0, has_overflowed: false }
    }

    /// Adds a page. If the pages reach the size of the buffer, drops them and all later pages of the scan. The writer
    /// then reads the scan from the archive.
    pub fn push(&mut self, page: Arc<FlatPage>, reservation: &PageReservation) {
        self.pages.push((page, reservation.owner.clone()));
        self.bytes += reservation.bytes;
        if self.has_overflowed || self.bytes >= self.bytes_max {
            self.clear();
            self.has_overflowed = true;
        }
    }

    /// Returns all pages of the scan, or `None` if the buffer has overflowed.
    pub fn pages(&self) -> Option<impl Iterator<Item = &FlatPage>> {
        (!self.has_overflowed).then(|| self.pages.iter().map(|(page, _)| page.as_ref()))
    }

    /// Sends the pages to the threads that free them, and empties the buffer for the next scan.
    pub fn clear(&mut self) {
        (self.bytes, self.has_overflowed) = (0, false);
        for (page, owner) in self.pages.drain(..) {
            // If the owner has ended, the page is freed here.
            let _ = owner.send(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc::channel, thread, time::Duration};

    use super::*;
    use crate::{
        flatten::flatten_page,
        model::{DriftRules, Stream},
    };

    const BYTES_MAX: usize = 64 << 20;

    fn page() -> FlatPage {
        let body = br#"{"data":[{"id":1,"responseGroupUid":"a","questionId":1,"createdAt":"2026-01-01T00:00:00Z"}]}"#;
        flatten_page(Stream::Themes, body, DriftRules::default()).unwrap()
    }

    fn reserved(budget: &PageBudget, page: &FlatPage) -> Arc<PageReservation> {
        budget.reserve(page, channel().0)
    }

    #[test]
    fn p8_a_reader_waits_while_too_many_pages_are_queued() {
        let budget = PageBudget::new(BYTES_MAX);
        let first = reserved(&budget, &page());
        assert!(!budget.are_writers_busy());
        let full = BYTES_MAX - first.bytes;
        *budget.queued.0.lock().unwrap() += full;
        assert!(budget.are_writers_busy());
        let (reservations, received) = channel();
        thread::scope(|scope| {
            scope.spawn(|| reservations.send(reserved(&budget, &page()).bytes).unwrap());
            received.recv_timeout(Duration::from_millis(50)).unwrap_err();
            drop(first);
            assert!(received.recv_timeout(Duration::from_secs(60)).unwrap() > 0);
        });
        assert_eq!(*budget.queued.0.lock().unwrap(), full);
    }

    #[test]
    fn a_page_larger_than_the_budget_is_queued_alone() {
        let budget = PageBudget::new(BYTES_MAX);
        let larger = FlatPage { absent: vec!["a".repeat(BYTES_MAX)], ..page() };
        assert!(reserved(&budget, &larger).bytes > BYTES_MAX);
        assert_eq!(*budget.queued.0.lock().unwrap(), 0);
    }

    #[test]
    fn p8_a_writer_holds_pages_until_cleared_or_full() {
        let (owner, returned) = channel();
        let (budget, mut buffer) = (PageBudget::new(BYTES_MAX), ScanPageBuffer::new(BYTES_MAX));
        let small = Arc::new(page());
        buffer.push(Arc::clone(&small), &budget.reserve(&small, owner.clone()));
        assert!(returned.try_recv().is_err());
        buffer.clear();
        assert_eq!(returned.try_iter().count(), 1);
        let large = Arc::new(FlatPage { absent: vec!["a".repeat(BYTES_MAX)], ..page() });
        buffer.push(small, &budget.reserve(&page(), owner.clone()));
        buffer.push(Arc::clone(&large), &budget.reserve(&large, owner));
        assert_eq!(returned.try_iter().count(), 2);
        assert_eq!(buffer.bytes, 0);
        // The owner has ended.
        buffer.push(Arc::clone(&large), &reserved(&budget, &large));
        assert_eq!(Arc::strong_count(&large), 1);
    }
}
