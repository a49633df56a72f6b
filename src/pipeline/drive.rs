//! The windows of a run on their way: pulled side by side, committed one after the other.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, Sleep, sleep, sleep_until},
};
use tracing::Instrument as _;

use crate::{
    load::CommitOptions,
    model::{IntervalSet, Scan, ScanId, Stream, Window},
    plan::{Due, Reason},
    source::{SourceError, Stop},
};

use super::{
    Failure, Frozen, PipelineError, Run,
    commit::{Committed, UNCOMMITTED_ROWS_MAX, UncommittedScan, apply, commit},
    pull::{PullError, pull},
    queue::{Queue, Task},
    reconcile::Resumed,
    scan::{CompletedScan, OpenScan, begin},
    spans,
    threads::blocking,
};

/// Complete scans that may wait for their commit; a pull that is faster than the warehouses is held back by it. So many that pulls
/// go on while the warehouses commit.
const READY_MAX: usize = 4;
/// Scans that are applied before they are committed: each has a spool and a line in the checkpoints until then.
const UNSEALED_SCANS_MAX: usize = 64;
/// What was applied waits so long for more, from the last scan on and from the first.
const SEAL_AFTER: Duration = Duration::from_secs(1);
const SEAL_AFTER_MAX: Duration = Duration::from_secs(5);
/// The same from the first on, where more than so many rows wait: each commit costs a row group that is not full in each table, and where
/// much comes, one every five seconds was a tenth of a backfill. What a kill undoes is applied again from the spool.
const BUSY_ROWS: u64 = 50_000;
const SEAL_AFTER_BUSY: Duration = Duration::from_secs(20);
/// Without a commit for so long, other processes are let at the warehouses: the service, not the warehouse, is what takes time.
const REST_AFTER: Duration = Duration::from_secs(1);
/// Consecutive failures of a list's windows after which the run gives the list up: its windows are not to blame.
pub(super) const FAILURES_IN_A_ROW_MAX: u32 = 3;
/// The same of windows that cannot be cut any smaller, with no row between them: some records beside one another can be to blame, and
/// not all that there are.
const MISSING_IN_A_ROW_MAX: u32 = 16;

type PullEnd = (Task, Result<CompletedScan, PullError>);

/// What the one at the warehouses came back with.
enum CommitEnd {
    Applied(Box<(Task, Result<UncommittedScan, PipelineError>)>),
    Sealed(Vec<Task>, Result<Vec<Committed>, PipelineError>),
}

/// What is on its way.
struct Flow {
    queue: Queue,
    /// Windows that an earlier run began.
    waiting: VecDeque<(Task, OpenScan)>,
    pulls: JoinSet<PullEnd>,
    /// The windows of these.
    pulled: Vec<(Stream, Window)>,
    ready: VecDeque<(Task, CompletedScan)>,
    /// Applied, and not durable yet: they become so together.
    uncommitted: Vec<(Task, UncommittedScan)>,
    /// When the first and the last of them were applied.
    applied_at: Option<(Instant, Instant)>,
    /// Whether some warehouse cannot hold much more of them.
    is_much_uncommitted: bool,
    /// At most one.
    committing: JoinSet<CommitEnd>,
    failures_in_a_row: BTreeMap<Stream, u32>,
    missing_in_a_row: BTreeMap<Stream, u32>,
    /// The streams of windows that were not pulled or not applied.
    left: BTreeSet<Stream>,
    /// The first error that ends the run. What is under way is still waited for: nothing goes on behind an error's back.
    outcome: Result<(), PipelineError>,
}

impl Flow {
    fn new(queue: Queue) -> Self {
        Self {
            queue,
            waiting: VecDeque::new(),
            pulls: JoinSet::new(),
            pulled: Vec::new(),
            ready: VecDeque::new(),
            uncommitted: Vec::new(),
            applied_at: None,
            is_much_uncommitted: false,
            committing: JoinSet::new(),
            failures_in_a_row: BTreeMap::new(),
            missing_in_a_row: BTreeMap::new(),
            left: BTreeSet::new(),
            outcome: Ok(()),
        }
    }

    fn fail(&mut self, error: PipelineError) {
        if self.outcome.is_ok() {
            self.outcome = Err(error);
        }
    }

    fn uncommitted_rows(&self) -> u64 {
        self.uncommitted.iter().map(|(_, uncommitted)| uncommitted.rows()).sum()
    }

    /// Nothing is uncommitted any more.
    fn take_uncommitted(&mut self) -> Vec<(Task, UncommittedScan)> {
        (self.applied_at, self.is_much_uncommitted) = (None, false);
        std::mem::take(&mut self.uncommitted)
    }

    /// How long the first of what is uncommitted may wait.
    fn patience(&self) -> Duration {
        if self.uncommitted_rows() > BUSY_ROWS { SEAL_AFTER_BUSY } else { SEAL_AFTER_MAX }
    }

    /// Ends when what is uncommitted has waited long enough for more.
    fn commit_due(&self) -> Sleep {
        let due = self.applied_at.map(|(first, last)| (first + self.patience()).min(last + SEAL_AFTER));
        sleep_until(due.unwrap_or_else(Instant::now))
    }

    fn is_commit_due(&self) -> bool {
        self.is_much_uncommitted
            || self.uncommitted_rows() >= UNCOMMITTED_ROWS_MAX
            || self.uncommitted.len() >= UNSEALED_SCANS_MAX
            || self.applied_at.is_some_and(|(first, last)| {
                first.elapsed() >= self.patience() || (self.ready.is_empty() && last.elapsed() >= SEAL_AFTER)
            })
    }

    /// Begins nothing more of a list.
    fn leave(&mut self, stream: Stream) {
        self.left.insert(stream);
        self.queue.leave(stream);
        self.waiting.retain(|(task, _)| task.scope.stream != stream);
    }

    /// The streams of which something is left to the next run.
    fn left(&self) -> BTreeSet<Stream> {
        let waiting = self.waiting.iter().map(|(task, _)| task);
        let tasks =
            waiting.chain(self.ready.iter().map(|(task, _)| task)).chain(self.uncommitted.iter().map(|(task, _)| task));
        let streams = tasks.map(|task| task.scope.stream).chain(self.pulled.iter().map(|(stream, _)| *stream));
        streams.chain(self.queue.remaining()).chain(self.left.iter().copied()).collect()
    }

    fn is_at_rest(&self) -> bool {
        self.committing.is_empty() && self.uncommitted.is_empty()
    }

    fn panicked(&mut self, error: &JoinError) {
        self.fail(PipelineError::WorkerPanicked(error.to_string()));
    }
}

impl Run {
    /// Pulls windows side by side and commits complete scans one by one, until there is nothing left or something stops it.
    pub(super) async fn drive(&mut self, queue: Queue, resumed: Vec<Resumed>) -> Result<(), PipelineError> {
        let mut flow = Flow::new(queue);
        for scan in resumed {
            match scan {
                Resumed::GoesOn(begun) => flow.waiting.push_back((self.task_of(&begun.scan, begun.page_rows)?, *begun)),
                Resumed::Complete(pulled) => {
                    let task = self.task_of(&pulled.scan, pulled.page_rows)?;
                    flow.queue.ended(task.scope, task.due.window, Some(pulled.rows));
                    flow.ready.push_back((task, *pulled));
                }
            }
        }
        let mut is_resting = false;
        loop {
            self.start_pulls(&mut flow).await;
            self.start_commit(&mut flow);
            is_resting &= flow.committing.is_empty();
            let commit_due = flow.commit_due();
            tokio::select! {
                biased;
                Some(end) = flow.committing.join_next(), if !flow.committing.is_empty() => match end {
                    Ok(CommitEnd::Applied(end)) => self.apply_ended(&mut flow, end.0, end.1),
                    Ok(CommitEnd::Sealed(tasks, committed)) => self.commit_ended(&mut flow, tasks, committed).await,
                    Err(panicked) => flow.panicked(&panicked),
                },
                Some(end) = flow.pulls.join_next(), if !flow.pulls.is_empty() => match end {
                    Ok((task, pulled)) => self.pull_ended(&mut flow, task, pulled),
                    Err(panicked) => flow.panicked(&panicked),
                },
                () = commit_due, if flow.committing.is_empty() && !flow.uncommitted.is_empty() => {}
                () = sleep(REST_AFTER), if !is_resting && flow.is_at_rest() && !flow.pulls.is_empty() => {
                    is_resting = true;
                    if let Err(error) = self.release_locks().await {
                        flow.fail(error);
                    }
                }
                else => {
                    self.findings.leave(flow.left());
                    return flow.outcome;
                }
            }
        }
    }

    /// As many windows as may be pulled at once, unless the run is ending or the warehouses are behind.
    async fn start_pulls(&self, flow: &mut Flow) {
        while flow.outcome.is_ok()
            && self.findings.stop.is_none()
            && flow.pulls.len() < self.session.settings.throttle.in_flight_max
            && flow.ready.len() < READY_MAX
            && (flow.ready.is_empty() || !self.context.budget.is_tight())
        {
            let (task, begun) = match flow.waiting.pop_front() {
                Some(begun) => begun,
                None => {
                    let Some(task) = flow.queue.next_task() else { return };
                    match self.begin(&task).await {
                        Ok(begun) => (task, begun),
                        Err(error) => return flow.fail(error),
                    }
                }
            };
            self.context.progress.begun();
            flow.pulled.push((task.scope.stream, task.due.window));
            let context = self.context.clone();
            let span = spans::window(&begun.scan);
            flow.pulls.spawn(async move { (task, pull(context, begun).await) }.instrument(span));
        }
    }

    /// The next commit, if none is under way. Scans are applied one after the other and committed together; they wait a moment for
    /// those that are being pulled.
    ///
    /// A cancelled run finishes the one under way and begins no other: what is complete waits in its spool.
    fn start_commit(&self, flow: &mut Flow) {
        if !flow.committing.is_empty() {
            return;
        }
        let is_ending = flow.outcome.is_err() || self.findings.stop == Some(Stop::Cancelled);
        let is_commit_due = is_ending || flow.is_commit_due();
        let (context, destinations) = (self.context.clone(), self.destinations.clone());
        if let Some((task, pulled)) = if is_commit_due { None } else { flow.ready.pop_front() } {
            let options = self.commit_options(&task, &pulled);
            let apply = async move {
                let applied = apply(&context, &destinations, pulled, options).await;
                CommitEnd::Applied(Box::new((task, applied)))
            };
            flow.committing.spawn(apply.instrument(spans::commit("apply")));
        } else if !flow.uncommitted.is_empty() && (is_commit_due || flow.pulls.is_empty()) {
            let (tasks, uncommitted) = flow.take_uncommitted().into_iter().unzip();
            let commit = async move { CommitEnd::Sealed(tasks, commit(&context, &destinations, uncommitted).await) };
            flow.committing.spawn(commit.instrument(spans::commit("commit")));
        }
    }

    fn pull_ended(&mut self, flow: &mut Flow, task: Task, pulled: Result<CompletedScan, PullError>) {
        self.context.progress.ended();
        if let Some(at) = flow.pulled.iter().position(|pulled| *pulled == (task.scope.stream, task.due.window)) {
            flow.pulled.swap_remove(at);
        }
        flow.queue.ended(task.scope, task.due.window, pulled.as_ref().ok().map(|pulled| pulled.rows));
        if !matches!(pulled, Ok(_) | Err(PullError::Stopped(_)))
            && let Err(error) = self.doubt_statuses(&task)
        {
            flow.fail(error);
        }
        match pulled {
            Ok(pulled) => {
                flow.failures_in_a_row.remove(&task.scope.stream);
                if pulled.rows > 0 {
                    flow.missing_in_a_row.remove(&task.scope.stream);
                }
                flow.ready.push_back((task, pulled));
            }
            Err(PullError::Stopped(stop)) => {
                flow.left.insert(task.scope.stream);
                self.findings.stop.get_or_insert(stop);
            }
            Err(PullError::TooMuch(_)) if flow.queue.halve(&task) => {
                tracing::info!(window = %task.due.window, "too much for the service; trying smaller windows");
            }
            Err(PullError::TooMuch(error)) if task.scope.stream.is_windowed() => {
                self.rows_are_missing(flow, &task, &error);
            }
            Err(PullError::TooMuch(error) | PullError::Window(error)) => self.window_failed(flow, &task, error),
            Err(PullError::Run(error)) => {
                flow.left.insert(task.scope.stream);
                flow.fail(error);
            }
        }
    }

    fn window_failed(&mut self, flow: &mut Flow, task: &Task, error: SourceError) {
        tracing::error!(window = %task.due.window, scope = %task.scope, %error, "the window failed");
        self.findings.failures.push(Failure::new(task.scope, task.due.window, &error));
        let stream = task.scope.stream;
        flow.left.insert(stream);
        let in_a_row = flow.failures_in_a_row.entry(stream).or_default();
        *in_a_row += 1;
        if *in_a_row < FAILURES_IN_A_ROW_MAX {
            return;
        }
        if error.is_no_connection() {
            return flow.fail(PipelineError::Source(error));
        }
        if *in_a_row == FAILURES_IN_A_ROW_MAX {
            self.findings.notes.push(given_up(stream));
        }
        flow.leave(stream);
    }

    /// The smallest window around what the service cannot deliver. It answers all others.
    fn rows_are_missing(&mut self, flow: &mut Flow, task: &Task, error: &SourceError) {
        let (scope, window) = (task.scope, task.due.window);
        tracing::error!(%window, %scope, %error, "the service cannot deliver these rows");
        self.findings.failures.push(Failure::new(scope, window, error));
        self.findings.notes.push(format!(
            "the rows of {scope} in {window} are missing: the service cannot deliver them in pages of any size. What lies around \
             them is complete; the next run asks for them again"
        ));
        flow.left.insert(scope.stream);
        let in_a_row = flow.missing_in_a_row.entry(scope.stream).or_default();
        *in_a_row += 1;
        if *in_a_row == MISSING_IN_A_ROW_MAX {
            self.findings.notes.push(format!(
                "nothing of {stream} comes: the rest of {stream} is left to the next run",
                stream = scope.stream
            ));
            flow.leave(scope.stream);
        }
    }

    fn apply_ended(&mut self, flow: &mut Flow, task: Task, applied: Result<UncommittedScan, PipelineError>) {
        match applied {
            Ok(uncommitted) => {
                flow.uncommitted.push((task, uncommitted));
                flow.is_much_uncommitted =
                    self.destinations.iter().any(|destination| destination.lock().should_compact());
                let now = Instant::now();
                flow.applied_at = Some(flow.applied_at.map_or((now, now), |(first, _)| (first, now)));
            }
            Err(PipelineError::Frozen(frozen)) => self.freeze(flow, &task, *frozen),
            Err(error) => {
                flow.left.insert(task.scope.stream);
                flow.left.extend(flow.uncommitted.iter().map(|(task, _)| task.scope.stream));
                // A warehouse may have given up, with this scan, what it had applied before: all are under way still.
                flow.take_uncommitted();
                flow.fail(error);
            }
        }
    }

    async fn commit_ended(
        &mut self,
        flow: &mut Flow,
        tasks: Vec<Task>,
        committed: Result<Vec<Committed>, PipelineError>,
    ) {
        let committed = match committed {
            Ok(committed) => committed,
            Err(error) => {
                flow.left.extend(tasks.iter().map(|task| task.scope.stream));
                return flow.fail(error);
            }
        };
        for (task, committed) in tasks.into_iter().zip(committed) {
            if let Err(error) = self.settle(&mut flow.queue, task, committed).await {
                return flow.fail(error);
            }
        }
    }

    /// A scan was not applied. What is under way of its stream comes to its end, and nothing more of it is begun.
    fn freeze(&mut self, flow: &mut Flow, task: &Task, frozen: Frozen) {
        tracing::error!(window = %task.due.window, scope = %task.scope, error = %frozen, "the window is not applied");
        self.findings.failures.push(Failure::new(task.scope, task.due.window, &frozen));
        flow.leave(frozen.stream);
        self.findings.freeze(&frozen);
    }

    async fn begin(&self, task: &Task) -> Result<OpenScan, PipelineError> {
        let here_ms = self.session.now_ms();
        let started_ms = self.context.source.service_now_ms().unwrap_or(here_ms);
        let scan = Scan {
            id: ScanId::drawn(here_ms, &self.session.system.rng),
            run_id: self.session.run_id.clone(),
            scope: task.scope,
            window: task.due.window,
            flags: task.flags,
            started_ms,
        };
        let (context, page_rows, is_part) = (self.context.clone(), task.page_rows, task.is_part);
        let begun = blocking(move || begin(&context, scan, page_rows)).await??;
        Ok(OpenScan { is_part, ..begun })
    }

    /// The task that an earlier run was at.
    fn task_of(&self, scan: &Scan, page_rows: u32) -> Result<Task, PipelineError> {
        let held = self.context.state().coverage(scan.scope)?;
        let covered: IntervalSet = held.iter().map(|interval| interval.window).collect();
        let is_first_proof = !covered.covers(scan.window);
        let reason = if is_first_proof { Reason::Gap } else { Reason::Rescan };
        let due = Due { window: scan.window, reason };
        self.context.progress.due(scan.scope, &due);
        Ok(Task {
            scope: scan.scope,
            flags: scan.flags,
            page_rows,
            due,
            is_first_proof,
            is_second_look: false,
            is_part: false,
        })
    }

    fn commit_options(&self, task: &Task, pulled: &CompletedScan) -> CommitOptions {
        let vanish = self.vanish_policy(task, pulled);
        CommitOptions { vanish, record_unchanged: task.is_first_proof, ..CommitOptions::default() }
    }

    /// After a commit: the books, a second look at what seems to have vanished, and a publish if much waits for it.
    async fn settle(&mut self, queue: &mut Queue, task: Task, done: Committed) -> Result<(), PipelineError> {
        let mut counts = done.counts;
        if task.is_second_look {
            // The first look has counted them.
            (counts.rows_read, counts.unchanged) = (0, 0);
        } else {
            self.findings.drifted(task.scope.stream, &done.drift);
        }
        let Due { window, .. } = task.due;
        match std::mem::take(&mut counts.withheld) {
            // Who is gone was asked for by name: there is no list to look at again.
            rows if rows > 0 && !task.is_second_look && task.scope.stream != Stream::Users => {
                tracing::info!(%window, rows, "many rows seem to have vanished; looking again");
                queue.look_again(&task, &self.context.progress);
            }
            withheld => self.findings.looked(task.scope, window, withheld),
        }
        self.findings.wrote |= done.wrote;
        self.findings.add(task.scope.stream, done.pages, &counts);
        self.context.progress.committed(task.scope, window, counts.rows_read);
        for destination in &self.destinations {
            if destination.lock().should_compact() {
                self.publish(destination).await?;
            }
        }
        if task.scope.stream == Stream::Responses {
            self.fetch_recordings_early().await?;
        }
        Ok(())
    }
}

/// Said of a list whose windows failed one after the other.
pub(super) fn given_up(stream: Stream) -> String {
    format!("{FAILURES_IN_A_ROW_MAX} windows of {stream} failed in a row: the rest of {stream} is left to the next run")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{DAY_MS, FlagSet, Scope},
        pipeline::{Progress, ScopeWork},
        plan::{RescanRules, Rules},
    };

    #[test]
    fn a_stream_is_left_while_a_window_of_it_is_pulled_or_not_begun() {
        let due = vec![Due { window: Window::new(0, 9 * DAY_MS), reason: Reason::Gap }];
        let rules = Rules { flags: FlagSet::EMPTY, settle_ms: 0, rescan: RescanRules::default() };
        let work = ScopeWork { scope: Scope::all(Stream::Responses), rules, page_rows: 1000, held: Vec::new(), due };
        let mut flow = Flow::new(Queue::new(vec![work], &Progress::default()));
        let first = flow.queue.next_task().unwrap().due.window;
        let responses = BTreeSet::from([Stream::Responses]);
        assert_eq!(flow.left(), responses);
        flow.queue.ended(Scope::all(Stream::Responses), first, Some(10));
        while let Some(task) = flow.queue.next_task() {
            flow.queue.ended(task.scope, task.due.window, Some(10));
        }
        assert!(flow.left().is_empty());
        flow.pulled.push((Stream::Responses, first));
        assert_eq!(flow.left(), responses);
    }
}
