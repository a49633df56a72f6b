//! Buffers the pages of a scan for the warehouses: parsed in memory while they fit, else read back from the spool.

use std::{
    collections::BTreeMap,
    num::NonZero,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    archive::{ArchiveError, read_pages},
    flatten::flatten_in_detail,
    load::Wanted,
    model::{DriftRules, FlatPage, PageDetail, Stream},
    pipeline::{
        error::PipelineError,
        memory::{ByteBudget, Memory, Reservation},
    },
};

/// Number of windows whose pages are in memory at a time: windows that are pulled, that wait for a warehouse, and that
/// are being written.
const WINDOWS_IN_MEMORY: usize = 8;
/// A window is not cut below this number of rows to fit into memory: shorter windows have more pages that are not full.
const WINDOW_ROWS_MIN: u64 = 8000;

/// The memory and the processors that the pages of a run may use. Clones share them.
#[derive(Clone, Debug)]
pub struct Budget {
    pub shares: Memory,
    /// Flattened pages in memory, over all scans of the run.
    pages: ByteBudget,
    /// What the rows of each stream took so far.
    sizes: Arc<Mutex<BTreeMap<Stream, RowSizes>>>,
    /// Locked while a large body is flattened.
    large_body: Arc<Mutex<()>>,
    /// One permit for each page or commit that may use a processor at a time.
    processors: Arc<Semaphore>,
}

/// A number of rows, and the bytes that they take.
#[derive(Clone, Copy, Debug, Default)]
struct RowSizes {
    rows: usize,
    flat_bytes: usize,
    long_text_bytes: usize,
}

impl RowSizes {
    /// Returns the number of rows that are expected to take at most `bytes_max` bytes, if so many rows took `bytes`.
    fn rows_within(self, bytes_max: usize, bytes: usize) -> u64 {
        let fitting = (bytes_max as u128 * self.rows as u128).checked_div(bytes as u128);
        fitting.map_or(u64::MAX, |rows| u64::try_from(rows).unwrap_or(u64::MAX))
    }
}

impl Budget {
    /// Creates a budget of a run with these shares.
    pub fn new(shares: Memory) -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            shares,
            pages: ByteBudget::new(shares.pages),
            sizes: Arc::default(),
            large_body: Arc::default(),
            // At least two: on a machine with one processor, pages are flattened while a warehouse waits for its disk.
            processors: Arc::new(Semaphore::new(processors.max(2))),
        }
    }

    /// Waits for a processor, for one page or one commit. The caller keeps the permit until the page is buffered or the
    /// commit is done. The queue is fair: a commit waits for one page at most.
    pub async fn processor(&self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        Arc::clone(&self.processors).acquire_owned().await.ok()
    }

    /// Counts the rows of a page and the bytes that they take.
    pub fn record_sizes(&self, stream: Stream, page: &FlatPage) {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = sizes.entry(stream).or_default();
        sizes.rows += page.records;
        sizes.flat_bytes += page.memory_bytes();
        sizes.long_text_bytes += page.long_text_bytes;
    }

    /// Returns the maximum number of rows of the next window: their long texts are expected to take a quarter of their
    /// maximum, and their pages fit into memory together with those of the other windows. While a processor is idle,
    /// pages may exceed the memory and be flattened again, because fewer windows save requests.
    pub fn window_rows_max(&self, stream: Stream) -> u64 {
        let sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = sizes.get(&stream).copied().unwrap_or_default();
        let by_long_texts = sizes.rows_within(self.shares.long_texts / 4, sizes.long_text_bytes);
        if self.processors.available_permits() > 0 {
            return by_long_texts;
        }
        by_long_texts
            .min(sizes.rows_within(self.shares.pages / WINDOWS_IN_MEMORY, sizes.flat_bytes).max(WINDOW_ROWS_MIN))
    }

    /// Returns true if the long texts of a window exceed their maximum.
    pub fn are_too_long(&self, long_text_bytes: usize) -> bool {
        long_text_bytes > self.shares.long_texts
    }

    /// Returns true if at least half of the memory is used. The run then begins no window while complete scans wait for
    /// a commit, because pages that do not fit have to be flattened again for each read.
    pub fn is_tight(&self) -> bool {
        self.pages.is_used_to(2)
    }

    /// Blocks this thread until a body of this size may be flattened. The caller keeps the guard until the rows are
    /// dropped or counted in the budget. Returns `None` for a small body, which never waits.
    pub fn lock_large_body(&self, body_bytes: usize) -> Option<MutexGuard<'_, ()>> {
        (body_bytes >= self.shares.large_body()).then(|| self.large_body.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The pages of one scan. Dropping the buffer frees their memory.
#[derive(Debug)]
pub struct PageBuffer {
    budget: Budget,
    stream: Stream,
    rules: DriftRules,
    /// The pages in memory, with the reservations of their bytes; empty if `is_spooled`.
    pages: Vec<(FlatPage, Reservation)>,
    /// True if all pages have to be read from the spool: one page did not fit, or an earlier run pulled a page.
    is_spooled: bool,
    /// True if the pages in memory are summaries: rows have to be read from the spool.
    has_summaries: bool,
}

impl PageBuffer {
    /// Creates an empty buffer.
    pub fn new(budget: &Budget, stream: Stream, rules: DriftRules) -> Self {
        let pages = Vec::new();
        Self { budget: budget.clone(), stream, rules, pages, is_spooled: false, has_summaries: false }
    }

    /// Creates a buffer for a scan whose first pages are only in the spool.
    pub fn spooled(budget: &Budget, stream: Stream, rules: DriftRules) -> Self {
        let mut buffer = Self::new(budget, stream, rules);
        buffer.is_spooled = true;
        buffer
    }

    /// Creates an empty buffer for summaries of pages. The rows that are wanted are read from the spool.
    pub fn of_summaries(budget: &Budget, stream: Stream, rules: DriftRules) -> Self {
        let mut buffer = Self::new(budget, stream, rules);
        buffer.has_summaries = true;
        buffer
    }

    /// Returns what has to be built of a page for this buffer.
    pub fn detail(&self) -> PageDetail {
        if self.has_summaries { PageDetail::Summary } else { PageDetail::Rows }
    }

    /// Adds a page. If the page does not fit, drops all pages from memory; [`Self::for_each`] then reads the spool.
    pub fn push(&mut self, page: FlatPage) {
        if self.is_spooled {
            return;
        }
        match self.budget.pages.try_reserve(page.memory_bytes()) {
            Some(reservation) => self.pages.push((page, reservation)),
            None => self.release(),
        }
    }

    fn parse(&self, body: &[u8], detail: &PageDetail) -> Result<FlatPage, PipelineError> {
        Ok(flatten_in_detail(self.stream, body, self.rules, detail)?)
    }

    /// Drops all pages, because the window starts over.
    pub fn restart(&mut self) {
        self.pages.clear();
        self.is_spooled = false;
    }

    /// Frees the memory of the pages after every warehouse has applied them.
    pub fn release(&mut self) {
        self.pages.clear();
        self.is_spooled = true;
    }

    /// Passes each page to `apply`, in the order in which they were pulled, with at least the `wanted` rows. Reads the
    /// pages from `spool` if these rows are not in memory. Fails if the spool has no end mark, because rows on lost
    /// pages would count as vanished.
    pub fn for_each<E: From<PipelineError>>(
        &self,
        spool: &Path,
        wanted: Wanted<'_>,
        mut apply: impl FnMut(&FlatPage) -> Result<(), E>,
    ) -> Result<(), E> {
        let has_wanted = !self.has_summaries || matches!(wanted, Wanted::Summaries);
        if !self.is_spooled && has_wanted {
            return self.pages.iter().try_for_each(|(page, _)| apply(page));
        }
        let mut pages = read_pages(spool).map_err(PipelineError::Archive)?;
        let mut count = 0;
        for body in pages.by_ref() {
            let body = body.map_err(PipelineError::Archive)?;
            let _large_body = self.budget.lock_large_body(body.len());
            let page = self.parse(&body, &wanted.detail(count))?;
            apply(&page)?;
            count += 1;
        }
        if !pages.is_complete() {
            // Rows on lost pages would count as vanished.
            let (path, why) = (spool.to_owned(), "the file ends before the scan does".to_owned());
            return Err(PipelineError::Archive(ArchiveError::Damaged { path, page: count, why }).into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE_BYTES_MAX: usize = 1 << 20;
    const BODY: &[u8] = br#"{"data":[{"responseGroupUid":"a","questionId":7,"createdAt":"2026-01-01T00:00:00.001Z"}]}"#;

    fn keys(buffer: &PageBuffer) -> usize {
        let mut keys = 0;
        let visited = buffer.for_each::<PipelineError>(Path::new("no spool"), Wanted::Rows, |page| {
            keys += page.key_hashes.len();
            Ok(())
        });
        visited.unwrap();
        keys
    }

    #[test]
    fn p8_pages_that_do_not_fit_free_their_memory_once() {
        let shares = Memory { pages: PAGE_BYTES_MAX, ..Memory::default() };
        let budget = Budget::new(shares);
        let page = |buffer: &PageBuffer| buffer.parse(BODY, &buffer.detail()).unwrap();
        let mut buffer = PageBuffer::new(&budget, Stream::Responses, DriftRules::default());
        let bytes = page(&buffer).memory_bytes();
        // Room for three pages.
        let others = PAGE_BYTES_MAX - 3 * bytes;
        let _others = budget.pages.reserve(others);
        for _ in 0..3 {
            let page = page(&buffer);
            buffer.push(page);
        }
        assert_eq!((keys(&buffer), budget.pages.reserved()), (3, PAGE_BYTES_MAX));
        for _ in 0..2 {
            let page = page(&buffer);
            buffer.push(page);
        }
        assert!(buffer.is_spooled);
        assert_eq!(budget.pages.reserved(), others);
        drop(buffer);
        assert_eq!(budget.pages.reserved(), others);
    }

    #[test]
    fn p4_rows_of_summaries_are_read_from_the_spool() {
        let budget = Budget::new(Memory { pages: PAGE_BYTES_MAX, ..Memory::default() });
        let mut buffer = PageBuffer::of_summaries(&budget, Stream::Responses, DriftRules::default());
        let page = buffer.parse(BODY, &buffer.detail()).unwrap();
        assert!(page.is_summary);
        buffer.push(page);
        let read = |wanted| buffer.for_each::<PipelineError>(Path::new("no spool"), wanted, |_| Ok(()));
        assert!(read(Wanted::Summaries).is_ok(), "summaries are in memory");
        for wanted in [Wanted::Rows, Wanted::Records(&|_| [0].into_iter().collect())] {
            assert!(matches!(read(wanted), Err(PipelineError::Archive(_))));
        }
    }
}
