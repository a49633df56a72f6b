//! One execution of `sync` or `backfill`: its parts, and how it uses its warehouses.

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
    assemble::{failed, identity, source_settings, start_engine},
    backlog::first_sync_since,
    findings::Findings,
    not_begun::note_not_begun,
    reconcile::check_ledgers,
    recordings::RecordingsWork,
    replay::clear_leftovers,
    shared_destination::SharedDestination,
    sync_context::SyncContext,
    system::System,
    threads::side_by_side,
};

/// Name of the behaviour that says how far the service's clock is ahead of this machine's, in milliseconds.
pub const CLOCK_SKEW: &str = "clock_skew_ms";

/// A run, assembled and holding the lease.
pub struct Run {
    pub(super) request: Request,
    pub(super) context: SyncContext,
    pub(super) destinations: Vec<SharedDestination>,
    pub(super) findings: Findings,
    pub(super) recordings: RecordingsWork,
    pub(super) session: Session,
}

impl Run {
    /// Takes the lease, opens everything and repairs what an earlier run left unfinished. Sends no request.
    pub async fn open(
        settings: Settings,
        request: Request,
        stop: CancellationToken,
        progress: Arc<Progress>,
    ) -> Result<Run, PipelineError> {
        Run::open_in(settings, request, stop, progress, System::default()).await
    }

    /// The same with another [`System`] than this machine's.
    pub async fn open_in(
        settings: Settings,
        request: Request,
        stop: CancellationToken,
        progress: Arc<Progress>,
        system: System,
    ) -> Result<Run, PipelineError> {
        let (started_ms, command) = (system.clock.now_ms(), request.command);
        let leased = lease_and_engine(&settings, command, &system);
        let (leased, source_settings) = leased.inspect_err(|error| {
            note_not_begun(&settings, command, started_ms, error, &system);
        })?;
        let Leased { session, damaged, engine } = leased;
        // The history has the run from here on, also after a kill while the run waits for a warehouse.
        session.begin_run()?;
        let opened = match engine {
            Ok(engine) => Opened::with(&session, source_settings, damaged, engine, stop, progress),
            Err(error) => Err(error),
        };
        match opened {
            Ok(Opened { context, destinations, findings }) => {
                Ok(Run { request, context, destinations, findings, recordings: RecordingsWork::default(), session })
            }
            Err(error) => {
                session.finish_not_begun(&error);
                Err(error)
            }
        }
    }

    /// Where a first `sync` begins, epoch milliseconds; `None` for other runs, and where that cannot be read.
    pub fn first_sync_since(&self) -> Option<i64> {
        let is_sync = self.request.command == "sync";
        let since = first_sync_since(&self.session.settings, &self.session.state(), self.session.now_ms());
        since.ok().flatten().filter(|_| is_sync)
    }

    /// The client, for the progress bar.
    pub fn source(&self) -> &Source {
        &self.context.source
    }

    pub(super) fn clock_skew_ms(&self) -> Result<i64, PipelineError> {
        let skew = self.context.state().behaviour::<i64>(CLOCK_SKEW)?;
        Ok(skew.map_or(0, |(skew_ms, _)| skew_ms))
    }

    /// Stores the difference between the clocks, and returns the service's time. A service that does not tell its
    /// time is assumed to share this machine's.
    pub(super) fn remember_clock(&self, service_now_ms: Option<i64>) -> Result<i64, PipelineError> {
        let here_ms = self.session.now_ms();
        let now_ms = service_now_ms.unwrap_or(here_ms);
        self.context.state().remember_behaviour(CLOCK_SKEW, &(now_ms - here_ms), here_ms)?;
        Ok(now_ms)
    }

    pub(super) async fn publish(&self, destination: &SharedDestination) -> Result<(), PipelineError> {
        self.with(destination, |destination| destination.publish()).await
    }

    /// Releases the locks of all warehouses, so that other processes can open them while the run waits for the service.
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

    /// Runs work on a warehouse's own thread.
    pub(super) async fn with(
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
}

/// A session, and the engine that started while the session took the lease.
struct Leased {
    session: Session,
    /// Where a damaged state file was moved to.
    damaged: Option<PathBuf>,
    engine: Result<Option<StartedEngine>, PipelineError>,
}

fn lease_and_engine(
    settings: &Settings,
    command: &'static str,
    system: &System,
) -> Result<(Leased, SourceSettings), PipelineError> {
    let source_settings = source_settings(settings)?;
    let identity = identity(settings)?;
    settings.require_warehouse()?;
    // The engine takes longest to start, and needs no file that another run may have locked.
    let (opened, engine) = side_by_side(
        "takes the lease",
        || Session::open_or_begin_anew(settings, &identity, command, system),
        || start_engine(settings, system),
    );
    let (session, damaged) = opened??;
    Ok((Leased { session, damaged, engine }, source_settings))
}

/// The parts of a run other than its session.
struct Opened {
    context: SyncContext,
    destinations: Vec<SharedDestination>,
    findings: Findings,
}

impl Opened {
    /// Opens the archive, the client and the warehouses, and repairs what an earlier run left unfinished.
    fn with(
        session: &Session,
        mut source_settings: SourceSettings,
        damaged: Option<PathBuf>,
        engine: Option<StartedEngine>,
        stop: CancellationToken,
        progress: Arc<Progress>,
    ) -> Result<Opened, PipelineError> {
        let studies = session.state().behaviour(behaviour_names::SURVEYS_ARE_STUDIES)?;
        source_settings.surveys_are_studies = studies.is_some_and(|(are_studies, _)| are_studies);
        let archive = session.archive()?;
        clear_leftovers(&session.settings)?;
        // Side by side, because both take a while: one thread opens the warehouses.
        let (source, destinations) = side_by_side(
            "makes the client",
            || session.source(source_settings, stop.clone()),
            || session.warehouses(&stop, engine),
        );
        let source = source??;
        let destinations = SharedDestination::all(destinations?);
        let mut findings = Findings::default();
        findings.notes.extend(damaged.map(|kept_as| {
            let (path, kept_as) = (session.settings.state_path.display(), kept_as.display());
            format!("the state file {path} was damaged; it is kept as {kept_as}, and a new one was begun")
        }));
        if let Some(note) = check_ledgers(&mut session.state(), &destinations)? {
            tracing::warn!("{note}");
            findings.notes.push(note);
        }
        let context = SyncContext::new(session, source, archive, progress)?;
        Ok(Opened { context, destinations, findings })
    }
}
