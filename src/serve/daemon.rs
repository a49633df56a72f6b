//! Does what the agenda says, one thing at a time. A period or a signal wakes it; it takes no input but the clock, the
//! inbox and what it noted of the schedule, so it may be killed and started at any moment.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    flatten::tell,
    model::{MINUTE_MS, Stream},
    notify::EndedRun,
    pipeline::{
        Meter, Outcome, PeopleAsk, PipelineError, Progress, Request, Run, RunMoments, RunReport, System, chain,
        flush_deliveries, identity, log_progress,
    },
    state::{Inbox, ScheduleEntry, StateError},
};

use super::{Agenda, Board, Count, Ended, Job, Schedule, ServeError, told::Told, watch::health_rules};

/// The wall clock may jump while the daemon sleeps, so it looks at least so often.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Readers of Parquet see deliveries so often at least, when no run shows them earlier: each time rewrites the month.
const PUBLISH_EVERY_MS: i64 = 15 * MINUTE_MS;
/// What waits in the inbox is counted so often at most.
const COUNT_EVERY_MS: i64 = 10_000;
/// Deliveries of an earlier process that are looked through for hints.
const LEFT_MAX: u32 = 10_000;
const LEFT_BYTES_MAX: usize = 64 << 20;

/// The scheduler.
pub struct Daemon {
    settings: Settings,
    system: System,
    board: Arc<Board>,
    inbox: Inbox,
    agenda: Agenda,
    noted: ScheduleEntry,
    /// What the inbox has of it.
    written: Option<ScheduleEntry>,
    /// When what waits was last counted; `None`: since then something was done about it.
    counted_ms: Option<i64>,
    published_ms: i64,
    is_unpublished: bool,
    told: Told,
}

impl Daemon {
    /// Reads the schedule and what was noted of it.
    ///
    /// # Errors
    /// `Schedule`, `Zone` or `State`.
    pub fn new(settings: Settings, system: System, board: Arc<Board>) -> Result<Daemon, ServeError> {
        let serve = &settings.serve;
        let schedule = serve.schedule.as_deref().map(|text| Schedule::parse(text, &serve.timezone)).transpose()?;
        let identity = identity(&settings).map_err(ServeError::Pipeline)?;
        let inbox = Inbox::open(&settings.state_path, &identity.base_url, &identity.environment);
        let mut inbox = inbox.map_err(ServeError::State)?;
        inbox.set_destinations(&settings.warehouse.names()).map_err(ServeError::State)?;
        let environment_id = match &serve.environment_id {
            None => inbox.environment_id().map_err(ServeError::State)?,
            id => id.clone(),
        };
        board.set_environment_id(environment_id);
        let now_ms = system.clock.now_ms();
        let expression = schedule.as_ref().map_or("off", Schedule::text).to_owned();
        let noted = inbox.schedule().map_err(ServeError::State)?.unwrap_or_default();
        // Another schedule begins with its next moment.
        let is_same = noted.expression == expression;
        let done_tick_ms = noted.done_tick_ms.filter(|_| is_same).or(Some(now_ms));
        let noted = ScheduleEntry { expression, done_tick_ms, pid: std::process::id(), ..noted };
        let waits = (millis(serve.jitter), millis(serve.wake), millis(serve.flush));
        let agenda = Agenda::new(schedule, waits, system.rng.clone(), done_tick_ms, now_ms);
        let (published_ms, is_unpublished) = (now_ms, false);
        let (written, counted_ms) = (None, None);
        let told = Told::new(&settings, health_rules(&settings, now_ms)?);
        Ok(Daemon {
            settings,
            system,
            board,
            inbox,
            agenda,
            noted,
            written,
            counted_ms,
            published_ms,
            is_unpublished,
            told,
        })
    }

    /// Works until it is told to stop. The run under way then ends in order.
    ///
    /// # Errors
    /// What an earlier process left in the inbox cannot be read.
    pub async fn run(mut self, stop: CancellationToken) -> Result<(), ServeError> {
        self.take_up_what_was_left()?;
        self.board.set_started();
        while !stop.is_cancelled() {
            self.note();
            self.told.refresh(self.system.clock.now_ms());
            let now_ms = self.system.clock.now_ms();
            let next = self.agenda.next(now_ms);
            if let Some((_, job)) = next.as_ref().filter(|(due_ms, _)| *due_ms <= now_ms) {
                let ended = self.work(job, &stop).await;
                self.counted_ms = None;
                if stop.is_cancelled() {
                    // Whatever it was, it is due again at the next start.
                    break;
                }
                let done = self.agenda.ended(job, ended, self.system.clock.now_ms());
                self.noted.done_tick_ms = done.or(self.noted.done_tick_ms);
                self.show_later();
            } else {
                let wait_ms = next.map_or(i64::MAX, |(due_ms, _)| due_ms - now_ms);
                let wait = Duration::from_millis(wait_ms.unsigned_abs()).min(LOOK_EVERY);
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = self.board.woken() => {}
                    () = tokio::time::sleep(wait) => {}
                }
            }
            self.hear();
        }
        self.told.stop().await;
        self.note();
        Ok(())
    }

    /// What an earlier process stored and did not bring on.
    fn take_up_what_was_left(&mut self) -> Result<(), ServeError> {
        let left = self.inbox.waiting(LEFT_MAX, LEFT_BYTES_MAX).map_err(ServeError::State)?;
        let now_ms = self.system.clock.now_ms();
        for delivery in &left {
            if let Some(stream) = tell(&delivery.body).kind.changed_stream() {
                self.hint(stream, now_ms);
            }
        }
        if !left.is_empty() {
            self.agenda.delivered(now_ms);
        }
        Ok(())
    }

    fn hear(&mut self) {
        let (hints, has_deliveries) = self.board.take_hints();
        let now_ms = self.system.clock.now_ms();
        hints.into_iter().for_each(|stream| self.hint(stream, now_ms));
        if has_deliveries {
            self.agenda.delivered(now_ms);
        }
    }

    fn hint(&mut self, stream: Stream, now_ms: i64) {
        // A stream that is not read is not woken.
        if let Some(settings) = self.settings.streams.iter().find(|settings| settings.stream == stream) {
            self.agenda.hint(stream, millis(settings.settle), now_ms);
        }
    }

    async fn work(&mut self, job: &Job, stop: &CancellationToken) -> Ended {
        match job {
            Job::Sync { .. } => self.sync("sync", self.settings.clone(), stop).await,
            Job::Wake { streams } => self.sync("wake", self.settings.trailing(streams), stop).await,
            Job::Flush => self.flush(stop).await,
        }
    }

    async fn sync(&mut self, command: &'static str, settings: Settings, stop: &CancellationToken) -> Ended {
        let started_ms = self.system.clock.now_ms();
        self.board.count(Count::Runs, 1);
        self.board.show(|shown| (shown.running, shown.running_since_ms) = (Some(command), Some(started_ms)));
        let request = Request { command, backfill: None, accept_vanished: false, people: PeopleAsk::AfterLists };
        let progress = Arc::new(Progress::default());
        let (stop, system) = (stop.child_token(), self.system.clone());
        let run = Run::open_in(settings, request, stop, Arc::clone(&progress), system).await;
        // Whoever starts the daemon overrides the wait that is kept at that moment, and none that is told later.
        self.settings.throttle.ignores_told_wait = false;
        let (report, error) = match run {
            Ok(run) => {
                self.board.set_meter(Some(Meter::new(progress, run.source().clone())));
                let (report, outcome) = watched(run, &self.board).await;
                self.board.set_meter(None);
                (Some(report), outcome.err())
            }
            Err(error) => (None, Some(error)),
        };
        let limited_until_ms = report.as_ref().and_then(|report| report.limited_until_ms);
        let (ended, outcome, trouble) = judge(report.as_ref(), error.as_ref());
        let finished_ms = self.system.clock.now_ms();
        if command == "sync" {
            let ended = EndedRun::new(&self.settings, command, RunMoments { started_ms, finished_ms }, error.as_ref());
            self.told.conclude(ended);
        }
        match &trouble {
            None => tracing::info!(command, outcome, secs = (finished_ms - started_ms) / 1000, "the run is done"),
            Some(why) if limited_until_ms.is_some() => {
                tracing::error!(command, outcome, why, "{}", what_follows(ended))
            }
            Some(why) => tracing::warn!(command, outcome, why, "{}", what_follows(ended)),
        }
        if ended != Ended::Done {
            self.board.count(Count::RunsFailed, 1);
        }
        self.board.show(|shown| {
            (shown.running, shown.running_since_ms) = (None, None);
            (shown.trouble, shown.limited_until_ms) = (trouble, limited_until_ms);
        });
        if command == "sync" {
            let noted = &mut self.noted;
            (noted.last_started_ms, noted.last_finished_ms) = (Some(started_ms), Some(finished_ms));
            noted.last_outcome = Some(outcome);
        }
        if ended == Ended::Done {
            // A run publishes what the inbox had at its beginning.
            (self.published_ms, self.is_unpublished) = (finished_ms, false);
        }
        ended
    }

    async fn flush(&mut self, stop: &CancellationToken) -> Ended {
        let now_ms = self.system.clock.now_ms();
        let publishes = now_ms - self.published_ms >= PUBLISH_EVERY_MS;
        self.board.show(|shown| (shown.running, shown.running_since_ms) = (Some("flush"), Some(now_ms)));
        let flushed = flush_deliveries(&self.settings, &self.system, stop, publishes).await;
        let trouble = flushed.as_ref().err().map(|error| chain(error));
        // Another run at work is no trouble: it takes in what waits at its own beginning.
        let flush_trouble = flushed.as_ref().err().filter(|error| !is_leased(error)).map(|error| chain(error));
        self.board.show(|shown| {
            (shown.running, shown.running_since_ms) = (None, None);
            (shown.trouble, shown.flush_trouble) = (trouble.clone(), flush_trouble);
        });
        match flushed {
            Ok(flushed) => {
                self.board.count(Count::Flushed, flushed.added);
                self.is_unpublished = !publishes && (self.is_unpublished || flushed.added > 0);
                if publishes {
                    self.published_ms = now_ms;
                }
                Ended::Done
            }
            Err(error) => {
                let why = trouble.unwrap_or_default();
                match is_leased(&error) {
                    true => tracing::debug!(why, "deliveries wait for the run under way"),
                    false => tracing::warn!(why, "deliveries wait: the warehouses cannot take them now"),
                }
                Ended::Again { not_before_ms: None }
            }
        }
    }

    /// What was added and not published yet is published in a while.
    fn show_later(&mut self) {
        if self.is_unpublished {
            self.agenda.flush_at(self.published_ms + PUBLISH_EVERY_MS);
        }
    }

    /// Says what is known and due: to the board, and to the inbox for the next process. An inbox that cannot take it
    /// now, for want of space perhaps, is asked again: at worst a run is done twice.
    fn note(&mut self) {
        self.noted.next_ms = self.agenda.next_sync_ms();
        if let Err(error) = self.try_note() {
            let why = crate::pipeline::chain(&error);
            tracing::error!(why, "cannot use the inbox");
            self.board.show(|shown| shown.trouble = Some(why));
        }
        let noted = self.noted.clone();
        self.board.show(|shown| shown.schedule = noted);
    }

    fn try_note(&mut self) -> Result<(), StateError> {
        if self.written.as_ref() != Some(&self.noted) {
            self.inbox.note_schedule(&self.noted)?;
            self.written = Some(self.noted.clone());
        }
        let now_ms = self.system.clock.now_ms();
        // Counting reads all that waits; between two counts the receiver adds what comes.
        if self.counted_ms.is_none_or(|counted_ms| now_ms - counted_ms >= COUNT_EVERY_MS) {
            let waiting = self.inbox.count_waiting()?;
            self.board.show(|shown| shown.waiting = waiting);
            self.counted_ms = Some(now_ms);
        }
        Ok(())
    }
}

/// Brings a run to its end; meanwhile the log says how far it is.
async fn watched(run: Run, board: &Board) -> (RunReport, Result<(), PipelineError>) {
    let log = log_progress(|| board.progress().unwrap_or_default());
    tokio::select! {
        ended = run.execute() => ended,
        never = log => match never {},
    }
}

/// What a run came to: what follows, its outcome, and what went wrong.
fn judge(report: Option<&RunReport>, error: Option<&PipelineError>) -> (Ended, String, Option<String>) {
    let outcome = report.map_or("not begun", |report| report.header.outcome.name()).to_owned();
    match (error, report) {
        (Some(error), _) => (of_error(error), outcome, Some(chain(error))),
        (None, Some(report)) if !matches!(report.header.outcome, Outcome::Done | Outcome::NeedsALook) => {
            let why = report.why.clone().or(Some("it did not end".to_owned()));
            (Ended::Again { not_before_ms: report.resume_after_ms }, outcome, why)
        }
        (None, _) => (Ended::Done, outcome, None),
    }
}

fn of_error(error: &PipelineError) -> Ended {
    match error.exit_code() {
        // Somebody has to change the configuration or the key.
        2 | 4 => Ended::LeftAlone,
        5 if is_leased(error) => Ended::LeftAlone,
        _ => Ended::Again { not_before_ms: None },
    }
}

/// Whether another run holds the lease.
fn is_leased(error: &PipelineError) -> bool {
    matches!(error, PipelineError::State(StateError::Leased { .. }))
}

fn what_follows(ended: Ended) -> &'static str {
    match ended {
        Ended::Done => "the run is done",
        Ended::Again { .. } => "the run did not come to its end; it is tried again",
        Ended::LeftAlone => "the run is left out; the next one is that of the next moment of the schedule",
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
