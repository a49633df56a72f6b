//! How far the reader may be ahead of the writers: in bytes, for a page has any size. A writer that applies a scan finds the pages of
//! the next one ready.

use std::{
    ops::Deref,
    sync::{Arc, Condvar, Mutex, PoisonError},
};

use crate::model::FlatPage;

/// Bytes of flattened pages that may wait. A page that is larger waits alone.
const BYTES_MAX: usize = 64 * 1024 * 1024;

/// What waits; clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    waiting: Arc<(Mutex<usize>, Condvar)>,
}

/// A page that waits; when the last writer is done with it, there is room for others.
#[derive(Debug)]
pub(super) struct WaitingPage {
    page: FlatPage,
    bytes: usize,
    ahead: Ahead,
}

impl Ahead {
    /// Waits until there is room for the page.
    pub fn admit(&self, page: FlatPage) -> Arc<WaitingPage> {
        let bytes = page.memory_bytes();
        let (waiting, changed) = &*self.waiting;
        let waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |waiting: &mut usize| *waiting > 0 && waiting.saturating_add(bytes) > BYTES_MAX;
        *changed.wait_while(waiting, is_full).unwrap_or_else(PoisonError::into_inner) += bytes;
        Arc::new(WaitingPage { page, bytes, ahead: self.clone() })
    }
}

impl Deref for WaitingPage {
    type Target = FlatPage;

    fn deref(&self) -> &FlatPage {
        &self.page
    }
}

impl Drop for WaitingPage {
    fn drop(&mut self) {
        let (waiting, changed) = &*self.ahead.waiting;
        *waiting.lock().unwrap_or_else(PoisonError::into_inner) -= self.bytes;
        changed.notify_one();
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
        let first = ahead.admit(page());
        let full = BYTES_MAX - first.bytes;
        *ahead.waiting.0.lock().unwrap() += full;
        let (admitted, seen) = channel();
        thread::scope(|scope| {
            scope.spawn(|| admitted.send(ahead.admit(page()).bytes).unwrap());
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
        assert!(ahead.admit(larger).bytes > BYTES_MAX);
        assert_eq!(*ahead.waiting.0.lock().unwrap(), 0);
    }
}
