//! The loop of a run: scans windows in parallel, and commits complete scans one after the other.

use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument as _;

use crate::{
    load::CommitOptions,
    model::{Scan, Stream, WarehouseKind},
    pipeline::{
        drift::Frozen,
        error::{Failure, PipelineError},
        scan::{
            commit::{Committed, UncommittedScan, apply, commit},
            pull::pull,
            states::{CompletedScan, OpenScan, begin},
        },
        session::{commit_span, window_span},
        threads::blocking,
    },
    plan::{Reason, covered_with},
    source::Stop,
};

use super::{
    commit_queue::{CommitQueue, StepEnd},
    reconcile::Resumed,
    run::Run,
    scan_pool::{PendingWindows as _, ScanEnd, ScanPool},
    window_queue::{SyncPurpose, SyncTask, WindowQueue},
};

/// How long the warehouses may be idle before the run releases their locks for other processes.
const RELEASE_LOCKS_AFTER: Duration = Duration::from_secs(1);

/// How often a busy run releases the DuckDB file after a commit, for readers that wait. Opening the file again costs:
/// every 5 s, a backfill of 400,000 answers took 4 % more processor time.
const LET_READERS_IN_EVERY: Duration = Duration::from_secs(10);
/// How long a busy run leaves the file to readers. Waiting readers of this program try every 50 ms.
const READERS_TURN: Duration = Duration::from_millis(200);

type SyncPool = ScanPool<WindowQueue, CompletedScan>;

impl Run {
    /// Scans and commits windows until none remains, or until a stop or an error ends the run. Returns the first error
    /// that ended the run. Streams with windows that were not committed are marked as unfinished in the findings. If a
    /// warehouse has too little memory, continues with more; if another writer was first, applies the scans again.
    ///
    /// `resumed` are the unfinished scans of earlier runs.
    pub(super) async fn scan_windows(
        &mut self,
        windows: WindowQueue,
        mut resumed: Vec<Resumed>,
    ) -> Result<(), PipelineError> {
        let in_flight_max = self.session.settings.throttle.in_flight_max;
        let mut pool = SyncPool::new(windows, in_flight_max);
        loop {
            let mut commits = CommitQueue::new(self.keeps_readers_out());
            self.add_resumed(resumed, &mut pool.windows, &mut commits)?;
            self.scan_until_error(&mut pool, &mut commits).await;
            match pool.take_outcome() {
                Err(error) if self.can_repeat(&error)? => {}
                outcome => {
                    let left = commits.streams().chain(pool.active_streams()).chain(pool.windows.remaining());
                    self.findings.leave_unfinished(left);
                    return outcome;
                }
            }
            pool.windows.drop_resumed();
            resumed = self.unfinished_scans().await?;
            resumed.retain(|scan| !self.findings.is_frozen(scan.stream()));
        }
    }

    /// Returns true if scans that a warehouse failed to apply can be applied again, in all warehouses.
    fn can_repeat(&self, error: &PipelineError) -> Result<bool, PipelineError> {
        let PipelineError::Load { source, .. } = error else { return Ok(false) };
        let mut can_repeat = false;
        for destination in &self.destinations {
            can_repeat |= destination.with(|destination| destination.can_repeat(source))?;
        }
        Ok(can_repeat)
    }

    /// Scans and commits windows as [`Run::scan_windows`] does, until the first error, which the pool has.
    async fn scan_until_error(&mut self, pool: &mut SyncPool, commits: &mut CommitQueue) {
        let mut are_locks_released = false;
        let mut readers_turn_at = Instant::now() + LET_READERS_IN_EVERY;
        loop {
            self.start_scans(pool, commits);
            self.start_commit_step(pool, commits);
            // A commit step locks the warehouses again.
            are_locks_released &= !commits.is_working();
            let commit_due_at = commits.commit_due_at();
            tokio::select! {
                biased;
                Some(end) = commits.next_ended(), if commits.is_working() => match end {
                    Ok(StepEnd::Applied(end)) => {
                        let (task, applied) = *end;
                        self.apply_ended(pool, commits, task, applied);
                    }
                    Ok(StepEnd::Committed(tasks, committed)) => {
                        self.commit_ended(pool, commits, tasks, committed).await;
                        if self.session.settings.warehouse.is_shared {
                            self.release_locks().await.unwrap_or_else(|error| pool.fail(error));
                        }
                        if Instant::now() >= readers_turn_at && !pool.has_failed() {
                            self.let_readers_in().await.unwrap_or_else(|error| pool.fail(error));
                            readers_turn_at = Instant::now() + LET_READERS_IN_EVERY;
                        }
                    }
                    Err(panicked) => pool.fail(PipelineError::WorkerPanicked(panicked.to_string())),
                },
                Some(end) = pool.next_ended(&mut self.findings), if !pool.is_idle() => {
                    self.scan_ended(pool, commits, end);
                }
                () = sleep_until(commit_due_at.unwrap_or_else(Instant::now)), if commit_due_at.is_some() => {
                    // The next turn of the loop starts the commit.
                }
                () = sleep(RELEASE_LOCKS_AFTER), if !are_locks_released && commits.is_idle() && !pool.is_idle() => {
                    are_locks_released = true;
                    self.release_locks().await.unwrap_or_else(|error| pool.fail(error));
                    readers_turn_at = Instant::now() + LET_READERS_IN_EVERY;
                }
                else => break,
            }
        }
    }

    /// Releases the DuckDB file, or the catalog file of a DuckLake, for a moment, so that waiting readers can open it.
    /// The next step at the warehouse waits for them. Pulls go on. Other warehouses can be read at any time.
    async fn let_readers_in(&self) -> Result<(), PipelineError> {
        if self.keeps_readers_out() {
            self.release_locks().await?;
            sleep(READERS_TURN).await;
        }
        Ok(())
    }

    /// Returns true if a warehouse is a file that others cannot open during a run.
    fn keeps_readers_out(&self) -> bool {
        let locations = &self.session.settings.warehouse.locations;
        [WarehouseKind::DuckDb, WarehouseKind::DuckLake].iter().any(|kind| locations.contains_key(kind))
    }

    /// Adds the unfinished scans of earlier runs: incomplete scans to the windows, complete scans to the commits.
    fn add_resumed(
        &self,
        resumed: Vec<Resumed>,
        windows: &mut WindowQueue,
        commits: &mut CommitQueue,
    ) -> Result<(), PipelineError> {
        for scan in resumed {
            match scan {
                Resumed::Incomplete(open) => windows.push_resumed(self.task_of(&open.scan, open.page_rows)?, *open),
                Resumed::Complete(complete) => {
                    commits.push(self.task_of(&complete.scan, complete.page_rows)?, *complete);
                }
            }
        }
        Ok(())
    }

    /// Creates the task of a scan that an earlier run began.
    fn task_of(&self, scan: &Scan, page_rows: u32) -> Result<SyncTask, PipelineError> {
        let coverage = self.context.state().coverage(scan.scope)?;
        let is_first_proof = !covered_with(&coverage, scan.flags).covers(scan.window);
        let reason = if is_first_proof { Reason::Gap } else { Reason::Rescan };
        self.context.progress.due(scan.scope, scan.window);
        Ok(SyncTask {
            scope: scan.scope,
            window: scan.window,
            flags: scan.flags,
            page_rows,
            is_half: false,
            purpose: SyncPurpose { reason, is_first_proof, is_recheck: false },
        })
    }

    /// Starts as many scans as the pool has room for, unfinished scans of earlier runs first. Starts none after a stop
    /// or an error, or while too many complete scans wait for the warehouses.
    fn start_scans(&self, pool: &mut SyncPool, commits: &CommitQueue) {
        while self.findings.stop.is_none() && pool.has_room() && !commits.is_behind(self.context.budget.is_tight()) {
            if let Some((task, open)) = pool.windows.next_resumed() {
                let span = window_span(&open.scan);
                pool.start(task, pull(self.context.clone(), open).instrument(span));
                continue;
            }
            pool.windows.limit_rows(|stream| self.context.budget.window_rows_max(stream));
            let Some(task) = pool.windows.next_task() else { return };
            let context = self.context.clone();
            let scan = self.session.new_scan(&context.source, task.scope, task.window, task.flags);
            let (span, page_rows, is_half) = (window_span(&scan), task.page_rows, task.is_half);
            let is_rescan = task.purpose.reason == Reason::Rescan || task.purpose.is_recheck;
            let scan = async move {
                let opened = {
                    let context = context.clone();
                    blocking(move || begin(&context, scan, page_rows)).await??
                };
                pull(context, OpenScan { is_half, is_rescan, ..opened }).await
            };
            pool.start(task, scan.instrument(span));
        }
    }

    /// Starts the next step at the warehouses, if no step is running. After a cancellation or an error, only commits
    /// scans that are already applied. Other complete scans stay in their spools for the next run.
    fn start_commit_step(&self, pool: &SyncPool, commits: &mut CommitQueue) {
        let is_ending = pool.has_failed() || self.findings.stop == Some(Stop::Cancelled);
        let (context, destinations) = (self.context.clone(), self.destinations.clone());
        if let Some((task, scan)) = commits.next_scan(is_ending) {
            let options = self.commit_options(&task, &scan);
            let apply = async move {
                let applied = apply(&context, &destinations, scan, options).await;
                StepEnd::Applied(Box::new((task, applied)))
            };
            commits.start(apply.instrument(commit_span("apply")));
        } else if let Some(scans) = commits.due_batch(is_ending, !pool.is_idle()) {
            let (tasks, scans) = scans.into_iter().unzip();
            let commit = async move { StepEnd::Committed(tasks, commit(&context, &destinations, scans).await) };
            commits.start(commit.instrument(commit_span("commit")));
        }
    }

    /// Returns the options for the commit of a scan: what happens to vanished rows, and whether every ledger records a
    /// scan without changes.
    fn commit_options(&self, task: &SyncTask, scan: &CompletedScan) -> CommitOptions {
        let vanish = self.vanish_policy(task.scope.stream, scan);
        CommitOptions { vanish, record_unchanged: task.purpose.is_first_proof, ..CommitOptions::default() }
    }

    /// Handles the end of a scan: queues a complete scan for its commit. After a failed window of surveys, forgets the
    /// measured spelling of the status filter, because the service may no longer understand it.
    fn scan_ended(&self, pool: &mut SyncPool, commits: &mut CommitQueue, end: ScanEnd<SyncPurpose, CompletedScan>) {
        match end {
            ScanEnd::Complete(task, scan) => commits.push(task, scan),
            ScanEnd::Stopped(_) => {}
            ScanEnd::Failed(task) | ScanEnd::Halved(task) => {
                self.forget_status_spelling(task.scope.stream).unwrap_or_else(|error| pool.fail(error));
            }
        }
    }

    /// Handles the end of an apply step: adds the applied scan to the batch. After an error, drops the batch and ends
    /// the run; only a frozen stream does not end the run.
    fn apply_ended(
        &mut self,
        pool: &mut SyncPool,
        commits: &mut CommitQueue,
        task: SyncTask,
        applied: Result<UncommittedScan, PipelineError>,
    ) {
        match applied {
            Ok(scan) => {
                let is_full = self.destinations.iter().any(|destination| destination.lock().should_compact(false));
                commits.add_to_batch(task, scan, is_full);
            }
            Err(PipelineError::Frozen(frozen)) => self.freeze(pool, &task, *frozen),
            Err(error) => {
                commits.drop_batch();
                commits.leave(&task);
                pool.fail(error);
            }
        }
    }

    /// Records that a scan was not applied, because its stream is frozen. No further scan of the stream starts; running
    /// scans continue.
    fn freeze(&mut self, pool: &mut SyncPool, task: &SyncTask, frozen: Frozen) {
        tracing::error!(window = %task.window, scope = %task.scope, error = %frozen, "the window is not applied");
        self.findings.failures.push(Failure::new(task.scope, task.window, &frozen));
        self.findings.leave_unfinished([frozen.stream]);
        pool.windows.drop_stream(frozen.stream);
        self.findings.freeze(&frozen);
    }

    /// Handles the end of a commit step. After an error, the run ends and the streams of the scans stay unfinished.
    async fn commit_ended(
        &mut self,
        pool: &mut SyncPool,
        commits: &mut CommitQueue,
        tasks: Vec<SyncTask>,
        committed: Result<Vec<Committed>, PipelineError>,
    ) {
        match committed {
            Ok(committed) => {
                for (task, committed) in tasks.into_iter().zip(committed) {
                    if let Err(error) = self.finish_window(&mut pool.windows, task, committed).await {
                        return pool.fail(error);
                    }
                }
            }
            Err(error) => {
                tasks.iter().for_each(|task| commits.leave(task));
                pool.fail(error);
            }
        }
    }

    /// Counts a committed scan, and publishes warehouses that should be compacted or whose readers see no rows yet.
    /// If many rows seem to have vanished, queues a second scan of the window; after that second scan, reports the rows
    /// as withheld. After a scan of responses, also fetches recordings if a pass is due.
    async fn finish_window(
        &mut self,
        windows: &mut WindowQueue,
        task: SyncTask,
        committed: Committed,
    ) -> Result<(), PipelineError> {
        let SyncTask { scope, window, .. } = task;
        let is_recheck = task.purpose.is_recheck;
        let mut counts = committed.counts;
        if is_recheck {
            // The first scan counted these rows.
            (counts.rows_read, counts.unchanged) = (0, 0);
        } else {
            self.findings.add_drift(scope.stream, &committed.drift);
        }
        for window in committed.rechecks {
            windows.push_recheck(SyncTask { window, ..task.clone() }, &self.context.progress);
        }
        match std::mem::take(&mut counts.withheld) {
            // A recheck is impossible for users, who are requested one by one.
            rows if rows > 0 && !is_recheck && scope.stream != Stream::Users => {
                tracing::info!(%window, rows, "many rows seem to have vanished; scanning the window again");
                windows.push_recheck(task, &self.context.progress);
            }
            withheld => self.findings.set_withheld(scope, window, withheld),
        }
        self.findings.wrote |= committed.wrote;
        self.findings.add_scan(scope.stream, committed.pages, &counts);
        self.context.progress.committed(scope, window);
        for destination in &self.destinations {
            if destination.lock().should_compact(true) {
                self.publish(destination).await?;
            }
        }
        if scope.stream == Stream::Responses {
            self.fetch_recordings_early().await?;
        }
        Ok(())
    }
}
