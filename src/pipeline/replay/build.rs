//! Archived pages become rows of warehouses: read and flattened on one thread, some way ahead of one writer for each warehouse.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, SyncSender, channel, sync_channel},
    },
    thread,
};

use tokio_util::sync::CancellationToken;

use crate::{
    archive::{ArchiveError, read_pages},
    flatten::flatten_page,
    load::{CommitOptions, Destination},
    model::{Activity, DriftPolicy, DriftRules, EndStyle, FlatPage, Proof, Scan, Stream, TimeAccount, Window},
    person::Suppression,
    source::envelope,
};

use super::{
    super::{PipelineError, assemble::failed, commit::UNSEALED_ROWS_MAX, freeze::check_drift},
    ahead::{Ahead, Room, Taken},
    inventory::Archived,
};

/// Steps that may wait for a warehouse; of pages, [`Ahead`] bounds the bytes.
const STEPS_AHEAD_MAX: usize = 256;

/// Scans that a warehouse is told of before they come: those of a month lie near each other, but for later re-scans of it.
const SCANS_COMING: usize = 16;

/// Numbers that a progress bar can watch. Nothing depends on them.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    pub(super) scans: AtomicU64,
    scans_done: AtomicU64,
    pages_done: AtomicU64,
    records_done: AtomicU64,
}

/// What was replayed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplaySnapshot {
    pub scans: u64,
    pub scans_done: u64,
    pub pages_done: u64,
    pub records_done: u64,
}

impl ReplayProgress {
    /// The counters now.
    pub fn snapshot(&self) -> ReplaySnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ReplaySnapshot {
            scans: read(&self.scans),
            scans_done: read(&self.scans_done),
            pages_done: read(&self.pages_done),
            records_done: read(&self.records_done),
        }
    }
}

/// What a writer is told.
#[derive(Clone)]
enum Step {
    Begin(Arc<Scan>),
    Page(Arc<FlatPage>, Arc<Room>),
    Commit(Arc<Scan>, CommitOptions),
}

/// The warehouses that are filled.
pub(super) type Warehouses = Vec<Box<dyn Destination>>;

/// Where the pages come back that the writers are done with.
type Returned = Receiver<Vec<Arc<FlatPage>>>;

/// A writer is gone; it says why when it is waited for.
struct WriterGone;

/// Applies the scans, in order, to so many warehouses, and publishes them. While they are opened the first pages are read. Returns what
/// `open` gave; `None`: it was asked to stop.
pub(super) fn build<Rest>(
    scans: &[Archived],
    (drift, suppression): (DriftPolicy, &Suppression),
    (warehouses, open): (usize, impl FnOnce() -> Result<(Warehouses, Rest), PipelineError>),
    account: &TimeAccount,
    stop: &CancellationToken,
    progress: &ReplayProgress,
) -> Result<Option<(Warehouses, Rest)>, PipelineError> {
    progress.scans.store(scans.len() as u64, Ordering::Relaxed);
    let (back, returned) = channel();
    let (writers, steps): (Vec<_>, Vec<_>) = (0..warehouses).map(|_| sync_channel(STEPS_AHEAD_MAX)).unzip();
    let mut opened = None;
    let filled = &mut opened;
    let is_done = thread::scope(move |scope| {
        let reader = scope.spawn(move || {
            let read = read_all(scans, (drift, suppression), (&writers, &returned), account, stop, progress);
            drop(writers);
            returned.into_iter().for_each(drop);
            read
        });
        // If it fails, the reader finds the writers gone.
        let (destinations, _) = filled.insert(open()?);
        if destinations.len() != warehouses {
            return Err(PipelineError::Died("a warehouse before it was opened".to_owned()));
        }
        let mut handles = Vec::new();
        for (destination, steps) in destinations.iter_mut().zip(steps) {
            let taken = Taken::new(back.clone());
            handles.push(scope.spawn(move || write(destination.as_mut(), &steps, taken, account)));
        }
        drop(back);
        let read = reader.join().map_err(|_| PipelineError::Died("the thread that reads the archive".to_owned()))?;
        for handle in handles {
            handle.join().map_err(|_| PipelineError::Died("a warehouse's thread".to_owned()))??;
        }
        match read {
            Ok(is_done) => is_done,
            // Every writer ended well, although one was gone: it cannot be.
            Err(WriterGone) => Err(PipelineError::Died("a warehouse's thread".to_owned())),
        }
    })?;
    Ok(opened.filter(|_| is_done))
}

fn write(
    destination: &mut dyn Destination,
    steps: &Receiver<Step>,
    mut taken: Taken,
    account: &TimeAccount,
) -> Result<(), PipelineError> {
    let name = destination.name();
    destination.build_anew().map_err(failed(name))?;
    let mut unsealed = 0;
    for step in steps {
        let _busy = account.enter(Activity::Write);
        match step {
            Step::Begin(scan) => destination.begin(&scan).map_err(failed(name))?,
            Step::Page(page, room) => {
                destination.stage(&page).map_err(failed(name))?;
                taken.keep(page, &room);
            }
            Step::Commit(scan, options) => {
                let applied = destination.apply(&scan, &options).map_err(failed(name))?;
                taken.give_back();
                unsealed += applied.counts.rows_read;
                if unsealed >= UNSEALED_ROWS_MAX {
                    destination.seal().map_err(failed(name))?;
                    unsealed = 0;
                }
                if destination.wants_publish() {
                    destination.publish().map_err(failed(name))?;
                }
            }
        }
    }
    let _busy = account.enter(Activity::Write);
    destination.publish().map_err(failed(name))
}

/// The outer error: a writer is gone. The inner one is this side's own.
fn read_all(
    scans: &[Archived],
    (drift, suppression): (DriftPolicy, &Suppression),
    writers: (&[SyncSender<Step>], &Returned),
    account: &TimeAccount,
    stop: &CancellationToken,
    progress: &ReplayProgress,
) -> Result<Result<bool, PipelineError>, WriterGone> {
    let ahead = Ahead::default();
    for (at, archived) in scans.iter().enumerate() {
        if stop.is_cancelled() {
            return Ok(Ok(false));
        }
        let coming = scans[at + 1..].iter().take(SCANS_COMING).map(|coming| &coming.scan);
        if let Err(error) = read_one(
            (archived, coming.map(|coming| (coming.scope.stream, coming.window)).collect()),
            (drift.of(archived.scan.scope.stream), suppression),
            (writers.0, &ahead, writers.1),
            account,
            stop,
            progress,
        )? {
            return Ok(Err(error));
        }
    }
    Ok(Ok(!stop.is_cancelled()))
}

fn read_one(
    (archived, coming): (&Archived, Vec<(Stream, Window)>),
    (rules, suppression): (DriftRules, &Suppression),
    (writers, ahead, returned): (&[SyncSender<Step>], &Ahead, &Returned),
    account: &TimeAccount,
    stop: &CancellationToken,
    progress: &ReplayProgress,
) -> Result<Result<(), PipelineError>, WriterGone> {
    let scan = Arc::new(archived.scan.clone());
    send(writers, Step::Begin(Arc::clone(&scan)))?;
    let mut pages = match read_pages(&archived.path) {
        Ok(pages) => pages,
        Err(error) => return Ok(Err(PipelineError::Archive(error))),
    };
    let mut last = None;
    for body in pages.by_ref() {
        if stop.is_cancelled() {
            return Ok(Ok(()));
        }
        let busy = account.enter(Activity::Parse);
        let body = match body {
            Ok(body) => body,
            Err(error) => return Ok(Err(PipelineError::Archive(error))),
        };
        // An archive that was restored from a backup may hold people who are kept out.
        let less = suppression.filtered(&scan, &body);
        let kept = less.as_ref().map_or(body.as_slice(), |less| &less.body);
        let page = match flatten_page(scan.scope.stream, kept, rules) {
            Ok(page) => page,
            Err(error) => return Ok(Err(PipelineError::Flatten(error))),
        };
        if let Err(frozen) = check_drift(scan.scope.stream, rules, &page.drift) {
            return Ok(Err(frozen));
        }
        drop(busy);
        progress.pages_done.fetch_add(1, Ordering::Relaxed);
        progress.records_done.fetch_add(page.records as u64, Ordering::Relaxed);
        last = Some(body);
        let room = ahead.admit(&page);
        send(writers, Step::Page(Arc::new(page), room))?;
        returned.try_iter().for_each(drop);
    }
    if !pages.is_complete() {
        let (path, page) = (archived.path.clone(), usize::try_from(archived.pages).unwrap_or(usize::MAX));
        let why = "its end is missing".to_owned();
        return Ok(Err(PipelineError::Archive(ArchiveError::Damaged { path, page, why })));
    }
    let options = CommitOptions {
        vanish: archived.note.vanish,
        record_unchanged: archived.note.record_unchanged,
        proof: Proof { pages: archived.pages, end: end_of(scan.scope.stream, last.as_deref()) },
        coming,
    };
    send(writers, Step::Commit(scan, options))?;
    progress.scans_done.fetch_add(1, Ordering::Relaxed);
    Ok(Ok(()))
}

/// How the service ended the list: on its last page, or with 404 where there was none.
fn end_of(stream: Stream, last: Option<&[u8]>) -> Option<EndStyle> {
    match last {
        // People are no list, and have no end.
        _ if stream == Stream::Users => None,
        None => Some(EndStyle::NotFound),
        Some(body) => envelope::parse(body).ok().map(|envelope| envelope.end.unwrap_or(EndStyle::NotFound)),
    }
}

fn send(writers: &[SyncSender<Step>], step: Step) -> Result<(), WriterGone> {
    writers.iter().try_for_each(|writer| writer.send(step.clone())).map_err(|_| WriterGone)
}
