//! Repairs, before a run, what an earlier run left unfinished, and checks the checkpoints against the ledgers.

use std::collections::{BTreeMap, HashSet};

use crate::{
    archive::{RecoveredSpool, Spool, SpoolContent},
    load::Warehouse,
    model::{EndStyle, Proof, ScanId, Scope, Stream},
    pipeline::{
        assemble::failed,
        error::PipelineError,
        scan::{
            commit::{checkpoint_of_entry, scan_checkpoint},
            context::SyncContext,
            page_buffer::PageBuffer,
            shared_destination::SharedDestination,
            states::{CommitNote, CompletedScan, OpenScan},
            tie_probes::{self, StoredBoundaries},
            user_pages,
        },
    },
    plan::page_boundaries::ScanBoundaries,
    source::envelope::{self, Envelope},
    state::{ScanCheckpoint, State, UnfinishedScan},
    wording::counted,
};

/// A scan that an earlier run began.
#[derive(Debug)]
pub(super) enum Resumed {
    /// The pull resumes from the last durable page.
    Incomplete(Box<OpenScan>),
    /// All pages are in the spool; only the commit is missing.
    Complete(Box<CompletedScan>),
}

impl Resumed {
    pub fn stream(&self) -> Stream {
        match self {
            Resumed::Incomplete(open) => open.scan.scope.stream,
            Resumed::Complete(complete) => complete.scan.scope.stream,
        }
    }
}

/// What to do if the checkpoints know more than a warehouse has.
const REPLAY_IS_CHEAPER: &str = "If the archive has these pages, `studysync replay`, now or after this run, rebuilds the warehouses from it, \
     without a request and with the history of edits";

/// Checks the checkpoints against the ledgers. A ledger does not fit if the state file was lost, or the warehouse is
/// new, replaced, restored from a backup, or was left out of a later run. If any ledger does not fit, rebuilds the
/// coverage from the scans that every ledger proves, and returns a note for the report. Returns `None` if all ledgers
/// fit.
pub(super) fn check_ledgers(
    state: &mut State,
    destinations: &[SharedDestination],
    is_fetched: bool,
) -> Result<Option<String>, PipelineError> {
    if is_fetched {
        return rebuild(state, destinations).map(|_| None);
    }
    let has_coverage = !state.covered_scopes()?.is_empty();
    let unfinished: HashSet<ScanId> =
        state.unfinished_scans()?.into_iter().map(|unfinished| unfinished.scan.id).collect();
    let (mut mismatched, mut is_warehouse_behind) = (Vec::new(), false);
    for destination in destinations {
        let mut destination = destination.lock();
        let name = destination.name();
        let known = state.destination(name)?;
        let is_left_out = known.as_ref().is_some_and(|known| !known.is_up_to_date);
        let is_matching = match known.and_then(|known| known.last_scan_id) {
            _ if is_left_out => false,
            Some(last) => destination.has_applied(&last).map_err(failed(name))?,
            // No checkpoint names a scan of this warehouse. State file and warehouse match if there is no coverage, and
            // the ledger has only scans that the checkpoints list as unfinished. A first run that was killed before its
            // first checkpoint leaves such scans.
            None => {
                let ledger = destination.ledger().map_err(failed(name))?;
                !has_coverage && ledger.iter().all(|entry| unfinished.contains(&entry.scan.id))
            }
        };
        if !is_matching {
            let ledger_is_empty = destination.ledger().map_err(failed(name))?.is_empty();
            let cause = match (is_left_out, has_coverage, ledger_is_empty) {
                (true, ..) => "a later run left this warehouse out",
                (false, true, true) => "this warehouse is new, or its file was lost",
                (false, true, false) => "this warehouse was replaced or restored, or is of another installation",
                (false, false, _) => "the state file is new, or was lost",
            };
            is_warehouse_behind |= has_coverage;
            mismatched.push(format!("{name} at {} ({cause})", destination.location()));
        }
    }
    if mismatched.is_empty() {
        for destination in destinations {
            remember(state, &mut destination.lock(), None)?;
        }
        return Ok(None);
    }
    let proven = rebuild(state, destinations)?;
    let action = match is_warehouse_behind {
        true => REPLAY_IS_CHEAPER,
        false => "Nothing is to be done",
    };
    Ok(Some(format!(
        "the checkpoints did not fit the ledger of {}: {}. {action}",
        mismatched.join(" and "),
        match proven {
            0 => "everything is pulled again".to_owned(),
            _ => format!("all warehouses have {}, the rest is pulled again", counted(proven as u64, "scan")),
        }
    )))
}

/// Rebuilds the coverage from the scans that are in every ledger. Returns the number of these scans.
///
/// Scans that only some ledgers have do not become coverage, but each scope keeps its earliest start, so that the next
/// run pulls them again. Also stores the newest scan of each ledger.
fn rebuild(state: &mut State, destinations: &[SharedDestination]) -> Result<usize, PipelineError> {
    // Ids of the scans that are in every ledger read so far.
    let mut common: Option<HashSet<ScanId>> = None;
    let (mut scans, mut extents, mut names) = (BTreeMap::<ScanId, ScanCheckpoint>::new(), Vec::new(), Vec::new());
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
        extents.extend(entries.iter().map(|entry| (entry.scan.scope, entry.scan.window.start_ms)));
        for entry in entries {
            let checkpoint = checkpoint_of_entry(&entry);
            let stored = scans.entry(entry.scan.id).or_insert_with(|| checkpoint.clone());
            // Rows that one warehouse withheld require a recheck, whatever the other ledgers say.
            stored.scanned_ms = stored.scanned_ms.min(checkpoint.scanned_ms);
        }
        remember(state, &mut destination, last.as_ref())?;
        names.push(name);
    }
    // Surveys without rows get no coverage: their id may be mistyped, and a new scan of an empty survey is quick.
    let has_rows: HashSet<i64> =
        scans.values().filter(|scan| scan.rows > 0).filter_map(|scan| scan.scan.scope.survey_id).collect();
    let is_kept = |scope: Scope| scope.survey_id.is_none_or(|id| has_rows.contains(&id));
    scans.retain(|_, checkpoint| is_kept(checkpoint.scan.scope));
    extents.retain(|(scope, _)| is_kept(*scope));
    let common = common.unwrap_or_default();
    let (in_all, in_some): (Vec<_>, Vec<_>) =
        scans.into_values().partition(|checkpoint: &ScanCheckpoint| common.contains(&checkpoint.scan.id));
    state.rebuild_coverage(&in_all, &in_some, &extents, &names)?;
    Ok(in_all.len())
}

/// Stores the name and location of a warehouse, and the newest scan of its ledger. `None` keeps the stored scan.
fn remember(state: &State, destination: &mut Warehouse, last: Option<&ScanId>) -> Result<(), PipelineError> {
    let name = destination.name();
    let known = state.destination(name)?;
    let last = last.cloned().or_else(|| known.and_then(|known| known.last_scan_id));
    Ok(state.remember_destination(name, &destination.location(), last.as_ref())?)
}

/// Repairs what a killed run left unfinished. Writes the checkpoints of scans that every warehouse has applied, and
/// discards spools that belong to no unfinished scan. Returns the remaining unfinished scans, to be resumed.
pub(super) fn resume(context: &SyncContext, destinations: &[SharedDestination]) -> Result<Vec<Resumed>, PipelineError> {
    let scans = context.state().unfinished_scans()?;
    let owners: Vec<ScanId> = scans.iter().map(|unfinished| unfinished.scan.id.clone()).collect();
    context.archive.discard_orphans(&owners)?;
    let mut resumed = Vec::new();
    for unfinished in scans {
        if is_stored_by_all(destinations, &unfinished.scan.id)? {
            finish(context, destinations, &unfinished)?;
        } else if let Some(mut scan) = recover(context, unfinished)? {
            if let Resumed::Complete(pulled) = &mut scan
                && !is_stored_by_any(destinations, &pulled.scan.id)?
            {
                // No warehouse has used the commit options in the spool, so the options of this run count.
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
        count += usize::from(destination.with(|destination| destination.has_applied(scan))?);
    }
    Ok(count)
}

/// Finishes the commit of a scan that every warehouse has in its ledger: archives the spool and writes the checkpoint.
/// The steps of a commit are described at `scan::commit`.
fn finish(
    context: &SyncContext,
    destinations: &[SharedDestination],
    unfinished: &UnfinishedScan,
) -> Result<(), PipelineError> {
    let recovered = context.archive.recover(&unfinished.scan)?;
    let boundaries = match &recovered {
        Some(recovered) => tie_probes::restore_completed(
            context,
            &unfinished.scan,
            recovered.spool.path(),
            &StoredBoundaries::of(recovered),
        )?,
        None => ScanBoundaries::default(),
    };
    let needs_recheck = context.ties.commits(&unfinished.scan, &boundaries);
    let (mut rows, mut withheld, mut proof) = (unfinished.rows, 0, Proof::default());
    for destination in destinations {
        let entries = destination.with(|destination| destination.ledger())?;
        if let Some(entry) = entries.into_iter().find(|entry| entry.scan.id == unfinished.scan.id) {
            // Rows that one warehouse withheld require a recheck, whatever the other ledgers say.
            (rows, withheld, proof) = (entry.rows_read, withheld.max(entry.withheld), entry.proof);
        }
    }
    if let Some(recovered) = recovered.filter(|_| unfinished.scan.scope.stream == Stream::Users) {
        user_pages::remember(&mut context.state(), recovered.spool.path(), withheld > 0)?;
    }
    context.archive.archive_spools([&unfinished.scan])?;
    let names: Vec<(&str, bool)> = destinations.iter().map(|destination| (destination.lock().name(), true)).collect();
    let checkpoint = scan_checkpoint(&unfinished.scan, rows, needs_recheck || withheld > 0, proof);
    Ok(context.state().checkpoint(&checkpoint, &names)?)
}

/// Reads the spool of an unfinished scan, and decides how to resume the scan. Returns `None` if the spool is lost, or
/// if it is of a batch of users and has no page: the scan is forgotten, and its window or its users are due again.
///
/// A scan starts over at its first page if the last page cannot be parsed. An incomplete scan also starts over if the
/// last page is redacted and has a next page, or if a redacted page may hide rows. The boundary of a redacted page
/// cannot be probed.
fn recover(context: &SyncContext, unfinished: UnfinishedScan) -> Result<Option<Resumed>, PipelineError> {
    let recovered = context.archive.recover(&unfinished.scan)?;
    let Some(recovered) = recovered.filter(|recovered| !user_pages::is_without_pages(recovered)) else {
        context.state().forget_scan(&unfinished.scan.id)?;
        context.archive.discard(&unfinished.scan.id)?;
        return Ok(None);
    };
    let boundaries = StoredBoundaries::of(&recovered);
    let RecoveredSpool { spool, content, .. } = recovered;
    let SpoolContent { last_page, is_last_redacted, is_complete, note, .. } = content;
    let noted = note.as_deref().map(CommitNote::read).transpose()?;
    // True if rows may be missing at boundaries without a probe. The pull of an incomplete scan can still probe them.
    let may_hide_rows = !is_complete && boundaries.unprobed > 0 && context.ties.may_lose(unfinished.scan.scope.stream);
    if may_hide_rows && boundaries.is_redacted {
        return start_over(unfinished, spool).map(Some);
    }
    let completed_with = |end, is_marked| LastPage { end, is_marked, noted, boundaries: &boundaries };
    let (next, end) = match last_page.as_deref().map(envelope::parse) {
        // No durable page yet, or an empty list.
        None => (None, None),
        // The last page is redacted, so its boundary can no longer be probed.
        Some(Ok(Envelope { next: Some(_), .. })) if is_last_redacted && !is_complete => {
            return start_over(unfinished, spool).map(Some);
        }
        Some(Ok(Envelope { next: Some(next), .. })) => (Some(next), None),
        Some(Ok(Envelope { end: Some(end), .. })) if may_hide_rows => (None, Some(end)),
        // The last page marked the end of the list; the end mark of the spool may be missing.
        Some(Ok(Envelope { end, .. })) => {
            // Users are requested one by one, without an end of a list.
            let end = end.filter(|_| unfinished.scan.scope.stream != Stream::Users);
            return complete(context, unfinished, spool, completed_with(end, is_complete)).map(Some);
        }
        // `source` never returns such a page: the window starts over.
        Some(Err(_)) => return start_over(unfinished, spool).map(Some),
    };
    if is_complete {
        return complete(context, unfinished, spool, completed_with(Some(EndStyle::NotFound), true)).map(Some);
    }
    let UnfinishedScan { scan, page_rows, rows, .. } = unfinished;
    Ok(Some(Resumed::Incomplete(Box::new(OpenScan {
        scan,
        page_rows,
        spool,
        rows,
        next,
        end,
        boundaries,
        is_half: false,
        is_rescan: false,
    }))))
}

/// How the spool of a complete scan ends.
struct LastPage<'a> {
    /// How the service marked the end of the list. `None` for users, who are requested one by one.
    end: Option<EndStyle>,
    /// True if the spool has an end mark.
    is_marked: bool,
    /// The commit options in the spool. `None` if no commit was begun.
    noted: Option<CommitNote>,
    boundaries: &'a StoredBoundaries,
}

/// Returns an unfinished scan that has all its pages, ready for its commit. Adds the end mark to the spool if it is
/// missing.
fn complete(
    context: &SyncContext,
    unfinished: UnfinishedScan,
    mut spool: Spool,
    last: LastPage<'_>,
) -> Result<Resumed, PipelineError> {
    if !last.is_marked {
        spool.complete()?;
    }
    let stream = unfinished.scan.scope.stream;
    let buffer = PageBuffer::spooled(&context.budget, stream, context.drift.of(stream));
    let proof = Proof { pages: spool.pages() as u64, end: last.end };
    let UnfinishedScan { scan, page_rows, rows, .. } = unfinished;
    let boundaries = tie_probes::restore_completed(context, &scan, spool.path(), last.boundaries)?;
    let spool = spool.path().to_owned();
    let pulled = CompletedScan { scan, page_rows, rows, spool, proof, buffer, boundaries, noted: last.noted };
    Ok(Resumed::Complete(Box::new(pulled)))
}

/// Removes all pages from the spool of a scan, so that its pull begins at the first page.
fn start_over(unfinished: UnfinishedScan, mut spool: Spool) -> Result<Resumed, PipelineError> {
    spool.restart()?;
    Ok(Resumed::Incomplete(Box::new(OpenScan::new(unfinished.scan, unfinished.page_rows, spool))))
}
