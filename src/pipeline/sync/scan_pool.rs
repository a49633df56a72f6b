//! Runs scans of windows in parallel, up to a limit, and records why windows failed.
//!
//! `sync` commits the complete scans; `verify` compares them with the warehouses.

use std::{borrow::Borrow, collections::BTreeMap};

use tokio::task::JoinSet;

use crate::{
    model::{Fault, FlagSet, Scope, Stream, Window},
    pipeline::{
        error::{Failure, PipelineError},
        scan::{pull::PullError, states::CompletedScan},
    },
    source::SourceError,
};

use super::findings::Findings;

/// Consecutive failures of a stream's windows after which the run leaves the stream to the next run. If the service
/// cannot be reached at all, the run ends.
const CONSECUTIVE_FAILURES_MAX: u32 = 3;
/// Consecutive windows of the smallest size that the service cannot deliver, after which the run leaves the stream to
/// the next run. A delivered window with rows resets the count.
const CONSECUTIVE_UNDELIVERABLE_MAX: u32 = 16;

/// One window to scan, and what the command does with the complete scan.
#[derive(Clone, Debug)]
pub struct ScanTask<P> {
    pub scope: Scope,
    pub window: Window,
    pub flags: FlagSet,
    pub page_rows: u32,
    /// True if the window is a half of one that the service could not deliver.
    pub is_half: bool,
    pub purpose: P,
}

/// What a command says in its notes about windows that it could not scan.
pub struct NoteWords {
    /// What happened to the rows that the service cannot deliver.
    pub undeliverable: &'static str,
    /// What happened to the rows around them.
    pub around: &'static str,
    /// What happened to the rest of a stream after too many failures.
    pub given_up: &'static str,
}

/// The windows that a command has not scanned yet.
pub trait PendingWindows {
    type Purpose: Send + 'static;

    /// The words of the command in notes about failures.
    const WORDS: NoteWords;

    /// Records that a scan ended. `rows` is the number of rows that the scan read, or `None` if it is incomplete.
    fn finish(&mut self, task: &ScanTask<Self::Purpose>, rows: Option<u64>);

    /// Adds the two halves of a window to the pending windows. Returns false if the window cannot be cut any smaller.
    /// `has_failed` is true if the service could not deliver the window, and false if its rows take too much memory.
    fn halve(&mut self, task: &ScanTask<Self::Purpose>, has_failed: bool) -> bool;

    /// Drops all windows of a stream; a later run scans them.
    fn drop_stream(&mut self, stream: Stream);
}

/// A task, and what its pull returned.
type EndedScan<P, S> = (ScanTask<P>, Result<S, PullError>);

/// How a scan ended.
pub enum ScanEnd<P, S> {
    Complete(ScanTask<P>, S),
    /// The run was stopped; the next run scans the window.
    Stopped(ScanTask<P>),
    /// The window was too much for the service or for the memory. Its halves are pending, or the next plan finds the
    /// window due.
    Halved(ScanTask<P>),
    /// The scan failed, and the pool has recorded the failure.
    Failed(ScanTask<P>),
}

/// The running scans, the pending windows, and the first error that ends the run. `S` is the type of a complete scan.
pub struct ScanPool<W: PendingWindows, S> {
    pub windows: W,
    limit: usize,
    scans: JoinSet<EndedScan<W::Purpose, S>>,
    /// The windows of the running scans. The window of a scan that panicked is never removed, so that its stream stays
    /// unfinished.
    active: Vec<(Scope, Window)>,
    /// Failed windows since the last complete scan of the stream.
    consecutive_failures: BTreeMap<Stream, u32>,
    /// Undeliverable windows since the last complete scan of the stream that had rows.
    consecutive_undeliverable: BTreeMap<Stream, u32>,
    /// The first error that ends the run.
    outcome: Result<(), PipelineError>,
}

impl<W: PendingWindows, S: Borrow<CompletedScan> + Send + 'static> ScanPool<W, S> {
    /// Creates a pool without running scans. At most `limit` scans run at a time.
    pub fn new(windows: W, limit: usize) -> Self {
        Self {
            windows,
            limit,
            scans: JoinSet::new(),
            active: Vec::new(),
            consecutive_failures: BTreeMap::new(),
            consecutive_undeliverable: BTreeMap::new(),
            outcome: Ok(()),
        }
    }

    /// Returns true if another scan may start. After an error that ends the run, no scan starts.
    pub fn has_room(&self) -> bool {
        self.outcome.is_ok() && self.scans.len() < self.limit
    }

    pub fn is_idle(&self) -> bool {
        self.scans.is_empty()
    }

    /// Returns the streams with a running scan.
    pub fn active_streams(&self) -> impl Iterator<Item = Stream> {
        self.active.iter().map(|(scope, _)| scope.stream)
    }

    /// Starts a scan.
    pub fn start(
        &mut self,
        task: ScanTask<W::Purpose>,
        scan: impl Future<Output = Result<S, PullError>> + Send + 'static,
    ) {
        self.active.push((task.scope, task.window));
        self.scans.spawn(async move { (task, scan.await) });
    }

    /// Waits until a scan ends, and records a failure in `findings`. A scan that panicked ends the run and is not
    /// returned. Returns `None` if no scan is running. Cancel safe.
    pub async fn next_ended(&mut self, findings: &mut Findings) -> Option<ScanEnd<W::Purpose, S>> {
        loop {
            match self.scans.join_next().await? {
                Ok((task, scan)) => return Some(self.handle_end(task, scan, findings)),
                Err(panicked) => self.fail(PipelineError::WorkerPanicked(panicked.to_string())),
            }
        }
    }

    /// Updates the pool after the end of a scan, and returns how the scan ended. A window that the service could not
    /// deliver, or whose rows take too much memory, is halved if possible; otherwise it failed.
    fn handle_end(
        &mut self,
        task: ScanTask<W::Purpose>,
        scan: Result<S, PullError>,
        findings: &mut Findings,
    ) -> ScanEnd<W::Purpose, S> {
        if let Some(index) = self.active.iter().position(|window| *window == (task.scope, task.window)) {
            self.active.swap_remove(index);
        }
        let rows = scan.as_ref().ok().map(|scan| scan.borrow().rows);
        self.windows.finish(&task, rows);
        match scan {
            Ok(scan) => {
                self.consecutive_failures.remove(&task.scope.stream);
                if rows > Some(0) {
                    self.consecutive_undeliverable.remove(&task.scope.stream);
                }
                ScanEnd::Complete(task, scan)
            }
            Err(PullError::Stopped(stop)) => {
                findings.stop.get_or_insert(stop);
                findings.leave_unfinished([task.scope.stream]);
                ScanEnd::Stopped(task)
            }
            Err(PullError::TooMuch(_)) if self.windows.halve(&task, true) => {
                tracing::info!(window = %task.window, "the service cannot deliver the window; trying smaller windows");
                ScanEnd::Halved(task)
            }
            Err(PullError::TooWide) if self.windows.halve(&task, false) => {
                tracing::info!(window = %task.window, "the rows of the window take too much memory; it is cut");
                ScanEnd::Halved(task)
            }
            Err(error) => {
                self.record_failure(&task, error, findings);
                ScanEnd::Failed(task)
            }
        }
    }

    /// Records the failure of a window, and marks its stream as unfinished.
    fn record_failure(&mut self, task: &ScanTask<W::Purpose>, error: PullError, findings: &mut Findings) {
        match error {
            PullError::TooMuch(error) if task.scope.stream.is_windowed() => {
                self.window_undeliverable(task, &error, findings);
            }
            PullError::TooMuch(error) | PullError::Window(error) => self.window_failed(task, error, findings),
            PullError::Run(error) => self.fail(error),
            // A later run scans the window.
            PullError::Stopped(_) | PullError::TooWide => {}
        }
        findings.leave_unfinished([task.scope.stream]);
    }

    /// Records a failed window. After [`CONSECUTIVE_FAILURES_MAX`] failures, drops the windows of the stream, or ends
    /// the run if the service could not be reached.
    fn window_failed(&mut self, task: &ScanTask<W::Purpose>, error: SourceError, findings: &mut Findings) {
        let failure = failure(task.scope, task.window, &error);
        let is_repeated =
            findings.failures.last().is_some_and(|last| last.cause.is_some() && last.cause == failure.cause);
        match is_repeated {
            true => tracing::debug!(window = %task.window, scope = %task.scope, %error, "another window failed alike"),
            false => tracing::error!(window = %task.window, scope = %task.scope, %error, "the window failed"),
        }
        findings.failures.push(failure);
        let stream = task.scope.stream;
        let consecutive = self.consecutive_failures.entry(stream).or_default();
        *consecutive += 1;
        if *consecutive < CONSECUTIVE_FAILURES_MAX {
            return;
        }
        let is_first_time = *consecutive == CONSECUTIVE_FAILURES_MAX;
        if error.is_no_connection() {
            return self.fail(PipelineError::Source(error));
        }
        if is_first_time {
            findings.notes.push(format!(
                "{CONSECUTIVE_FAILURES_MAX} windows of {stream} failed in a row: the rest of {stream} {}",
                W::WORDS.given_up
            ));
        }
        self.windows.drop_stream(stream);
    }

    /// Records a window of the smallest size whose rows the service cannot deliver. After
    /// [`CONSECUTIVE_UNDELIVERABLE_MAX`] such windows in a row, drops the windows of the stream.
    fn window_undeliverable(&mut self, task: &ScanTask<W::Purpose>, error: &SourceError, findings: &mut Findings) {
        let ScanTask { scope, window, .. } = *task;
        let NoteWords { undeliverable, around, given_up } = W::WORDS;
        tracing::error!(%window, %scope, %error, "the service cannot deliver these rows");
        findings.failures.push(failure(scope, window, error));
        findings.notes.push(format!(
            "the rows of {scope} in {window} {undeliverable}: the service cannot deliver them in pages of any size. {around}"
        ));
        let consecutive = self.consecutive_undeliverable.entry(scope.stream).or_default();
        *consecutive += 1;
        if *consecutive == CONSECUTIVE_UNDELIVERABLE_MAX {
            findings.notes.push(format!(
                "the service delivers no window of {stream}: the rest of {stream} {given_up}",
                stream = scope.stream
            ));
            self.windows.drop_stream(scope.stream);
        }
    }

    /// Records an error that ends the run; only the first one is kept. Running scans continue, and the caller waits for
    /// their ends before it reports.
    pub fn fail(&mut self, error: PipelineError) {
        if self.outcome.is_ok() {
            self.outcome = Err(error);
        }
    }

    pub fn has_failed(&self) -> bool {
        self.outcome.is_err()
    }

    /// Returns the first error that ends the run, and forgets it.
    pub fn take_outcome(&mut self) -> Result<(), PipelineError> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    /// Returns the pending windows, and the first error that ends the run.
    pub fn into_outcome(self) -> (W, Result<(), PipelineError>) {
        (self.windows, self.outcome)
    }
}

/// Creates the failure of a window that the service did not deliver, with the hint of its error.
fn failure(scope: Scope, window: Window, error: &SourceError) -> Failure {
    let (hint, cause) = (error.hint().map(str::to_owned), error.cause_of_outage());
    Failure { hint, cause, ..Failure::new(scope, window, error) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        pipeline::sync::window_queue::{SyncPurpose, SyncTask, WindowQueue},
        plan::Reason,
    };

    #[tokio::test]
    async fn a_panic_of_a_scan_fails_the_run_and_leaves_its_stream() {
        let mut pool = ScanPool::<_, CompletedScan>::new(WindowQueue::default(), 1);
        let task = SyncTask {
            scope: Scope::all(Stream::Themes),
            window: Window::new(0, 1),
            flags: FlagSet::EMPTY,
            page_rows: 1,
            is_half: false,
            purpose: SyncPurpose { reason: Reason::Gap, is_first_proof: true, is_recheck: false },
        };
        pool.start(task, async { panic!("as planned") });
        assert!(pool.next_ended(&mut Findings::default()).await.is_none());
        assert!(pool.has_failed() && pool.is_idle() && !pool.has_room());
        assert_eq!(pool.active_streams().collect::<Vec<_>>(), [Stream::Themes]);
    }
}
