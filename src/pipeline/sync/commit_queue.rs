//! Complete scans on their way into the warehouses: applied one after the other, then committed together.

use std::{collections::VecDeque, time::Duration};

use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};

use crate::{
    model::Stream,
    pipeline::{
        error::PipelineError,
        scan::{
            commit::{Committed, UNCOMMITTED_ROWS_MAX, UncommittedScan},
            states::CompletedScan,
        },
    },
};

use super::window_queue::SyncTask;

/// Number of complete scans waiting to be applied at which no new scan starts. Enough to keep pulls busy during a
/// commit.
const READY_MAX: usize = 4;
/// The maximum number of scans in one commit. Until its commit, each scan has a spool and a row in the checkpoints.
const BATCH_SCANS_MAX: usize = 64;
/// How long a batch waits for more scans, after its last scan.
const BATCH_QUIET: Duration = Duration::from_secs(1);
/// How long a batch waits for more scans, after its first scan.
const BATCH_AGE_MAX: Duration = Duration::from_secs(5);
/// How long a batch of more than [`BUSY_ROWS`] rows waits for more scans, after its first scan. Each commit leaves a
/// row group that is not full in each table: a commit every five seconds took a tenth of the time of a backfill. After
/// a kill, the next run applies the rows again from the spool.
const BUSY_BATCH_AGE_MAX: Duration = Duration::from_secs(20);
/// A batch of more rows than this waits for [`BUSY_BATCH_AGE_MAX`], or longer.
const BUSY_ROWS: u64 = 50_000;
/// Such a batch waits so many times as long as the last commit took, unless readers wait for the commit. A
/// commit to an Iceberg catalog takes seconds, and adds files that each later read opens.
const LAST_COMMIT_FACTOR: u32 = 10;

/// Scans that every warehouse has applied and none has committed.
struct Batch {
    scans: Vec<(SyncTask, UncommittedScan)>,
    /// When the first scan was added.
    first_at: Instant,
    /// When the last scan was added.
    last_at: Instant,
    /// How long the batch waits, after its first scan, once it has more than [`BUSY_ROWS`] rows.
    busy_age_max: Duration,
    /// True if some warehouse has so many unpublished changes that it should commit and publish them now.
    is_full: bool,
}

impl Batch {
    fn rows(&self) -> u64 {
        self.scans.iter().map(|(_, scan)| scan.rows()).sum()
    }

    fn age_max(&self) -> Duration {
        if self.rows() > BUSY_ROWS { self.busy_age_max } else { BATCH_AGE_MAX }
    }

    /// Returns when the batch must be committed if no further scan is added.
    fn due_at(&self) -> Instant {
        (self.first_at + self.age_max()).min(self.last_at + BATCH_QUIET)
    }

    /// Returns true if the batch must be committed now. With `is_next_ready`, a complete scan waits to join the batch.
    fn is_due(&self, is_next_ready: bool) -> bool {
        self.is_full
            || self.rows() >= UNCOMMITTED_ROWS_MAX
            || self.scans.len() >= BATCH_SCANS_MAX
            || self.first_at.elapsed() >= self.age_max()
            || (!is_next_ready && self.last_at.elapsed() >= BATCH_QUIET)
    }
}

/// The result of a step of the warehouses, with its tasks.
pub(super) enum StepEnd {
    Applied(Box<(SyncTask, Result<UncommittedScan, PipelineError>)>),
    Committed(Vec<SyncTask>, Result<Vec<Committed>, PipelineError>),
}

/// Complete scans that wait to be applied, the batch of applied scans, and the running step.
#[derive(Default)]
pub(super) struct CommitQueue {
    ready: VecDeque<(SyncTask, CompletedScan)>,
    batch: Option<Batch>,
    /// The running step; at most one.
    step: JoinSet<StepEnd>,
    /// When the running commit began.
    commit_began: Option<Instant>,
    /// How long the last commit took; zero if readers wait for commits.
    last_commit: Duration,
    keeps_readers_out: bool,
    /// The streams of scans that failed steps did not commit.
    left: Vec<Stream>,
}

impl CommitQueue {
    /// Creates an empty queue. With `keeps_readers_out`, readers of a warehouse can open it only after a commit.
    pub fn new(keeps_readers_out: bool) -> Self {
        Self { keeps_readers_out, ..Self::default() }
    }

    /// Adds a complete scan.
    pub fn push(&mut self, task: SyncTask, scan: CompletedScan) {
        self.ready.push_back((task, scan));
    }

    /// Returns true if the warehouses are slower than the pulls, so that no new scan may start.
    pub fn is_behind(&self, is_memory_tight: bool) -> bool {
        self.ready.len() >= READY_MAX || (is_memory_tight && !self.ready.is_empty())
    }

    /// Returns true if a step is running.
    pub fn is_working(&self) -> bool {
        !self.step.is_empty()
    }

    /// Returns true if no step is running and no applied scan waits for its commit.
    pub fn is_idle(&self) -> bool {
        self.step.is_empty() && self.batch.is_none()
    }

    /// Returns the next scan to apply. Returns `None` while a step is running, or if the batch must be committed first.
    /// If `is_ending`, applies no further scan.
    pub fn next_scan(&mut self, is_ending: bool) -> Option<(SyncTask, CompletedScan)> {
        let is_commit_due = is_ending || self.batch.as_ref().is_some_and(|batch| batch.is_due(true));
        if self.is_working() || is_commit_due { None } else { self.ready.pop_front() }
    }

    /// Returns the applied scans to commit. Returns `None` while a step is running. If `is_pulling`, a batch that is
    /// not due waits for more scans. If `is_ending`, no batch waits.
    pub fn due_batch(&mut self, is_ending: bool, is_pulling: bool) -> Option<Vec<(SyncTask, UncommittedScan)>> {
        let (is_working, is_next_ready) = (self.is_working(), !self.ready.is_empty());
        let is_due = |batch: &mut Batch| !is_working && (is_ending || !is_pulling || batch.is_due(is_next_ready));
        let batch = self.batch.take_if(is_due)?;
        self.commit_began = Some(Instant::now());
        Some(batch.scans)
    }

    /// Starts a step.
    pub fn start(&mut self, step: impl Future<Output = StepEnd> + Send + 'static) {
        self.step.spawn(step);
    }

    /// Waits until the running step ends. Returns `None` if there is none. Cancel safe.
    pub async fn next_ended(&mut self) -> Option<Result<StepEnd, JoinError>> {
        let ended = self.step.join_next().await;
        if let Some(began) = self.commit_began.take_if(|_| ended.is_some() && !self.keeps_readers_out) {
            self.last_commit = began.elapsed();
        }
        ended
    }

    /// Adds an applied scan to the batch. `is_full` is true if some warehouse has so many unpublished changes that it
    /// should commit and publish them now.
    pub fn add_to_batch(&mut self, task: SyncTask, scan: UncommittedScan, is_full: bool) {
        let now = Instant::now();
        let busy_age_max = BUSY_BATCH_AGE_MAX.max(self.last_commit * LAST_COMMIT_FACTOR);
        let begin = || Batch { scans: Vec::new(), first_at: now, last_at: now, busy_age_max, is_full };
        let batch = self.batch.get_or_insert_with(begin);
        batch.scans.push((task, scan));
        (batch.last_at, batch.is_full) = (now, is_full);
    }

    /// Drops the batch, because a warehouse that failed may have rolled it back. The dropped scans stay unfinished in
    /// the checkpoints.
    pub fn drop_batch(&mut self) {
        self.left
            .extend(self.batch.take().into_iter().flat_map(|batch| batch.scans).map(|(task, _)| task.scope.stream));
    }

    /// Records that a failed step did not commit the scan, which stays unfinished in the checkpoints.
    pub fn leave(&mut self, task: &SyncTask) {
        self.left.push(task.scope.stream);
    }

    /// Returns when the batch must be committed. Returns `None` without a batch, or while a step is running.
    pub fn commit_due_at(&self) -> Option<Instant> {
        self.batch.as_ref().filter(|_| !self.is_working()).map(Batch::due_at)
    }

    /// Returns the streams of scans that are not committed.
    pub fn streams(&self) -> impl Iterator<Item = Stream> {
        let applied = self.batch.iter().flat_map(|batch| &batch.scans).map(|(task, _)| task);
        let waiting = self.ready.iter().map(|(task, _)| task).chain(applied).map(|task| task.scope.stream);
        waiting.chain(self.left.iter().copied())
    }
}
