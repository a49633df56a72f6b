//! Flattens archived pages on several threads, and returns them in the order in which they were read.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, Scope},
};

use crate::pipeline::{error::PipelineError, scan::commit::check_drift};
use crate::{
    flatten::flatten_in_detail,
    model::{Activity, DriftRules, FlatPage, PageDetail, Scan, TimeAccount},
    person::Suppression,
};

/// The maximum number of threads. This many threads flatten as fast as a warehouse can write.
const THREADS_MAX: usize = 4;
/// The maximum number of queued pages and steps.
const QUEUED_MAX: usize = 64;

/// A page of the archive.
pub(super) struct ArchivedPage {
    pub scan: Arc<Scan>,
    pub rules: DriftRules,
    pub body: Arc<Vec<u8>>,
}

/// A flattened page. The last user sends the page to `owner`, the thread that flattened it, which frees the page.
pub(super) struct FlattenedPage {
    pub page: FlatPage,
    pub owner: Sender<Arc<FlatPage>>,
}

type FlattenResult = Result<Box<FlattenedPage>, PipelineError>;

/// An entry taken from the queue: a page, or a step at its position among the pages.
pub(super) enum Output<T> {
    Page(Box<FlattenedPage>),
    Step(T),
}

/// The threads that flatten pages, and a queue of pages and steps in their order.
pub(super) struct Flatteners<T> {
    pages: Sender<(ArchivedPage, SyncSender<FlattenResult>)>,
    threads: usize,
    queue: VecDeque<QueueEntry<T>>,
    queued_pages: usize,
    queued_bytes: usize,
    /// The maximum size of queued bodies, unless a single page is larger. The rows of a body take several times as much
    /// memory, and count for [`super::page_budget`] only after the queue.
    queued_bytes_max: usize,
}

/// An entry of the queue.
enum QueueEntry<T> {
    /// The bytes of the body, and the channel for the flattened page.
    Page(usize, Receiver<FlattenResult>),
    Step(T),
}

impl<T> Flatteners<T> {
    /// Starts the threads, which end when the `Flatteners` are dropped.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        queued_bytes_max: usize,
        suppression: &'scope Suppression,
        account: &'scope TimeAccount,
    ) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
        let (pages, requests) = channel();
        let requests = Arc::new(Mutex::new(requests));
        for _ in 0..threads {
            let requests = Arc::clone(&requests);
            scope.spawn(move || flatten_all(&requests, suppression, account));
        }
        Self { pages, threads, queue: VecDeque::new(), queued_pages: 0, queued_bytes: 0, queued_bytes_max }
    }

    /// Returns how many queued pages keep the threads busy: two for each thread, one in work and one waiting.
    pub fn pages_max(&self) -> usize {
        2 * self.threads
    }

    /// Queues a page, and passes it to the threads.
    pub fn push_page(&mut self, page: ArchivedPage) {
        // Capacity 1: the thread continues with its next page before this one is received.
        let (done, result) = sync_channel(1);
        let bytes = page.body.len();
        // If all threads have ended, `next_entry` returns the error.
        let _ = self.pages.send((page, done));
        self.queue.push_back(QueueEntry::Page(bytes, result));
        self.queued_pages += 1;
        self.queued_bytes += bytes;
    }

    /// Queues a step behind the pages before it.
    pub fn push(&mut self, step: T) {
        self.queue.push_back(QueueEntry::Step(step));
    }

    /// Takes the first entry of the queue if it is a step, or if the queue is full. Waits until a taken page is
    /// flattened. Returns `None` if the queue is empty, or begins with a page and is not full.
    ///
    /// The queue is full if it has `pages` pages, too many bytes or too many entries.
    pub fn next_entry(&mut self, pages: usize) -> Option<Result<Output<T>, PipelineError>> {
        let is_full =
            self.queued_pages >= pages || self.queued_bytes >= self.queued_bytes_max || self.queue.len() >= QUEUED_MAX;
        if matches!(self.queue.front()?, QueueEntry::Page(..)) && !is_full {
            return None;
        }
        Some(match self.queue.pop_front()? {
            QueueEntry::Step(step) => Ok(Output::Step(step)),
            QueueEntry::Page(bytes, result) => {
                self.queued_pages -= 1;
                self.queued_bytes -= bytes;
                let panicked = |_| Err(PipelineError::WorkerPanicked("a thread that flattens pages".to_owned()));
                result.recv().unwrap_or_else(panicked).map(Output::Page)
            }
        })
    }
}

/// Flattens requested pages until all senders of requests are dropped. Frees pages that come back from their last user.
fn flatten_all(
    requests: &Mutex<Receiver<(ArchivedPage, SyncSender<FlattenResult>)>>,
    suppression: &Suppression,
    account: &TimeAccount,
) {
    let (owner, returned) = channel();
    loop {
        returned.try_iter().for_each(drop);
        // One thread waits for a page with the lock, and the other threads wait for the lock.
        let next = requests.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((ArchivedPage { scan, rules, body }, done)) = next else { return };
        let _busy = account.enter(Activity::Parse);
        let page = flatten(&scan, rules, &body, suppression, &PageDetail::Rows);
        let result = page.map(|page| Box::new(FlattenedPage { page, owner: owner.clone() }));
        // The receiver is gone if the replay has ended.
        let _ = done.send(result);
    }
}

/// Flattens a page of the archive, without the records of erased people: a file that was restored from a backup may
/// still have such records. Fails if the page has drift that freezes its stream.
pub(super) fn flatten(
    scan: &Scan,
    rules: DriftRules,
    body: &[u8],
    suppression: &Suppression,
    detail: &PageDetail,
) -> Result<FlatPage, PipelineError> {
    let redacted = suppression.filtered(scan, body);
    let body = redacted.as_ref().map_or(body, |redacted| &redacted.body);
    let page = flatten_in_detail(scan.scope.stream, body, rules, detail)?;
    check_drift(scan.scope.stream, rules, &page.drift)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FlagSet, RunId, ScanId, Scope, Stream, Window};

    fn page(records: usize) -> ArchivedPage {
        let scan = Scan {
            id: ScanId::new(1),
            run_id: RunId::new(1),
            scope: Scope::all(Stream::Themes),
            window: Window::new(0, 1),
            flags: FlagSet::default(),
            started_ms: 1,
        };
        let record = |id| format!(r#"{{"id":{id},"createdAt":"2026-01-01T00:00:00Z"}}"#);
        let records: Vec<_> = (0..records).map(record).collect();
        let body = format!(r#"{{"data":[{}]}}"#, records.join(","));
        ArchivedPage { scan: Arc::new(scan), rules: DriftRules::default(), body: Arc::new(body.into_bytes()) }
    }

    const QUEUED_BYTES_MAX: usize = 16 << 20;

    fn with_flatteners(test: impl FnOnce(Flatteners<&'static str>)) {
        let (suppression, account) = Default::default();
        thread::scope(|scope| test(Flatteners::start(scope, QUEUED_BYTES_MAX, &suppression, &account)));
    }

    #[test]
    fn p2_pages_and_steps_keep_their_order_across_threads() {
        with_flatteners(|mut flatteners| {
            // A large page takes a hundred times as long as a small one.
            let sizes: Vec<_> = (0..60).map(|at| if at % 3 == 0 { 2000 + at } else { at }).collect();
            for records in &sizes {
                flatteners.push("begin");
                flatteners.push_page(page(*records));
                flatteners.push("commit");
            }
            let mut outputs = Vec::new();
            while let Some(next) = flatteners.next_entry(0) {
                outputs.push(match next.unwrap() {
                    Output::Page(flattened) => flattened.page.records.to_string(),
                    Output::Step(step) => step.to_owned(),
                });
            }
            let steps = |records: &usize| ["begin".to_owned(), records.to_string(), "commit".to_owned()];
            assert_eq!(outputs, sizes.iter().flat_map(steps).collect::<Vec<_>>());
        });
    }

    #[test]
    fn p8_the_queue_is_bounded_and_a_step_waits_for_earlier_pages() {
        with_flatteners(|mut flatteners| {
            flatteners.push("begin");
            assert!(matches!(flatteners.next_entry(9), Some(Ok(Output::Step("begin")))));
            flatteners.push_page(page(1));
            flatteners.push("commit");
            assert!(flatteners.next_entry(2).is_none());
            flatteners.push_page(page(2));
            assert!(matches!(flatteners.next_entry(2), Some(Ok(Output::Page(first))) if first.page.records == 1));
            assert!(matches!(flatteners.next_entry(2), Some(Ok(Output::Step("commit")))));
            assert!(flatteners.next_entry(2).is_none());
            assert!(matches!(flatteners.next_entry(1), Some(Ok(Output::Page(second))) if second.page.records == 2));
            assert!(flatteners.next_entry(0).is_none());
            // A queue with too many bytes, and one with too many entries.
            flatteners.push_page(page(QUEUED_BYTES_MAX / 40));
            assert!(matches!(flatteners.next_entry(2), Some(Ok(Output::Page(_)))));
            flatteners.push_page(page(3));
            (0..QUEUED_MAX - 2).for_each(|_| flatteners.push("begin"));
            assert!(flatteners.next_entry(2).is_none());
            flatteners.push("begin");
            assert!(matches!(flatteners.next_entry(2), Some(Ok(Output::Page(last))) if last.page.records == 3));
        });
    }

    #[test]
    fn an_unreadable_page_is_an_error_at_its_position() {
        with_flatteners(|mut flatteners| {
            flatteners.push_page(page(500));
            flatteners.push_page(ArchivedPage { body: Arc::new(b"no page".to_vec()), ..page(0) });
            flatteners.push_page(page(3));
            assert!(matches!(flatteners.next_entry(0), Some(Ok(Output::Page(first))) if first.page.records == 500));
            assert!(matches!(flatteners.next_entry(0), Some(Err(PipelineError::Flatten(_)))));
            assert!(matches!(flatteners.next_entry(0), Some(Ok(Output::Page(last))) if last.page.records == 3));
        });
    }
}
