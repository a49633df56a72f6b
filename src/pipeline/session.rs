//! A command at work: it holds the lease, so that no other one changes what it works with.
//!
//! [`Session::open`] takes the lease and opens the checkpoints. Not every command needs the archive, the client and the
//! warehouses: each has a method that opens it, and no command opens them in any other way.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

use crate::{
    archive::Archive,
    config::Settings,
    load::{Identity, Opening, Place, StartedEngine, Warehouse},
    model::{FlagSet, RunId, Scan, ScanId, Scope, TimeAccount, Window},
    source::{Source, SourceSettings},
    state::{Lease, State, StateError},
};

use super::{
    Outcome, PipelineError, ReportHeader, RunMoments, System,
    assemble::{archive, failed, lock_patience, open_all, opening, places},
    limits::{recall, remember},
};

/// A command that holds the lease. Whatever it opened has to go before it: in a struct, it is the last field.
#[derive(Debug)]
pub struct Session {
    pub settings: Settings,
    /// The service and the environment that everything is marked with.
    pub identity: Identity,
    pub system: System,
    /// As the lease and the history of runs name it.
    pub command: &'static str,
    pub run_id: RunId,
    pub started_ms: i64,
    /// Where the time goes.
    pub account: TimeAccount,
    state: Arc<Mutex<State>>,
    _lease: Lease,
}

impl Session {
    /// Opens the checkpoints and takes the lease. Sends nothing.
    ///
    /// # Errors
    /// `Leased` while another command is at work.
    pub fn open(
        settings: &Settings,
        identity: &Identity,
        command: &'static str,
        system: &System,
    ) -> Result<Session, StateError> {
        let state = State::open(&settings.state_path, &identity.base_url, &identity.environment)?;
        Session::of(state, settings, identity, command, system)
    }

    /// The same, and where a damaged state file was put, if there was one: then a new one is begun.
    pub(super) fn open_or_begin_anew(
        settings: &Settings,
        identity: &Identity,
        command: &'static str,
        system: &System,
    ) -> Result<(Session, Option<PathBuf>), StateError> {
        let (base_url, environment) = (&identity.base_url, &identity.environment);
        let now_ms = system.clock.now_ms();
        let (state, damaged) = State::open_or_begin_anew(&settings.state_path, base_url, environment, now_ms)?;
        Ok((Session::of(state, settings, identity, command, system)?, damaged))
    }

    fn of(
        state: State,
        settings: &Settings,
        identity: &Identity,
        command: &'static str,
        system: &System,
    ) -> Result<Session, StateError> {
        let started_ms = system.clock.now_ms();
        let run_id = RunId::with_rng(started_ms, &system.rng);
        let state = state.watched(system.failpoints.clone());
        let lease = state.take_lease(&run_id, command, started_ms)?;
        Ok(Session {
            settings: settings.clone(),
            identity: identity.clone(),
            system: system.clone(),
            command,
            run_id,
            started_ms,
            account: TimeAccount::default(),
            state: Arc::new(Mutex::new(state)),
            _lease: lease,
        })
    }

    /// The checkpoints. A panic elsewhere leaves SQLite whole, so a poisoned lock is taken all the same.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The checkpoints, for what works beside the command.
    pub(super) fn shared_state(&self) -> Arc<Mutex<State>> {
        Arc::clone(&self.state)
    }

    /// This machine's time.
    pub fn now_ms(&self) -> i64 {
        self.system.clock.now_ms()
    }

    /// A scan of this command that begins now, by the service's clock if that is known.
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

    /// The archive of the settings.
    pub fn archive(&self) -> Result<Archive, PipelineError> {
        Ok(archive(&self.settings, &self.identity)?.with_failpoints(self.system.failpoints.clone()))
    }

    /// The client, with what earlier commands learned of the rate limit. Sends nothing.
    pub fn source(&self, mut settings: SourceSettings, stop: CancellationToken) -> Result<Source, PipelineError> {
        let System { clock, rng, transport, .. } = self.system.clone();
        (settings.clock, settings.rng, settings.transport) = (clock, rng, transport);
        let ignores_retry_after = self.settings.throttle.ignores_retry_after;
        let learned = recall(&self.state(), &mut settings, ignores_retry_after)?;
        Source::new(settings, learned, self.account.clone(), stop).map_err(PipelineError::Source)
    }

    /// Every warehouse that the settings name. Waits for those that other processes have open, and blocks the thread.
    /// `started`: the engine, if it was started before.
    pub fn warehouses(
        &self,
        stop: &CancellationToken,
        started: Option<StartedEngine>,
    ) -> Result<Vec<Warehouse>, PipelineError> {
        let patience = lock_patience(&self.settings, stop);
        let opening = Opening { patience, ..opening(&self.settings, &self.identity, &self.system) };
        let mut warehouses = open_all(&self.settings, &opening, started)?;
        if self.system.last_warehouse_first {
            warehouses.reverse();
        }
        Ok(warehouses)
    }

    /// Every warehouse that the settings name, for reading alone.
    pub(super) fn warehouses_to_compare(&self) -> Result<Vec<Warehouse>, PipelineError> {
        let opening = opening(&self.settings, &self.identity, &self.system);
        let open = |place: Place| {
            let name = place.name();
            // Where the warehouses are, perhaps nothing may be written.
            let spill = self.settings.archive_root.join("under-way").join(format!("verify-spill-{name}"));
            place.open_to_compare(&opening, spill).map_err(failed(name))
        };
        places(&self.settings.warehouse).into_iter().map(open).collect()
    }

    /// The command stands in the history of runs from here on.
    pub fn begin_run(&self) -> Result<(), PipelineError> {
        Ok(self.state().begin_run(&self.run_id, self.command, self.started_ms)?)
    }

    /// The header of the report of this command, which ends now.
    pub(super) fn report_header(&self, outcome: Outcome, error: Option<&PipelineError>) -> ReportHeader {
        ReportHeader::new(self.command, self.moments(), self.account.parts(), outcome, error)
    }

    /// When this command began, and now as its end.
    pub(super) fn moments(&self) -> RunMoments {
        RunMoments { started_ms: self.started_ms, finished_ms: self.now_ms() }
    }

    /// How the command ended; `report` is what the history keeps of it.
    pub fn finish_run(&self, outcome: &str, exit_code: u8, report: &str) -> Result<(), PipelineError> {
        let (now_ms, exit_code) = (self.now_ms(), i64::from(exit_code));
        Ok(self.state().finish_run(&self.run_id, now_ms, outcome, exit_code, report)?)
    }

    /// What this command learned of the rate limit, for the next one.
    pub fn remember(&self, source: &Source) -> Result<(), PipelineError> {
        Ok(remember(&self.state(), source, self.now_ms())?)
    }
}
