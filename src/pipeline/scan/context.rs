//! The state that all windows of a command share.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    archive::Archive,
    flatten::flatten_in_detail,
    model::{DriftPolicy, FlatPage, PageDetail, Stream, TimeAccount},
    person::Suppression,
    pipeline::{
        assemble::suppression,
        error::PipelineError,
        memory::Memory,
        meter::Progress,
        service_profile::{stored::ObservedBehaviours, theme_times::ThemeTimes, tie_watch::TieWatch},
        session::Session,
    },
    source::Source,
    state::State,
};

use super::page_buffer::Budget;

/// The state that every pull and every commit of a command share. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct SyncContext {
    pub source: Source,
    pub archive: Archive,
    pub state: Arc<Mutex<State>>,
    pub account: TimeAccount,
    pub budget: Budget,
    pub progress: Arc<Progress>,
    pub ties: TieWatch,
    pub theme_times: ThemeTimes,
    pub observed: ObservedBehaviours,
    pub drift: DriftPolicy,
    /// Removes erased people from every page.
    pub suppression: Suppression,
}

impl SyncContext {
    /// Creates the state of a command. Loads the stored behaviours and the suppression list.
    pub fn new(
        session: &Session,
        source: Source,
        archive: Archive,
        progress: Arc<Progress>,
    ) -> Result<SyncContext, PipelineError> {
        let clock = &session.system.clock;
        let ties = TieWatch::load(&session.state(), clock.clone())?;
        let theme_times = ThemeTimes::load(&session.state(), clock.clone())?;
        Ok(SyncContext {
            source,
            archive,
            state: session.shared_state(),
            account: session.account.clone(),
            budget: Budget::new(Memory::of(&session.settings.warehouse)),
            progress,
            ties,
            theme_times,
            observed: ObservedBehaviours::default(),
            drift: session.settings.drift,
            suppression: suppression(&session.settings)?,
        })
    }

    /// Flattens a page of a list by the stream's drift rules, but builds only the rows and columns of `detail`.
    pub fn flatten_in_detail(
        &self,
        stream: Stream,
        body: &[u8],
        detail: &PageDetail,
    ) -> Result<FlatPage, PipelineError> {
        Ok(flatten_in_detail(stream, body, self.drift.of(stream), detail)?)
    }

    /// Flattens a page of a list by the stream's drift rules.
    pub fn flatten(&self, stream: Stream, body: &[u8]) -> Result<FlatPage, PipelineError> {
        self.flatten_in_detail(stream, body, &PageDetail::Rows)
    }

    /// Locks the checkpoints. A panic cannot leave SQLite in the middle of a change, so a poisoned lock is fine.
    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
