//! What the archive holds, in the order in which it was committed, and whether that is all.

use std::{collections::HashSet, path::PathBuf};

use crate::{
    archive::{Archive, ArchiveError, FileSummary, summarize},
    load::{Identity, LedgerEntry, VanishPolicy},
    model::{Scan, ScanId},
};

use super::super::{PipelineError, commit_note::CommitNote};

/// A committed scan in the archive.
#[derive(Clone, Debug)]
pub(super) struct Archived {
    pub path: PathBuf,
    pub scan: Scan,
    pub note: CommitNote,
    pub pages: u64,
    /// Its commit was cut short: it is in some warehouse or in none, and its file is still that of a scan under way.
    pub is_under_way: bool,
}

/// Every scan that was committed, or was about to be, oldest commit first.
pub(super) fn committed(archive: &Archive, identity: &Identity) -> Result<Vec<Archived>, PipelineError> {
    let mut scans = Vec::new();
    for path in archive.committed()? {
        let summary = summarize(&path)?;
        scans.push(archived(path, summary, identity, false)?);
    }
    for path in archive.spools()? {
        // A spool that cannot be read was never about to be committed.
        let Ok(summary) = summarize(&path) else { continue };
        if summary.is_complete && summary.note.is_some() {
            scans.push(archived(path, summary, identity, true)?);
        }
    }
    // Files of an earlier version carry no note; they are older than any that does.
    scans.sort_by(|left, right| (left.note.ordinal, &left.scan.id).cmp(&(right.note.ordinal, &right.scan.id)));
    Ok(scans)
}

fn archived(
    path: PathBuf,
    summary: FileSummary,
    identity: &Identity,
    is_under_way: bool,
) -> Result<Archived, PipelineError> {
    let FileSummary { header, pages, note, .. } = summary;
    let (base_url, environment) = (&identity.base_url, &identity.environment);
    if !header.is_of(base_url, environment) {
        return Err(PipelineError::Archive(ArchiveError::other_service(path, &header, base_url, environment)));
    }
    let note = match note {
        Some(text) => CommitNote::read(&text)?,
        // It is in the archive, so it was in a ledger.
        None => CommitNote { ordinal: i64::MIN, vanish: VanishPolicy::default(), record_unchanged: true },
    };
    Ok(Archived { path, scan: header.scan, note, pages, is_under_way })
}

/// Refuses unless every scan of a ledger is in the archive: a table built without it would lack rows that are held now.
pub(super) fn require_all<'a>(
    warehouse: &str,
    ledger: impl IntoIterator<Item = &'a LedgerEntry>,
    scans: &[Archived],
) -> Result<(), PipelineError> {
    let known: HashSet<&ScanId> = scans.iter().map(|archived| &archived.scan.id).collect();
    let mut missing: Vec<&Scan> =
        ledger.into_iter().map(|entry| &entry.scan).filter(|scan| !known.contains(&scan.id)).collect();
    missing.sort_by_key(|scan| (scan.window.start_ms, &scan.id));
    let (Some(first), Some(last)) = (missing.first(), missing.last()) else { return Ok(()) };
    Err(PipelineError::NotReplayable(format!(
        "the archive lacks the pages of {} scans that the {warehouse} warehouse holds, from {} {} to {} {}: built without them it \
         would lose rows or their history. Pages go after `keep_days`, and are not kept with `--archive none`",
        missing.len(),
        first.scope,
        first.window,
        last.scope,
        last.window
    )))
}
