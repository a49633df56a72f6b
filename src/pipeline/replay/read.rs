//! The archive as the steps that warehouses take:
//! scans in the order in which they were committed, their pages flattened.

use std::{
    sync::{Arc, atomic::Ordering, mpsc::SyncSender},
    thread,
};

use tokio_util::sync::CancellationToken;

use super::{
    super::{PipelineError, page_buffer::LARGE_BODY_BYTES},
    ahead::Ahead,
    flatteners::{ArchivedPage, FlattenedPage, Flatteners, Passed},
    inventory::Archived,
    progress::ReplayProgress,
    step::{KeptOut, Step},
};
use crate::{
    archive::{ArchiveError, read_pages},
    load::CommitOptions,
    model::{EndStyle, Proof, Stream, TimeAccount},
    source::envelope,
};

/// Why the archive was not read to its end.
pub(super) enum Ended {
    Stopped,
    /// It says why when it is waited for.
    WriterGone,
    Failed(PipelineError),
}

/// Reads the archive for the writers, some way ahead of them.
pub(super) struct Reader<'a> {
    pub kept_out: KeptOut<'a>,
    pub writers: Vec<SyncSender<Step>>,
    pub ahead: Ahead,
    pub account: &'a TimeAccount,
    pub stop: &'a CancellationToken,
    pub progress: &'a ReplayProgress,
}

impl Reader<'_> {
    /// Tells the writers all steps of these scans, in order, and that there are no more.
    pub fn read_all(self, scans: &[Archived]) -> Result<(), Ended> {
        thread::scope(|scope| {
            let mut flatteners = Flatteners::start(scope, self.kept_out.suppression, self.account);
            for archived in scans {
                self.read(archived, &mut flatteners)?;
            }
            flatteners.push(Step::Complete);
            self.hand_on(&mut flatteners, 0)
        })
    }

    fn read(&self, archived: &Archived, flatteners: &mut Flatteners<Step>) -> Result<(), Ended> {
        if self.stop.is_cancelled() {
            return Err(Ended::Stopped);
        }
        let scan = Arc::new(archived.scan.clone());
        let rules = self.kept_out.drift.of(scan.scope.stream);
        let mut pages = read_pages(&archived.path).map_err(|error| self.unreadable(flatteners, error))?;
        let mut last = None;
        for body in pages.by_ref() {
            let body = Arc::new(body.map_err(|error| self.unreadable(flatteners, error))?);
            last = Some(Arc::clone(&body));
            // Rows take several times what their page does: of large ones there is one at once. And one is enough where
            // the writers are behind: they should have the processors.
            let is_alone = body.len() >= LARGE_BODY_BYTES || self.ahead.is_plenty();
            flatteners.push_page(ArchivedPage { scan: Arc::clone(&scan), rules, body });
            self.hand_on(flatteners, if is_alone { 1 } else { flatteners.pages_max() })?;
        }
        if !pages.is_complete() {
            let (path, page) = (archived.path.clone(), usize::try_from(archived.pages).unwrap_or(usize::MAX));
            let why = "its end is missing".to_owned();
            return Err(self.unreadable(flatteners, ArchiveError::Damaged { path, page, why }));
        }
        let options = CommitOptions {
            vanish: archived.note.vanish,
            record_unchanged: archived.note.record_unchanged,
            proof: Proof { pages: archived.pages, end: end_of(scan.scope.stream, last.as_deref().map(Vec::as_slice)) },
        };
        flatteners.push(Step::Commit(Arc::new(archived.clone()), options));
        self.hand_on(flatteners, flatteners.pages_max())
    }

    /// The archive cannot be read on: what is wrong with the pages before is told first.
    fn unreadable(&self, flatteners: &mut Flatteners<Step>, error: ArchiveError) -> Ended {
        match self.hand_on(flatteners, 0) {
            Ok(()) => Ended::Failed(PipelineError::Archive(error)),
            Err(ended) => ended,
        }
    }

    /// Hands on what comes first, until fewer than so many pages wait.
    fn hand_on(&self, flatteners: &mut Flatteners<Step>, pages: usize) -> Result<(), Ended> {
        while let Some(next) = flatteners.next_of(pages) {
            if self.stop.is_cancelled() {
                return Err(Ended::Stopped);
            }
            match next.map_err(Ended::Failed)? {
                Passed::Page(flattened) => {
                    let FlattenedPage { page, maker } = *flattened;
                    self.progress.pages_done.fetch_add(1, Ordering::Relaxed);
                    self.progress.records_done.fetch_add(page.records as u64, Ordering::Relaxed);
                    let room = self.ahead.admit(&page, maker);
                    self.send(Step::Page(Arc::new(page), room))?;
                }
                Passed::Other(step) => {
                    let is_commit = matches!(step, Step::Commit(..));
                    self.send(step)?;
                    self.progress.scans_done.fetch_add(u64::from(is_commit), Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    fn send(&self, step: Step) -> Result<(), Ended> {
        self.writers.iter().try_for_each(|writer| writer.send(step.clone())).map_err(|_| Ended::WriterGone)
    }
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
