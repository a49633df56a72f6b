//! The scans of the archive in the order of their commits, and a check that the archive has all scans of a warehouse.

use std::collections::HashSet;

use crate::{
    archive::{Archive, ArchiveError, FileSummary, PageFile},
    load::{Identity, LedgerEntry, VanishPolicy},
    model::{Scan, ScanId},
    pipeline::{error::PipelineError, scan::states::CommitNote},
    wording::counted,
};

/// A committed scan in the archive.
#[derive(Clone, Debug)]
pub(super) struct ArchivedScan {
    pub file: PageFile,
    pub scan: Scan,
    pub note: CommitNote,
    pub pages: u64,
    /// True if the scan's commit was begun and not finished. Any number of warehouses may have the scan, and its file
    /// is still a spool.
    pub is_unfinished: bool,
}

/// Returns every scan with a begun or finished commit, oldest commit first.
pub(super) fn archived_scans(archive: &Archive, identity: &Identity) -> Result<Vec<ArchivedScan>, PipelineError> {
    let summaries = archive.each_file(|file| match file.summarize() {
        // A commit begins only after the spool is complete and readable.
        Err(_) if file.is_spool() => Ok(None),
        summary => summary.map(|summary| Some(summary).filter(|summary| !file.is_spool() || is_noted(summary))),
    })?;
    let read = |(file, summary): (PageFile, Option<FileSummary>)| Some(read_scan(file, summary?, identity));
    let mut scans = summaries.into_iter().filter_map(read).collect::<Result<Vec<_>, PipelineError>>()?;
    // In a bucket, a run that was killed between the write of the object and the removal of the spool leaves both.
    let unfinished: HashSet<ScanId> =
        scans.iter().filter(|archived| archived.is_unfinished).map(|archived| archived.scan.id.clone()).collect();
    scans.retain(|archived| archived.is_unfinished || !unfinished.contains(&archived.scan.id));
    // Files of earlier versions of the program have no note, and sort before all files with a note.
    scans.sort_by(|left, right| (left.note.ordinal, &left.scan.id).cmp(&(right.note.ordinal, &right.scan.id)));
    Ok(scans)
}

fn is_noted(summary: &FileSummary) -> bool {
    summary.is_complete && summary.note.is_some()
}

/// Returns the scan of a file. Fails if the file belongs to another service or environment.
fn read_scan(file: PageFile, summary: FileSummary, identity: &Identity) -> Result<ArchivedScan, PipelineError> {
    let FileSummary { header, pages, note, .. } = summary;
    let (base_url, environment) = (&identity.base_url, &identity.environment);
    if !header.is_of(base_url, environment) {
        return Err(ArchiveError::other_service(file.path().into(), &header, base_url, environment).into());
    }
    let note = match note {
        Some(text) => CommitNote::read(&text)?,
        // A file without a note is of an earlier version of the program, and its scan was committed.
        None => CommitNote { ordinal: i64::MIN, vanish: VanishPolicy::default(), record_unchanged: true },
    };
    Ok(ArchivedScan { is_unfinished: file.is_spool(), file, scan: header.scan, note, pages })
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
