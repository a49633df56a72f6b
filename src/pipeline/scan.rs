//! A scan on its way through the pipeline: open while its pages are pulled, complete once its list came to the end.

use std::path::PathBuf;

use crate::{
    archive::Spool,
    model::{EndStyle, PageToken, Proof, Scan},
    plan::page_boundaries::ScanBoundaries,
};

use super::{PipelineError, commit_note::CommitNote, held::Held, sync_context::SyncContext, ties::BoundariesLeft};

/// A window under way: new, or where an earlier run left it.
#[derive(Debug)]
pub(super) struct OpenScan {
    pub scan: Scan,
    pub page_rows: u32,
    pub spool: Spool,
    pub rows: u64,
    pub next: Option<PageToken>,
    /// How the service said that there is no more, if it did: only boundaries are left to look at.
    pub end: Option<EndStyle>,
    pub boundaries: BoundariesLeft,
    /// Whether this is a part of a window that did not come.
    pub is_part: bool,
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
    pub held: Held,
    pub boundaries: ScanBoundaries,
    /// How an earlier run was about to commit it, if some warehouse holds it since: the others take it in the same way.
    pub noted: Option<CommitNote>,
}

impl AsRef<CompletedScan> for CompletedScan {
    fn as_ref(&self) -> &CompletedScan {
        self
    }
}

/// Makes the file and the checkpoint of a scan, in this order: a checkpoint never names a file that is not there.
pub(super) fn begin(context: &SyncContext, scan: Scan, page_rows: u32) -> Result<OpenScan, PipelineError> {
    let spool = context.archive.begin(&scan)?;
    context.state().begin_scan(&scan, page_rows)?;
    Ok(OpenScan {
        scan,
        page_rows,
        spool,
        rows: 0,
        next: None,
        end: None,
        boundaries: BoundariesLeft::default(),
        is_part: false,
    })
}
