//! How far the reader may be ahead of the writers: in bytes, for a page has any size. A writer that applies a scan
//! finds the pages of the next one ready. What a writer is done with goes back to its maker: memory that one thread
//! takes and another frees costs both.

use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc::Sender};

use crate::model::FlatPage;

/// Bytes of flattened pages that may wait for a writer, and that a writer may keep. A page that is larger waits alone.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// From so many on, the writers have enough to do: they are what is waited for, and should have the processors.
const BYTES_PLENTY: usize = BYTES_MAX / 4;

/// What waits; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    waiting: Arc<(Mutex<usize>, Condvar)>,
}

/// The room that a page takes; when the last writer has taken the page, the room is given back.
#[derive(Debug)]
pub(super) struct Room {
    bytes: usize,
    ahead: Ahead,
    /// Where the page goes when it is done with.
    maker: Sender<Arc<FlatPage>>,
}

impl Ahead {
    /// Whether the writers have enough to do.
    pub fn is_plenty(&self) -> bool {
        *self.waiting.0.lock().unwrap_or_else(PoisonError::into_inner) >= BYTES_PLENTY
    }

    /// Waits until there is room for the page.
    pub fn admit(&self, page: &FlatPage, maker: Sender<Arc<FlatPage>>) -> Arc<Room> {
        let bytes = page.memory_bytes();
        let (waiting, changed) = &*self.waiting;
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |waiting: &mut usize| *waiting > 0 && waiting.saturating_add(bytes) > BYTES_MAX;
        *changed.wait_while(waiting, is_full).unwrap_or_else(PoisonError::into_inner) += bytes;
        Arc::new(Room { bytes, ahead: self.clone(), maker })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let (waiting, changed) = &*self.ahead.waiting;
        *waiting.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        changed.notify_one();
    }
}

/// The pages of a scan that a writer is to apply, as far as there is room for them.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pages: Vec<(Arc<FlatPage>, Sender<Arc<FlatPage>>)>,
    bytes: usize,
    is_too_much: bool,
}

impl Taken {
    /// Keeps a page. If there is no room for it, none of the scan is kept.
    pub fn keep(&mut self, page: Arc<FlatPage>, room: &Room) {
        self.pages.push((page, room.maker.clone()));
        self.bytes += room.bytes;
        if self.is_too_much || self.bytes >= BYTES_MAX {
            self.give_back();
            self.is_too_much = true;
        }
    }

    /// All pages of the scan; `None`: they are not kept.
    pub fn pages(&self) -> Option<impl Iterator<Item = &FlatPage>> {
        (!self.is_too_much).then(|| self.pages.iter().map(|(page, _)| page.as_ref()))
    }

    /// Gives all of them back; the next page is another scan's.
    pub fn give_back(&mut self) {
        (self.bytes, self.is_too_much) = (0, false);
        for (page, maker) in self.pages.drain(..) {
            // A maker that is gone takes none: then it is freed here.
            let _ = maker.send(page);
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

    fn page() -> FlatPage {
        let body = br#"{"data":[{"id":1,"responseGroupUid":"a","questionId":1,"createdAt":"2026-01-01T00:00:00Z"}]}"#;
        flatten_page(Stream::Themes, body, DriftRules::default()).unwrap()
    }

    fn admitted(ahead: &Ahead, page: &FlatPage) -> Arc<Room> {
        ahead.admit(page, channel().0)
    }

    #[test]
    fn p8_a_reader_waits_while_too_many_pages_are_queued() {
        let ahead = Ahead::default();
        let first = admitted(&ahead, &page());
        assert!(!ahead.is_plenty());
        let full = BYTES_MAX - first.bytes;
        *ahead.waiting.0.lock().unwrap() += full;
        assert!(ahead.is_plenty());
        let (admits, seen) = channel();
        thread::scope(|scope| {
            scope.spawn(|| admits.send(admitted(&ahead, &page()).bytes).unwrap());
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
        assert!(admitted(&ahead, &larger).bytes > BYTES_MAX);
        assert_eq!(*ahead.waiting.0.lock().unwrap(), 0);
    }

    #[test]
    fn p8_a_writer_keeps_pages_until_it_is_told_or_has_too_many() {
        let (maker, returned) = channel();
        let (ahead, mut taken) = (Ahead::default(), Taken::default());
        let small = Arc::new(page());
        taken.keep(Arc::clone(&small), &ahead.admit(&small, maker.clone()));
        assert!(returned.try_recv().is_err());
        taken.give_back();
        assert_eq!(returned.try_iter().count(), 1);
        let large = Arc::new(FlatPage { absent: vec!["a".repeat(BYTES_MAX)], ..page() });
        taken.keep(small, &ahead.admit(&page(), maker.clone()));
        taken.keep(Arc::clone(&large), &ahead.admit(&large, maker));
        assert_eq!(returned.try_iter().count(), 2);
        assert_eq!(taken.bytes, 0);
        // A maker that is gone.
        taken.keep(Arc::clone(&large), &admitted(&ahead, &large));
        assert_eq!(Arc::strong_count(&large), 1);
    }
}
