//! One execution of `sync` or `backfill`, from the lease to the report.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    config::Settings,
    load::{CommitOptions, Identity, RunRecord, VanishPolicy},
    model::{Activity, RunId, Scan, ScanId, TimeAccount, Window},
    plan::{Due, Reason},
    source::{Source, Stop},
    state::{Lease, State},
};

use super::{
    Failure, PipelineError, Progress, RunReport,
    assemble::{archive, failed, identity, open_destinations, source_settings},
    commit::{Committed, SharedDestination, commit, lock},
    held::Budget,
    pull::{Begun, PullError, Pulled, Shared, begin, blocking, pull},
    queue::{Queue, Task},
    reconcile::{Resumed, check_ledgers, resume},
    report::{Findings, peak_rss_bytes},
    work::{ScopeWork, work},
};

/// The learned rate, as remembered between runs.
pub const LEARNED_RATE: &str = "learned_rate";
/// How far the service's clock is ahead of this machine's, in milliseconds.
pub const CLOCK_SKEW: &str = "clock_skew_ms";
/// Complete scans that may wait for their commit; a pull that is faster than the warehouses is held back by it.
const READY_MAX: usize = 2;
/// So many windows failing one after the other end the run: it is not the windows.
const FAILURES_IN_A_ROW_MAX: u32 = 3;

/// What a run is asked to do.
#[derive(Clone, Debug)]
pub struct Request {
    /// "sync" or "backfill": for the lease, the history and the report.
    pub command: &'static str,
    /// The window of a backfill; `None` syncs.
    pub backfill: Option<Window>,
    /// Whether all vanished rows are believed, however many (promise P4).
    pub accept_vanished: bool,
}

/// A run, assembled and holding the lease.
pub struct Run {
    settings: Settings,
    request: Request,
    run_id: RunId,
    started_ms: i64,
    identity: Identity,
    shared: Shared,
    destinations: Vec<SharedDestination>,
    stop: CancellationToken,
    findings: Findings,
    _lease: Lease,
}

impl Run {
    /// Takes the lease, opens everything and makes good what an earlier run left. Sends nothing.
    pub async fn open(
        settings: Settings,
        request: Request,
        stop: CancellationToken,
        progress: Arc<Progress>,
    ) -> Result<Run, PipelineError> {
        let account = TimeAccount::default();
        let source_settings = source_settings(&settings)?;
        let identity = identity(&settings)?;
        settings.require_warehouse().map_err(PipelineError::Config)?;
        let started_ms = clock::now_ms();
        let run_id = RunId::new(started_ms);
        let mut state = State::open(&settings.state_path, &identity.base_url, &identity.environment)
            .map_err(PipelineError::State)?;
        let lease = state.take_lease(&run_id, request.command, started_ms).map_err(PipelineError::State)?;
        let learned = state.service_trait(LEARNED_RATE).map_err(PipelineError::State)?.map(|(learned, _)| learned);
        let source =
            Source::new(source_settings, learned, account.clone(), stop.clone()).map_err(PipelineError::Source)?;
        let archive = archive(&settings, &identity)?;
        let destinations: Vec<SharedDestination> = open_destinations(&settings, &identity)?
            .into_iter()
            .map(|destination| Arc::new(Mutex::new(destination)))
            .collect();
        let mut findings = Findings::default();
        if let Some(note) = check_ledgers(&mut state, &destinations)? {
            tracing::warn!("{note}");
            findings.notes.push(note);
        }
        state.begin_run(&run_id, request.command, started_ms).map_err(PipelineError::State)?;
        let state = Arc::new(Mutex::new(state));
        let shared = Shared { source, archive, state, account, budget: Budget::default(), progress };
        Ok(Run { settings, request, run_id, started_ms, identity, shared, destinations, stop, findings, _lease: lease })
    }

    /// The client, for the progress bar.
    pub fn source(&self) -> &Source {
        &self.shared.source
    }

    /// Works until nothing is due, or something stops it. Everything committed stays, whatever happens.
    pub async fn execute(mut self) -> Result<RunReport, PipelineError> {
        let outcome = self.work_off().await;
        // Also after an error: what was committed becomes visible, and the history says how it ended.
        let report = self.finish(outcome.as_ref().err()).await;
        outcome?;
        report
    }

    async fn work_off(&mut self) -> Result<(), PipelineError> {
        let resumed = {
            let (shared, destinations) = (self.shared.clone(), self.destinations.clone());
            blocking(move || resume(&shared, &destinations)).await??
        };
        if !resumed.is_empty() {
            tracing::info!(scans = resumed.len(), "going on with what an earlier run began");
            self.drive(Queue::default(), resumed).await?;
        }
        let likely_now_ms = clock::now_ms() + self.clock_skew_ms()?;
        if self.findings.stop.is_some() || (self.request.backfill.is_some() && self.is_idle(likely_now_ms)?) {
            return Ok(());
        }
        let now_ms = match self.shared.source.probe().await {
            Ok(probe) => self.remember_clock(probe.service_now_ms)?,
            Err(crate::source::SourceError::Stopped(stop)) => {
                self.findings.stop = Some(stop);
                return Ok(());
            }
            Err(error) => return Err(PipelineError::Source(error)),
        };
        let queue = Queue::new(self.due(now_ms)?, &self.shared.progress);
        self.drive(queue, Vec::new()).await
    }

    fn due(&self, now_ms: i64) -> Result<Vec<ScopeWork>, PipelineError> {
        work(&self.settings, Some(&self.shared.state()), self.request.backfill, now_ms).map_err(PipelineError::State)
    }

    fn is_idle(&self, now_ms: i64) -> Result<bool, PipelineError> {
        Ok(self.due(now_ms)?.iter().all(|work| work.due.is_empty()))
    }

    fn clock_skew_ms(&self) -> Result<i64, PipelineError> {
        let skew = self.shared.state().service_trait::<i64>(CLOCK_SKEW).map_err(PipelineError::State)?;
        Ok(skew.map_or(0, |(skew_ms, _)| skew_ms))
    }

    /// The service's time decides what may be read; a service that does not tell its time is taken to share ours.
    fn remember_clock(&self, service_now_ms: Option<i64>) -> Result<i64, PipelineError> {
        let here_ms = clock::now_ms();
        let now_ms = service_now_ms.unwrap_or(here_ms);
        self.shared.state().remember_trait(CLOCK_SKEW, &(now_ms - here_ms), here_ms).map_err(PipelineError::State)?;
        Ok(now_ms)
    }

    /// Pulls windows side by side and commits complete scans one by one, until there is nothing left or something stops it.
    async fn drive(&mut self, mut queue: Queue, resumed: Vec<Resumed>) -> Result<(), PipelineError> {
        let mut pulls: JoinSet<(Task, Result<Pulled, PullError>)> = JoinSet::new();
        let mut ready: VecDeque<(Task, Pulled)> = VecDeque::new();
        let mut waiting: VecDeque<(Task, Begun)> = VecDeque::new();
        for scan in resumed {
            match scan {
                Resumed::GoesOn(begun) => waiting.push_back((self.task_of(&begun.scan, begun.page_rows)?, begun)),
                Resumed::Complete(pulled) => ready.push_back((self.task_of(&pulled.scan, 1)?, pulled)),
            }
        }
        let mut committing: JoinSet<(Task, u64, Result<Committed, PipelineError>)> = JoinSet::new();
        let mut failures_in_a_row = 0;
        let mut outcome = Ok(());
        loop {
            let goes_on = outcome.is_ok() && self.findings.stop.is_none();
            while goes_on && pulls.len() < self.settings.throttle.in_flight_max && ready.len() < READY_MAX {
                let next = match waiting.pop_front() {
                    Some(begun) => begun,
                    None => match queue.next_task() {
                        Some(task) => (task.clone(), self.begin(&task).await?),
                        None => break,
                    },
                };
                let (task, begun) = next;
                self.shared.progress.begun();
                let shared = self.shared.clone();
                pulls.spawn(async move { (task, pull(shared, begun).await) });
            }
            // A cancelled run finishes the commit under way and no other; what is complete waits in its spool.
            let commits = outcome.is_ok() && self.findings.stop != Some(Stop::Cancelled);
            if committing.is_empty()
                && commits
                && let Some((task, pulled)) = ready.pop_front()
            {
                let (shared, destinations) = (self.shared.clone(), self.destinations.clone());
                let options = self.commit_options(&task);
                committing.spawn(async move {
                    let pages = pulled.pages;
                    let committed = commit(&shared, &destinations, pulled, options).await;
                    (task, pages, committed)
                });
            }
            tokio::select! {
                Some(joined) = pulls.join_next(), if !pulls.is_empty() => {
                    let (task, pulled) = joined.map_err(|error| PipelineError::Died(error.to_string()))?;
                    self.shared.progress.ended();
                    match pulled {
                        Ok(pulled) => { failures_in_a_row = 0; ready.push_back((task, pulled)); }
                        Err(PullError::Stopped(stop)) => { self.findings.stop.get_or_insert(stop); }
                        Err(PullError::TooMuch(_)) if queue.halve(&task) => {
                            tracing::info!(window = %task.due.window, "too much for the service; trying two smaller windows");
                        }
                        Err(PullError::TooMuch(error) | PullError::Window(error)) => {
                            tracing::error!(window = %task.due.window, scope = %task.scope, %error, "the window failed");
                            self.findings.failures.push(Failure::new(task.scope, task.due.window, &error));
                            failures_in_a_row += 1;
                            if failures_in_a_row >= FAILURES_IN_A_ROW_MAX {
                                outcome = outcome.and(Err(PipelineError::Source(error)));
                            }
                        }
                        Err(PullError::Run(error)) => outcome = outcome.and(Err(error)),
                    }
                }
                Some(joined) = committing.join_next(), if !committing.is_empty() => {
                    let (task, pages, committed) = joined.map_err(|error| PipelineError::Died(error.to_string()))?;
                    match committed {
                        Ok(committed) => self.settle(&mut queue, task, pages, committed).await?,
                        Err(error) => outcome = outcome.and(Err(error)),
                    }
                }
                else => break,
            }
        }
        outcome
    }

    async fn begin(&self, task: &Task) -> Result<Begun, PipelineError> {
        let here_ms = clock::now_ms();
        let started_ms = self.shared.source.service_now_ms().unwrap_or(here_ms);
        let scan = Scan {
            id: ScanId::new(here_ms),
            run_id: self.run_id.clone(),
            scope: task.scope,
            window: task.due.window,
            flags: task.flags,
            started_ms,
        };
        let (shared, page_rows) = (self.shared.clone(), task.page_rows);
        blocking(move || begin(&shared, scan, page_rows)).await?
    }

    /// The task that an earlier run was at.
    fn task_of(&self, scan: &Scan, page_rows: u32) -> Result<Task, PipelineError> {
        let held = self.shared.state().coverage(scan.scope).map_err(PipelineError::State)?;
        let covered: crate::model::IntervalSet = held.iter().map(|segment| segment.window).collect();
        let is_first_proof = !covered.covers(scan.window);
        let reason = if is_first_proof { Reason::Gap } else { Reason::Rescan };
        let due = Due { window: scan.window, reason };
        Ok(Task { scope: scan.scope, flags: scan.flags, page_rows, due, is_first_proof, is_second_look: false })
    }

    fn commit_options(&self, task: &Task) -> CommitOptions {
        let vanish = if self.request.accept_vanished { VanishPolicy::Accept } else { VanishPolicy::default() };
        CommitOptions { vanish, record_unchanged: task.is_first_proof }
    }

    /// After a commit: the books, a second look at what seems to have vanished, and a publish if much waits for it.
    async fn settle(
        &mut self,
        queue: &mut Queue,
        task: Task,
        pages: u64,
        done: Committed,
    ) -> Result<(), PipelineError> {
        let mut counts = done.counts;
        if counts.withheld > 0 && !task.is_second_look {
            tracing::info!(window = %task.due.window, rows = counts.withheld, "many rows seem to have vanished; looking again");
            queue.look_again(&task, &self.shared.progress);
            counts.withheld = 0;
        }
        if counts.withheld > 0 {
            let Due { window, .. } = task.due;
            let note = format!(
                "{} rows of {} in {window} are no longer returned by the service; too many to believe, so they stay. \
                 If they are really gone, run with --accept-vanished",
                counts.withheld, task.scope
            );
            tracing::warn!("{note}");
            self.findings.notes.push(note);
        }
        self.findings.wrote |= done.wrote;
        self.findings.add(task.scope.stream, pages, &counts);
        queue.learn(task.scope, task.due.window, counts.rows_read);
        self.shared.progress.committed(task.due.window.len_ms(), counts.rows_read);
        for destination in &self.destinations {
            if lock(destination).wants_publish() {
                self.publish(destination).await?;
            }
        }
        Ok(())
    }

    async fn publish(&self, destination: &SharedDestination) -> Result<(), PipelineError> {
        let (destination, account) = (Arc::clone(destination), self.shared.account.clone());
        blocking(move || {
            let _busy = account.enter(Activity::Write);
            let mut destination = lock(&destination);
            let name = destination.name();
            destination.publish().map_err(failed(name))
        })
        .await?
    }

    /// Writes the run into the warehouses (if it changed them) and the history, makes everything visible, and reports.
    async fn finish(mut self, error: Option<&PipelineError>) -> Result<RunReport, PipelineError> {
        if self.findings.wrote && error.is_none() {
            let record = self.record();
            for destination in &self.destinations {
                let mut destination = lock(destination);
                let name = destination.name();
                destination.record_run(&record).map_err(failed(name))?;
            }
        }
        for destination in &self.destinations {
            self.publish(destination).await?;
        }
        let expired = self.shared.source.service_now_ms().map(|now_ms| self.shared.archive.expire(now_ms));
        if let Some(Err(error)) = expired {
            let note = format!("old pages could not be removed from the archive: {error}");
            tracing::warn!("{note}");
            self.findings.notes.push(note);
        }
        let report = self.report();
        let text = serde_json::to_string(&report).unwrap_or_default();
        let state = self.shared.state();
        let learned = self.shared.source.learned_rate();
        state.remember_trait(LEARNED_RATE, &learned, clock::now_ms()).map_err(PipelineError::State)?;
        let (outcome, exit_code) = match error {
            Some(_) => ("failed", 1),
            None => (report.outcome.name(), i64::from(report.exit_code)),
        };
        state.finish_run(&self.run_id, clock::now_ms(), outcome, exit_code, &text).map_err(PipelineError::State)?;
        drop(state);
        Ok(report)
    }

    fn record(&self) -> RunRecord {
        let report = self.report();
        RunRecord {
            run_id: self.run_id.clone(),
            command: self.request.command.to_owned(),
            outcome: report.outcome.name().to_owned(),
            exit_code: i64::from(report.exit_code),
            started_ms: self.started_ms,
            finished_ms: clock::now_ms(),
            base_url: self.identity.base_url.clone(),
            environment: self.identity.environment.clone(),
            report: serde_json::to_string(&report).unwrap_or_default(),
        }
    }

    fn report(&self) -> RunReport {
        let outcome = self.findings.outcome();
        let mut streams = self.findings.streams.clone();
        for stream in &self.settings.streams {
            streams.entry(stream.stream.name()).or_default();
        }
        RunReport {
            run_id: self.run_id.clone(),
            command: self.request.command.to_owned(),
            outcome,
            exit_code: outcome.exit_code(),
            started_at: rfc3339(self.started_ms),
            finished_at: rfc3339(clock::now_ms()),
            streams,
            requests: self.shared.source.request_stats(),
            time_ms: self.shared.account.parts(),
            peak_rss_bytes: peak_rss_bytes(),
            stopped_because: self.findings.stop.map(|stop| stop.to_string()),
            failures: self.findings.failures.clone(),
            notes: self.findings.notes.clone(),
        }
    }

    /// Whether somebody asked the run to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }
}

fn rfc3339(at_ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(at_ms)
        .map(|moment| moment.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
        .unwrap_or_default()
}
