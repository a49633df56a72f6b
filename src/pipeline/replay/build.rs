//! Builds warehouses from archived scans: one thread reads ahead, and one thread per warehouse writes.

use std::{
    sync::{
        atomic::Ordering,
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use crate::{
    archive::read_pages,
    load::{LoadError, Pages, Warehouse},
    model::{Activity, FlatPage, Stream, TimeAccount},
};

use super::{
    super::{PipelineError, assemble::failed, commit::UNCOMMITTED_ROWS_MAX},
    context::ReplayContext,
    flatteners::flatten,
    inventory::ArchivedScan,
    page_budget::{PageBudget, ScanPageBuffer},
    read::{ArchiveReader, ReadStop},
    writer_step::{PageFilter, WriterStep},
};

/// The maximum number of steps that are queued for a warehouse. [`PageBudget`] limits the bytes of the queued pages.
const QUEUED_STEPS_MAX: usize = 256;

/// How a build opens and completes its warehouses.
pub(super) struct BuildPlan<Open, Begin, Complete> {
    /// The number of warehouses that `open` returns.
    pub warehouses: usize,
    /// Opens the new warehouses, while the first pages are read.
    pub open: Open,
    /// Adds the webhook events to a warehouse, before its first scan: the status of a survey depends on their order.
    pub begin: Begin,
    /// Completes a warehouse that has all scans: adds the data that the archive lacks, and publishes the warehouse.
    pub complete: Complete,
}

/// Applies the scans, in order, to new warehouses, and completes the warehouses. Returns what `plan.open` returned, or
/// `None` if the replay was stopped.
///
/// One thread reads the archive while the warehouses are opened. Each warehouse has a thread that writes it.
pub(super) fn build<Data: Sync>(
    context: &ReplayContext<'_>,
    scans: &[ArchivedScan],
    plan: BuildPlan<
        impl FnOnce() -> Result<(Vec<Warehouse>, Data), PipelineError>,
        impl Fn(&mut Warehouse, &Data) -> Result<(), LoadError> + Sync,
        impl Fn(&mut Warehouse, &Data) -> Result<(), LoadError> + Sync,
    >,
) -> Result<Option<(Vec<Warehouse>, Data)>, PipelineError> {
    let ReplayContext { account, stop, progress, .. } = *context;
    let filter = context.filter();
    let BuildPlan { warehouses, open, begin, complete } = plan;
    let (begin, complete) = (&begin, &complete);
    progress.scans.store(scans.len() as u64, Ordering::Relaxed);
    let (writers, queues): (Vec<_>, Vec<_>) = (0..warehouses).map(|_| sync_channel(QUEUED_STEPS_MAX)).unzip();
    let mut opened = None;
    let slot = &mut opened;
    let is_done = thread::scope(move |scope| {
        let reader = scope.spawn(move || {
            let budget = PageBudget::default();
            ArchiveReader { filter, writers, budget, account, stop, progress }.read_all(scans)
        });
        // If `open` fails, the queues are dropped, and the reader ends.
        let (destinations, data) = slot.insert(open()?);
        let data = &*data;
        if destinations.len() != warehouses {
            return Err(PipelineError::WorkerPanicked("a warehouse before it was opened".to_owned()));
        }
        let mut handles = Vec::new();
        for (destination, steps) in destinations.iter_mut().zip(queues) {
            let complete = move |destination: &mut Warehouse| complete(destination, data);
            let writer = Writer { filter, account };
            handles.push(scope.spawn(move || {
                begin(destination, data).map_err(failed(destination.name()))?;
                writer.write(destination, &steps, complete)
            }));
        }
        let read =
            reader.join().map_err(|_| PipelineError::WorkerPanicked("the thread that reads the archive".to_owned()))?;
        for handle in handles {
            handle.join().map_err(|_| PipelineError::WorkerPanicked("a warehouse's thread".to_owned()))??;
        }
        match read {
            Ok(()) => Ok(true),
            Err(ReadStop::Cancelled) => Ok(false),
            Err(ReadStop::Failed(error)) => Err(error),
            // Not reached: the loop above returns the error of the writer.
            Err(ReadStop::WriterEnded) => Err(PipelineError::WorkerPanicked("a warehouse's thread".to_owned())),
        }
    })?;
    Ok(opened.filter(|_| is_done))
}

/// Writes one warehouse.
struct Writer<'a> {
    filter: PageFilter<'a>,
    account: &'a TimeAccount,
}

impl Writer<'_> {
    /// Applies the steps until the reader ends. Buffers the pages of a scan until its commit step, and commits after
    /// [`UNCOMMITTED_ROWS_MAX`] rows.
    fn write(
        &self,
        destination: &mut Warehouse,
        steps: &Receiver<WriterStep>,
        complete: impl Fn(&mut Warehouse) -> Result<(), LoadError>,
    ) -> Result<(), PipelineError> {
        let name = destination.name();
        let (mut buffer, mut uncommitted) = (ScanPageBuffer::default(), 0);
        for step in steps {
            let _busy = self.account.enter(Activity::Write);
            match step {
                WriterStep::Page(page, reservation) => buffer.push(page, &reservation),
                WriterStep::Commit(archived, options) => {
                    if archived.scan.scope.stream == Stream::Surveys {
                        destination.replay_events(archived.note.ordinal).map_err(failed(name))?;
                    }
                    let pages = ScanPages { buffer: &buffer, archived: &archived, filter: self.filter };
                    let applied = destination.apply(&archived.scan, &pages, &options).map_err(failed(name))?;
                    buffer.clear();
                    uncommitted += applied.counts.rows_read;
                    if uncommitted >= UNCOMMITTED_ROWS_MAX {
                        destination.commit().map_err(failed(name))?;
                        uncommitted = 0;
                    }
                    if destination.should_compact() {
                        destination.publish().map_err(failed(name))?;
                    }
                }
                WriterStep::Complete => {
                    destination.replay_events(i64::MAX).map_err(failed(name))?;
                    complete(destination).map_err(failed(name))?;
                }
            }
        }
        Ok(())
    }
}

/// The pages of a scan: from the buffer, or from the archive if the buffer has overflowed.
struct ScanPages<'a> {
    buffer: &'a ScanPageBuffer,
    archived: &'a ArchivedScan,
    filter: PageFilter<'a>,
}

impl Pages for ScanPages<'_> {
    fn for_each(&self, take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>) -> Result<(), LoadError> {
        if let Some(mut pages) = self.buffer.pages() {
            return pages.try_for_each(take);
        }
        let scan = &self.archived.scan;
        let rules = self.filter.drift.of(scan.scope.stream);
        for body in read_pages(&self.archived.path).map_err(PipelineError::Archive)? {
            let body = body.map_err(PipelineError::Archive)?;
            take(&flatten(scan, rules, &body, self.filter.suppression)?)?;
        }
        Ok(())
    }
}
