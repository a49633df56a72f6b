//! A run: one execution of `sync`, `backfill` or `users pull`. This file opens the archive, the client and the
//! warehouses of a run.

use std::{path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use crate::{
    config::Settings,
    load::{LoadError, StartedEngine, Warehouse},
    model::{Activity, behaviour_names},
    source::{Source, SourceSettings},
};

use super::{
    PipelineError, Progress, Request, Session,
    assemble::{clear_leftovers, identity, source_settings, start_engine},
    backlog::first_sync_since,
    clock_skew::CLOCK_SKEW,
    failed_start::{FailedStart, record_failed_start},
    findings::Findings,
    reconcile::check_ledgers,
    recordings::RecordingsProgress,
    shared_destination::SharedDestination,
    sync_context::SyncContext,
    system::System,
    threads::{in_parallel, until_stopped},
};

/// A run that holds the lease.
pub struct Run {
    pub(super) request: Request,
    pub(super) context: SyncContext,
    pub(super) destinations: Vec<SharedDestination>,
    pub(super) findings: Findings,
    pub(super) recordings: RecordingsProgress,
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
        let leased = lease_and_engine(&settings, &request, &system);
        let (leased, source_settings) =
            leased.map_err(|error| record_failed_start(&settings, command, started_ms, error, &system))?;
        let LeasedSession { session, damaged, engine } = leased;
        // Recorded before the warehouses are opened, because the run may be killed while it waits for one.
        session.begin_run().map_err(|error| session.finish_failed_start(error))?;
        let parts = match engine {
            Ok(engine) => RunParts::open(&session, source_settings, damaged, engine, stop, progress),
            Err(error) => Err(error),
        };
        match parts {
            Ok(RunParts { context, destinations, findings }) => {
                Ok(Run { request, context, destinations, findings, recordings: RecordingsProgress::default(), session })
            }
            Err(error) => Err(session.finish_failed_start(error)),
        }
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
}

/// Takes the lease and starts DuckDB's engine, in parallel. Also returns the settings of the client. A failure of the
/// engine is in the [`LeasedSession`], because the lease is then taken and the run can be recorded.
fn lease_and_engine(
    settings: &Settings,
    request: &Request,
    system: &System,
) -> Result<(LeasedSession, SourceSettings), PipelineError> {
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
    Ok((LeasedSession { session, damaged, engine }, source_settings))
}

/// The fields of a [`Run`] that are opened after its session.
struct RunParts {
    context: SyncContext,
    destinations: Vec<SharedDestination>,
    findings: Findings,
}

impl RunParts {
    /// Opens the archive, the client and the warehouses, and checks the checkpoints against the ledgers. `damaged` is
    /// the new path of a damaged state file, for a note in the report.
    fn open(
        session: &Session,
        mut source_settings: SourceSettings,
        damaged: Option<PathBuf>,
        engine: Option<StartedEngine>,
        stop: CancellationToken,
        progress: Arc<Progress>,
    ) -> Result<RunParts, PipelineError> {
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
        if let Some(note) = check_ledgers(&mut session.state(), &destinations)? {
            tracing::warn!("{note}");
            findings.notes.push(note);
        }
        let context = SyncContext::new(session, source, archive, progress)?;
        Ok(RunParts { context, destinations, findings })
    }
}
