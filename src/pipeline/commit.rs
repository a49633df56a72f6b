//! The order of a commit, in one function: what is durable before what (promise P2).

use std::sync::Arc;

use futures::future::join_all;

use crate::{
    clock,
    load::{Applied, CommitOptions, RowCounts, Warehouse},
    model::{Activity, Drift, NEEDS_RECHECK_MS, Proof, Scan, Stream},
    state::Covered,
};

use super::{
    PipelineError, assemble::failed, commit_note::CommitNote, error::chain, freeze::check, people,
    pulled_pages::PulledPages, scan::CompletedScan, shared_destination::SharedDestination, sync_context::SyncContext,
    threads::blocking,
};

/// Rows that are applied before they are committed. From 122,880 of a table in one transaction on (a row group), DuckDB writes rows straight
/// into its file; those of a smaller one go through its log first, and are written twice. What a kill undoes is pulled already.
pub(super) const UNCOMMITTED_ROWS_MAX: u64 = 1_000_000;

/// What a commit did.
#[derive(Clone, Debug, Default)]
pub(super) struct Committed {
    pub pages: u64,
    pub counts: RowCounts,
    pub wrote: bool,
    pub drift: Drift,
}

/// Notes in the spool how the scan is committed, and returns it: an earlier note stands where a warehouse went by it already.
fn take_note(
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

/// A scan that every warehouse has applied, some of them perhaps in a transaction that is still open.
#[derive(Debug)]
pub(super) struct UncommittedScan {
    pulled: CompletedScan,
    applied: Vec<(&'static str, Applied)>,
    drift: Drift,
}

impl UncommittedScan {
    /// The rows that it brought.
    pub fn rows(&self) -> u64 {
        self.applied.iter().map(|(_, applied)| applied.counts.rows_read).max().unwrap_or(0)
    }
}

/// Commits one complete scan: [`apply`] and [`commit`].
pub(super) async fn apply_and_commit(
    context: &SyncContext,
    destinations: &[SharedDestination],
    pulled: CompletedScan,
    options: CommitOptions,
) -> Result<Committed, PipelineError> {
    let applied = apply(context, destinations, pulled, options).await?;
    let committed = commit(context, destinations, vec![applied]).await?;
    committed.into_iter().next().ok_or_else(|| PipelineError::WorkerPanicked("a commit without its scan".to_owned()))
}

/// The first half of the commit of a complete scan.
///
/// 0. A stream that is frozen takes no scan with drift: it stays as it is, complete and not committed.
/// 1. Its pages are durable in the spool: the pull saw to that. A note behind them says how they are committed.
/// 2. Each warehouse applies them with its ledger row, all or nothing. Killed here, the next run finds the scan under way, reads the
///    spool, and a warehouse that holds the scan changes nothing.
pub(super) async fn apply(
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
            take_note(&context, &pulled, options)
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

/// The second half, for all scans that were applied since the last: in the order in which they were.
///
/// 3. Each warehouse makes them durable, in one transaction of its own: side by side, for none waits for another.
/// 4. The spool of each becomes the archive.
/// 5. The checkpoint says that the window is complete and the scan no longer under way. Killed before, the next run finds the
///    scan in every ledger and makes good the checkpoint alone.
pub(super) async fn commit(
    context: &SyncContext,
    destinations: &[SharedDestination],
    uncommitted: Vec<UncommittedScan>,
) -> Result<Vec<Committed>, PipelineError> {
    let processor = context.budget.processor().await;
    let threads = destinations.iter().map(|destination| {
        let account = context.account.clone();
        destination.work(move |destination| {
            let _busy = account.enter(Activity::Write);
            destination.commit().map_err(failed(destination.name()))
        })
    });
    // All are waited for, also after a failure.
    first_error(join_all(threads).await.into_iter().map(|committed| committed?))?;
    drop(processor);
    let context = context.clone();
    blocking(move || {
        let _busy = context.account.enter(Activity::Write);
        let rows: u64 = uncommitted.iter().map(UncommittedScan::rows).sum();
        tracing::debug!(scans = uncommitted.len(), rows, "committed");
        uncommitted.into_iter().map(|scan| checkpoint(&context, scan)).collect()
    })
    .await?
}

/// What each warehouse came back with: the first error is the one to tell, and others are in the log.
pub(super) fn first_error(outcomes: impl Iterator<Item = Result<(), PipelineError>>) -> Result<(), PipelineError> {
    let mut errors = outcomes.filter_map(Result::err);
    let first = errors.next();
    errors.for_each(|other| tracing::error!(error = %chain(&other), "another warehouse failed, too"));
    first.map_or(Ok(()), Err)
}

fn checkpoint(context: &SyncContext, committed: UncommittedScan) -> Result<Committed, PipelineError> {
    let UncommittedScan { pulled, applied, drift } = committed;
    let wrote = applied.iter().any(|(_, applied)| applied.wrote);
    let acknowledged: Vec<(&str, bool)> =
        applied.iter().map(|(name, applied)| (*name, applied.wrote || applied.already_applied)).collect();
    let is_in_a_ledger = acknowledged.iter().any(|(_, is_in_ledger)| *is_in_ledger);
    let scan = &pulled.scan;
    // What one warehouse withholds or rejects is said even if another has nothing to say.
    let counts = applied.iter().fold(RowCounts::default(), |most, (_, applied)| most.max(&applied.counts));
    if scan.scope.stream == Stream::Users {
        // From the spool, which is there no more after the next step.
        people::remember(&mut context.state(), &pulled.spool, counts.withheld > 0)?;
    }
    if is_in_a_ledger {
        context.archive.settle(scan)?;
    }
    let mut state = context.state();
    let needs_recheck = context.ties.commits(scan, &pulled.boundaries) || counts.withheld > 0;
    let covered = covered(scan, counts.rows_read, needs_recheck, pulled.proof);
    state.checkpoint(&covered, &acknowledged)?;
    drop(state);
    context.suppression.committed(scan);
    if !is_in_a_ledger {
        // An unchanged re-scan tells nothing that the archive does not hold already.
        context.archive.discard(&scan.id)?;
    }
    Ok(Committed { pages: pulled.proof.pages, counts, wrote, drift })
}

/// What the checkpoints take in. Rows that seem to be gone and are not believed leave a doubt: the window counts as not looked at
/// for long, and every run looks again until it is settled.
pub(super) fn covered(scan: &Scan, rows: u64, needs_recheck: bool, proof: Proof) -> Covered {
    let scanned_ms = if needs_recheck { NEEDS_RECHECK_MS } else { scan.started_ms };
    Covered { scan: scan.clone(), scanned_ms, rows, proof }
}

/// Every warehouse at the same time, each on a thread of its own.
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
                apply_in(destination, &pulled, &options).map(|(applied, drift)| (destination.name(), applied, drift))
            })
        })
        .collect();
    let mut outcomes = Vec::with_capacity(threads.len());
    // All are waited for, also after a failure: nothing may go on writing behind an error's back.
    for outcome in join_all(threads).await {
        outcomes.push(outcome?);
    }
    let (mut all, mut met) = (Vec::with_capacity(outcomes.len()), Drift::default());
    for outcome in outcomes {
        let (name, applied, drift) = outcome?;
        all.push((name, applied));
        // Every warehouse that was handed pages was handed the same, and there is no drift in those that are known.
        met = drift;
    }
    Ok((all, met))
}

fn apply_in(
    destination: &mut Warehouse,
    pulled: &CompletedScan,
    options: &CommitOptions,
) -> Result<(Applied, Drift), PipelineError> {
    let name = destination.name();
    let pages = PulledPages::of(pulled);
    let applied = destination.apply(&pulled.scan, &pages, options).map_err(failed(name))?;
    Ok((applied, pages.drift()))
}
