//! Repairs, before a run, what an earlier run left unfinished, and checks the checkpoints against the ledgers.

use std::collections::{BTreeMap, HashSet};

use crate::{
    archive::{RecoveredSpool, Spool},
    load::Warehouse,
    model::{EndStyle, Proof, ScanId, Scope, Stream},
    plan::page_boundaries::ScanBoundaries,
    source::envelope::{self, Envelope},
    state::{Covered, State, UnderWay},
};

use super::{
    PipelineError,
    assemble::failed,
    commit::covered,
    commit_note::CommitNote,
    page_buffer::PageBuffer,
    people,
    scan::{CompletedScan, OpenScan},
    shared_destination::SharedDestination,
    sync_context::SyncContext,
    ties::{self, BoundariesLeft},
};

/// A scan that an earlier run began.
#[derive(Debug)]
pub(super) enum Resumed {
    /// The pull resumes from the last durable page.
    GoesOn(Box<OpenScan>),
    /// All pages are in the spool; only the commit is missing.
    Complete(Box<CompletedScan>),
}

impl Resumed {
    pub fn stream(&self) -> Stream {
        match self {
            Resumed::GoesOn(begun) => begun.scan.scope.stream,
            Resumed::Complete(pulled) => pulled.scan.scope.stream,
        }
    }
}

/// Checks the checkpoints against the ledgers. If the state file was lost, or a warehouse is new, replaced or restored
/// from a backup, the coverage is rebuilt from what every ledger proves. Then returns a note for the report.
pub(super) fn check_ledgers(
    state: &mut State,
    destinations: &[SharedDestination],
) -> Result<Option<String>, PipelineError> {
    let has_coverage = !state.covered_scopes()?.is_empty();
    let under_way = state.scans_under_way()?;
    let under_way: HashSet<ScanId> = under_way.into_iter().map(|left| left.scan.id).collect();
    let mut unclear = Vec::new();
    for destination in destinations {
        let mut destination = destination.lock();
        let name = destination.name();
        let known = state.destination(name)?;
        let is_left_out = known.as_ref().is_some_and(|known| !known.is_up_to_date);
        let is_as_left = match known.and_then(|known| known.last_scan_id) {
            _ if is_left_out => false,
            Some(last) => destination.has_applied(&last).map_err(failed(name))?,
            // Never filled by this state: as left if neither of them knows of any scan.
            // (A first run killed before its first checkpoint left scans under way.)
            None => {
                let ledger = destination.ledger().map_err(failed(name))?;
                !has_coverage && ledger.iter().all(|entry| under_way.contains(&entry.scan.id))
            }
        };
        if !is_as_left {
            unclear.push(format!("{name} at {}", destination.location()));
        }
    }
    if unclear.is_empty() {
        for destination in destinations {
            remember(state, &mut destination.lock(), None)?;
        }
        return Ok(None);
    }
    let proven = rebuild(state, destinations)?;
    Ok(Some(format!(
        "the checkpoints did not fit the ledger of {}: {proven} scans are proven by every warehouse, the rest is pulled again",
        unclear.join(" and ")
    )))
}

/// Rebuilds the coverage that every ledger proves. Returns the number of proven scans.
fn rebuild(state: &mut State, destinations: &[SharedDestination]) -> Result<usize, PipelineError> {
    let mut common: Option<HashSet<ScanId>> = None;
    let (mut scans, mut begun, mut names) = (BTreeMap::<ScanId, Covered>::new(), Vec::new(), Vec::new());
    for destination in destinations {
        let mut destination = destination.lock();
        let name = destination.name();
        let entries = destination.ledger().map_err(failed(name))?;
        let last = entries.iter().map(|entry| &entry.scan.id).max().cloned();
        let ids: HashSet<ScanId> = entries.iter().map(|entry| entry.scan.id.clone()).collect();
        common = Some(match common {
            None => ids,
            Some(common) => common.intersection(&ids).cloned().collect(),
        });
        begun.extend(entries.iter().map(|entry| (entry.scan.scope, entry.scan.window.start_ms)));
        for entry in entries {
            let covered = covered(&entry.scan, entry.rows_read, entry.withheld > 0, entry.proof);
            let stored = scans.entry(entry.scan.id).or_insert_with(|| covered.clone());
            // Rows that one warehouse withheld require a recheck, whatever the other ledgers say.
            stored.scanned_ms = stored.scanned_ms.min(covered.scanned_ms);
        }
        remember(state, &mut destination, last.as_ref())?;
        names.push(name);
    }
    // Drops surveys without rows: the id was mistyped, or a new scan is quick.
    let has_rows: HashSet<i64> =
        scans.values().filter(|covered| covered.rows > 0).filter_map(|covered| covered.scan.scope.survey_id).collect();
    let is_kept = |scope: Scope| scope.survey_id.is_none_or(|id| has_rows.contains(&id));
    scans.retain(|_, covered| is_kept(covered.scan.scope));
    begun.retain(|(scope, _)| is_kept(*scope));
    let common = common.unwrap_or_default();
    let (scans, some): (Vec<_>, Vec<_>) =
        scans.into_values().partition(|covered: &Covered| common.contains(&covered.scan.id));
    state.rebuild_coverage(&scans, &some, &begun, &names)?;
    Ok(scans.len())
}

fn remember(state: &State, destination: &mut Warehouse, last: Option<&ScanId>) -> Result<(), PipelineError> {
    let name = destination.name();
    let known = state.destination(name)?;
    let last = last.cloned().or_else(|| known.and_then(|known| known.last_scan_id));
    Ok(state.remember_destination(name, &destination.location(), last.as_ref())?)
}

/// Repairs what a killed run left: writes checkpoints of scans that every warehouse has applied, and discards orphaned
/// spools. Returns the other scans, to be resumed.
pub(super) fn resume(context: &SyncContext, destinations: &[SharedDestination]) -> Result<Vec<Resumed>, PipelineError> {
    let under_way = context.state().scans_under_way()?;
    let owners: Vec<ScanId> = under_way.iter().map(|left| left.scan.id.clone()).collect();
    context.archive.discard_orphans(&owners)?;
    let mut resumed = Vec::new();
    for left in under_way {
        if is_stored_by_all(destinations, &left.scan.id)? {
            finish(context, destinations, &left)?;
        } else if let Some(mut scan) = recover(context, left)? {
            if let Resumed::Complete(pulled) = &mut scan
                && !is_stored_by_any(destinations, &pulled.scan.id)?
            {
                // No warehouse has used the noted options, so the options of this run count.
                pulled.noted = None;
            }
            resumed.push(scan);
        }
    }
    Ok(resumed)
}

fn is_stored_by_all(destinations: &[SharedDestination], scan: &ScanId) -> Result<bool, PipelineError> {
    Ok(count_storing(destinations, scan)? == destinations.len())
}

fn is_stored_by_any(destinations: &[SharedDestination], scan: &ScanId) -> Result<bool, PipelineError> {
    Ok(count_storing(destinations, scan)? > 0)
}

fn count_storing(destinations: &[SharedDestination], scan: &ScanId) -> Result<usize, PipelineError> {
    let mut count = 0;
    for destination in destinations {
        let mut destination = destination.lock();
        let name = destination.name();
        count += usize::from(destination.has_applied(scan).map_err(failed(name))?);
    }
    Ok(count)
}

/// Finishes a commit that was killed after its second or third step.
fn finish(context: &SyncContext, destinations: &[SharedDestination], left: &UnderWay) -> Result<(), PipelineError> {
    let recovered = context.archive.recover(&left.scan)?;
    let boundaries = match &recovered {
        Some(recovered) => ties::ended(context, &left.scan, recovered.spool.path(), &BoundariesLeft::of(recovered))?,
        None => ScanBoundaries::default(),
    };
    let needs_recheck = context.ties.commits(&left.scan, &boundaries);
    let (mut rows, mut withheld, mut proof) = (left.rows, 0, Proof::default());
    for destination in destinations {
        let mut destination = destination.lock();
        let name = destination.name();
        let entries = destination.ledger().map_err(failed(name))?;
        if let Some(entry) = entries.into_iter().find(|entry| entry.scan.id == left.scan.id) {
            // Rows that one warehouse withheld require a recheck, whatever the other ledgers say.
            (rows, withheld, proof) = (entry.rows_read, withheld.max(entry.withheld), entry.proof);
        }
    }
    if let Some(recovered) = recovered.filter(|_| left.scan.scope.stream == Stream::Users) {
        people::remember(&mut context.state(), recovered.spool.path(), withheld > 0)?;
    }
    context.archive.archive_spool(&left.scan)?;
    let names: Vec<(&str, bool)> = destinations.iter().map(|destination| (destination.lock().name(), true)).collect();
    let covered = covered(&left.scan, rows, needs_recheck || withheld > 0, proof);
    Ok(context.state().checkpoint(&covered, &names)?)
}

/// Reads the spool of a scan. If the spool is lost or torn at its beginning,
/// the scan is forgotten and its window is due again.
fn recover(context: &SyncContext, left: UnderWay) -> Result<Option<Resumed>, PipelineError> {
    let recovered = context.archive.recover(&left.scan)?;
    let Some(recovered) = recovered.filter(|recovered| !people::is_without_pages(recovered)) else {
        context.state().forget_scan(&left.scan.id)?;
        context.archive.discard(&left.scan.id)?;
        return Ok(None);
    };
    let boundaries = BoundariesLeft::of(&recovered);
    let RecoveredSpool { spool, last_page, is_last_redacted, is_complete, note, .. } = recovered;
    let noted = note.as_deref().map(CommitNote::read).transpose()?;
    // Unprobed boundaries of an incomplete scan may hide rows.
    let may_hide = !is_complete && boundaries.unprobed > 0 && context.ties.may_lose(left.scan.scope.stream);
    if may_hide && boundaries.is_redacted {
        return start_over(left, spool).map(Some);
    }
    let completed_with = |end, is_marked| LastPage { end, is_marked, noted, boundaries: &boundaries };
    let (next, end) = match last_page.as_deref().map(envelope::parse) {
        // No durable page yet, or an empty list.
        None => (None, None),
        // The last page is redacted, so its boundary can no longer be probed.
        Some(Ok(Envelope { next: Some(_), .. })) if is_last_redacted => return start_over(left, spool).map(Some),
        Some(Ok(Envelope { next: Some(next), .. })) => (Some(next), None),
        Some(Ok(Envelope { end: Some(end), .. })) if may_hide => (None, Some(end)),
        // The last page marked the end of the list; the end mark of the spool may be missing.
        Some(Ok(Envelope { end, .. })) => {
            // Users are requested one by one, without an end of a list.
            let end = end.filter(|_| left.scan.scope.stream != Stream::Users);
            return complete(context, left, spool, completed_with(end, is_complete)).map(Some);
        }
        // `source` never returns such a page: the window starts over.
        Some(Err(_)) => return start_over(left, spool).map(Some),
    };
    if is_complete {
        return complete(context, left, spool, completed_with(Some(EndStyle::NotFound), true)).map(Some);
    }
    let UnderWay { scan, page_rows, rows, .. } = left;
    Ok(Some(Resumed::GoesOn(Box::new(OpenScan {
        scan,
        page_rows,
        spool,
        rows,
        next,
        end,
        boundaries,
        is_part: false,
    }))))
}

/// The last page of a complete scan.
struct LastPage<'a> {
    end: Option<EndStyle>,
    /// Whether the spool has an end mark.
    is_marked: bool,
    noted: Option<CommitNote>,
    boundaries: &'a BoundariesLeft,
}

fn complete(
    context: &SyncContext,
    left: UnderWay,
    mut spool: Spool,
    last: LastPage<'_>,
) -> Result<Resumed, PipelineError> {
    if !last.is_marked {
        spool.complete()?;
    }
    let stream = left.scan.scope.stream;
    let buffer = PageBuffer::spooled(&context.budget, stream, context.drift.of(stream));
    let proof = Proof { pages: spool.pages() as u64, end: last.end };
    let UnderWay { scan, page_rows, rows, .. } = left;
    let boundaries = ties::ended(context, &scan, spool.path(), last.boundaries)?;
    let spool = spool.path().to_owned();
    let pulled = CompletedScan { scan, page_rows, rows, spool, proof, buffer, boundaries, noted: last.noted };
    Ok(Resumed::Complete(Box::new(pulled)))
}

fn start_over(left: UnderWay, mut spool: Spool) -> Result<Resumed, PipelineError> {
    spool.restart()?;
    Ok(Resumed::GoesOn(Box::new(OpenScan::new(left.scan, left.page_rows, spool))))
}
