//! Limits the bytes of flattened pages between the reader and the writers of a replay. While a writer applies a scan,
//! the reader prepares the pages of the next scan.
//!
//! A page that every writer has applied is sent back to the thread that flattened it, which frees the page. Memory that
//! one thread allocates and another frees slows both threads down.

use std::sync::{Arc, mpsc::Sender};

use super::super::memory::{ByteBudget, Reservation};
use crate::model::FlatPage;

/// The reserved bytes of one queued page. Dropping the reservation returns them to the budget, when the last writer has
/// taken the page.
#[derive(Debug)]
pub(super) struct PageReservation {
    reserved: Reservation,
    /// The thread that flattened the page, and frees it.
    owner: Sender<Arc<FlatPage>>,
}

impl PageReservation {
    /// Waits until the page fits into the budget of queued pages. `owner` is the thread that frees the page.
    pub fn wait(budget: &ByteBudget, page: &FlatPage, owner: Sender<Arc<FlatPage>>) -> Arc<PageReservation> {
        Arc::new(PageReservation { reserved: budget.reserve(page.memory_bytes()), owner })
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
        self.bytes += reservation.reserved.bytes;
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
    use std::sync::mpsc::channel;

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

    fn reserved(page: &FlatPage, owner: Sender<Arc<FlatPage>>) -> Arc<PageReservation> {
        PageReservation::wait(&ByteBudget::new(BYTES_MAX), page, owner)
    }

    #[test]
    fn p8_a_writer_holds_pages_until_cleared_or_full() {
        let (owner, returned) = channel();
        let mut buffer = ScanPageBuffer::new(BYTES_MAX);
        let small = Arc::new(page());
        buffer.push(Arc::clone(&small), &reserved(&small, owner.clone()));
        assert!(returned.try_recv().is_err());
        buffer.clear();
        assert_eq!(returned.try_iter().count(), 1);
        let large = Arc::new(FlatPage { absent: vec!["a".repeat(BYTES_MAX)], ..page() });
        buffer.push(small, &reserved(&page(), owner.clone()));
        buffer.push(Arc::clone(&large), &reserved(&large, owner));
        assert_eq!(returned.try_iter().count(), 2);
        assert_eq!(buffer.bytes, 0);
        // The owner has ended.
        buffer.push(Arc::clone(&large), &reserved(&large, channel().0));
        assert_eq!(Arc::strong_count(&large), 1);
    }
}
