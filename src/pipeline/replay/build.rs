//! Archived pages become rows of warehouses: read some way ahead of one writer for each warehouse.

use std::{
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use tokio_util::sync::CancellationToken;

use crate::{
    archive::read_pages,
    load::{LoadError, Pages, Warehouse},
    model::{Activity, FlatPage, TimeAccount},
};

use super::{
    super::{PipelineError, assemble::failed, commit::UNCOMMITTED_ROWS_MAX},
    ahead::{Ahead, Taken},
    flatteners::flatten,
    inventory::Archived,
    progress::ReplayProgress,
    read::{Ended, Reader},
    step::{KeptOut, Step},
};

/// Failpoints that may wait for a warehouse; of pages, [`Ahead`] bounds the bytes.
const STEPS_AHEAD_MAX: usize = 256;

/// The warehouses that are filled.
pub(super) type Warehouses = Vec<Warehouse>;

/// What is built, beside the scans.
pub(super) struct Around<Open, Complete> {
    /// How many warehouses there will be.
    pub warehouses: usize,
    /// Opens them. While it does, the first pages are read.
    pub open: Open,
    /// Brings what is in no archive into a warehouse that has all scans, and publishes it.
    pub complete: Complete,
}

/// Applies the scans, in order, to the warehouses, and completes them. Returns what `open` gave; `None`:
/// it was asked to stop.
pub(super) fn build<Rest: Sync>(
    scans: &[Archived],
    kept_out: KeptOut<'_>,
    around: Around<
        impl FnOnce() -> Result<(Warehouses, Rest), PipelineError>,
        impl Fn(&mut Warehouse, &Rest) -> Result<(), LoadError> + Sync,
    >,
    account: &TimeAccount,
    stop: &CancellationToken,
    progress: &ReplayProgress,
) -> Result<Option<(Warehouses, Rest)>, PipelineError> {
    let Around { warehouses, open, complete } = around;
    let complete = &complete;
    progress.scans.store(scans.len() as u64, Ordering::Relaxed);
    let (writers, failpoints): (Vec<_>, Vec<_>) = (0..warehouses).map(|_| sync_channel(STEPS_AHEAD_MAX)).unzip();
    let mut opened = None;
    let filled = &mut opened;
    let is_done = thread::scope(move |scope| {
        let reader = scope.spawn(move || {
            let ahead = Ahead::default();
            Reader { kept_out, writers, ahead, account, stop, progress }.read_all(scans)
        });
        // If it fails, the reader finds the writers gone.
        let (destinations, rest) = filled.insert(open()?);
        let rest = &*rest;
        if destinations.len() != warehouses {
            return Err(PipelineError::WorkerPanicked("a warehouse before it was opened".to_owned()));
        }
        let mut handles = Vec::new();
        for (destination, failpoints) in destinations.iter_mut().zip(failpoints) {
            let complete = move |destination: &mut Warehouse| complete(destination, rest);
            let writer = Writer { kept_out, account };
            handles.push(scope.spawn(move || writer.write(destination, &failpoints, complete)));
        }
        let read =
            reader.join().map_err(|_| PipelineError::WorkerPanicked("the thread that reads the archive".to_owned()))?;
        for handle in handles {
            handle.join().map_err(|_| PipelineError::WorkerPanicked("a warehouse's thread".to_owned()))??;
        }
        match read {
            Ok(()) => Ok(true),
            Err(Ended::Stopped) => Ok(false),
            Err(Ended::Failed(error)) => Err(error),
            // Every writer ended well, although one was gone: it cannot be.
            Err(Ended::WriterGone) => Err(PipelineError::WorkerPanicked("a warehouse's thread".to_owned())),
        }
    })?;
    Ok(opened.filter(|_| is_done))
}

/// Fills one warehouse.
struct Writer<'a> {
    kept_out: KeptOut<'a>,
    account: &'a TimeAccount,
}

impl Writer<'_> {
    fn write(
        &self,
        destination: &mut Warehouse,
        failpoints: &Receiver<Step>,
        complete: impl Fn(&mut Warehouse) -> Result<(), LoadError>,
    ) -> Result<(), PipelineError> {
        let name = destination.name();
        let (mut taken, mut uncommitted) = (Taken::default(), 0);
        for step in failpoints {
            let _busy = self.account.enter(Activity::Write);
            match step {
                Step::Page(page, room) => taken.keep(page, &room),
                Step::Commit(archived, options) => {
                    let pages = ScanPages { taken: &taken, archived: &archived, kept_out: self.kept_out };
                    let applied = destination.apply(&archived.scan, &pages, &options).map_err(failed(name))?;
                    taken.give_back();
                    uncommitted += applied.counts.rows_read;
                    if uncommitted >= UNCOMMITTED_ROWS_MAX {
                        destination.commit().map_err(failed(name))?;
                        uncommitted = 0;
                    }
                    if destination.should_compact() {
                        destination.publish().map_err(failed(name))?;
                    }
                }
                Step::Complete => complete(destination).map_err(failed(name))?,
            }
        }
        Ok(())
    }
}

/// The pages of a scan: those that were taken, or, where they were too many to be kept, those of the archive.
struct ScanPages<'a> {
    taken: &'a Taken,
    archived: &'a Archived,
    kept_out: KeptOut<'a>,
}

impl Pages for ScanPages<'_> {
    fn for_each(&self, take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>) -> Result<(), LoadError> {
        if let Some(mut pages) = self.taken.pages() {
            return pages.try_for_each(take);
        }
        let scan = &self.archived.scan;
        let rules = self.kept_out.drift.of(scan.scope.stream);
        for body in read_pages(&self.archived.path).map_err(PipelineError::Archive)? {
            let body = body.map_err(PipelineError::Archive)?;
            take(&flatten(scan, rules, &body, self.kept_out.suppression)?)?;
        }
        Ok(())
    }
}
