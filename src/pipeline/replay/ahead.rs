//! How far the reader may be ahead of the writers: in bytes, for a page has any size. A writer that applies a scan finds the pages of
//! the next one ready. What a writer is done with goes back to the reader: memory that one thread takes and another frees costs both.

use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc::Sender};

use crate::model::FlatPage;

/// Bytes of flattened pages that may wait, and that a writer may keep. A page that is larger waits alone.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What waits; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    waiting: Arc<(Mutex<usize>, Condvar)>,
}

/// The room that a page takes; when the last writer has taken the page, it is given back.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    ahead: Ahead,
}

impl Ahead {
    /// Waits until there is room for the page.
    pub fn admit(&self, page: &FlatPage) -> Arc<Room> {
        let bytes = page.memory_bytes();
        let (waiting, changed) = &*self.waiting;
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |waiting: &mut usize| *waiting > 0 && waiting.saturating_add(bytes) > BYTES_MAX;
        *changed.wait_while(waiting, is_full).unwrap_or_else(PoisonError::into_inner) += bytes;
        Arc::new(Room { bytes, ahead: self.clone() })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let (waiting, changed) = &*self.ahead.waiting;
        *waiting.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        changed.notify_one();
    }
}

/// The pages that a writer has staged. Their memory is in use until the scan is applied, or handed over to the engine.
#[derive(Debug)]
pub(super) struct Taken {
    pages: Vec<Arc<FlatPage>>,
    bytes: usize,
    back: Sender<Vec<Arc<FlatPage>>>,
}

impl Taken {
    /// None yet; they go back over this channel.
    pub fn new(back: Sender<Vec<Arc<FlatPage>>>) -> Self {
        Self { pages: Vec::new(), bytes: 0, back }
    }

    /// Keeps a page, as far as there is room for it.
    pub fn keep(&mut self, page: Arc<FlatPage>, room: &Room) {
        self.pages.push(page);
        self.bytes += room.bytes;
        if self.bytes >= BYTES_MAX {
            self.give_back();
        }
    }

    /// Gives all of them back.
    pub fn give_back(&mut self) {
        self.bytes = 0;
        // A reader that is gone takes none: then they are freed here.
        let _ = self.back.send(std::mem::take(&mut self.pages));
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

    fn page() -> FlatPage {
        let body = br#"{"data":[{"id":1,"responseGroupUid":"a","questionId":1,"createdAt":"2026-01-01T00:00:00Z"}]}"#;
        flatten_page(Stream::Themes, body, DriftRules::default()).unwrap()
    }

    #[test]
    fn p8_a_reader_waits_when_too_much_is_ahead_and_goes_on_when_a_page_is_done_with() {
        let ahead = Ahead::default();
        let first = ahead.admit(&page());
        let full = BYTES_MAX - first.bytes;
        *ahead.waiting.0.lock().unwrap() += full;
        let (admitted, seen) = channel();
        thread::scope(|scope| {
            scope.spawn(|| admitted.send(ahead.admit(&page()).bytes).unwrap());
            seen.recv_timeout(Duration::from_millis(50)).unwrap_err();
            drop(first);
            assert!(seen.recv_timeout(Duration::from_secs(60)).unwrap() > 0);
        });
        assert_eq!(*ahead.waiting.0.lock().unwrap(), full);
    }

    #[test]
    fn a_page_larger_than_all_there_is_waits_alone() {
        let ahead = Ahead::default();
        let larger = FlatPage { absent: vec!["a".repeat(BYTES_MAX)], ..page() };
        assert!(ahead.admit(&larger).bytes > BYTES_MAX);
        assert_eq!(*ahead.waiting.0.lock().unwrap(), 0);
    }
    #[test]
    fn p8_a_writer_keeps_pages_until_it_is_told_or_has_too_many() {
        let (back, returned) = channel();
        let (ahead, mut taken) = (Ahead::default(), Taken::new(back));
        let small = Arc::new(page());
        taken.keep(Arc::clone(&small), &ahead.admit(&small));
        assert!(returned.try_recv().is_err());
        taken.give_back();
        assert_eq!(returned.try_recv().unwrap().len(), 1);
        let large = Arc::new(FlatPage { absent: vec!["a".repeat(BYTES_MAX)], ..page() });
        taken.keep(small, &ahead.admit(&page()));
        taken.keep(Arc::clone(&large), &ahead.admit(&large));
        assert_eq!(returned.try_recv().unwrap().len(), 2);
        assert_eq!(taken.bytes, 0);
    }
}
