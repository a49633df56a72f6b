//! Measures what `start` and `end` of themes mean, with the pages of a scan and with requests for some themes at their
//! creation time.

use std::collections::HashSet;

use crate::{
    model::{FlagSet, PageRequest, SECOND_MS, Scan, Scope, Stream, ThemeTime, Window, behaviour_names},
    plan::page_boundaries::PageMoments,
    source::{Answer, Range},
};

use super::{
    PipelineError,
    sync_context::SyncContext,
    ties::{MomentRequester, moments_of, requester_for},
};

/// The maximum number of themes that are requested at their creation time.
const SAMPLE: usize = 3;
/// Tolerance at the ends of a window, because a theme's time may be rounded.
const ROUNDED_MS: i64 = SECOND_MS;

/// Checks whether a page of themes shows what `start` and `end` mean: a theme outside the window proves that they mean
/// the answer's time. Otherwise measures the meaning if a measure is due. Stores the result. Ignores pages of other
/// streams.
pub(super) async fn inspect_page(context: &SyncContext, scan: &Scan, page: &PageMoments) -> Result<(), PipelineError> {
    if scan.scope.stream != Stream::Themes {
        return Ok(());
    }
    let Window { start_ms, end_ms } = scan.window;
    let is_outside =
        |at_ms: i64| at_ms < start_ms.saturating_sub(ROUNDED_MS) || at_ms > end_ms.saturating_add(ROUNDED_MS);
    let found = if page.rows.iter().filter_map(|(at_ms, _)| *at_ms).any(is_outside) {
        Some(ThemeTime::Answer)
    } else if !page.rows.is_empty() && context.theme_times.begin_measure() {
        measure(&requester_for(context, scan), scan.window, page).await?
    } else {
        None
    };
    let Some(found) = found else { return Ok(()) };
    let Some(now_ms) = context.theme_times.record(found) else { return Ok(()) };
    context
        .state()
        .remember_measured(behaviour_names::THEMES_FILTERED_BY, &found, "the themes on the pages of a run", now_ms)
        .map_err(PipelineError::State)
}

/// Requests some themes of a page at their creation time. If one of these themes is missing there, but still on the
/// first page of `window`, `start` and `end` mean the answer's time. Returns `None` if the answers are inconclusive.
pub(super) async fn measure(
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
