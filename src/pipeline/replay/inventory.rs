//! The scans of the archive in the order of their commits, and a check that the archive has all scans of a warehouse.

use std::{collections::HashSet, path::PathBuf};

use crate::{
    archive::{Archive, ArchiveError, FileSummary, summarize},
    load::{Identity, LedgerEntry, VanishPolicy},
    model::{Scan, ScanId},
    pipeline::{error::PipelineError, scan::states::CommitNote},
    wording::counted,
};

/// A committed scan in the archive.
#[derive(Clone, Debug)]
pub(super) struct ArchivedScan {
    pub path: PathBuf,
    pub scan: Scan,
    pub note: CommitNote,
    pub pages: u64,
    /// True if the scan's commit was begun and not finished. Any number of warehouses may have the scan, and its file
    /// is still a spool.
    pub is_unfinished: bool,
}

/// Returns every scan with a begun or finished commit, oldest commit first.
pub(super) fn archived_scans(archive: &Archive, identity: &Identity) -> Result<Vec<ArchivedScan>, PipelineError> {
    let mut scans = Vec::new();
    for path in archive.committed()? {
        let summary = summarize(&path)?;
        scans.push(read_scan(path, summary, identity, false)?);
    }
    for path in archive.spools()? {
        // A commit begins only after the spool is complete and readable.
        let Ok(summary) = summarize(&path) else { continue };
        if summary.is_complete && summary.note.is_some() {
            scans.push(read_scan(path, summary, identity, true)?);
        }
    }
    // Files of earlier versions of the program have no note, and sort before all files with a note.
    scans.sort_by(|left, right| (left.note.ordinal, &left.scan.id).cmp(&(right.note.ordinal, &right.scan.id)));
    Ok(scans)
}

/// Returns the scan of a file. Fails if the file belongs to another service or environment.
fn read_scan(
    path: PathBuf,
    summary: FileSummary,
    identity: &Identity,
    is_unfinished: bool,
) -> Result<ArchivedScan, PipelineError> {
    let FileSummary { header, pages, note, .. } = summary;
    let (base_url, environment) = (&identity.base_url, &identity.environment);
    if !header.is_of(base_url, environment) {
        return Err(PipelineError::Archive(ArchiveError::other_service(path, &header, base_url, environment)));
    }
    let note = match note {
        Some(text) => CommitNote::read(&text)?,
        // A file without a note is of an earlier version of the program, and its scan was committed.
        None => CommitNote { ordinal: i64::MIN, vanish: VanishPolicy::default(), record_unchanged: true },
    };
    Ok(ArchivedScan { path, scan: header.scan, note, pages, is_unfinished })
}

/// Checks that every scan of a ledger is in the archive, because rebuilt tables would lack the rows of a missing scan.
///
/// # Errors
/// `NotReplayable` if a scan is missing.
pub(super) fn require_all<'a>(
    warehouse: &str,
    ledger: impl IntoIterator<Item = &'a LedgerEntry>,
    scans: &[ArchivedScan],
) -> Result<(), PipelineError> {
    let known: HashSet<&ScanId> = scans.iter().map(|archived| &archived.scan.id).collect();
    let mut missing: Vec<&Scan> =
        ledger.into_iter().map(|entry| &entry.scan).filter(|scan| !known.contains(&scan.id)).collect();
    missing.sort_by_key(|scan| (scan.window.start_ms, &scan.id));
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(()) };
    Err(PipelineError::NotReplayable(format!(
        "the archive lacks the pages of {} that the {warehouse} warehouse holds, from {} {} to {} {}: built without them it \
         would lose rows or their history. Pages go after `keep_days`, and are not kept with `--archive none`",
        counted(missing.len() as u64, "scan"),
        first.scope,
        first.window,
        last.scope,
        last.window
    )))
}
