//! A session: a command that holds the lease, so that no other command changes its files.
//!
//! [`Session::open`] opens the checkpoints and takes the lease. Other methods of [`Session`] open the archive, the
//! client and the warehouses, for the commands that need them.
//!
//! Tracing spans of a run: run > window > page, and commit. Their target is `otlp`, so that logs do not show them.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio_util::sync::CancellationToken;
use tracing::{Span, info_span};

use crate::{
    archive::Archive,
    config::Settings,
    load::{Identity, Opening, Place, StartedEngine, Warehouse},
    model::{FlagSet, Outcome, RunId, Scan, ScanId, Scope, TimeAccount, Window},
    source::{Source, SourceSettings},
    state::{Lease, RunEnd, State, StateError},
};

use super::{
    assemble::{System, archive, failed, lock_patience, open_all, opening, places, require_list},
    error::{PipelineError, chain},
    kept_state::{StateKeeper, merge_erasures_of_bucket, note_use},
    limits::{recall, remember},
    report::{ReportHeader, RunReport, RunTimes},
};

/// A command that holds the lease. Dropping a session releases the lease, so it must be dropped after everything that
/// it opened: make it the last field of a struct.
#[derive(Debug)]
pub struct Session {
    pub settings: Settings,
    /// The service and the environment that all files are bound to.
    pub identity: Identity,
    pub system: System,
    /// The command name in the lease and in the history of runs.
    pub command: &'static str,
    pub run_id: RunId,
    pub started_ms: i64,
    /// Records the time by activity.
    pub account: TimeAccount,
    state: Arc<Mutex<State>>,
    /// True if this command has opened the warehouses for writing.
    has_warehouses: Arc<AtomicBool>,
    lease: Lease,
}

impl Session {
    /// Opens the checkpoints and takes the lease. Sends nothing.
    ///
    /// # Errors
    /// `Leased` if another command holds the lease.
    pub fn open(
        settings: &Settings,
        identity: &Identity,
        command: &'static str,
        system: &System,
    ) -> Result<Session, StateError> {
        let state = State::open(&settings.state_path, &identity.base_url, &identity.environment)?;
        Session::of(state, settings, identity, command, system)
    }

    /// [`Session::open`] that replaces a damaged state file. Returns the new path of the damaged file, if there was
    /// one.
    pub(super) fn open_or_replace_damaged(
        settings: &Settings,
        identity: &Identity,
        command: &'static str,
        system: &System,
    ) -> Result<(Session, Option<PathBuf>), StateError> {
        let (base_url, environment) = (&identity.base_url, &identity.environment);
        let now_ms = system.clock.now_ms();
        let (state, damaged) = State::open_or_replace_damaged(&settings.state_path, base_url, environment, now_ms)?;
        Ok((Session::of(state, settings, identity, command, system)?, damaged))
    }

    /// Takes the lease of an open state file.
    fn of(
        state: State,
        settings: &Settings,
        identity: &Identity,
        command: &'static str,
        system: &System,
    ) -> Result<Session, StateError> {
        let started_ms = system.clock.now_ms();
        let run_id = RunId::with_rng(started_ms, &system.rng);
        let state = state.with_failpoints(system.failpoints.clone());
        let lease = state.take_lease(&run_id, command, started_ms)?;
        note_use(settings)?;
        Ok(Session {
            settings: settings.clone(),
            identity: identity.clone(),
            system: system.clone(),
            command,
            run_id,
            started_ms,
            account: TimeAccount::default(),
            state: Arc::new(Mutex::new(state)),
            has_warehouses: Arc::default(),
            lease,
        })
    }

    /// Locks the checkpoints. A panic cannot leave SQLite in the middle of a change, so a poisoned lock is fine.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the checkpoints, for other threads and tasks of the command.
    pub(super) fn shared_state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    /// Returns what copies the state to the bucket of the warehouse.
    pub(super) fn keeper(&self) -> StateKeeper {
        StateKeeper {
            settings: self.settings.clone(),
            state: self.shared_state(),
            has_warehouses: Arc::clone(&self.has_warehouses),
        }
    }

    /// Copies the state to the bucket of the warehouse, if it is in one and this command has opened it.
    pub fn keep_state(&self) {
        self.keeper().keep();
    }

    /// Returns this machine's time in epoch milliseconds.
    pub fn now_ms(&self) -> i64 {
        self.system.clock.now_ms()
    }

    /// Creates a scan of this command that begins now, by the service's clock if it is known.
    pub(super) fn new_scan(&self, source: &Source, scope: Scope, window: Window, flags: FlagSet) -> Scan {
        let here_ms = self.now_ms();
        Scan {
            id: ScanId::with_rng(here_ms, &self.system.rng),
            run_id: self.run_id.clone(),
            scope,
            window,
            flags,
            started_ms: source.service_now_ms().unwrap_or(here_ms),
        }
    }

    /// Opens the archive of the settings.
    pub fn archive(&self) -> Result<Archive, PipelineError> {
        Ok(archive(&self.settings, &self.identity)?.with_failpoints(self.system.failpoints.clone()))
    }

    /// Creates the client, with what earlier commands learned about the rate limit. Sends nothing.
    pub fn source(&self, mut settings: SourceSettings, stop: CancellationToken) -> Result<Source, PipelineError> {
        let System { clock, rng, transport, .. } = self.system.clone();
        (settings.clock, settings.rng, settings.transport) = (clock, rng, transport);
        let ignores_stored_retry_after = self.settings.throttle.ignores_stored_retry_after;
        let learned = recall(&self.state(), &mut settings, ignores_stored_retry_after)?;
        Source::new(settings, learned, self.account.clone(), stop).map_err(PipelineError::Source)
    }

    /// Opens every warehouse of the settings. Waits for warehouses that other processes have open, and blocks the
    /// thread. `started` is DuckDB's engine, or `None` to start it here.
    pub fn warehouses(
        &self,
        stop: &CancellationToken,
        started: Option<StartedEngine>,
    ) -> Result<Vec<Warehouse>, PipelineError> {
        let patience = lock_patience(&self.settings, stop);
        let opening = Opening { patience, ..opening(&self.settings, &self.identity, &self.system) };
        let mut warehouses = open_all(&self.settings, &opening, started)?;
        merge_erasures_of_bucket(&self.settings)?;
        require_list(&self.settings, &mut warehouses)?;
        self.has_warehouses.store(true, Ordering::Relaxed);
        if self.system.last_warehouse_first {
            warehouses.reverse();
        }
        Ok(warehouses)
    }

    /// Opens every warehouse of the settings for reading only.
    pub(super) fn warehouses_to_compare(&self) -> Result<Vec<Warehouse>, PipelineError> {
        let opening = opening(&self.settings, &self.identity, &self.system);
        let open = |place: Place| {
            let name = place.name();
            // DuckDB spills to the archive's folder, because the folder of a warehouse may be read-only.
            let spill = self.settings.archive_location.path.join("under-way").join(format!("verify-spill-{name}"));
            place.open_to_compare(&opening, spill).map_err(failed(name))
        };
        places(&self.settings.warehouse).into_iter().map(open).collect()
    }

    /// Adds the command to the history of runs.
    pub fn begin_run(&self) -> Result<(), PipelineError> {
        Ok(self.state().begin_run(&self.run_id, self.command, self.started_ms)?)
    }

    /// Creates the header of the report of this command, which ends now.
    pub(super) fn report_header(&self, outcome: Outcome, error: Option<&PipelineError>) -> ReportHeader {
        ReportHeader::new(self.command, self.times(), self.account.parts(), outcome, error)
    }

    /// Returns the start of this command, and the current time as its end.
    pub(super) fn times(&self) -> RunTimes {
        RunTimes { started_ms: self.started_ms, finished_ms: self.now_ms() }
    }

    /// Records the end of the command in the history of runs. `report` is its JSON.
    pub fn finish_run(&self, outcome: &str, exit_code: u8, report: &str) -> Result<(), PipelineError> {
        let (now_ms, exit_code) = (self.now_ms(), i64::from(exit_code));
        let finished = self.state().finish_run(&self.run_id, now_ms, outcome, exit_code, report);
        let finished = finished.map_err(PipelineError::from);
        match &finished {
            Ok(()) => self.keep_state(),
            Err(error) => self.keep_failed_end(error),
        }
        finished
    }

    /// Keeps the end of this command outside the state file, which cannot be written. Without it, the command counts as
    /// killed.
    fn keep_failed_end(&self, error: &PipelineError) {
        if matches!(error, PipelineError::State(StateError::Stopped { .. })) {
            // Only tests: the process counts as killed.
            return;
        }
        let times = self.times();
        let report = RunReport::failed_start(self.run_id.clone(), self.command, times, error);
        let report = report.with_lists_of(&self.settings);
        let end = RunEnd {
            run_id: self.run_id.0.clone(),
            finished_ms: times.finished_ms,
            outcome: report.header.outcome.name().to_owned(),
            exit_code: i64::from(report.header.exit_code),
            report: serde_json::to_string(&report).unwrap_or_default(),
        };
        if let Err(error) = self.lease.keep_end(&end) {
            tracing::debug!(why = chain(&error), "cannot keep the end of the run: status shows it as killed");
        }
    }

    /// Stores what this command learned about the rate limit, for the next one.
    pub fn remember(&self, source: &Source) -> Result<(), PipelineError> {
        Ok(remember(&self.state(), source, self.now_ms())?)
    }
}

/// Creates the span of a run.
pub(super) fn run_span(session: &Session) -> Span {
    let (run_id, command) = (session.run_id.0.as_str(), session.command);
    info_span!(target: "otlp", "run", run_id, command, environment = session.identity.environment)
}

/// Creates the span of pulling one window.
pub(super) fn window_span(scan: &Scan) -> Span {
    let (stream, survey_id) = (scan.scope.stream.name(), scan.scope.survey_id);
    info_span!(target: "otlp", "window", stream, survey_id, window = %scan.window, scan_id = scan.id.0)
}

/// Creates the span of one page, with all attempts and waits.
pub(super) fn page_span() -> Span {
    info_span!(target: "otlp", "page")
}

/// Creates the span of applying or committing scans in every warehouse. `step` is `apply` or `commit`.
pub(super) fn commit_span(step: &'static str) -> Span {
    info_span!(target: "otlp", "commit", step)
}
