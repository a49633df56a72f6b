//! The state that all windows of a command share.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    archive::Archive,
    flatten::flatten_page,
    model::{DriftPolicy, FlatPage, Stream, TimeAccount},
    person::Suppression,
    source::Source,
    state::State,
};

use super::{
    PipelineError, Progress, Session, assemble::suppression, memory::MemoryShares, page_buffer::Budget,
    service_profile::Learned, theme_times::ThemeTimes, ties::TieWatch,
};

/// Shared by every pull and every commit of a command. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub(super) struct SyncContext {
    pub source: Source,
    pub archive: Archive,
    pub state: Arc<Mutex<State>>,
    pub account: TimeAccount,
    pub budget: Budget,
    pub progress: Arc<Progress>,
    pub ties: TieWatch,
    pub theme_times: ThemeTimes,
    pub learned: Learned,
    pub drift: DriftPolicy,
    /// Removes erased people from every page.
    pub suppression: Suppression,
}

impl SyncContext {
    /// Loads what the checkpoints and the suppression list say.
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
            budget: Budget::new(MemoryShares::of(&session.settings.warehouse).pages),
            progress,
            ties,
            theme_times,
            learned: Learned::default(),
            drift: session.settings.drift,
            suppression: suppression(&session.settings)?,
        })
    }

    /// Flattens a page of a list by the stream's drift rules.
    pub fn flatten(&self, stream: Stream, body: &[u8]) -> Result<FlatPage, PipelineError> {
        Ok(flatten_page(stream, body, self.drift.of(stream))?)
    }

    /// The checkpoints. A panic elsewhere leaves SQLite whole, so a poisoned lock is taken all the same.
    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
