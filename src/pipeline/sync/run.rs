//! A run: one execution of `sync`, `backfill` or `users pull`. This file opens the archive, the client and the
//! warehouses of a run. A run that fails before it could send a request is reported and recorded, so that monitors see
//! it.

use std::{path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    load::{LoadError, StartedEngine, Warehouse},
    model::{Activity, RunId, Window, behaviour_names},
    pipeline::{
        assemble::{System, clear_leftovers, identity, source_settings, start_engine},
        error::{PipelineError, chain},
        kept_state::{add_mark, is_fetched, remove_mark},
        meter::Progress,
        report::{RunReport, RunTimes},
        scan::{context::SyncContext, shared_destination::SharedDestination},
        service_profile::clocks::CLOCK_SKEW,
        session::Session,
        threads::{in_parallel, until_stopped},
        workers_wait::WorkersWait,
    },
    source::{Source, SourceSettings},
    state::{State, StateError},
};

use super::{
    backlog::first_sync_since, findings::Findings, reconcile::check_ledgers, recordings::progress::RecordingsProgress,
};

/// The end, in epoch milliseconds, of a backfill without a named end. Such a run ends at the service's time minus the
/// lag.
pub const OPEN_END_MS: i64 = i64::MAX;

/// What a run should read.
#[derive(Clone, Debug)]
pub struct Request {
    /// "sync" or "backfill": for the lease, the history and the report.
    pub command: &'static str,
    /// The window of a backfill, which may end at [`OPEN_END_MS`]. `None` for a sync.
    pub backfill: Option<Window>,
    /// True if any number of vanished rows is accepted (promise P4).
    pub accept_vanished: bool,
    /// The users to request.
    pub people: PeopleSelection,
}

/// The users that a run requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PeopleSelection {
    /// Reads the lists, and afterwards requests the users who are due, if the stream of users is enabled.
    #[default]
    AfterLists,
    /// Requests the users who are due, and reads no list.
    Due,
    /// Requests these users, due or not, and reads no list.
    These(Vec<String>),
}

/// A run that holds the lease.
pub struct Run {
    pub(super) request: Request,
    pub(super) context: SyncContext,
    pub(super) destinations: Vec<SharedDestination>,
    pub(super) findings: Findings,
    pub(super) recordings: RecordingsProgress,
    pub(super) workers: Option<WorkersWait>,
    pub(super) session: Session,
}

impl Run {
    /// Takes the lease, opens the archive, the client and the warehouses, and checks the checkpoints against the
    /// ledgers. Sends no request. A failed start is recorded in the history of runs.
    pub async fn open(
        settings: Settings,
        request: Request,
        stop: CancellationToken,
        progress: Arc<Progress>,
    ) -> Result<Run, FailedStart> {
        Run::open_in(settings, request, stop, progress, System::default()).await
    }

    /// [`Run::open`] with this [`System`] instead of the machine's. Opens the run on a thread of its own, because every
    /// step may block for long: a key command, a file of a network mount, a warehouse that another process has open.
    pub async fn open_in(
        settings: Settings,
        request: Request,
        stop: CancellationToken,
        progress: Arc<Progress>,
        system: System,
    ) -> Result<Run, FailedStart> {
        let (started_ms, command, token) = (system.clock.now_ms(), request.command, stop.clone());
        let (of_failure, system_of_failure) = (settings.clone(), system.clone());
        let opened = until_stopped(&stop, move || Run::open_blocking(settings, request, token, progress, system)).await;
        // A start that was left behind is not recorded, because the state file may be what does not answer.
        opened
            .unwrap_or_else(|error| Err(FailedStart::new(&of_failure, command, started_ms, error, &system_of_failure)))
    }

    /// [`Run::open_in`] on the calling thread, which it blocks.
    fn open_blocking(
        settings: Settings,
        request: Request,
        stop: CancellationToken,
        progress: Arc<Progress>,
        system: System,
    ) -> Result<Run, FailedStart> {
        let (started_ms, command) = (system.clock.now_ms(), request.command);
        let leased = LeasedSession::open(&settings, &request, &system);
        let LeasedSession { session, damaged, engine, source_settings } =
            leased.map_err(|error| record_failed_start(&settings, command, started_ms, error, &system))?;
        // Recorded before the warehouses are opened, because the run may be killed while it waits for one.
        session.begin_run().map_err(|error| session.finish_failed_start(error))?;
        let opened = engine.and_then(|engine| open_stages(&session, source_settings, damaged, engine, stop, progress));
        let (context, destinations, findings) = opened.map_err(|error| session.finish_failed_start(error))?;
        let (recordings, workers) = (RecordingsProgress::default(), WorkersWait::open(&session, &context.source));
        Ok(Run { request, context, destinations, findings, recordings, workers, session })
    }

    /// Returns the earliest creation time that a first `sync` reads, in epoch milliseconds. Returns `None` for another
    /// command, if an earlier run has read a stream, or if the coverage cannot be read.
    pub fn first_sync_since(&self) -> Option<i64> {
        let is_sync = self.request.command == "sync";
        let since = first_sync_since(&self.session.settings, &self.session.state(), self.session.now_ms());
        since.ok().flatten().filter(|_| is_sync)
    }

    /// The client, for the progress bar.
    pub fn source(&self) -> &Source {
        &self.context.source
    }

    /// Stores the difference between the clocks, and returns the service's time. `None` stands for a service without a
    /// `Date` header; this machine's time is used then.
    pub(super) fn remember_clock(&self, service_now_ms: Option<i64>) -> Result<i64, PipelineError> {
        let here_ms = self.session.now_ms();
        let now_ms = service_now_ms.unwrap_or(here_ms);
        self.context.state().remember_behaviour(CLOCK_SKEW, &(now_ms - here_ms), here_ms)?;
        Ok(now_ms)
    }

    pub(super) async fn publish(&self, destination: &SharedDestination) -> Result<(), PipelineError> {
        self.with(destination, |destination| destination.publish()).await
    }

    /// Releases the lock of the DuckDB file, so that other processes can open the file while the run waits for the
    /// service. A Parquet folder stays locked.
    pub(super) async fn release_locks(&self) -> Result<(), PipelineError> {
        for destination in &self.destinations {
            self.with(destination, |destination| destination.release_lock()).await?;
        }
        Ok(())
    }

    /// Exports the reader copy of each warehouse, also when another warehouse fails.
    pub(super) async fn export_reader_copies(&self) -> Result<(), PipelineError> {
        let mut outcome = Ok(());
        for destination in &self.destinations {
            let finished = self.with(destination, |destination| destination.export_reader_copy()).await;
            outcome = outcome.and(finished);
        }
        outcome
    }

    /// Runs work on the thread of a warehouse, and counts the time as writing.
    pub(super) async fn with(
        &self,
        destination: &SharedDestination,
        work: impl FnOnce(&mut Warehouse) -> Result<(), LoadError> + Send + 'static,
    ) -> Result<(), PipelineError> {
        let account = self.context.account.clone();
        let worked = destination.work(move |destination| {
            let _busy = account.enter(Activity::Write);
            work(destination)
        });
        worked.await
    }
}

/// A session, and the engine that was started while the session took the lease.
struct LeasedSession {
    session: Session,
    /// The new path of a damaged state file that was replaced. `None` if the state file was not damaged.
    damaged: Option<PathBuf>,
    /// `None` if the settings name no DuckDB file.
    engine: Result<Option<StartedEngine>, PipelineError>,
    source_settings: SourceSettings,
}

impl LeasedSession {
    /// Takes the lease and starts DuckDB's engine, in parallel. A failure of the engine is a field, because the lease
    /// is then taken and the run can be recorded.
    fn open(settings: &Settings, request: &Request, system: &System) -> Result<LeasedSession, PipelineError> {
        let mut source_settings = source_settings(settings)?;
        source_settings.accepts_gone_lists = request.accept_vanished;
        let identity = identity(settings)?;
        settings.require_warehouse()?;
        // The engine takes longest to start, and needs no file that another run may have locked.
        let (opened, engine) = in_parallel(
            "takes the lease",
            || Session::open_or_replace_damaged(settings, &identity, request.command, system),
            || start_engine(settings, system),
        );
        let (session, damaged) = opened??;
        Ok(LeasedSession { session, damaged, engine, source_settings })
    }
}

/// Opens the archive, the client and the warehouses, and checks the checkpoints against the ledgers. `damaged` is
/// the new path of a damaged state file, for a note in the report.
fn open_stages(
    session: &Session,
    mut source_settings: SourceSettings,
    damaged: Option<PathBuf>,
    engine: Option<StartedEngine>,
    stop: CancellationToken,
    progress: Arc<Progress>,
) -> Result<(SyncContext, Vec<SharedDestination>, Findings), PipelineError> {
    let studies = session.state().behaviour(behaviour_names::SURVEYS_ARE_STUDIES)?;
    source_settings.surveys_are_studies = studies.is_some_and(|(are_studies, _)| are_studies);
    let archive = session.archive()?;
    clear_leftovers(&session.settings)?;
    // In parallel, because the client and the warehouses both take long to open.
    let (source, destinations) = in_parallel(
        "makes the client",
        || session.source(source_settings, stop.clone()),
        || session.warehouses(&stop, engine),
    );
    let source = source??;
    let destinations = SharedDestination::all(destinations?);
    let mut findings = Findings::default();
    findings.notes.extend(damaged.map(|renamed| {
        let (path, renamed) = (session.settings.state_path.display(), renamed.display());
        format!("the state file {path} was damaged; it was renamed to {renamed}, and a new one was created")
    }));
    // Other workers share the warehouse, so its ledger says what is left. It also knows more than this state file after
    // this run.
    let is_shared = session.settings.shard.is_some();
    let note = check_ledgers(&mut session.state(), &destinations, is_shared || is_fetched(&session.settings))?;
    match is_shared {
        true => add_mark(&session.settings)?,
        false => remove_mark(&session.settings)?,
    }
    if let Some(note) = note {
        tracing::warn!("{note}");
        findings.notes.push(note);
    }
    let context = SyncContext::new(session, source, archive, progress)?;
    Ok((context, destinations, findings))
}

/// A run that failed before it could send a request.
#[derive(Debug)]
pub struct FailedStart {
    pub error: PipelineError,
    /// The report of the run, as in the history of runs.
    pub report: Box<RunReport>,
}

impl FailedStart {
    /// Creates the report of a run that has no session and failed now. Does not record the run.
    fn new(
        settings: &Settings,
        command: &'static str,
        started_ms: i64,
        error: PipelineError,
        system: &System,
    ) -> FailedStart {
        let times = RunTimes { started_ms, finished_ms: system.clock.now_ms() };
        let report = RunReport::failed_start(RunId::with_rng(started_ms, &system.rng), command, times, &error);
        FailedStart { error, report: Box::new(report.with_lists_of(settings)) }
    }
}

impl From<FailedStart> for PipelineError {
    fn from(failed: FailedStart) -> PipelineError {
        failed.error
    }
}

impl Session {
    /// Records in the state file that the run failed. The run had taken the lease, and had sent no request yet. An
    /// error of the state file is only logged.
    fn finish_failed_start(&self, error: PipelineError) -> FailedStart {
        let report = RunReport::failed_start(self.run_id.clone(), self.command, self.times(), &error);
        let report = report.with_lists_of(&self.settings);
        let text = serde_json::to_string(&report).unwrap_or_default();
        if let Err(error) = self.finish_run(report.header.outcome.name(), report.header.exit_code, &text) {
            tracing::warn!(why = chain(&error), "cannot record that the run failed");
        }
        FailedStart { error, report: Box::new(report) }
    }
}

/// Records a run that failed before it had the lease. Records nothing if there is no state file, because a mistake in
/// the configuration must not create one.
fn record_failed_start(
    settings: &Settings,
    command: &'static str,
    started_ms: i64,
    error: PipelineError,
    system: &System,
) -> FailedStart {
    let failed = FailedStart::new(settings, command, started_ms, error, system);
    // A state file that could not be opened a moment ago cannot be opened now either.
    let is_unusable =
        matches!(&failed.error, PipelineError::State(error) if !matches!(error, StateError::Leased { .. }));
    if !is_unusable && settings.state_path.try_exists().unwrap_or(false) {
        record(settings, &failed.report, started_ms, system);
    }
    failed
}

/// Stores the report in the history of runs. An error is only logged.
fn record(settings: &Settings, report: &RunReport, started_ms: i64, system: &System) {
    let Ok(identity) = identity(settings) else { return };
    let recorded = State::open(&settings.state_path, &identity.base_url, &identity.environment).and_then(|state| {
        let state = state.with_failpoints(system.failpoints.clone());
        let text = serde_json::to_string(report).unwrap_or_default();
        state.begin_run(&report.run_id, report.header.command, started_ms)?;
        let (outcome, exit_code) = (report.header.outcome.name(), i64::from(report.header.exit_code));
        state.finish_run(&report.run_id, system.clock.now_ms(), outcome, exit_code, &text)
    });
    if let Err(error) = recorded {
        tracing::debug!(why = chain(&error), "cannot record that the run failed");
    }
}
