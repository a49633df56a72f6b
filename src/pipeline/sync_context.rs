//! What the windows of a command have in common.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    archive::Archive,
    model::{DriftPolicy, TimeAccount},
    person::Suppression,
    source::Source,
    state::State,
};

use super::{Progress, held::Budget, theme_times::ThemeTimes, ties::TieWatch, traits::Learned};

/// What every pull and every commit of a command works with. Cheap to clone; clones share everything.
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
    /// Who is kept out of everything that is pulled.
    pub suppression: Suppression,
}

impl SyncContext {
    /// The checkpoints. A panic elsewhere leaves SQLite whole, so a poisoned lock is taken all the same.
    pub fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
