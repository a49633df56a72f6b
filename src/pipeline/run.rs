//! One execution of `sync` or `backfill`, from the lease to the report.

use std::sync::{Arc, Mutex};

use futures::future::join_all;
use tokio_util::sync::CancellationToken;

use crate::{
    clock::Clock,
    config::Settings,
    load::{Identity, LoadError, RunRecord, Warehouse},
    model::{Activity, Chance, RunId, Steps, Stream, TimeAccount, trait_names},
    source::{Source, SourceError},
    state::{Lease, State},
};

use super::{
    OPEN_END_MS, PeopleAsk, PipelineError, Progress, Request, RunReport,
    assemble::{archive, failed, identity, lock_patience, open_watched, source_settings, start_engine, suppression},
    commit::first_error,
    error::chain,
    held::Budget,
    limits::{note_told_waits, recall, remember},
    queue::Queue,
    reconcile::{Resumed, check_ledgers, resume},
    replay::clear_leftovers,
    report::{Findings, Outcome, peak_rss_bytes, rfc3339},
    shared_destination::SharedDestination,
    surroundings::Surroundings,
    sync_context::SyncContext,
    theme_times::ThemeTimes,
    threads::{blocking, side_by_side},
    ties::TieWatch,
    traits::Learned,
    work::{ScopeWork, work},
};

/// How far the service's clock is ahead of this machine's, in milliseconds.
pub const CLOCK_SKEW: &str = "clock_skew_ms";

/// A run, assembled and holding the lease.
pub struct Run {
    pub(super) settings: Settings,
    pub(super) request: Request,
    pub(super) run_id: RunId,
    started_ms: i64,
    pub(super) clock: Clock,
    pub(super) chance: Chance,
    pub(super) steps: Steps,
    identity: Identity,
    pub(super) context: SyncContext,
    pub(super) destinations: Vec<SharedDestination>,
    pub(super) findings: Findings,
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
        Run::open_in(settings, request, stop, progress, Surroundings::default()).await
    }

    /// The same in other surroundings than this machine's.
    pub async fn open_in(
        settings: Settings,
        request: Request,
        stop: CancellationToken,
        progress: Arc<Progress>,
        surroundings: Surroundings,
    ) -> Result<Run, PipelineError> {
        let account = TimeAccount::default();
        let Surroundings { clock, chance, transport, steps, .. } = surroundings.clone();
        let mut source_settings = source_settings(&settings)?;
        (source_settings.clock, source_settings.chance) = (clock.clone(), chance.clone());
        source_settings.transport = transport;
        let identity = identity(&settings)?;
        settings.require_warehouse().map_err(PipelineError::Config)?;
        let started_ms = surroundings.clock.now_ms();
        let run_id = RunId::drawn(started_ms, &chance);
        let take_lease = || {
            let (base_url, environment) = (&identity.base_url, &identity.environment);
            let opened = State::open_or_begin_anew(&settings.state_path, base_url, environment, started_ms);
            let (state, damaged) = opened.map_err(PipelineError::State)?;
            let state = state.watched(steps.clone());
            let lease = state.take_lease(&run_id, request.command, started_ms).map_err(PipelineError::State)?;
            Ok::<_, PipelineError>((state, damaged, lease))
        };
        // To start an engine takes longest, and touches nothing that another run may hold.
        let (held, engine) = side_by_side("takes the lease", take_lease, || start_engine(&settings, &surroundings));
        let (mut state, damaged, lease) = held??;
        let engine = engine?;
        let ignores_told_wait = settings.throttle.ignores_told_wait;
        let learned = recall(&state, &mut source_settings, ignores_told_wait).map_err(PipelineError::State)?;
        let studies = state.service_trait(trait_names::SURVEYS_ARE_STUDIES).map_err(PipelineError::State)?;
        source_settings.surveys_are_studies = studies.is_some_and(|(are_studies, _)| are_studies);
        let patience = lock_patience(&settings, &stop);
        let archive = archive(&settings, &identity)?.watched(steps.clone());
        clear_leftovers(&settings)?;
        // To make a client takes a while, and the processor for it is there: a warehouse is opened by one thread.
        let (source, destinations) = side_by_side(
            "makes the client",
            || Source::new(source_settings, learned, account.clone(), stop),
            || open_watched(&settings, &identity, &patience, &surroundings, engine),
        );
        let source = source?.map_err(PipelineError::Source)?;
        let destinations: Vec<SharedDestination> = destinations?.into_iter().map(SharedDestination::new).collect();
        let mut findings = Findings::default();
        findings.notes.extend(damaged.map(|kept_as| {
            let (path, kept_as) = (settings.state_path.display(), kept_as.display());
            format!("the state file {path} was damaged; it is kept as {kept_as}, and a new one was begun")
        }));
        if let Some(note) = check_ledgers(&mut state, &destinations)? {
            tracing::warn!("{note}");
            findings.notes.push(note);
        }
        state.begin_run(&run_id, request.command, started_ms).map_err(PipelineError::State)?;
        let ties = TieWatch::load(&state, clock.clone())?;
        let theme_times = ThemeTimes::load(&state, clock.clone())?;
        let state = Arc::new(Mutex::new(state));
        let context = SyncContext {
            source,
            archive,
            state,
            account,
            budget: Budget::default(),
            progress,
            ties,
            theme_times,
            learned: Learned::default(),
            drift: settings.drift,
            suppression: suppression(&settings)?,
        };
        Ok(Run {
            settings,
            request,
            run_id,
            started_ms,
            clock,
            chance,
            steps,
            identity,
            context,
            destinations,
            findings,
            _lease: lease,
        })
    }

    /// The client, for the progress bar.
    pub fn source(&self) -> &Source {
        &self.context.source
    }

    /// Works until nothing is due, or something stops it. Everything committed stays, whatever happens, and there is a report
    /// also of a run that failed.
    pub async fn execute(mut self) -> (RunReport, Result<(), PipelineError>) {
        let (source, state, clock) = (self.context.source.clone(), self.context.state.clone(), self.clock.clone());
        let worked = tokio::select! {
            biased;
            worked = self.work_off() => worked,
            never = note_told_waits(source, &state, clock) => match never {},
        };
        self.doubt_ties();
        // Also after an error: what was committed becomes visible. The first error is the one to tell.
        let shown = self.make_visible().await;
        let outcome = worked.and(shown);
        let recorded = self.record_run(outcome.as_ref().err()).await;
        let left = self.finish_destinations().await;
        self.settle_suppression();
        let outcome = outcome.and(recorded).and(left);
        let report = self.report(outcome.as_ref().err());
        let remembered = self.remember(&report);
        (report, outcome.and(remembered))
    }

    async fn work_off(&mut self) -> Result<(), PipelineError> {
        self.take_in_deliveries().await?;
        self.list_known_surveys()?;
        let resumed = {
            let (context, destinations) = (self.context.clone(), self.destinations.clone());
            blocking(move || resume(&context, &destinations)).await??
        };
        // What was begun of streams that nobody named waits for a run that reads them.
        let named = &self.settings.named_streams;
        let resumed: Vec<Resumed> =
            resumed.into_iter().filter(|left| named.is_empty() || named.contains(&left.stream())).collect();
        if !resumed.is_empty() {
            tracing::info!(scans = resumed.len(), "going on with what an earlier run began");
            self.drive(Queue::default(), resumed).await?;
        }
        if self.request.people == PeopleAsk::AfterLists && self.findings.stop.is_none() {
            self.pull_lists().await?;
        }
        let asked = self.pull_people().await;
        if asked.is_err() || self.findings.stop.is_some() {
            self.findings.leave([Stream::Users]);
        }
        asked
    }

    async fn pull_lists(&mut self) -> Result<(), PipelineError> {
        let is_for_people_alone = self.settings.streams.is_empty();
        if is_for_people_alone {
            return Ok(());
        }
        self.check_surveys().await?;
        if self.findings.stop.is_some() {
            return Ok(());
        }
        let lists: Vec<Stream> = self.settings.streams.iter().map(|stream| stream.stream).collect();
        if self.is_backfilled()? {
            self.findings.begin_with(lists);
            return Ok(());
        }
        let now_ms = match self.context.source.probe().await {
            Ok(probe) => {
                let now_ms = self.remember_clock(probe.service_now_ms)?;
                self.check_clock(now_ms).await?;
                if self.findings.stop.is_some() {
                    return Ok(());
                }
                now_ms
            }
            Err(SourceError::Stopped(stop)) => {
                self.findings.stop = Some(stop);
                return Ok(());
            }
            Err(error) => return Err(PipelineError::Source(error)),
        };
        let due = self.due(now_ms)?;
        if due.iter().any(|work| work.scope.stream == Stream::Surveys && !work.due.is_empty()) {
            self.findings.stop = self.choose_surveys().await?;
            if self.findings.stop.is_some() {
                return Ok(());
            }
        }
        let queue = Queue::new(due, &self.context.progress);
        self.findings.begin_with(lists);
        self.drive(queue, Vec::new()).await
    }

    fn due(&self, now_ms: i64) -> Result<Vec<ScopeWork>, PipelineError> {
        let due = work(&self.settings, Some(&self.context.state()), self.request.backfill, now_ms);
        let mut due = due.map_err(PipelineError::State)?;
        // What an earlier run left of it has to be settled first.
        due.retain(|work| !self.findings.is_frozen(work.scope.stream));
        Ok(due)
    }

    /// Whether all that a backfill asks for is known to be there, so that not even the time is asked for. How late it is at the
    /// service cannot be told from here: this machine's clock may have been set back since it was last compared. So an end that
    /// was named counts as past; where none was named, what was asked for ends now, and that clock is believed unless it is known
    /// to be behind.
    fn is_backfilled(&self) -> Result<bool, PipelineError> {
        let Some(window) = self.request.backfill else { return Ok(false) };
        let is_open = window.end_ms == OPEN_END_MS;
        let skew = self.context.state().service_trait::<i64>(CLOCK_SKEW).map_err(PipelineError::State)?;
        let (skew_ms, compared_ms) = skew.unwrap_or_default();
        let here_ms = self.clock.now_ms();
        if is_open && (here_ms < compared_ms || self.is_clock_doubted(-skew_ms)?) {
            return Ok(false);
        }
        let now_ms = if is_open { here_ms + skew_ms } else { OPEN_END_MS };
        Ok(self.due(now_ms)?.iter().all(|work| work.due.is_empty()))
    }

    pub(super) fn clock_skew_ms(&self) -> Result<i64, PipelineError> {
        let skew = self.context.state().service_trait::<i64>(CLOCK_SKEW).map_err(PipelineError::State)?;
        Ok(skew.map_or(0, |(skew_ms, _)| skew_ms))
    }

    /// The service's time decides what may be read; a service that does not tell its time is taken to share ours.
    pub(super) fn remember_clock(&self, service_now_ms: Option<i64>) -> Result<i64, PipelineError> {
        let here_ms = self.clock.now_ms();
        let now_ms = service_now_ms.unwrap_or(here_ms);
        self.context.state().remember_trait(CLOCK_SKEW, &(now_ms - here_ms), here_ms).map_err(PipelineError::State)?;
        Ok(now_ms)
    }

    pub(super) async fn publish(&self, destination: &SharedDestination) -> Result<(), PipelineError> {
        self.with(destination, |destination| destination.publish()).await
    }

    /// Lets other processes at the warehouses while the run waits for the service.
    pub(super) async fn rest(&self) -> Result<(), PipelineError> {
        for destination in &self.destinations {
            self.with(destination, |destination| destination.rest()).await?;
        }
        Ok(())
    }

    /// What each warehouse leaves behind for others, also when another one fails.
    async fn finish_destinations(&self) -> Result<(), PipelineError> {
        let mut outcome = Ok(());
        for destination in &self.destinations {
            let finished = self.with(destination, |destination| destination.finish()).await;
            outcome = outcome.and(finished);
        }
        outcome
    }

    /// Does something with a warehouse on its thread.
    async fn with(
        &self,
        destination: &SharedDestination,
        work: impl FnOnce(&mut Warehouse) -> Result<(), LoadError> + Send + 'static,
    ) -> Result<(), PipelineError> {
        let account = self.context.account.clone();
        let worked = destination.work(move |destination| {
            let _busy = account.enter(Activity::Write);
            work(destination).map_err(failed(destination.name()))
        });
        worked.await?
    }

    /// Publishes every warehouse, also when another one fails. Old pages go from the archive.
    async fn make_visible(&mut self) -> Result<(), PipelineError> {
        // Side by side: each has a thread of its own.
        let published = join_all(self.destinations.iter().map(|destination| self.publish(destination))).await;
        let outcome = first_error(published.into_iter());
        let expired = self.context.source.service_now_ms().map(|now_ms| self.context.archive.expire(now_ms));
        if let Some(Err(error)) = expired {
            let note = format!("old pages could not be removed from the archive: {error}");
            tracing::warn!("{note}");
            self.findings.notes.push(note);
        }
        outcome
    }

    /// People whose time is over and whom nothing was seen of are no longer kept out; what is still sent of them is told.
    fn settle_suppression(&mut self) {
        let late = self.context.suppression.late_records();
        if late > 0 {
            self.findings.notes.push(format!(
                "the service still sends {late} records of people whom it should have purged by now; they were left out. If it \
                 was never asked to purge them, run `studysync erase` for them without --local-only"
            ));
            self.findings.is_doubtful = true;
        }
        let now_ms = self.context.source.service_now_ms().unwrap_or_else(|| self.clock.now_ms());
        match self.context.suppression.settle(now_ms) {
            Ok(expired) => {
                for gone in expired {
                    tracing::info!(
                        erasure_id = gone.erasure_id,
                        "the service has purged them: nobody is kept out for it any more"
                    );
                }
            }
            Err(error) => {
                let note = format!("who is kept out could not be written: {}", chain(&error));
                tracing::warn!("{note}");
                self.findings.notes.push(note);
            }
        }
    }

    /// Writes the run into the warehouses that it changed, with how it ended.
    async fn record_run(&self, error: Option<&PipelineError>) -> Result<(), PipelineError> {
        if !self.findings.wrote {
            return Ok(());
        }
        let record = self.record(error);
        for destination in &self.destinations {
            let record = record.clone();
            self.with(destination, move |destination| destination.record_run(&record)).await?;
            self.publish(destination).await?;
        }
        Ok(())
    }

    /// What the edges of pages may have hidden.
    fn doubt_ties(&mut self) {
        let notes = self.context.ties.notes();
        self.findings.is_doubtful |= !notes.is_empty();
        for note in &notes {
            tracing::warn!("{note}");
        }
        self.findings.notes.extend(notes);
    }

    /// The history of runs, and what was learned of the service.
    fn remember(&self, report: &RunReport) -> Result<(), PipelineError> {
        let text = serde_json::to_string(report).unwrap_or_default();
        let state = self.context.state();
        let now_ms = self.clock.now_ms();
        self.context.learned.remember(&state, &self.context.source, now_ms)?;
        remember(&state, &self.context.source, now_ms)
            .and_then(|()| {
                state.finish_run(&self.run_id, now_ms, report.outcome.name(), i64::from(report.exit_code), &text)
            })
            .map_err(PipelineError::State)
    }

    fn record(&self, error: Option<&PipelineError>) -> RunRecord {
        let report = self.report(error);
        RunRecord {
            run_id: self.run_id.clone(),
            command: self.request.command.to_owned(),
            outcome: report.outcome.name().to_owned(),
            exit_code: i64::from(report.exit_code),
            started_ms: self.started_ms,
            finished_ms: self.clock.now_ms(),
            base_url: self.identity.base_url.clone(),
            environment: self.identity.environment.clone(),
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            report: serde_json::to_string(&report).unwrap_or_default(),
        }
    }

    fn report(&self, error: Option<&PipelineError>) -> RunReport {
        let outcome = if error.is_some() { Outcome::Failed } else { self.findings.outcome() };
        let mut streams = self.findings.streams();
        let lists = self.settings.streams.iter().map(|stream| stream.stream);
        let lists = lists.filter(|_| self.request.people == PeopleAsk::AfterLists);
        let is_for_people = self.settings.users.is_enabled || self.request.people != PeopleAsk::AfterLists;
        for stream in lists.chain(is_for_people.then_some(Stream::Users)) {
            streams.entry(stream.name()).or_default().reached = self.findings.reached(stream);
        }
        let (drift, drift_unlisted) = self.findings.drift();
        RunReport {
            run_id: self.run_id.clone(),
            command: self.request.command.to_owned(),
            outcome,
            exit_code: error.map_or(outcome.exit_code(), PipelineError::exit_code),
            started_at: rfc3339(self.started_ms),
            finished_at: rfc3339(self.clock.now_ms()),
            streams,
            drift,
            drift_unlisted,
            webhook_events: self.findings.webhook_events,
            requests: self.context.source.request_stats(),
            time_ms: self.context.account.parts(),
            peak_rss_bytes: peak_rss_bytes(),
            stopped_because: self.findings.stop.map(|stop| stop.to_string()),
            resume_after_ms: self.findings.resume_after_ms(self.clock.now_ms()),
            limited_until_ms: self.findings.limited_until_ms(),
            error: error.map(|error| chain(error)),
            failures: self.findings.failures.clone(),
            notes: self.findings.notes(),
        }
    }
}
