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

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    archive::{ArchiveError, read_pages},
    flatten::flatten_page,
    model::{Digest, DriftRules, FlatPage, Stream},
    state::KnownPage,
};

use super::PipelineError;

/// Flattened pages that may be in memory at once, over all scans of the run, in bytes.
const HELD_BYTES_MAX: usize = 192 * 1024 * 1024;

/// From here on no window is begun while complete ones wait: what does not fit is flattened a second time.
const HELD_BYTES_TIGHT: usize = HELD_BYTES_MAX / 2;

/// A body from this size on is flattened while no other such body is: its rows take several times its size, and several at once
/// would add up to more than any limit says. A usual page has about 1 MiB.
pub(super) const LARGE_BODY_BYTES: usize = 8 * 1024 * 1024;

/// The memory and the processors that the pages of a run may take; clones share it.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    /// How much of [`HELD_BYTES_MAX`] is in use.
    held_bytes: Arc<AtomicUsize>,
    large_body: Arc<Mutex<()>>,
    processors: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            held_bytes: Arc::default(),
            large_body: Arc::default(),
            // Two at least: on a machine with one, pages go on while a warehouse waits for its disk.
            processors: Arc::new(Semaphore::new(processors.max(2))),
        }
    }
}

impl Budget {
    /// Waits until there is a processor for a page, to be kept until it is held; or for a commit, to be kept until it is done. Who
    /// waits longest is next, so a commit waits for one page at most, and pages have all processors while there is none.
    pub async fn processor(&self) -> Option<OwnedSemaphorePermit> {
        // It is never closed.
        Arc::clone(&self.processors).acquire_owned().await.ok()
    }

    fn take(&self, bytes: usize) -> bool {
        let taken = self.held_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= HELD_BYTES_MAX;
        if !taken {
            self.give_back(bytes);
        }
        taken
    }

    /// Whether the warehouses should catch up before more is pulled.
    pub fn is_tight(&self) -> bool {
        self.held_bytes.load(Ordering::Relaxed) >= HELD_BYTES_TIGHT
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
    pages: Vec<HeldPage>,
    bytes: usize,
    /// What the pages come to, while each was known before it came.
    digest: Option<Digest>,
    /// Records that came once more, beside those.
    repeated: u64,
    /// What is known of single pages, for the next scan of the window.
    known: Vec<KnownPage>,
    /// Set once a page did not fit, or was there before this run: then all are read from the spool.
    is_spooled: bool,
}

#[derive(Debug)]
enum HeldPage {
    Read(FlatPage),
    /// It is known what the page comes to: that it has to be read is not likely.
    Body(Bytes),
}

impl HeldPage {
    fn bytes(&self) -> usize {
        match self {
            HeldPage::Read(page) => page.memory_bytes(),
            HeldPage::Body(body) => body.len(),
        }
    }
}

impl Held {
    pub fn new(budget: &Budget, stream: Stream, rules: DriftRules) -> Self {
        Self {
            budget: budget.clone(),
            stream,
            rules,
            pages: Vec::new(),
            bytes: 0,
            digest: Some(Digest::default()),
            repeated: 0,
            known: Vec::new(),
            is_spooled: false,
        }
    }

    /// For a scan whose first pages are in the spool alone.
    pub fn spooled(budget: &Budget, stream: Stream, rules: DriftRules) -> Self {
        let mut held = Self::new(budget, stream, rules);
        (held.is_spooled, held.digest) = (true, None);
        held
    }

    /// Takes a page that was read. Those before it that were not are read now: the pages of other scans are read at the same time, while a
    /// warehouse would read them one after the other.
    pub fn push(&mut self, page: FlatPage) -> Result<(), PipelineError> {
        if self.digest.take().is_some() {
            let pages = std::mem::take(&mut self.pages);
            self.clear();
            for held in pages {
                if self.is_spooled {
                    break;
                }
                let read = match held {
                    HeldPage::Body(body) => self.read(&body)?,
                    HeldPage::Read(page) => page,
                };
                self.hold(HeldPage::Read(read));
            }
        }
        self.hold(HeldPage::Read(page));
        Ok(())
    }

    /// Takes a page of which is known what it comes to, where [`Held::is_known`].
    pub fn push_known(&mut self, body: Bytes, page: KnownPage) {
        if let Some(digest) = &mut self.digest {
            digest.merge(page.digest);
        }
        self.known.push(page);
        if body.len() < LARGE_BODY_BYTES {
            self.hold(HeldPage::Body(body));
        } else {
            // It would have to be read while no other large one is.
            self.clear();
            self.is_spooled = true;
        }
    }

    /// Takes records that came once more, for a look at an edge, where [`Held::is_known`].
    pub fn push_repeated(&mut self, records: usize) {
        self.repeated += records as u64;
    }

    /// Notes what the page comes to that was pushed last.
    pub fn know(&mut self, page: KnownPage) {
        self.known.push(page);
    }

    /// Whether each page so far was known before it came.
    pub fn is_known(&self) -> bool {
        self.digest.is_some()
    }

    /// What all pages come to, if each was known before it came and there is any record; and how many records came once more.
    pub fn digest(&self) -> Option<(Digest, u64)> {
        self.digest.filter(|digest| digest.records > 0).map(|digest| (digest, self.repeated))
    }

    /// What is known of single pages.
    pub fn known(&self) -> &[KnownPage] {
        &self.known
    }

    fn read(&self, body: &[u8]) -> Result<FlatPage, PipelineError> {
        flatten_page(self.stream, body, self.rules).map_err(PipelineError::Flatten)
    }

    fn hold(&mut self, page: HeldPage) {
        if self.is_spooled {
            return;
        }
        let bytes = page.bytes();
        if self.budget.take(bytes) {
            self.bytes += bytes;
            self.pages.push(page);
        } else {
            self.clear();
            self.is_spooled = true;
        }
    }

    /// The window starts over.
    pub fn restart(&mut self) {
        self.clear();
        self.known.clear();
        (self.is_spooled, self.digest, self.repeated) = (false, Some(Digest::default()), 0);
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
    pub fn for_each<E>(
        &self,
        spool: &Path,
        mut take: impl FnMut(&FlatPage) -> Result<(), E>,
    ) -> Result<Result<(), E>, PipelineError> {
        if !self.is_spooled {
            for page in &self.pages {
                let taken = match page {
                    HeldPage::Read(page) => take(page),
                    HeldPage::Body(body) => take(&self.read(body)?),
                };
                if taken.is_err() {
                    return Ok(taken);
                }
            }
            return Ok(Ok(()));
        }
        let mut pages = read_pages(spool).map_err(PipelineError::Archive)?;
        let mut count = 0;
        for body in pages.by_ref() {
            let body = body.map_err(PipelineError::Archive)?;
            let _turn = self.budget.turn(body.len());
            let page = self.read(&body)?;
            if let Err(error) = take(&page) {
                return Ok(Err(error));
            }
            count += 1;
        }
        if !pages.is_complete() {
            // Rows on pages that are gone would be taken for vanished.
            let (path, why) = (spool.to_owned(), "the file ends before the scan does".to_owned());
            return Err(PipelineError::Archive(ArchiveError::Damaged { path, page: count, why }));
        }
        Ok(Ok(()))
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

    const BODY: &[u8] = br#"{"data":[{"responseGroupUid":"a","questionId":7,"createdAt":"2026-01-01T00:00:00.001Z"}]}"#;

    fn known(page: u128) -> KnownPage {
        let digest = Digest { records: 1, sum: page };
        KnownPage { page, digest, last_ms: Some(1), edge: Vec::new(), tie_ms: None }
    }

    fn held_bytes(budget: &Budget) -> usize {
        budget.held_bytes.load(Ordering::Relaxed)
    }

    fn keys(held: &Held) -> usize {
        let mut keys = 0;
        let taken = held.for_each::<()>(Path::new("no spool"), |page| {
            keys += page.key_hashes.len();
            Ok(())
        });
        taken.unwrap().unwrap();
        keys
    }

    #[test]
    fn pages_that_are_known_are_read_when_one_is_not() {
        let budget = Budget::default();
        let mut held = Held::new(&budget, Stream::Responses, DriftRules::default());
        for page in 0..3 {
            held.push_known(Bytes::from_static(BODY), known(page));
        }
        held.push_repeated(2);
        assert_eq!(held.digest(), Some((Digest { records: 3, sum: 3 }, 2)));
        assert_eq!((keys(&held), held_bytes(&budget)), (3, 3 * BODY.len()));
        held.push(held.read(BODY).unwrap()).unwrap();
        assert!(held.digest().is_none() && !held.is_known() && held.known().len() == 3);
        assert_eq!(keys(&held), 4);
        assert!(held.pages.iter().all(|page| matches!(page, HeldPage::Read(_))));
        drop(held);
        assert_eq!(held_bytes(&budget), 0);
    }

    #[test]
    fn what_does_not_fit_is_given_back_once() {
        let budget = Budget::default();
        // Room for bodies, and for hardly any rows.
        let others = HELD_BYTES_MAX - 10 * BODY.len();
        assert!(budget.take(others));
        let mut held = Held::new(&budget, Stream::Responses, DriftRules::default());
        for page in 0..5 {
            held.push_known(Bytes::from_static(BODY), known(page));
        }
        held.push(held.read(BODY).unwrap()).unwrap();
        assert!(held.is_spooled);
        assert_eq!(held_bytes(&budget), others);
    }
}
