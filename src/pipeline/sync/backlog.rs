//! The backlog of each scope: its coverage, its rules, and the windows that are due.

use crate::{
    config::{Settings, StreamSettings},
    model::{CoverageInterval, DAY_MS, FlagSet, IntervalSet, Scope, Stream, Window, behaviour_names},
    plan::{Due, DueRules, PlanRequest, SyncStart, due},
    state::{State, StateError, StoredInterval},
};

/// One scope, its coverage, and the windows that are due.
#[derive(Clone, Debug)]
pub struct ScopeBacklog {
    pub scope: Scope,
    pub rules: DueRules,
    /// Rows per request.
    pub page_rows: u32,
    /// The stored coverage of the scope.
    pub covered: Vec<CoverageInterval>,
    /// The time ranges to scan, not yet cut into windows. Empty if nothing is due.
    pub due: Vec<Due>,
}

/// Which ranges need no scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidCoverage {
    /// The stored coverage.
    Stored,
    /// None, because a warehouse has no scan: everything since the earliest covered time is due.
    Nothing,
}

/// Returns the backlog of each scope at the service's time `now_ms`. `state` is `None` if there is no state file:
/// nothing is covered then. `backfill` is the range of a backfill, or `None` for a sync.
pub fn backlog(
    settings: &Settings,
    state: Option<&State>,
    backfill: Option<Window>,
    now_ms: i64,
    valid: ValidCoverage,
) -> Result<Vec<ScopeBacklog>, StateError> {
    let mut all = Vec::new();
    for stream in &settings.streams {
        for scope in scopes(settings, stream) {
            let covered = covered(state, scope, stream.flags)?;
            let request = match backfill {
                Some(window) => PlanRequest::Backfill { window },
                None => PlanRequest::Sync(SyncStart {
                    first_ms: first_since_ms(stream, now_ms),
                    earliest_covered_ms: state.map(|state| state.extent_start_ms(scope)).transpose()?.flatten(),
                }),
            };
            let rules = DueRules {
                flags: stream.flags,
                lag_ms: i64::try_from(stream.settle.as_millis()).unwrap_or(i64::MAX),
                rescan: stream.rescan.clone(),
            };
            let valid = match valid {
                ValidCoverage::Stored => covered.as_slice(),
                ValidCoverage::Nothing => &[],
            };
            let mut due = due(scope, valid, &rules, request, now_ms);
            if let Some(shard) = settings.shard.filter(|_| stream.stream.is_windowed()) {
                let parts = |Due { window, reason }: Due| {
                    shard.parts_of(window).into_iter().map(move |window| Due { window, reason })
                };
                due = due.into_iter().flat_map(parts).collect();
            }
            let page_rows = page_rows(state, stream)?;
            all.push(ScopeBacklog { scope, rules, page_rows, covered, due });
        }
    }
    Ok(all)
}

/// Returns the rows per request: the configured number, or less if the service is known to deliver less.
pub(super) fn page_rows(state: Option<&State>, stream: &StreamSettings) -> Result<u32, StateError> {
    Ok(page_rows_known(state, stream.stream)?.map_or(stream.page_rows, |rows| rows.min(stream.page_rows)))
}

/// Returns the largest page size that the service is known to deliver, in rows. Returns `None` if it was not measured.
fn page_rows_known(state: Option<&State>, stream: Stream) -> Result<Option<u32>, StateError> {
    let name = match stream {
        Stream::Responses => behaviour_names::PAGE_ROWS,
        Stream::Themes => behaviour_names::THEMES_PAGE_ROWS,
        Stream::Surveys | Stream::Users => return Ok(None),
    };
    let known = state.map(|state| state.behaviour::<u32>(name)).transpose()?.flatten();
    Ok(known.map(|(rows, _)| rows.max(1)))
}

/// Returns the scopes of a stream: one for each selected survey if the service can filter by survey, otherwise one for
/// the whole stream.
fn scopes(settings: &Settings, stream: &StreamSettings) -> Vec<Scope> {
    if settings.surveys.is_empty() || !stream.stream.has_survey_filter() {
        return vec![Scope::all(stream.stream)];
    }
    settings.surveys.iter().map(|id| Scope { stream: stream.stream, survey_id: Some(*id) }).collect()
}

/// Returns the coverage of a scope. For a survey, scans of all surveys count too. Where both scopes cover a time, the
/// later scan with the `wanted` flags counts.
fn covered(state: Option<&State>, scope: Scope, wanted: FlagSet) -> Result<Vec<CoverageInterval>, StateError> {
    let Some(state) = state else { return Ok(Vec::new()) };
    let of_scope = state.intervals(scope)?;
    if scope.survey_id.is_none() {
        return Ok(of_scope.into_iter().map(|stored| stored.interval).collect());
    }
    let of_all = state.intervals(Scope::all(scope.stream))?;
    let mut covered = not_read_again(&of_scope, &of_all, wanted, |scope_ms, all_ms| all_ms > scope_ms);
    // The service's clock counts seconds. Of two scans in the same second, the one of the survey counts.
    covered.extend(not_read_again(&of_all, &of_scope, wanted, |all_ms, scope_ms| scope_ms >= all_ms));
    covered.sort_by_key(|interval| interval.window.start_ms);
    Ok(covered)
}

/// Returns the time ranges of `intervals` that no interval of `others` has read again later with the `wanted` flags.
/// `is_later` gets the two read times (epoch milliseconds): first that of `intervals`, second that of `others`.
fn not_read_again(
    intervals: &[StoredInterval],
    others: &[StoredInterval],
    wanted: FlagSet,
    is_later: impl Fn(i64, i64) -> bool,
) -> Vec<CoverageInterval> {
    let parts = intervals.iter().flat_map(|stored| {
        let reads_again = |other: &&StoredInterval| {
            other.interval.flags.includes(wanted) && is_later(stored.read.read_ms, other.read.read_ms)
        };
        let read_again: IntervalSet = others.iter().filter(reads_again).map(|other| other.interval.window).collect();
        let not_read = read_again.gaps_in(stored.interval.window);
        not_read.into_iter().filter_map(|window| stored.interval.part(window))
    });
    parts.collect()
}

/// Returns the earliest creation time that a stream's first sync reads, in epoch milliseconds: the configured start, or
/// by default the beginning of the day (UTC) [`crate::config::FIRST_SYNC_DAYS`] days ago.
fn first_since_ms(stream: &StreamSettings, now_ms: i64) -> i64 {
    stream.since_ms.unwrap_or_else(|| (now_ms - crate::config::FIRST_SYNC_DAYS * DAY_MS).div_euclid(DAY_MS) * DAY_MS)
}

/// Returns the earliest creation time that a first sync with these settings reads, over all streams with windows, in
/// epoch milliseconds. Returns `None` if an earlier run has read any of these streams, or if there are none.
///
/// # Errors
/// If the checkpoints cannot be read.
pub(super) fn first_sync_since(settings: &Settings, state: &State, now_ms: i64) -> Result<Option<i64>, StateError> {
    let mut since_ms = None;
    for stream in settings.streams.iter().filter(|stream| stream.stream.is_windowed()) {
        for scope in scopes(settings, stream) {
            if state.extent_start_ms(scope)?.is_some() {
                return Ok(None);
            }
        }
        let first_ms = first_since_ms(stream, now_ms);
        since_ms = Some(since_ms.map_or(first_ms, |since_ms: i64| since_ms.min(first_ms)));
    }
    Ok(since_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        model::{HOUR_MS, NEEDS_RECHECK_MS, Proof, RunId, Scan, ScanId},
        state::ScanCheckpoint,
    };

    const ONE: Scope = Scope { stream: Stream::Themes, survey_id: Some(7) };
    const ALL: Scope = Scope { stream: Stream::Themes, survey_id: None };

    /// Scope, window in hours, hour of the scan, doubt, flags.
    type Looked = (Scope, (i64, i64), i64, bool, FlagSet);

    /// What a backfill of one survey has to do after these scans.
    fn due_after(scans: &[Looked], wanted: FlagSet) -> Vec<(i64, i64)> {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(&folder.path().join("state.sqlite"), "http://127.0.0.1:1", "test").unwrap();
        for (nth, (scope, (start, end), hour, needs_recheck, flags)) in scans.iter().enumerate() {
            let scan = Scan {
                id: ScanId::new(nth as i64),
                run_id: RunId::new(1),
                scope: *scope,
                window: Window::new(start * HOUR_MS, end * HOUR_MS),
                flags: *flags,
                started_ms: hour * HOUR_MS,
            };
            let scanned_ms = if *needs_recheck { NEEDS_RECHECK_MS } else { scan.started_ms };
            state.checkpoint(&ScanCheckpoint { scan, scanned_ms, rows: 0, proof: Proof::default() }, &[]).unwrap();
        }
        let rules = DueRules { flags: wanted, lag_ms: 0, rescan: crate::plan::RescanRules::default() };
        let ask = PlanRequest::Backfill { window: Window::new(0, 10 * HOUR_MS) };
        let covered = covered(Some(&state), ONE, wanted).unwrap();
        let due = due(ONE, &covered, &rules, ask, 100 * HOUR_MS);
        due.iter().map(|due| (due.window.start_ms / HOUR_MS, due.window.end_ms / HOUR_MS)).collect()
    }

    #[test]
    fn p6_a_later_scan_of_one_survey_rechecks_its_windows() {
        let (few, many) = (FlagSet::EMPTY, FlagSet::ALL);
        let needs_recheck = (ALL, (0, 10), 20, true, many);
        assert_eq!(due_after(&[needs_recheck], many), [(0, 10)]);
        assert_eq!(due_after(&[needs_recheck, (ONE, (2, 4), 21, false, many)], many), [(0, 2), (4, 10)]);
        assert_eq!(due_after(&[needs_recheck, (ONE, (0, 10), 20, false, many)], many), [], "within one second");
        // An earlier scan, or one without the wanted flags, is no recheck. A later scan may need a recheck itself.
        assert_eq!(due_after(&[(ONE, (0, 10), 19, false, many), needs_recheck], many), [(0, 10)]);
        assert_eq!(due_after(&[needs_recheck, (ONE, (0, 10), 21, false, few)], many), [(0, 10)]);
        assert_eq!(due_after(&[(ALL, (0, 10), 20, false, many), (ONE, (3, 5), 21, true, many)], many), [(3, 5)]);
    }
}
