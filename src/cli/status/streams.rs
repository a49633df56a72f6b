//! The coverage and the lag of each stream.

use serde::Serialize;

use crate::{
    config::Settings,
    model::{CoverageInterval, IntervalSet, NEEDS_RECHECK_MS, Scope, Window, format_ms},
    state::{ProvenInterval, State, StateError},
    sync_status::{PresentTime, is_selected},
};

use super::{super::printer::format_second, rows::RowCounter};

/// The coverage and the lag of a stream, or of one survey of a stream.
#[derive(Serialize)]
pub(super) struct StreamStatus {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
    /// Ranges that are proven complete, including those in `in_doubt`.
    pub complete: Vec<TimeRangeJson>,
    /// Ranges between complete ranges that were never proven complete.
    pub missing: Vec<TimeRangeJson>,
    /// Ranges that need a recheck, because their last scan withheld vanished rows, or rows may be lost at a page
    /// boundary.
    pub in_doubt: Vec<TimeRangeJson>,
    /// Number of rows in the table of the stream, or of the survey; `None` if the warehouse cannot be read now.
    pub rows: Option<u64>,
    /// Seconds from the end of the newest complete window to the service's time. `None` if every scan began in the
    /// future, by a clock that was wrong.
    pub lag_secs: Option<i64>,
    /// The earliest time of a range's last scan, without ranges that need a recheck. The current time if all need one.
    pub oldest_scan: String,
}

/// A range of creation time.
#[derive(Serialize)]
pub(super) struct TimeRangeJson {
    pub start: String,
    pub end: String,
    /// When the last part of the range was first proven complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complete_since: Option<String>,
}

impl TimeRangeJson {
    fn of(window: &Window) -> TimeRangeJson {
        TimeRangeJson { start: format_ms(window.start_ms), end: format_ms(window.end_ms), complete_since: None }
    }
}

/// Returns the status of each selected stream with coverage.
pub(super) fn streams(
    settings: &Settings,
    state: &State,
    present: PresentTime,
) -> Result<Vec<StreamStatus>, StateError> {
    let mut counter = RowCounter::open(&settings.warehouse);
    let mut streams = Vec::new();
    for scope in state.covered_scopes()?.into_iter().filter(|scope| is_selected(settings, *scope)) {
        streams.extend(stream(state, scope, &mut counter, present)?);
    }
    Ok(streams)
}

/// Returns the status of one scope; `None` if its coverage is empty.
fn stream(
    state: &State,
    scope: Scope,
    counter: &mut RowCounter,
    present: PresentTime,
) -> Result<Option<StreamStatus>, StateError> {
    let intervals = state.intervals(scope)?;
    let coverage: Vec<CoverageInterval> = intervals.iter().map(|stored| stored.interval).collect();
    let covered: IntervalSet = coverage.iter().map(|interval| interval.window).collect();
    let Some(bounding_range) = covered.bounding_range() else { return Ok(None) };
    let proofs = state.proofs(scope)?;
    let complete = |window: &Window| TimeRangeJson {
        complete_since: complete_since(&proofs, *window),
        ..TimeRangeJson::of(window)
    };
    let (rechecks, scanned): (Vec<&CoverageInterval>, Vec<&CoverageInterval>) =
        coverage.iter().partition(|interval| interval.scanned_ms == NEEDS_RECHECK_MS);
    let oldest_ms = scanned.iter().map(|interval| interval.scanned_ms).min().unwrap_or(present.now_ms);
    Ok(Some(StreamStatus {
        stream: scope.stream.name(),
        survey_id: scope.survey_id,
        complete: covered.windows().iter().map(complete).collect(),
        missing: covered.gaps_in(bounding_range).iter().map(TimeRangeJson::of).collect(),
        in_doubt: rechecks.iter().map(|interval| TimeRangeJson::of(&interval.window)).collect(),
        rows: counter.count(scope),
        lag_secs: present.lag_secs(&intervals),
        oldest_scan: format_second(oldest_ms),
    }))
}

/// Returns when the last part of a window was first proven complete; `None` if that is unknown.
fn complete_since(proofs: &[ProvenInterval], window: Window) -> Option<String> {
    let last_ms = proofs.iter().filter(|proof| proof.window.overlaps(window)).map(|proof| proof.proven_ms).max();
    last_ms.filter(|proven_ms| *proven_ms > 0).map(format_second)
}
