//! The states of a scan: open while its pages are pulled, complete when its list has ended. Also the options of its
//! commit, and its pages as a warehouse reads them.

use std::{
    cell::{Cell, RefCell},
    path::PathBuf,
};

use crate::{
    archive::Spool,
    load::{LoadError, Pages, VanishPolicy, Wanted},
    model::{Drift, EndStyle, FlatPage, PageToken, Proof, Scan},
    pipeline::{drift::ScanDrift, error::PipelineError},
    plan::page_boundaries::ScanBoundaries,
};

use super::{context::SyncContext, page_buffer::PageBuffer, tie_probes::StoredBoundaries};

/// A scan that is not complete: a new scan, or an unfinished scan of an earlier run.
#[derive(Debug)]
pub struct OpenScan {
    pub scan: Scan,
    /// Page size of the first request, in rows.
    pub page_rows: u32,
    pub spool: Spool,
    /// Number of records on the durable pages of the list.
    pub rows: u64,
    /// Token of the page after the durable pages. `None` before the first page and after the last one.
    pub next: Option<PageToken>,
    /// How the service marked the end of the list. If set, the pull only probes boundaries. `None` before the end.
    pub end: Option<EndStyle>,
    pub boundaries: StoredBoundaries,
    /// True if the window is a half of one that the service could not deliver.
    pub is_half: bool,
    /// True if the warehouses probably have the rows of the window already, so that few records are written.
    pub is_rescan: bool,
}

impl OpenScan {
    /// Creates a scan of a whole window, without pages.
    pub fn new(scan: Scan, page_rows: u32, spool: Spool) -> Self {
        let boundaries = StoredBoundaries::default();
        Self { scan, page_rows, spool, rows: 0, next: None, end: None, boundaries, is_half: false, is_rescan: false }
    }
}

/// A complete scan, durable in its spool.
#[derive(Debug)]
pub struct CompletedScan {
    pub scan: Scan,
    /// Page size of the first request, in rows.
    pub page_rows: u32,
    /// Number of records on the pages of the list; for users, the number of users with an answer.
    pub rows: u64,
    /// Path of the spool.
    pub spool: PathBuf,
    pub proof: Proof,
    pub buffer: PageBuffer,
    pub boundaries: ScanBoundaries,
    /// The options with which an earlier run began to commit the scan. Some warehouse may have used them, so this run
    /// uses them, too. `None` if no commit was begun.
    pub noted: Option<CommitNote>,
}

/// The options of a scan's commit, stored in the scan's spool and archive file. A resumed commit and a `replay` use the
/// same options. A file of an earlier version of the program has no note.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct CommitNote {
    /// The ordinal of the commit, by which `replay` sorts the scans.
    pub ordinal: i64,
    /// What happens to stored rows that the scan did not return.
    pub vanish: VanishPolicy,
    /// True if every ledger records the scan, even if no row changed.
    pub record_unchanged: bool,
}

impl CommitNote {
    /// Reads the note of an archive file.
    pub fn read(text: &[u8]) -> Result<Self, PipelineError> {
        serde_json::from_slice(text).map_err(|error| PipelineError::Note(error.to_string()))
    }
}

/// The pages of a scan. The first read of the pages collects their drift.
pub struct PulledPages<'p> {
    pulled: &'p CompletedScan,
    drift: RefCell<ScanDrift>,
    was_read: Cell<bool>,
}

impl<'p> PulledPages<'p> {
    pub fn of(pulled: &'p CompletedScan) -> Self {
        Self { pulled, drift: RefCell::default(), was_read: Cell::new(false) }
    }

    /// Returns the drift on the pages. Empty if the pages were not read.
    pub fn drift(self) -> Drift {
        self.drift.into_inner().finish()
    }
}

impl Pages for PulledPages<'_> {
    fn for_each(
        &self,
        wanted: Wanted<'_>,
        take: &mut dyn FnMut(&FlatPage) -> Result<(), LoadError>,
    ) -> Result<(), LoadError> {
        let was_read = self.was_read.replace(true);
        self.pulled.buffer.for_each(&self.pulled.spool, wanted, |page| {
            if !was_read {
                self.drift.borrow_mut().add(page);
            }
            take(page)
        })
    }
}

/// Creates the spool of a scan, and records the scan in the checkpoints. In this order, the checkpoints never name a
/// missing file.
pub fn begin(context: &SyncContext, scan: Scan, page_rows: u32) -> Result<OpenScan, PipelineError> {
    let spool = context.archive.begin(&scan)?;
    context.state().begin_scan(&scan, page_rows)?;
    Ok(OpenScan::new(scan, page_rows, spool))
}
