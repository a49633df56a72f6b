//! Tracks what `start` and `end` of themes mean: the creation of the theme, or the creation of the theme's answer. The
//! contract does not say.
//!
//! If the service filters by the answer's time, a window lists themes created outside of it, and lacks some themes
//! created inside. With such a service, a missing theme does not count as vanished. A run measures the behaviour by
//! requests for themes at their creation time. A theme on a page that was created outside the window is a proof, too.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use crate::{
    clock::Clock,
    model::{DAY_MS, FlagSet, PageRequest, SECOND_MS, Scope, Stream, ThemeTime, Window, behaviour_names, is_recent},
    pipeline::error::PipelineError,
    plan::page_boundaries::PageMoments,
    source::{Answer, Range},
    state::State,
};

use super::tie_probe::{MomentRequester, moments_of};

/// A measure older than this is repeated at the next page of themes.
const MEASURE_AGE_MAX_MS: i64 = 30 * DAY_MS;

/// The maximum number of themes that are requested at their creation time.
const SAMPLE: usize = 3;

/// The measured meaning of `start` and `end`, shared by all pulls of a run.
#[derive(Clone, Debug)]
pub struct ThemeTimes(Arc<Mutex<Inner>>);

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

/// Requests some themes of a page at their creation time. If one of these themes is missing there, but still on the
/// first page of `window`, `start` and `end` mean the answer's time. Returns `None` if the answers are inconclusive.
pub async fn measure_theme_times(
    requester: &MomentRequester,
    window: Window,
    page: &PageMoments,
) -> Result<Option<ThemeTime>, PipelineError> {
    let timed: Vec<(i64, u128)> = page.rows.iter().filter_map(|(at_ms, key)| Some(((*at_ms)?, *key))).collect();
    let step = timed.len().div_ceil(SAMPLE).max(1);
    let (mut is_any_listed, mut missing) = (false, Vec::new());
    for (at_ms, key) in timed.iter().step_by(step) {
        // A time without milliseconds may be rounded, so the whole second is requested.
        let length_ms = if at_ms.rem_euclid(SECOND_MS) == 0 { SECOND_MS } else { 1 };
        let Some(first) = first_page(requester, Window::new(*at_ms, at_ms.saturating_add(length_ms))).await? else {
            continue;
        };
        match first.keys.contains(key) {
            true => is_any_listed = true,
            false if !first.has_more => missing.push(*key),
            false => {}
        }
    }
    if !missing.is_empty() {
        // A theme that is missing at its creation time may have been deleted since the page was read. It counts only if
        // the first page of the whole window still lists it.
        let again = first_page(requester, window).await?;
        if again.is_some_and(|again| missing.iter().any(|key| again.keys.contains(key))) {
            return Ok(Some(ThemeTime::Answer));
        }
    }
    Ok(is_any_listed.then_some(ThemeTime::Theme))
}

/// The first page of a window.
struct FirstPage {
    /// Hashes of the keys of the rows.
    keys: HashSet<u128>,
    /// True if another page follows.
    has_more: bool,
}

/// Requests the first page of themes of a window. A 404 counts as an empty page. Returns `None` if the service returned
/// no page for another reason.
async fn first_page(requester: &MomentRequester, window: Window) -> Result<Option<FirstPage>, PipelineError> {
    let scope = Scope::all(Stream::Themes);
    let request = PageRequest { scope, window, flags: FlagSet::EMPTY, page_rows: 0, token: None };
    Ok(match requester.source.ask(&request, Range::Part).await? {
        Answer::Page(page) => {
            let has_more = page.next.is_some();
            let moments = moments_of(Stream::Themes, &requester.flatten(page.body).await?);
            Some(FirstPage { keys: moments.rows.into_iter().map(|(_, key)| key).collect(), has_more })
        }
        Answer::Rejected { status: 404, is_web_page: false } => {
            Some(FirstPage { keys: HashSet::new(), has_more: false })
        }
        Answer::Rejected { .. } | Answer::Failed(_) => None,
    })
}
