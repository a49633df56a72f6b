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

/// A scan whose list has not ended: a new one, or one that an earlier run left.
#[derive(Debug)]
pub(super) struct OpenScan {
    pub scan: Scan,
    pub page_rows: u32,
    pub spool: Spool,
    pub rows: u64,
    pub next: Option<PageToken>,
    /// How the service marked the end of the list, if it has ended: only probes at boundaries are left.
    pub end: Option<EndStyle>,
    pub boundaries: StoredBoundaries,
    /// True if the window is a half of one that the service could not deliver.
    pub is_half: bool,
}

impl OpenScan {
    /// A scan of a whole window that has no pages yet.
    pub fn new(scan: Scan, page_rows: u32, spool: Spool) -> Self {
        let boundaries = StoredBoundaries::default();
        Self { scan, page_rows, spool, rows: 0, next: None, end: None, boundaries, is_half: false }
    }
}

/// A complete scan, durable in its spool.
#[derive(Debug)]
pub(super) struct CompletedScan {
    pub scan: Scan,
    pub page_rows: u32,
    /// The records that its pages list.
    pub rows: u64,
    pub spool: PathBuf,
    pub proof: Proof,
    pub buffer: PageBuffer,
    pub boundaries: ScanBoundaries,
    /// How an earlier run committed the scan in some warehouse; the other warehouses commit it in the same way.
    pub noted: Option<CommitNote>,
}

impl AsRef<CompletedScan> for CompletedScan {
    fn as_ref(&self) -> &CompletedScan {
        self
    }
}

/// Creates the spool and then the checkpoint of a scan: a checkpoint never names a missing file.
pub(super) fn begin(context: &SyncContext, scan: Scan, page_rows: u32) -> Result<OpenScan, PipelineError> {
    let spool = context.archive.begin(&scan)?;
    context.state().begin_scan(&scan, page_rows)?;
    Ok(OpenScan::new(scan, page_rows, spool))
}
