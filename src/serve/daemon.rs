//! The daemon does the jobs that are due, one at a time. The daemon's only inputs are the clock, the inbox, and the
//! schedule's progress in the inbox. So the daemon may be killed and restarted at any moment.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    erase::{attention_for, erase_vanished, log_erased},
    flatten::summarize_body,
    model::{Fault, MINUTE_MS, RunReason, Stream},
    notify::EndedRun,
    pipeline::{
        Memory, Meter, Outcome, PeopleSelection, PipelineError, Progress, Request, Run, RunReport, RunTimes, System,
        chain, flush_deliveries, identity, log_progress, test_key,
    },
    state::{Inbox, ScheduleEntry, StateError},
};

use super::{
    Counter, DueJobs, Job, JobDelays, JobOutcome, Schedule, ServeError, ServeState, WriteReport,
    monitoring::health_rules,
    notifier::Notifier,
    report_job::{Attempt, ReportJob},
    serve_state::RunningJob,
};

/// The longest sleep. Sleeps are short because the wall clock may jump.
const SLEEP_MAX: Duration = Duration::from_secs(30);
/// Interval at which flushed deliveries become visible to readers of Parquet, unless a run makes them visible earlier.
/// Each time, the partition of the month is rewritten.
const PUBLISH_EVERY_MS: i64 = 15 * MINUTE_MS;
/// Interval between two counts of the pending deliveries. After a job they are counted at once.
const COUNT_EVERY_MS: i64 = 10_000;
/// Maximum deliveries of earlier processes that are read at the start to plan jobs.
const EARLIER_MAX: u32 = 10_000;
/// How long the jobs wait for the test of the key.
const KEY_TEST_MAX: Duration = Duration::from_secs(10);

/// Does the jobs of `serve`, one at a time.
pub struct Daemon {
    settings: Settings,
    system: System,
    state: Arc<ServeState>,
    inbox: Inbox,
    jobs: DueJobs,
    schedule_entry: ScheduleEntry,
    /// The entry that was last saved in the inbox; `None` if none was saved yet.
    saved_entry: Option<ScheduleEntry>,
    /// When the pending deliveries were last counted; `None` if a job has changed them since.
    counted_ms: Option<i64>,
    /// When flushed deliveries were last made visible to readers of Parquet.
    published_ms: i64,
    /// True if flushed deliveries are not visible to readers of Parquet yet.
    has_unpublished: bool,
    notifier: Notifier,
    /// True if the key is tested before the first job.
    tests_key: bool,
    /// `None` if no report is written by a schedule.
    report: Option<ReportJob>,
}

impl Daemon {
    /// Opens the inbox, and reads the schedule and its progress.
    ///
    /// # Errors
    /// `Schedule`, `Zone`, `Pipeline` or `State`.
    pub fn new(settings: Settings, system: System, state: Arc<ServeState>) -> Result<Daemon, ServeError> {
        let serve = &settings.serve;
        let schedule = Schedule::configured(serve)?;
        let identity = identity(&settings)?;
        let mut inbox = Inbox::open(&settings.state_path, &identity.base_url, &identity.environment)?;
        inbox.set_destinations(&settings.warehouse.names())?;
        if serve.report.is_none() {
            inbox.store_report_error(None)?;
        }
        let environment_id = match &serve.environment_id {
            None => inbox.environment_id()?,
            id => id.clone(),
        };
        state.set_environment_id(environment_id);
        let now_ms = system.clock.now_ms();
        let expression = schedule.as_ref().map_or("off", Schedule::text).to_owned();
        let entry = inbox.schedule()?.unwrap_or_default();
        // A changed schedule begins with its next tick.
        let is_same = entry.expression == expression;
        let done_tick_ms = entry.done_tick_ms.filter(|_| is_same).or(Some(now_ms));
        let schedule_entry = ScheduleEntry { expression, done_tick_ms, pid: std::process::id(), ..entry };
        let delays =
            JobDelays { jitter_ms: millis(serve.jitter), wake_ms: millis(serve.wake), flush_ms: millis(serve.flush) };
        Ok(Daemon {
            jobs: DueJobs::new(schedule, delays, system.rng.clone(), done_tick_ms, now_ms),
            notifier: Notifier::start(&settings, health_rules(&settings, now_ms)?).map_err(ServeError::Thread)?,
            settings,
            system,
            state,
            inbox,
            schedule_entry,
            saved_entry: None,
            counted_ms: None,
            published_ms: now_ms,
            has_unpublished: false,
            tests_key: false,
            report: None,
        })
    }

    /// Tests the key before the first job.
    #[must_use]
    pub fn with_key_test(self) -> Daemon {
        Daemon { tests_key: true, ..self }
    }

    /// Writes the report of the configuration by its schedule, with `write`.
    ///
    /// # Errors
    /// `ReportSchedule`, `Zone`, or the inbox cannot be read.
    pub fn with_report(mut self, write: WriteReport) -> Result<Daemon, ServeError> {
        let earlier = self.inbox.report_error()?;
        self.report = ReportJob::new(&self.settings.serve, write, self.system.clock.now_ms(), earlier.is_some())?;
        self.state.update_status(|status| status.report_error = earlier);
        Ok(self)
    }

    /// Does jobs until `stop` is cancelled. A current run then ends in order, and can be resumed.
    ///
    /// # Errors
    /// The deliveries of earlier processes cannot be read.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ServeError> {
        self.read_earlier_deliveries()?;
        self.state.set_has_read_earlier_deliveries();
        if self.tests_key {
            self.publish_status();
            self.test_key(&stop).await;
        }
        while !stop.is_cancelled() {
            self.publish_status();
            self.notifier.refresh(self.system.clock.now_ms());
            let now_ms = self.system.clock.now_ms();
            let next = self.jobs.next(now_ms);
            if let Some((_, job)) = next.as_ref().filter(|(due_ms, _)| *due_ms <= now_ms) {
                let outcome = self.do_job(job, &stop).await;
                self.counted_ms = None;
                if stop.is_cancelled() {
                    // The job does not count as done. The next start plans jobs by the last done tick and the
                    // deliveries in the inbox.
                    break;
                }
                let ended_ms = self.system.clock.now_ms();
                let done = self.jobs.complete(job, outcome, ended_ms);
                self.schedule_entry.done_tick_ms = done.or(self.schedule_entry.done_tick_ms);
                if self.has_unpublished {
                    self.jobs.flush_by(self.published_ms.min(ended_ms) + PUBLISH_EVERY_MS);
                }
            } else if self.report.as_ref().and_then(ReportJob::due_ms).is_some_and(|due_ms| due_ms <= now_ms) {
                self.write_report(now_ms).await;
            } else {
                let report_ms = self.report.as_ref().and_then(ReportJob::due_ms);
                let next_ms = next.map(|(due_ms, _)| due_ms).into_iter().chain(report_ms).min();
                let wait_ms = next_ms.map_or(i64::MAX, |due_ms| due_ms - now_ms);
                let wait = Duration::from_millis(wait_ms.unsigned_abs()).min(SLEEP_MAX);
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = self.state.wait_for_delivery() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
            self.read_new_hints();
        }
        self.notifier.stop().await;
        self.publish_status();
        Ok(())
    }

    /// Requests one row, so that a refused key is in the log and in the health now, and not at the first run in the
    /// night. A run that is due tests the key itself.
    async fn test_key(&mut self, stop: &CancellationToken) {
        let now_ms = self.system.clock.now_ms();
        if self.jobs.next(now_ms).is_some_and(|(due_ms, job)| due_ms <= now_ms && !matches!(job, Job::Flush)) {
            return;
        }
        let tested = tokio::select! {
            () = stop.cancelled() => return,
            tested = timeout(KEY_TEST_MAX, test_key(&self.settings, stop)) => tested,
        };
        match tested {
            Ok(Ok(())) => tracing::info!("the service accepts the key"),
            Ok(Err(error)) if error.reason() == RunReason::KeyRefused => {
                let (why, hint) = (chain(&error), error.hint().map(str::to_owned));
                tracing::error!(why, hint = hint.as_deref().unwrap_or_default(), "runs will fail");
                self.state.update_status(|status| status.key_refused = Some((why, hint)));
            }
            Ok(Err(error)) => tracing::warn!(why = chain(&error), "the key is not tested; the first run tests it"),
            Err(_) => tracing::warn!("the key is not tested: the service does not answer; the first run tests it"),
        }
    }

    /// Plans jobs for the deliveries that earlier processes stored and that are not in the warehouses yet.
    fn read_earlier_deliveries(&mut self) -> Result<(), ServeError> {
        let bytes_max = Memory::of(&self.settings.warehouse).received;
        let earlier = self.inbox.pending(EARLIER_MAX, bytes_max)?;
        let now_ms = self.system.clock.now_ms();
        for delivery in &earlier {
            if let Some(stream) = summarize_body(&delivery.body).kind.changed_stream() {
                self.add_hint(stream, now_ms);
            }
        }
        if !earlier.is_empty() {
            self.jobs.add_delivery(now_ms);
        }
        Ok(())
    }

    /// Plans jobs for the deliveries since the last call.
    fn read_new_hints(&mut self) {
        let (hints, has_deliveries) = self.state.take_hints();
        let now_ms = self.system.clock.now_ms();
        hints.into_iter().for_each(|stream| self.add_hint(stream, now_ms));
        if has_deliveries {
            self.jobs.add_delivery(now_ms);
        }
    }

    /// Plans a wake-up for a stream, if the stream is configured.
    fn add_hint(&mut self, stream: Stream, now_ms: i64) {
        if let Some(settings) = self.settings.streams.iter().find(|settings| settings.stream == stream) {
            self.jobs.add_hint(stream, millis(settings.settle), now_ms);
        }
    }

    /// Does one job. Returns how the job ended.
    async fn do_job(&mut self, job: &Job, stop: &CancellationToken) -> JobOutcome {
        match job {
            Job::Sync { .. } => self.sync("sync", self.settings.clone(), stop).await,
            Job::Wake { streams } => self.sync("wake", self.settings.trailing(streams), stop).await,
            Job::Flush => self.flush(stop).await,
        }
    }

    fn set_running(&self, command: &'static str, since_ms: i64) {
        self.state.update_status(|status| status.running = Some(RunningJob { command, since_ms }));
    }

    /// Executes a run and publishes its progress and result. `command` is `sync` for a scheduled run, or `wake` for a
    /// run that deliveries started. Only a scheduled run causes notifications and counts as the schedule's last run.
    async fn sync(&mut self, command: &'static str, settings: Settings, stop: &CancellationToken) -> JobOutcome {
        let started_ms = self.system.clock.now_ms();
        self.state.count(Counter::Runs, 1);
        self.set_running(command, started_ms);
        tracing::info!(command, "starting a run");
        let request = Request { command, backfill: None, accept_vanished: false, people: PeopleSelection::AfterLists };
        let progress = Arc::new(Progress::default());
        let (stop, system) = (stop.child_token(), self.system.clone());
        let run = Run::open_in(settings, request, stop.clone(), Arc::clone(&progress), system).await;
        // `--ignore-rate-limit` ignores only a wait that was stored before `serve` started.
        self.settings.throttle.ignores_stored_retry_after = false;
        let (report, error) = match run {
            Ok(run) => {
                self.state.set_meter(Some(Meter::new(progress, run.source().clone())));
                let (report, result) = execute_and_log(run, &self.state).await;
                self.state.set_meter(None);
                (Some(report), result.err())
            }
            Err(failed) => (None, Some(failed.error)),
        };
        let rate_limited_until_ms = report.as_ref().and_then(|report| report.limited_until_ms);
        let RunResult { job, outcome, mut error_text } = RunResult::new(report.as_ref(), error.as_ref());
        let mut attention = None;
        if command == "sync" && outcome == Outcome::Done.name() {
            attention = erase_vanished_sessions(self.settings.clone(), stop, self.system.clone()).await;
            error_text.clone_from(&attention);
        }
        let finished_ms = self.system.clock.now_ms();
        if command == "sync" {
            let moments = RunTimes { started_ms, finished_ms };
            let ended = EndedRun::new(&self.settings, command, moments, error.as_ref());
            self.notifier.after_run(ended.with_attention(attention));
            let entry = &mut self.schedule_entry;
            (entry.last_started_ms, entry.last_finished_ms) = (Some(started_ms), Some(finished_ms));
            entry.last_outcome = Some(outcome.clone());
        }
        match &error_text {
            None => tracing::info!(command, outcome, secs = (finished_ms - started_ms) / 1000, "the run is done"),
            Some(why) if rate_limited_until_ms.is_some() => {
                tracing::error!(command, outcome, why, "{}", outcome_words(job))
            }
            Some(why) => tracing::warn!(command, outcome, why, "{}", outcome_words(job)),
        }
        self.state.update_status(|status| {
            (status.running, status.key_refused) = (None, None);
            (status.last_error, status.rate_limited_until_ms) = (error_text, rate_limited_until_ms);
        });
        if job == JobOutcome::Finished {
            // A run also publishes all deliveries that were in the inbox at its start.
            (self.published_ms, self.has_unpublished) = (finished_ms, false);
        } else {
            self.state.count(Counter::RunsFailed, 1);
        }
        job
    }

    /// Writes the report, and notifies. If the report cannot be written, it is tried again later. An error that a retry
    /// meets too is part of the health, also after a restart.
    async fn write_report(&mut self, now_ms: i64) {
        let Some(report) = &mut self.report else { return };
        self.state.update_status(|status| {
            status.running = Some(RunningJob { command: "report", since_ms: now_ms });
        });
        let attempt = report.write(now_ms).await;
        self.state.update_status(|status| status.running = None);
        let written = match attempt {
            Attempt::Written(path) => {
                tracing::info!(path = %path.display(), "wrote the report");
                Ok(path)
            }
            Attempt::Retried(why) => return tracing::warn!(why, "cannot write the report; it is tried again"),
            Attempt::Failing(why) => {
                tracing::error!(why, "cannot write the report; it is tried again");
                Err(why)
            }
        };
        self.set_report_error(written.as_ref().err().cloned());
        self.notifier.after_report(written, self.system.clock.now_ms());
    }

    /// Sets why the report cannot be written, in memory and in the inbox; `None` if it was written.
    fn set_report_error(&mut self, why: Option<String>) {
        if let Err(error) = self.inbox.store_report_error(why.as_deref()) {
            tracing::error!(why = chain(&error), "cannot use the inbox");
        }
        self.state.update_status(|status| status.report_error = why);
    }

    /// Writes the deliveries of the inbox to the warehouses. If the last publication is at least [`PUBLISH_EVERY_MS`]
    /// ago, also makes them visible to readers of Parquet. After any error, for example if another run holds the lease,
    /// the flush is tried again later.
    async fn flush(&mut self, stop: &CancellationToken) -> JobOutcome {
        let now_ms = self.system.clock.now_ms();
        let publishes = has_passed(PUBLISH_EVERY_MS, self.published_ms, now_ms);
        self.set_running("flush", now_ms);
        let flushed = flush_deliveries(&self.settings, &self.system, stop, publishes).await;
        let error_text = flushed.as_ref().err().map(|error| chain(error));
        // If another run holds the lease, the flush has not failed: the other run writes the deliveries itself.
        let is_locked_out = flushed.as_ref().is_err_and(|error| error.reason() == RunReason::LeaseHeld);
        self.state.update_status(|status| {
            status.running = None;
            status.flush_error = error_text.clone().filter(|_| !is_locked_out);
            status.last_error.clone_from(&error_text);
        });
        match flushed {
            Ok(flushed) => {
                self.state.count(Counter::Flushed, flushed.added);
                self.has_unpublished = !publishes && (self.has_unpublished || flushed.added > 0);
                if publishes {
                    self.published_ms = now_ms;
                }
                JobOutcome::Finished
            }
            Err(_) => {
                let why = error_text.unwrap_or_default();
                match is_locked_out {
                    true => tracing::debug!(why, "deliveries wait for the run under way"),
                    false => tracing::warn!(why, "deliveries wait: the warehouses cannot take them now"),
                }
                JobOutcome::Retry { not_before_ms: None }
            }
        }
    }

    /// Publishes the schedule in memory and saves it in the inbox. Also counts the pending deliveries, in memory only.
    /// An error of the inbox, such as a full disk, is only logged, and the next call tries again. If the progress is
    /// never saved, a run may be done twice.
    fn publish_status(&mut self) {
        self.schedule_entry.next_ms = self.jobs.next_sync_ms();
        let saved = self.save_schedule();
        self.state.update_status(|status| {
            status.schedule = self.schedule_entry.clone();
            if let Err(error) = saved {
                let why = chain(&error);
                tracing::error!(why, "cannot use the inbox");
                status.last_error = Some(why);
            }
        });
    }

    /// Saves the schedule's progress if it has changed, and counts the pending deliveries if that is due.
    fn save_schedule(&mut self) -> Result<(), StateError> {
        if self.saved_entry.as_ref() != Some(&self.schedule_entry) {
            self.inbox.store_schedule(&self.schedule_entry)?;
            self.saved_entry = Some(self.schedule_entry.clone());
        }
        let now_ms = self.system.clock.now_ms();
        // Counting reads every stored delivery. Between two counts the receiver adds new deliveries to the last count.
        if self.counted_ms.is_none_or(|counted_ms| has_passed(COUNT_EVERY_MS, counted_ms, now_ms)) {
            let pending = self.inbox.count_pending()?;
            self.state.update_status(|status| status.pending = pending);
            self.counted_ms = Some(now_ms);
        }
        Ok(())
    }
}

/// Erases the sessions that vanished long ago, if the settings want it. Returns why somebody should look at it, if
/// anything is wrong: the next scheduled run tries again.
async fn erase_vanished_sessions(settings: Settings, stop: CancellationToken, system: System) -> Option<String> {
    let erased = erase_vanished(settings, stop, system).await;
    if let Ok(Some((receipt, path))) = &erased {
        log_erased(receipt, path);
    }
    attention_for(&erased)
}

/// Executes a run and logs its progress at intervals. Returns the report and the result of the run.
async fn execute_and_log(run: Run, state: &ServeState) -> (RunReport, Result<(), PipelineError>) {
    let log = log_progress(|| state.progress().unwrap_or_default());
    tokio::select! {
        ended = run.execute() => ended,
        never = log => match never {},
    }
}

/// The result of a run.
struct RunResult {
    job: JobOutcome,
    /// The outcome in the run's report, or `not begun`.
    outcome: String,
    /// `None` if the run succeeded.
    error_text: Option<String>,
}

impl RunResult {
    /// Derives the result of a run from its report and its error. A run that stopped early without an error is retried.
    fn new(report: Option<&RunReport>, error: Option<&PipelineError>) -> RunResult {
        let outcome = report.map_or("not begun", |report| report.header.outcome.name()).to_owned();
        let (job, error_text) = match (error, report) {
            (Some(error), _) => (outcome_of_error(error), Some(chain(error))),
            (None, Some(report)) if !matches!(report.header.outcome, Outcome::Done | Outcome::NeedsALook) => {
                let why = report.why.clone().or(Some("it did not end".to_owned()));
                (JobOutcome::Retry { not_before_ms: report.resume_after_ms }, why)
            }
            (None, _) => (JobOutcome::Finished, None),
        };
        RunResult { job, outcome, error_text }
    }
}

/// Returns how the daemon goes on after the error of a run.
fn outcome_of_error(error: &PipelineError) -> JobOutcome {
    match error.reason() {
        // A person has to change the configuration or the key, or another run does the work.
        RunReason::Configuration | RunReason::KeyRefused | RunReason::LeaseHeld => JobOutcome::Skipped,
        _ => JobOutcome::Retry { not_before_ms: None },
    }
}

fn outcome_words(outcome: JobOutcome) -> &'static str {
    match outcome {
        JobOutcome::Finished => "the run is done",
        JobOutcome::Retry { .. } => "the run did not finish; it is retried",
        JobOutcome::Skipped => "the run is skipped; the next one starts at the next time of the schedule",
    }
}

/// Returns true if this interval has passed since `last_ms`, or if the clock was set back since.
fn has_passed(interval_ms: i64, last_ms: i64, now_ms: i64) -> bool {
    !(0..interval_ms).contains(&(now_ms - last_ms))
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
