//! Builds warehouses from archived scans: one thread reads ahead, and one thread per warehouse writes.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use tokio_util::sync::CancellationToken;

use crate::{
    load::{CommitOptions, LoadError, Pages, Wanted, Warehouse},
    model::{Activity, FlatPage, Stream, TimeAccount},
    person::Suppression,
    pipeline::{
        assemble::failed,
        error::PipelineError,
        memory::{ByteBudget, Memory},
        scan::commit::UNCOMMITTED_ROWS_MAX,
        session::Session,
    },
};

use super::{
    flatteners::flatten,
    inventory::ArchivedScan,
    page_budget::ScanPageBuffer,
    read::{ArchiveReader, PageFilter, ReadStop, WriterStep},
    report::ReplayProgress,
};

/// The maximum number of steps that are queued for a warehouse. [`ByteBudget`] limits the bytes of the queued pages.
const QUEUED_STEPS_MAX: usize = 256;

/// The session, the archived scans and the erased people of a replay.
pub(super) struct ReplayContext<'a> {
    pub session: &'a Session,
    pub stop: &'a CancellationToken,
    pub progress: &'a ReplayProgress,
    pub scans: Vec<ArchivedScan>,
    pub suppression: Suppression,
}

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
    let ReplayContext { session, stop, progress, .. } = *context;
    let (settings, account) = (&session.settings, &session.account);
    let filter = PageFilter { drift: settings.drift, suppression: &context.suppression };
    let memory = Memory::of(&settings.warehouse);
    let BuildPlan { warehouses, open, begin, complete } = plan;
    let (begin, complete) = (&begin, &complete);
    progress.begin(scans.len() as u64);
    let (writers, queues): (Vec<_>, Vec<_>) = (0..warehouses).map(|_| sync_channel(QUEUED_STEPS_MAX)).unzip();
    let mut opened = None;
    let slot = &mut opened;
    let is_done = thread::scope(move |scope| {
        let reader = scope.spawn(move || {
            let budget = ByteBudget::new(memory.pages / 2);
            ArchiveReader { filter, writers, budget, shares: memory, account, stop, progress }.read_all(scans)
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
            let writer = Writer { filter, buffer_bytes_max: memory.pages / 2, account };
            handles.push(scope.spawn(move || {
                let written = begin(destination, data).and_then(|()| writer.write(destination, &steps, complete));
                written.map_err(failed(destination.name()))
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
    buffer_bytes_max: usize,
    account: &'a TimeAccount,
}

/// A scan, and the options of its commit.
type ScanToApply = (Arc<ArchivedScan>, CommitOptions);

impl Writer<'_> {
    /// Applies the steps until the reader ends. Buffers the pages of a scan until its commit step, and commits after
    /// [`UNCOMMITTED_ROWS_MAX`] rows. Applies the scans since the last commit again if [`Warehouse::can_repeat`].
    fn write(
        &self,
        destination: &mut Warehouse,
        steps: &Receiver<WriterStep>,
        complete: impl Fn(&mut Warehouse) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let (mut buffer, mut uncommitted, mut rows) = (ScanPageBuffer::new(self.buffer_bytes_max), Vec::new(), 0);
        for step in steps {
            let _busy = self.account.enter(Activity::Write);
            let (is_last, committed) = match step {
                WriterStep::Page(page, reservation) => {
                    buffer.push(page, &reservation);
                    continue;
                }
                WriterStep::Commit(archived, options) => {
                    let scan = (archived, options);
                    let applied = self.apply(destination, &scan, Some(&buffer));
                    buffer.clear();
                    uncommitted.push(scan);
                    (false, applied.and_then(|read| commit_if_due(destination, &mut rows, read)))
                }
                WriterStep::Complete => (true, destination.commit().map(|_| true)),
            };
            let is_committed = match committed {
                Err(error) if destination.can_repeat(&error)? => {
                    uncommitted.iter().try_for_each(|scan| self.apply_alone(destination, scan))?;
                    true
                }
                committed => committed?,
            };
            if is_committed {
                uncommitted.clear();
                rows = 0;
            }
            if is_last {
                destination.replay_events(i64::MAX)?;
                complete(destination)?;
            }
        }
        Ok(())
    }

    /// Applies a scan, and returns the number of its rows.
    fn apply(
        &self,
        destination: &mut Warehouse,
        (archived, options): &ScanToApply,
        buffer: Option<&ScanPageBuffer>,
    ) -> Result<u64, LoadError> {
        if archived.scan.scope.stream == Stream::Surveys {
            destination.replay_events(archived.note.ordinal)?;
        }
        let pages = ScanPages { buffer, archived, filter: self.filter };
        Ok(destination.apply(&archived.scan, &pages, options)?.counts.rows_read)
    }

    /// Applies a scan and commits it, with pages from the archive; again while [`Warehouse::can_repeat`].
    fn apply_alone(&self, destination: &mut Warehouse, scan: &ScanToApply) -> Result<(), LoadError> {
        loop {
            match self.apply(destination, scan, None).and_then(|_| destination.commit()) {
                Err(error) if destination.can_repeat(&error)? => {}
                committed => return committed.map(drop),
            }
        }
    }
}

/// Commits if many rows are not committed, and publishes if the warehouse should be compacted. `rows` is the number of
/// rows since the last commit, to which `read` is added. Returns true if everything is committed.
fn commit_if_due(destination: &mut Warehouse, rows: &mut u64, read: u64) -> Result<bool, LoadError> {
    *rows += read;
    if destination.should_compact(false) {
        destination.publish().map(|()| true)
    } else if *rows >= UNCOMMITTED_ROWS_MAX {
        destination.commit().map(|_| true)
    } else {
        Ok(false)
    }
}

/// The pages of a scan: from the buffer, or from the archive if there is no buffer or the buffer has overflowed.
struct ScanPages<'a> {
    buffer: Option<&'a ScanPageBuffer>,
    archived: &'a ArchivedScan,
    filter: PageFilter<'a>,
}

impl Pages for ScanPages<'_> {
    fn for_each(
        &self,
        wanted: Wanted<'_>,
        take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        if let Some(mut pages) = self.buffer.and_then(ScanPageBuffer::pages) {
            return pages.try_for_each(take);
        }
        let scan = &self.archived.scan;
        let rules = self.filter.drift.of(scan.scope.stream);
        let pages = self.archived.file.read_pages().map_err(PipelineError::Archive)?;
        for (page_number, body) in pages.enumerate() {
            let body = body.map_err(PipelineError::Archive)?;
            take(&flatten(scan, rules, &body, self.filter.suppression, &wanted.detail(page_number))?)?;
        }
        Ok(())
    }
}
