//! Commits scans. This file defines the order of durable steps (promise P2).
//!
//! A scan with drift whose stream is frozen is not applied, and its spool stays. After the drift mode was changed, or
//! with a newer program that knows the new fields, a later run commits the scan without a request.

use std::{collections::BTreeSet, sync::Arc};

use futures::future::join_all;

use crate::{
    clock,
    load::{Applied, CommitOptions, LedgerEntry, RowCounts, Wanted},
    model::{Activity, Drift, DriftMode, DriftRules, NEEDS_RECHECK_MS, Proof, Scan, Scope, Stream, Window},
    pipeline::{
        drift::Frozen,
        error::{PipelineError, chain},
        threads::blocking,
    },
    state::ScanCheckpoint,
};

use super::{
    context::SyncContext,
    shared_destination::SharedDestination,
    states::{CommitNote, CompletedScan, PulledPages},
    user_pages,
};

/// The maximum number of applied rows before a commit. Each commit of a DuckDB warehouse writes the last row group of
/// each changed table again (up to 122,880 rows). A kill loses no pulled pages, because the spools have them.
pub const UNCOMMITTED_ROWS_MAX: u64 = 1_000_000;

/// The result of the commit of one scan.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    /// Number of pages of the scan.
    pub pages: u64,
    /// The counts of the data, whatever the number of warehouses: [`RowCounts::of_warehouses`].
    pub counts: RowCounts,
    /// True if the scan changed any warehouse.
    pub wrote: bool,
    /// Windows to scan again, because rows with the keys of their records have vanished.
    pub rechecks: Vec<Window>,
    pub drift: Drift,
}

/// Writes the commit options to the spool, and returns them. Options that an earlier run wrote there replace `options`,
/// because some warehouse may have used them already.
fn write_note(
    context: &SyncContext,
    pulled: &CompletedScan,
    options: CommitOptions,
) -> Result<CommitOptions, PipelineError> {
    let (vanish, record_unchanged) = match &pulled.noted {
        Some(noted) => (noted.vanish, noted.record_unchanged),
        None => (options.vanish, options.record_unchanged),
    };
    let ordinal = context.state().next_commit_ordinal(clock::now_ms())?;
    let note = CommitNote { ordinal, vanish, record_unchanged };
    let text = serde_json::to_vec(&note).map_err(|error| PipelineError::Note(error.to_string()))?;
    context.archive.note(&pulled.scan.id, &text)?;
    Ok(CommitOptions { vanish, record_unchanged, proof: pulled.proof })
}

/// A scan that every warehouse has applied, perhaps in a transaction that is still open.
#[derive(Debug)]
pub struct UncommittedScan {
    pulled: CompletedScan,
    /// For each warehouse, its name and the result.
    applied: Vec<(&'static str, Applied)>,
    drift: Drift,
}

impl UncommittedScan {
    /// Number of rows that the scan read.
    pub fn rows(&self) -> u64 {
        self.applied.iter().map(|(_, applied)| applied.counts.rows_read).max().unwrap_or(0)
    }

    fn counts(&self) -> RowCounts {
        let counts: Vec<RowCounts> = self.applied.iter().map(|(_, applied)| applied.counts).collect();
        RowCounts::of_warehouses(&counts)
    }

    /// Returns each warehouse by name, with true if its ledger has the scan.
    fn in_ledgers(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.applied.iter().map(|(name, applied)| (*name, applied.wrote || applied.already_applied))
    }

    fn is_in_a_ledger(&self) -> bool {
        self.in_ledgers().any(|(_, is_in_ledger)| is_in_ledger)
    }
}

/// Applies one complete scan to every warehouse ([`apply`]), and commits it at once ([`commit`]).
pub async fn apply_and_commit(
    context: &SyncContext,
    destinations: &[SharedDestination],
    pulled: CompletedScan,
    options: CommitOptions,
) -> Result<Committed, PipelineError> {
    let applied = apply(context, destinations, pulled, options).await?;
    let committed = commit(context, destinations, vec![applied]).await?;
    committed.into_iter().next().ok_or_else(|| PipelineError::WorkerPanicked("a commit without its scan".to_owned()))
}

/// Applies a complete scan to every warehouse: the first half of its commit.
///
/// 0. A scan is refused if it has drift and its stream is frozen. The scan stays complete and uncommitted.
/// 1. The commit options are written to the spool, behind the pages, and the whole spool is made durable.
/// 2. Each warehouse applies the pages and the ledger row of the scan, all or nothing. After a kill, the next run finds
///    the scan unfinished and reads the spool. A warehouse that has the scan in its ledger changes nothing.
pub async fn apply(
    context: &SyncContext,
    destinations: &[SharedDestination],
    pulled: CompletedScan,
    options: CommitOptions,
) -> Result<UncommittedScan, PipelineError> {
    let pulled = Arc::new(pulled);
    let options = {
        let (context, pulled) = (context.clone(), Arc::clone(&pulled));
        blocking(move || {
            check(&context, &pulled)?;
            write_note(&context, &pulled, options)
        })
        .await??
    };
    let processor = context.budget.processor().await;
    let (applied, drift) = apply_everywhere(context, destinations, &pulled, &options).await?;
    drop(processor);
    let mut pulled =
        Arc::into_inner(pulled).ok_or_else(|| PipelineError::WorkerPanicked("a warehouse's thread".to_owned()))?;
    pulled.buffer.release();
    Ok(UncommittedScan { pulled, applied, drift })
}

/// Commits all applied scans, in the order in which they were applied: the second half of their commit.
///
/// 3. In a bucket, the archive gets a copy of the spools. Each warehouse commits its transaction. Warehouses commit in
///    parallel.
/// 4. The spools of all scans are moved to the archive.
/// 5. One transaction marks all windows as complete and ends the scans. After a kill before this step, the next run
///    finds the scans in every ledger and only writes the checkpoints.
pub async fn commit(
    context: &SyncContext,
    destinations: &[SharedDestination],
    mut uncommitted: Vec<UncommittedScan>,
) -> Result<Vec<Committed>, PipelineError> {
    let in_ledgers = uncommitted.iter().filter(|scan| scan.is_in_a_ledger()).map(|scan| scan.pulled.scan.clone());
    let (archive, in_ledgers) = (context.archive.clone(), in_ledgers.collect::<Vec<_>>());
    blocking(move || archive.prepare_commit(&in_ledgers)).await??;
    let processor = context.budget.processor().await;
    let threads = destinations.iter().map(|destination| {
        let account = context.account.clone();
        destination.work(move |destination| {
            let _busy = account.enter(Activity::Write);
            Ok((destination.name(), destination.commit()?))
        })
    });
    // Waits for all warehouses, also after a failure.
    let outcomes = join_all(threads).await;
    let found: Vec<_> = outcomes.iter().flatten().cloned().collect();
    first_error(outcomes.into_iter().map(|outcome| outcome.map(|_| ())))?;
    drop(processor);
    for UncommittedScan { pulled, applied, .. } in &mut uncommitted {
        for (name, found) in &found {
            let counts = found.corrected.get(&pulled.scan.id);
            let of_warehouse = applied.iter_mut().filter(|(warehouse, _)| warehouse == name);
            of_warehouse.zip(counts).for_each(|((_, applied), counts)| applied.counts = *counts);
        }
    }
    let context = context.clone();
    blocking(move || {
        let _busy = context.account.enter(Activity::Write);
        let rows: u64 = uncommitted.iter().map(UncommittedScan::rows).sum();
        tracing::debug!(scans = uncommitted.len(), rows, "committed");
        let is_of_responses = |scan: &UncommittedScan| scan.pulled.scan.scope.stream == Stream::Responses;
        let rechecked = uncommitted.iter().position(is_of_responses);
        let mut committed = checkpoint(&context, &uncommitted)?;
        let rechecks: BTreeSet<Window> = found.into_iter().flat_map(|(_, found)| found.rechecks).collect();
        for window in &rechecks {
            // If the run ends before it scans the window again, the next run does.
            context.state().mark_for_recheck(Scope::all(Stream::Responses), *window)?;
        }
        if let Some(scan) = rechecked.and_then(|index| committed.get_mut(index)) {
            scan.rechecks = rechecks.into_iter().collect();
        }
        Ok(committed)
    })
    .await?
}

/// Returns the first error of the warehouses, and logs the others.
pub fn first_error(outcomes: impl Iterator<Item = Result<(), PipelineError>>) -> Result<(), PipelineError> {
    let mut errors = outcomes.filter_map(Result::err);
    let first = errors.next();
    errors.for_each(|other| tracing::error!(error = %chain(&other), "another warehouse failed, too"));
    first.map_or(Ok(()), Err)
}

/// Archives the spools of committed scans, and checkpoints the scans: steps 4 and 5 of [`commit`].
fn checkpoint(context: &SyncContext, committed: &[UncommittedScan]) -> Result<Vec<Committed>, PipelineError> {
    for committed in committed.iter().filter(|committed| committed.pulled.scan.scope.stream == Stream::Users) {
        // Reads the spool, which the next step moves away.
        let has_withheld = committed.counts().withheld > 0;
        user_pages::remember(&mut context.state(), &committed.pulled.spool, has_withheld)?;
    }
    let (in_a_ledger, in_none): (Vec<_>, Vec<_>) = committed.iter().partition(|committed| committed.is_in_a_ledger());
    context.archive.archive_spools(in_a_ledger.iter().map(|committed| &committed.pulled.scan))?;
    let checkpoints: Vec<_> = committed
        .iter()
        .map(|committed| {
            let (pulled, counts) = (&committed.pulled, committed.counts());
            let needs_recheck = context.ties.commits(&pulled.scan, &pulled.boundaries) || counts.withheld > 0;
            let checkpoint = scan_checkpoint(&pulled.scan, counts.rows_read, needs_recheck, pulled.proof);
            (checkpoint, committed.in_ledgers().collect::<Vec<_>>())
        })
        .collect();
    let rows = checkpoints.iter().map(|(checkpoint, in_ledgers)| (checkpoint, in_ledgers.as_slice()));
    context.state().checkpoint_all(rows)?;
    committed.iter().for_each(|committed| context.suppression.committed(&committed.pulled.scan));
    for committed in in_none {
        // No ledger has the scan, because a re-scan changed no row. Its pages add nothing to the archive.
        context.archive.discard(&committed.pulled.scan.id)?;
    }
    let outcome = |committed: &UncommittedScan| Committed {
        pages: committed.pulled.proof.pages,
        counts: committed.counts(),
        wrote: committed.applied.iter().any(|(_, applied)| applied.wrote),
        rechecks: Vec::new(),
        drift: committed.drift.clone(),
    };
    Ok(committed.iter().map(outcome).collect())
}

/// Returns the checkpoint of a scan. A window that needs a recheck gets [`NEEDS_RECHECK_MS`] as its scan time, so that
/// every run scans it again until one is sure.
pub fn scan_checkpoint(scan: &Scan, rows: u64, needs_recheck: bool, proof: Proof) -> ScanCheckpoint {
    let scanned_ms = if needs_recheck { NEEDS_RECHECK_MS } else { scan.started_ms };
    ScanCheckpoint { scan: scan.clone(), scanned_ms, rows, proof }
}

/// Returns the checkpoint for a row of a ledger. A scan with withheld rows needs a recheck.
pub fn checkpoint_of_entry(entry: &LedgerEntry) -> ScanCheckpoint {
    scan_checkpoint(&entry.scan, entry.rows_read, entry.withheld > 0, entry.proof)
}

/// Applies a scan to all warehouses in parallel, each on its own thread. Returns the result of each warehouse by name,
/// and the drift of the pages.
async fn apply_everywhere(
    context: &SyncContext,
    destinations: &[SharedDestination],
    pulled: &Arc<CompletedScan>,
    options: &CommitOptions,
) -> Result<(Vec<(&'static str, Applied)>, Drift), PipelineError> {
    let threads: Vec<_> = destinations
        .iter()
        .map(|destination| {
            let (pulled, options, account) = (Arc::clone(pulled), options.clone(), context.account.clone());
            destination.work(move |destination| {
                let _busy = account.enter(Activity::Write);
                let pages = PulledPages::of(&pulled);
                let applied = destination.apply(&pulled.scan, &pages, &options)?;
                Ok((destination.name(), applied, pages.drift()))
            })
        })
        .collect();
    let (mut all, mut all_drift) = (Vec::with_capacity(threads.len()), Drift::default());
    // Waits for all warehouses, also after a failure: no thread may write after the error is returned.
    for outcome in join_all(threads).await {
        let (name, applied, drift) = outcome?;
        all.push((name, applied));
        // All warehouses read the same pages, so that they report the same drift.
        all_drift = drift;
    }
    Ok((all, all_drift))
}

/// Checks that the drift rules allow a scan. A scan whose commit was begun is always allowed, so that all warehouses
/// get the scan.
///
/// # Errors
/// `Frozen` if the scan has drift and its stream is frozen.
fn check(context: &SyncContext, pulled: &CompletedScan) -> Result<(), PipelineError> {
    let stream = pulled.scan.scope.stream;
    let rules = context.drift.of(stream);
    // A scan with a commit note was checked before the note was written.
    if !rules.can_freeze() || pulled.noted.is_some() {
        return Ok(());
    }
    let mut drift = Drift::default();
    pulled.buffer.for_each(&pulled.spool, Wanted::Summaries, |page| {
        drift.merge(&page.drift);
        Ok::<(), PipelineError>(())
    })?;
    check_drift(stream, rules, &drift)
}

/// Checks that the drift rules of a stream allow this drift.
///
/// # Errors
/// `Frozen` if the rules freeze any of the drift.
pub fn check_drift(stream: Stream, rules: DriftRules, drift: &Drift) -> Result<(), PipelineError> {
    match drift.has(rules, DriftMode::Freeze) {
        true => Err(PipelineError::Frozen(Box::new(Frozen { stream, drift: drift.clone() }))),
        false => Ok(()),
    }
}
