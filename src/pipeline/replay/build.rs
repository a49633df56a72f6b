//! Archived pages become rows of warehouses: read some way ahead of one writer for each warehouse.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use tokio_util::sync::CancellationToken;

use crate::{
    load::{CommitOptions, Destination, LoadError},
    model::{Activity, DriftPolicy, FlatPage, Scan, TimeAccount},
    person::Suppression,
};

use super::{
    super::{PipelineError, assemble::failed, commit::UNSEALED_ROWS_MAX},
    ahead::{Ahead, Room, Taken},
    inventory::Archived,
    read::{Ended, Reader},
};

/// Steps that may wait for a warehouse; of pages, [`Ahead`] bounds the bytes.
const STEPS_AHEAD_MAX: usize = 256;

/// Numbers that a progress bar can watch. Nothing depends on them.
#[derive(Debug, Default)]
pub struct ReplayProgress {
    pub(super) scans: AtomicU64,
    pub(super) scans_done: AtomicU64,
    pub(super) pages_done: AtomicU64,
    pub(super) records_done: AtomicU64,
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
pub(super) enum Step {
    Begin(Arc<Scan>),
    Page(Arc<FlatPage>, Arc<Room>),
    Commit(Arc<Scan>, CommitOptions),
    /// There are no more scans.
    Complete,
}

/// The warehouses that are filled.
pub(super) type Warehouses = Vec<Box<dyn Destination>>;

/// What is built, beside the scans.
pub(super) struct Around<Open, Complete> {
    /// How many warehouses there will be.
    pub warehouses: usize,
    /// Opens them. While it does, the first pages are read.
    pub open: Open,
    /// Brings what is in no archive into a warehouse that has all scans, and publishes it.
    pub complete: Complete,
}

/// Applies the scans, in order, to the warehouses, and completes them. Returns what `open` gave; `None`: it was asked to stop.
pub(super) fn build<Rest: Sync>(
    scans: &[Archived],
    (drift, suppression): (DriftPolicy, &Suppression),
    around: Around<
        impl FnOnce() -> Result<(Warehouses, Rest), PipelineError>,
        impl Fn(&mut dyn Destination, &Rest) -> Result<(), LoadError> + Sync,
    >,
    account: &TimeAccount,
    stop: &CancellationToken,
    progress: &ReplayProgress,
) -> Result<Option<(Warehouses, Rest)>, PipelineError> {
    let Around { warehouses, open, complete } = around;
    let complete = &complete;
    progress.scans.store(scans.len() as u64, Ordering::Relaxed);
    let (writers, steps): (Vec<_>, Vec<_>) = (0..warehouses).map(|_| sync_channel(STEPS_AHEAD_MAX)).unzip();
    let mut opened = None;
    let filled = &mut opened;
    let is_done = thread::scope(move |scope| {
        let reader = scope.spawn(move || {
            let ahead = Ahead::default();
            Reader { drift, suppression, writers, ahead, account, stop, progress }.read_all(scans)
        });
        // If it fails, the reader finds the writers gone.
        let (destinations, rest) = filled.insert(open()?);
        let rest = &*rest;
        if destinations.len() != warehouses {
            return Err(PipelineError::Died("a warehouse before it was opened".to_owned()));
        }
        let mut handles = Vec::new();
        for (destination, steps) in destinations.iter_mut().zip(steps) {
            let complete = move |destination: &mut dyn Destination| complete(destination, rest);
            handles.push(scope.spawn(move || write(destination.as_mut(), &steps, complete, account)));
        }
        let read = reader.join().map_err(|_| PipelineError::Died("the thread that reads the archive".to_owned()))?;
        for handle in handles {
            handle.join().map_err(|_| PipelineError::Died("a warehouse's thread".to_owned()))??;
        }
        match read {
            Ok(()) => Ok(true),
            Err(Ended::Stopped) => Ok(false),
            Err(Ended::Failed(error)) => Err(error),
            // Every writer ended well, although one was gone: it cannot be.
            Err(Ended::WriterGone) => Err(PipelineError::Died("a warehouse's thread".to_owned())),
        }
    })?;
    Ok(opened.filter(|_| is_done))
}

fn write(
    destination: &mut dyn Destination,
    steps: &Receiver<Step>,
    complete: impl Fn(&mut dyn Destination) -> Result<(), LoadError>,
    account: &TimeAccount,
) -> Result<(), PipelineError> {
    let name = destination.name();
    destination.build_anew().map_err(failed(name))?;
    let (mut taken, mut unsealed) = (Taken::default(), 0);
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
            Step::Complete => complete(destination).map_err(failed(name))?,
        }
    }
    Ok(())
}
