//! Pages flattened by several threads, and handed on in the order in which they were read.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
    thread::{self, Scope},
};

use super::super::{PipelineError, freeze::check_drift};
use crate::{
    flatten::flatten_page,
    model::{Activity, DriftRules, FlatPage, Scan, TimeAccount},
    person::Suppression,
};

/// Threads at most, if there are as many processors: what these flatten keeps any warehouse busy.
const THREADS_MAX: usize = 4;
/// Bytes of the pages that wait, but for one that has more by itself: their rows take several times that, and are
/// counted only once they are handed on.
const PAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Pages and other things that wait, at most.
const WAITING_MAX: usize = 64;

/// A page as it lies in the archive.
pub(super) struct ArchivedPage {
    pub scan: Arc<Scan>,
    pub rules: DriftRules,
    pub body: Arc<Vec<u8>>,
}

/// A page that was flattened. Whoever is done with it sends it back to the thread that made it.
pub(super) struct FlattenedPage {
    pub page: FlatPage,
    pub maker: Sender<Arc<FlatPage>>,
}

type Outcome = Result<Box<FlattenedPage>, PipelineError>;

/// What comes out: a page, or something else that keeps its place among the pages.
pub(super) enum Passed<T> {
    Page(Box<FlattenedPage>),
    Other(T),
}

/// The threads, and what they were given and is not yet handed on.
pub(super) struct Flatteners<T> {
    pages: Sender<(ArchivedPage, SyncSender<Outcome>)>,
    threads: usize,
    waiting: VecDeque<Waiting<T>>,
    pages_waiting: usize,
    bytes_waiting: usize,
}

enum Waiting<T> {
    /// So many bytes, and where it comes out.
    Page(usize, Receiver<Outcome>),
    Other(T),
}

impl<T> Flatteners<T> {
    /// Starts the threads; they end when this is dropped.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        suppression: &'scope Suppression,
        account: &'scope TimeAccount,
    ) -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(THREADS_MAX);
        let (pages, given) = channel();
        let given = Arc::new(Mutex::new(given));
        for _ in 0..threads {
            let given = Arc::clone(&given);
            scope.spawn(move || flatten_all(&given, suppression, account));
        }
        Self { pages, threads, waiting: VecDeque::new(), pages_waiting: 0, bytes_waiting: 0 }
    }

    /// Pages that keep the threads busy: one each, and one that comes next.
    pub fn pages_max(&self) -> usize {
        2 * self.threads
    }

    /// Takes a page.
    pub fn push_page(&mut self, page: ArchivedPage) {
        // With room for one: a thread goes on to its next page whether this one is waited for or not.
        let (done, outcome) = sync_channel(1);
        let bytes = page.body.len();
        // Should all threads be gone, that is found out when its turn comes.
        let _ = self.pages.send((page, done));
        self.waiting.push_back(Waiting::Page(bytes, outcome));
        self.pages_waiting += 1;
        self.bytes_waiting += bytes;
    }

    /// Takes something that is handed on after all pages before it.
    pub fn push(&mut self, other: T) {
        self.waiting.push_back(Waiting::Other(other));
    }

    /// Waits for what was pushed first. `None`: it is a page, and fewer than so many pages wait, nor too much else;
    /// or there is nothing.
    pub fn next_of(&mut self, pages: usize) -> Option<Result<Passed<T>, PipelineError>> {
        let is_full =
            self.pages_waiting >= pages || self.bytes_waiting >= PAGE_BYTES_MAX || self.waiting.len() >= WAITING_MAX;
        if matches!(self.waiting.front()?, Waiting::Page(..)) && !is_full {
            return None;
        }
        Some(match self.waiting.pop_front()? {
            Waiting::Other(other) => Ok(Passed::Other(other)),
            Waiting::Page(bytes, outcome) => {
                self.pages_waiting -= 1;
                self.bytes_waiting -= bytes;
                let panicked = |_| Err(PipelineError::WorkerPanicked("a thread that reads pages".to_owned()));
                outcome.recv().unwrap_or_else(panicked).map(Passed::Page)
            }
        })
    }
}

fn flatten_all(
    given: &Mutex<Receiver<(ArchivedPage, SyncSender<Outcome>)>>,
    suppression: &Suppression,
    account: &TimeAccount,
) {
    let (maker, done_with) = channel();
    loop {
        done_with.try_iter().for_each(drop);
        // One thread waits for a page, the others for it to have one.
        let next = given.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((ArchivedPage { scan, rules, body }, done)) = next else { return };
        let _busy = account.enter(Activity::Parse);
        let page = flatten(&scan, rules, &body, suppression);
        let outcome = page.map(|page| Box::new(FlattenedPage { page, maker: maker.clone() }));
        // A replay that has ended waits for none.
        let _ = done.send(outcome);
    }
}

/// Flattens a page of the archive. One that was restored from a backup may hold people who are kept out.
pub(super) fn flatten(
    scan: &Scan,
    rules: DriftRules,
    body: &[u8],
    suppression: &Suppression,
) -> Result<FlatPage, PipelineError> {
    let redacted = suppression.filtered(scan, body);
    let kept = redacted.as_ref().map_or(body, |redacted| &redacted.body);
    let page = flatten_page(scan.scope.stream, kept, rules)?;
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

    fn with_flatteners(test: impl FnOnce(Flatteners<&'static str>)) {
        let (suppression, account) = Default::default();
        thread::scope(|scope| test(Flatteners::start(scope, &suppression, &account)));
    }

    #[test]
    fn p2_pages_and_steps_keep_their_order_across_workers() {
        with_flatteners(|mut flatteners| {
            // The large ones take a hundred times as long.
            let sizes: Vec<_> = (0..60).map(|at| if at % 3 == 0 { 2000 + at } else { at }).collect();
            for records in &sizes {
                flatteners.push("begin");
                flatteners.push_page(page(*records));
                flatteners.push("commit");
            }
            let mut passed = Vec::new();
            while let Some(next) = flatteners.next_of(0) {
                passed.push(match next.unwrap() {
                    Passed::Page(flattened) => flattened.page.records.to_string(),
                    Passed::Other(step) => step.to_owned(),
                });
            }
            let steps = |records: &usize| ["begin".to_owned(), records.to_string(), "commit".to_owned()];
            assert_eq!(passed, sizes.iter().flat_map(steps).collect::<Vec<_>>());
        });
    }

    #[test]
    fn p8_the_queue_is_bounded_and_a_step_waits_for_earlier_pages() {
        with_flatteners(|mut flatteners| {
            flatteners.push("begin");
            assert!(matches!(flatteners.next_of(9), Some(Ok(Passed::Other("begin")))));
            flatteners.push_page(page(1));
            flatteners.push("commit");
            assert!(flatteners.next_of(2).is_none());
            flatteners.push_page(page(2));
            assert!(matches!(flatteners.next_of(2), Some(Ok(Passed::Page(first))) if first.page.records == 1));
            assert!(matches!(flatteners.next_of(2), Some(Ok(Passed::Other("commit")))));
            assert!(flatteners.next_of(2).is_none());
            assert!(matches!(flatteners.next_of(1), Some(Ok(Passed::Page(second))) if second.page.records == 2));
            assert!(flatteners.next_of(0).is_none());
            // Nor more bytes of them, nor more steps behind one.
            flatteners.push_page(page(PAGE_BYTES_MAX / 40));
            assert!(matches!(flatteners.next_of(2), Some(Ok(Passed::Page(_)))));
            flatteners.push_page(page(3));
            (0..WAITING_MAX - 2).for_each(|_| flatteners.push("begin"));
            assert!(flatteners.next_of(2).is_none());
            flatteners.push("begin");
            assert!(matches!(flatteners.next_of(2), Some(Ok(Passed::Page(last))) if last.page.records == 3));
        });
    }

    #[test]
    fn a_page_that_cannot_be_read_is_told_in_its_turn() {
        with_flatteners(|mut flatteners| {
            flatteners.push_page(page(500));
            flatteners.push_page(ArchivedPage { body: Arc::new(b"no page".to_vec()), ..page(0) });
            flatteners.push_page(page(3));
            assert!(matches!(flatteners.next_of(0), Some(Ok(Passed::Page(first))) if first.page.records == 500));
            assert!(matches!(flatteners.next_of(0), Some(Err(PipelineError::Flatten(_)))));
            assert!(matches!(flatteners.next_of(0), Some(Ok(Passed::Page(last))) if last.page.records == 3));
        });
    }
}
