//! The pages of a complete scan on their way to the warehouses: in memory as long as they fit, else read back from the spool.

use std::{
    num::NonZero,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    archive::{ArchiveError, read_pages},
    flatten::flatten_page,
    model::{DriftRules, FlatPage, Stream},
};

use super::PipelineError;

/// A body from this size on is flattened while no other such body is: its rows take several times its size, and several at once
/// would add up to more than any limit says. A usual page has about 1 MiB.
pub(super) const LARGE_BODY_BYTES: usize = 8 * 1024 * 1024;

/// The memory and the processors that the pages of a run may take; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// What flattened pages take, over all scans of the run.
    held_bytes: Arc<AtomicUsize>,
    held_bytes_max: usize,
    large_body: Arc<Mutex<()>>,
    processors: Arc<Semaphore>,
}

impl Budget {
    /// A budget of so many bytes of flattened pages.
    pub fn new(held_bytes_max: usize) -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            held_bytes: Arc::default(),
            held_bytes_max,
            large_body: Arc::default(),
            // Two at least: on a machine with one, pages go on while a warehouse waits for its disk.
            processors: Arc::new(Semaphore::new(processors.max(2))),
        }
    }

    /// Waits until there is a processor for a page, to be kept until it is held; or for a commit, to be kept until it is done. Who
    /// waits longest is next, so a commit waits for one page at most, and pages have all processors while there is none.
    pub async fn processor(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.processors).acquire_owned().await.ok()
    }

    fn take(&self, bytes: usize) -> bool {
        let taken = self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= self.held_bytes_max;
        if !taken {
            self.give_back(bytes);
        }
        taken
    }

    /// Whether the warehouses should catch up before more is pulled: what does not fit is flattened a second time, so from half of it
    /// on no window is begun while complete ones wait.
    pub fn is_tight(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) >= self.held_bytes_max / 2
    }

    fn give_back(&self, bytes: usize) {
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Waits, on this thread, until a body of this size may be flattened; to be kept until its rows are gone or counted.
    pub fn turn(&self, body_bytes: usize) -> Option<MutexGuard<'_, ()>> {
        (body_bytes >= LARGE_BODY_BYTES).then(|| self.large_body.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The pages of one scan. Dropping them gives their memory back.
#[derive(Debug)]
pub(super) struct Held {
    budget: Budget,
    stream: Stream,
    rules: DriftRules,
    pages: Vec<FlatPage>,
    bytes: usize,
    /// Set once a page did not fit, or was there before this run: then all are read from the spool.
    is_spooled: bool,
}

impl Held {
    pub fn new(budget: &Budget, stream: Stream, rules: DriftRules) -> Self {
        Self { budget: budget.clone(), stream, rules, pages: Vec::new(), bytes: 0, is_spooled: false }
    }

    /// For a scan whose first pages are in the spool alone.
    pub fn spooled(budget: &Budget, stream: Stream, rules: DriftRules) -> Self {
        let mut held = Self::new(budget, stream, rules);
        held.is_spooled = true;
        held
    }

    /// Takes a page.
    pub fn push(&mut self, page: FlatPage) {
        if self.is_spooled {
            return;
        }
        let bytes = page.memory_bytes();
        if self.budget.take(bytes) {
            self.bytes += bytes;
            self.pages.push(page);
        } else {
            self.clear();
            self.is_spooled = true;
        }
    }

    fn read(&self, body: &[u8]) -> Result<FlatPage, PipelineError> {
        Ok(flatten_page(self.stream, body, self.rules)?)
    }

    /// The window starts over.
    pub fn restart(&mut self) {
        self.clear();
        self.is_spooled = false;
    }

    /// They are where they are to go: gives back what they take.
    pub fn release(&mut self) {
        self.clear();
        self.is_spooled = true;
    }

    fn clear(&mut self) {
        self.pages.clear();
        self.budget.give_back(std::mem::take(&mut self.bytes));
    }

    /// Hands each page to `take`, in order.
    pub fn for_each<E: From<PipelineError>>(
        &self,
        spool: &Path,
        mut take: impl FnMut(&FlatPage) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.is_spooled {
            return self.pages.iter().try_for_each(take);
        }
        let mut pages = read_pages(spool).map_err(PipelineError::Archive)?;
        let mut count = 0;
        for body in pages.by_ref() {
            let body = body.map_err(PipelineError::Archive)?;
            let _turn = self.budget.turn(body.len());
            let page = self.read(&body)?;
            take(&page)?;
            count += 1;
        }
        if !pages.is_complete() {
            // Rows on pages that are gone would be taken for vanished.
            let (path, why) = (spool.to_owned(), "the file ends before the scan does".to_owned());
            return Err(PipelineError::Archive(ArchiveError::Damaged { path, page: count, why }).into());
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELD_BYTES_MAX: usize = 1 << 20;
    const BODY: &[u8] = br#"{"data":[{"responseGroupUid":"a","questionId":7,"createdAt":"2026-01-01T00:00:00.001Z"}]}"#;

    fn held_bytes(budget: &Budget) -> usize {
        budget.held_bytes.load(Ordering::Relaxed)
    }

    fn keys(held: &Held) -> usize {
        let mut keys = 0;
        let taken = held.for_each::<PipelineError>(Path::new("no spool"), |page| {
            keys += page.key_hashes.len();
            Ok(())
        });
        taken.unwrap();
        keys
    }

    #[test]
    fn p8_what_does_not_fit_is_given_back_once() {
        let budget = Budget::new(HELD_BYTES_MAX);
        let page = |held: &Held| held.read(BODY).unwrap();
        let mut held = Held::new(&budget, Stream::Responses, DriftRules::default());
        let bytes = page(&held).memory_bytes();
        // Room for three pages.
        let others = HELD_BYTES_MAX - 3 * bytes;
        assert!(budget.take(others));
        for _ in 0..3 {
            let page = page(&held);
            held.push(page);
        }
        assert_eq!((keys(&held), held_bytes(&budget)), (3, HELD_BYTES_MAX));
        for _ in 0..2 {
            let page = page(&held);
            held.push(page);
        }
        assert!(held.is_spooled);
        assert_eq!(held_bytes(&budget), others);
        drop(held);
        assert_eq!(held_bytes(&budget), others);
    }
}
