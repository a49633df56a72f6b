//! Tracks what `start` and `end` of themes mean: the creation of the theme, or the creation of the theme's answer. The
//! contract does not say.
//!
//! If the service filters by the answer's time, a window lists themes created outside of it, and lacks some themes
//! created inside. With such a service, a missing theme does not count as vanished. A run measures the behaviour by
//! requests for themes at their creation time. A theme on a page that was created outside the window is a proof, too.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    clock::Clock,
    model::{DAY_MS, Stream, ThemeTime, behaviour_names, is_recent},
    state::State,
};

use super::PipelineError;

/// A measure older than this is repeated at the next page of themes.
const MEASURE_AGE_MAX_MS: i64 = 30 * DAY_MS;

/// The measured meaning of `start` and `end`, shared by all pulls of a run.
#[derive(Clone, Debug)]
pub(super) struct ThemeTimes(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    /// The measured meaning. `None` if it was never measured.
    known: Option<ThemeTime>,
    /// True if `known` was measured less than [`MEASURE_AGE_MAX_MS`] ago.
    is_recent: bool,
    /// True if a measure is due and no pull has begun to measure.
    is_due: bool,
}

impl ThemeTimes {
    /// Loads the meaning that earlier runs measured.
    pub fn load(state: &State, clock: Clock) -> Result<ThemeTimes, PipelineError> {
        let known = state.behaviour::<ThemeTime>(behaviour_names::THEMES_FILTERED_BY)?;
        let is_due = known.is_none_or(|(_, at_ms)| !is_recent(at_ms, clock.now_ms(), MEASURE_AGE_MAX_MS));
        let known = known.map(|(time, _)| time);
        Ok(ThemeTimes(Arc::new(Mutex::new(Inner { clock, known, is_recent: !is_due, is_due }))))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a complete scan of a stream can lack rows of its window that the service has.
    pub fn may_lack_rows(&self, stream: Stream) -> bool {
        stream == Stream::Themes && self.inner().known == Some(ThemeTime::Answer)
    }

    /// Returns true if a measure is due, and false at all further calls. The caller must measure if it gets true.
    pub fn begin_measure(&self) -> bool {
        std::mem::take(&mut self.inner().is_due)
    }

    /// Records the measured meaning. Returns the current time if the caller should store the meaning. Returns `None` if
    /// the answer's time was measured recently, because many pages prove it again.
    pub fn record(&self, found: ThemeTime) -> Option<i64> {
        let mut inner = self.inner();
        if inner.known == Some(found) && found != ThemeTime::Theme && inner.is_recent {
            return None;
        }
        if inner.known != Some(found) {
            tracing::info!(%found, "measured what start and end of themes mean");
        }
        (inner.known, inner.is_recent, inner.is_due) = (Some(found), true, false);
        Some(inner.clock.now_ms())
    }
}
