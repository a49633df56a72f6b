//! A scan in the pipeline: open while its pages are pulled, complete when its list has ended.

use std::path::PathBuf;

use crate::{
    archive::Spool,
    model::{EndStyle, PageToken, Proof, Scan},
    plan::page_boundaries::ScanBoundaries,
};

use super::{
    PipelineError, commit_note::CommitNote, page_buffer::PageBuffer, sync_context::SyncContext, ties::StoredBoundaries,
};

/// A scan that is not complete: a new scan, or an unfinished scan of an earlier run.
#[derive(Debug)]
pub(super) struct OpenScan {
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
}

impl OpenScan {
    /// Creates a scan of a whole window, without pages.
    pub fn new(scan: Scan, page_rows: u32, spool: Spool) -> Self {
        let boundaries = StoredBoundaries::default();
        Self { scan, page_rows, spool, rows: 0, next: None, end: None, boundaries, is_half: false }
    }
}

/// A complete scan, durable in its spool.
#[derive(Debug)]
pub(super) struct CompletedScan {
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

impl AsRef<CompletedScan> for CompletedScan {
    fn as_ref(&self) -> &CompletedScan {
        self
    }
}

/// Creates the spool of a scan, and records the scan in the checkpoints. In this order, the checkpoints never name a
/// missing file.
pub(super) fn begin(context: &SyncContext, scan: Scan, page_rows: u32) -> Result<OpenScan, PipelineError> {
    let spool = context.archive.begin(&scan)?;
    context.state().begin_scan(&scan, page_rows)?;
    Ok(OpenScan::new(scan, page_rows, spool))
}
