//! Reads the archive for the writers: sends the flattened pages of each scan, in the order of the scans' commits.
//!
//! The steps that the reader of the archive sends to the writers of the warehouses.

use std::{
    sync::{Arc, atomic::Ordering, mpsc::SyncSender},
    thread,
};

use tokio_util::sync::CancellationToken;

use crate::{
    archive::ArchiveError,
    load::CommitOptions,
    model::{DriftPolicy, EndStyle, FlatPage, Proof, Stream, TimeAccount},
    person::Suppression,
    pipeline::{
        error::PipelineError,
        memory::{ByteBudget, Memory},
    },
    source::envelope,
};

use super::{
    flatteners::{ArchivedPage, FlattenedPage, Flatteners, Output},
    inventory::ArchivedScan,
    page_budget::PageReservation,
    report::ReplayProgress,
};

/// Why the reader ended before the last scan.
pub(super) enum ReadStop {
    Cancelled,
    /// A writer has ended with an error, which its thread returns.
    WriterEnded,
    Failed(PipelineError),
}

/// Reads the archive, and sends the steps to all writers.
pub(super) struct ArchiveReader<'a> {
    pub filter: PageFilter<'a>,
    pub writers: Vec<SyncSender<WriterStep>>,
    /// The bytes of the pages that are queued for the writers.
    pub budget: ByteBudget,
    pub shares: Memory,
    pub account: &'a TimeAccount,
    pub stop: &'a CancellationToken,
    pub progress: &'a ReplayProgress,
}

impl ArchiveReader<'_> {
    /// Sends the steps of these scans, in order, followed by [`WriterStep::Complete`].
    pub fn read_all(self, scans: &[ArchivedScan]) -> Result<(), ReadStop> {
        thread::scope(|scope| {
            let mut flatteners = Flatteners::start(scope, self.shares.bodies, self.filter.suppression, self.account);
            for archived in scans {
                self.read(archived, &mut flatteners)?;
            }
            flatteners.push(WriterStep::Complete);
            self.forward(&mut flatteners, 0)
        })
    }

    /// Queues the pages and the commit step of a scan, and sends queued entries to the writers. Fails if the file of
    /// the scan is damaged or incomplete.
    fn read(&self, archived: &ArchivedScan, flatteners: &mut Flatteners<WriterStep>) -> Result<(), ReadStop> {
        if self.stop.is_cancelled() {
            return Err(ReadStop::Cancelled);
        }
        let scan = Arc::new(archived.scan.clone());
        let rules = self.filter.drift.of(scan.scope.stream);
        let mut pages = archived.file.read_pages().map_err(|error| self.unreadable(flatteners, error))?;
        let mut last = None;
        for body in pages.by_ref() {
            let body = Arc::new(body.map_err(|error| self.unreadable(flatteners, error))?);
            last = Some(Arc::clone(&body));
            // The rows of a page take several times its bytes, so large pages are flattened one at a time. While the
            // writers are the bottleneck, one page at a time is enough, and leaves the processors to the writers.
            let is_single = body.len() >= self.shares.large_body() || self.budget.is_used_to(4);
            flatteners.push_page(ArchivedPage { scan: Arc::clone(&scan), rules, body });
            self.forward(flatteners, if is_single { 1 } else { flatteners.pages_max() })?;
        }
        if !pages.is_complete() {
            let page = usize::try_from(archived.pages).unwrap_or(usize::MAX);
            let path = archived.file.path().to_owned();
            let why = "its end is missing".to_owned();
            return Err(self.unreadable(flatteners, ArchiveError::Damaged { path, page, why }));
        }
        let end = end_of_list(scan.scope.stream, last.as_deref().map(Vec::as_slice));
        let options = CommitOptions {
            vanish: archived.note.vanish,
            record_unchanged: archived.note.record_unchanged,
            proof: Proof { pages: archived.pages, end },
        };
        flatteners.push(WriterStep::Commit(Arc::new(archived.clone()), options));
        self.forward(flatteners, flatteners.pages_max())
    }

    /// Sends the queued entries, and returns the reason to stop at an unreadable file: an error of an earlier page, or
    /// else `error`.
    fn unreadable(&self, flatteners: &mut Flatteners<WriterStep>, error: ArchiveError) -> ReadStop {
        match self.forward(flatteners, 0) {
            Ok(()) => ReadStop::Failed(PipelineError::Archive(error)),
            Err(stop) => stop,
        }
    }

    /// Sends queued entries to the writers until fewer than `pages` pages are queued.
    fn forward(&self, flatteners: &mut Flatteners<WriterStep>, pages: usize) -> Result<(), ReadStop> {
        while let Some(next) = flatteners.next_entry(pages) {
            if self.stop.is_cancelled() {
                return Err(ReadStop::Cancelled);
            }
            match next.map_err(ReadStop::Failed)? {
                Output::Page(flattened) => {
                    let FlattenedPage { page, owner } = *flattened;
                    self.progress.pages_done.fetch_add(1, Ordering::Relaxed);
                    self.progress.records_done.fetch_add(page.records as u64, Ordering::Relaxed);
                    let reservation = PageReservation::wait(&self.budget, &page, owner);
                    self.send(WriterStep::Page(Arc::new(page), reservation))?;
                }
                Output::Step(step) => {
                    let is_commit = matches!(step, WriterStep::Commit(..));
                    self.send(step)?;
                    self.progress.scans_done.fetch_add(u64::from(is_commit), Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    fn send(&self, step: WriterStep) -> Result<(), ReadStop> {
        self.writers.iter().try_for_each(|writer| writer.send(step.clone())).map_err(|_| ReadStop::WriterEnded)
    }
}

/// Returns how the service marked the end of the list. `last` is the body of the last page, if there is a page. Without
/// a mark on the last page, the service answered 404. Returns `None` for users, or if the page cannot be parsed.
fn end_of_list(stream: Stream, last: Option<&[u8]>) -> Option<EndStyle> {
    match last {
        // Users are requested one by one; there is no list.
        _ if stream == Stream::Users => None,
        None => Some(EndStyle::NotFound),
        Some(body) => envelope::parse(body).ok().map(|envelope| envelope.end.unwrap_or(EndStyle::NotFound)),
    }
}

/// A step of a writer.
#[derive(Clone)]
pub(super) enum WriterStep {
    /// A page of the current scan.
    Page(Arc<FlatPage>, Arc<PageReservation>),
    /// Apply the scan: the writer has received all pages of the scan.
    Commit(Arc<ArchivedScan>, CommitOptions),
    /// Complete the warehouse: there is no further scan.
    Complete,
}

/// The rules by which records and fields are removed from archived pages.
#[derive(Clone, Copy)]
pub(super) struct PageFilter<'a> {
    pub drift: DriftPolicy,
    pub suppression: &'a Suppression,
}
