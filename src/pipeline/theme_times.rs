//! What `start` and `end` of themes mean: the creation of the theme, or that of the answer it stands on. The contract does not say.
//!
//! Where it is the answer's, a window lists themes that were created outside of it, and lacks some that were created inside. Then a
//! theme that a window does not show has not vanished. Measured once, by asking for themes at the moment of their own creation; a
//! theme outside its window tells as well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    clock::Clock,
    model::{DAY_MS, Stream, ThemeTime, behaviour_names},
    state::State,
};

use super::PipelineError;

/// An older measure is made again when there is an occasion.
const MEASURE_AGE_MAX_MS: i64 = 30 * DAY_MS;

/// What the pulls of a run know together.
#[derive(Clone, Debug)]
pub(super) struct ThemeTimes(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    known: Option<ThemeTime>,
    /// Whether it is to be measured, and nobody does.
    is_due: bool,
}

impl ThemeTimes {
    /// What earlier runs measured.
    pub fn load(state: &State, clock: Clock) -> Result<ThemeTimes, PipelineError> {
        let known = state.behaviour::<ThemeTime>(behaviour_names::THEMES_FILTERED_BY)?;
        let is_due = known.is_none_or(|(_, at_ms)| clock.now_ms() - at_ms > MEASURE_AGE_MAX_MS);
        let known = known.map(|(time, _)| time);
        Ok(ThemeTimes(Arc::new(Mutex::new(Inner { clock, known, is_due }))))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a complete scan of a stream can lack rows of its window that the service has.
    pub fn may_lack_rows(&self, stream: Stream) -> bool {
        stream == Stream::Themes && self.inner().known == Some(ThemeTime::Answer)
    }

    /// Whether it is to be measured now. Whoever asks does it, so the answer is yes once.
    pub fn begin_measure(&self) -> bool {
        std::mem::take(&mut self.inner().is_due)
    }

    /// What was found. Returns when it was, if that is to be remembered.
    pub fn found(&self, found: ThemeTime) -> Option<i64> {
        let mut inner = self.inner();
        if inner.known == Some(found) && found != ThemeTime::Theme {
            return None;
        }
        if inner.known != Some(found) {
            tracing::info!(%found, "what the start and the end of themes mean");
        }
        (inner.known, inner.is_due) = (Some(found), false);
        Some(inner.clock.now_ms())
    }
}
