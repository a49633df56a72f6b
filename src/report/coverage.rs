//! The coverage of each scope: which days are complete, which need a recheck and which were never read.
//!
//! The checkpoints have the full coverage, including scans that changed nothing. An analyst may have only the
//! warehouse, without the checkpoints. In this case the ledger proves the same days, but lacks later re-scans and some
//! windows that need a recheck.

use std::collections::{BTreeMap, HashSet};

use super::{
    limits::{SCOPES_MAX, rows_max},
    rows::{Row, query},
};
use crate::{
    load::{LoadError, Reader},
    model::{CoverageInterval, DAY_MS, IntervalSet, NEEDS_RECHECK_MS, Scope, Stream, Window, is_same_service},
    state::{State, StateError},
};

use super::ReportError;

/// The coverage of all scopes.
pub(super) struct Coverage {
    pub source: CoverageSource,
    pub scopes: Vec<ScopeCoverage>,
    /// The number of scopes that are not shown.
    pub left_out: usize,
    /// The first and the last day of the maps, in days since 1970; `None` if nothing was read.
    pub days: Option<(i64, i64)>,
    /// The end of what was read of answers, epoch milliseconds; `None` if nothing was read.
    pub answers_until_ms: Option<i64>,
    /// The number of days before the first day of the maps, since the first complete moment.
    pub earlier_days: i64,
}

/// The source of the coverage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CoverageSource {
    Checkpoints,
    Ledger,
    /// The ledger, because the checkpoints belong to another service.
    LedgerInstead,
}

/// The coverage of one scope.
pub struct ScopeCoverage {
    pub scope: Scope,
    complete: IntervalSet,
    needs_recheck: IntervalSet,
    due_again: IntervalSet,
}

/// The coverage of a day or an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoverageState {
    /// Everything was read to the end of results.
    Complete,
    /// Complete, and the next run scans a part of it again. Occurs only if the due windows were added with
    /// [`ScopeCoverage::due_again`].
    DueAgain,
    /// The last scan of a part was unsure; every run scans it again.
    NeedsRecheck,
    /// A part is complete; the rest was not read yet.
    Partly,
    NeverRead,
}

impl ScopeCoverage {
    fn of(scope: Scope) -> Self {
        let none = IntervalSet::new;
        ScopeCoverage { scope, complete: none(), needs_recheck: none(), due_again: none() }
    }

    /// Builds the coverage from the intervals in the checkpoints.
    pub fn from_intervals(scope: Scope, intervals: &[CoverageInterval]) -> Self {
        let mut coverage = ScopeCoverage::of(scope);
        for interval in intervals {
            coverage.add_scan(interval.window, interval.scanned_ms == NEEDS_RECHECK_MS);
        }
        coverage
    }

    /// Sets the windows that the next run scans again.
    #[must_use]
    pub fn due_again(mut self, windows: impl IntoIterator<Item = Window>) -> Self {
        self.due_again = windows.into_iter().collect();
        self
    }

    /// Adds a scan that is newer than all scans added before. `is_unsure` means that the window of the scan needs a
    /// recheck.
    fn add_scan(&mut self, window: Window, is_unsure: bool) {
        self.complete.insert(window);
        self.needs_recheck.remove(window);
        if is_unsure {
            self.needs_recheck.insert(window);
        }
    }

    /// Returns the range from the first to the last complete moment; `None` if nothing is complete.
    pub fn bounding_range(&self) -> Option<Window> {
        self.complete.bounding_range()
    }

    /// Returns the state of a day, given in days since 1970.
    pub fn day(&self, day: i64) -> CoverageState {
        let window = Window::new(day * DAY_MS, (day + 1) * DAY_MS);
        let touches = |set: &IntervalSet| {
            let windows = set.windows();
            let at = windows.partition_point(|coverage| coverage.end_ms <= window.start_ms);
            windows.get(at).is_some_and(|coverage| coverage.overlaps(window))
        };
        match () {
            () if touches(&self.needs_recheck) => CoverageState::NeedsRecheck,
            () if self.complete.covers(window) && touches(&self.due_again) => CoverageState::DueAgain,
            () if self.complete.covers(window) => CoverageState::Complete,
            () if touches(&self.complete) => CoverageState::Partly,
            () => CoverageState::NeverRead,
        }
    }

    /// Divides the range from the first to the last complete moment into intervals of one state, in order. Due windows
    /// are not distinguished.
    pub fn intervals(&self) -> Vec<(Window, CoverageState)> {
        let Some(bounding_range) = self.bounding_range() else { return Vec::new() };
        let gaps = self.complete.gaps_in(bounding_range).into_iter().map(|window| (window, CoverageState::NeverRead));
        let rechecks = self.needs_recheck.windows().iter().map(|window| (*window, CoverageState::NeedsRecheck));
        let mut complete = self.complete.clone();
        self.needs_recheck.windows().iter().for_each(|window| complete.remove(*window));
        let complete: Vec<_> = complete.windows().iter().map(|window| (*window, CoverageState::Complete)).collect();
        let mut intervals: Vec<_> = gaps.chain(rechecks).chain(complete).collect();
        intervals.sort();
        intervals
    }
}

/// Reads the coverage of all scopes, from the checkpoints `state` or from the ledger. `base_url` is the service of the
/// warehouse; `None` if it is unknown. `days_max` is the maximum number of days of the maps. The checkpoints are not
/// used if they belong to another service.
pub(super) fn coverage(
    reader: &mut Reader,
    state: Option<&State>,
    base_url: Option<&str>,
    days_max: u32,
) -> Result<Coverage, ReportError> {
    let (source, mut scopes) = match state {
        Some(state) if is_of_same_service(state, base_url)? => (CoverageSource::Checkpoints, from_checkpoints(state)?),
        Some(_) => (CoverageSource::LedgerInstead, from_ledger(reader)?),
        None => (CoverageSource::Ledger, from_ledger(reader)?),
    };
    // Scopes of all surveys come first, and among these scopes the windowed streams, which have a map.
    scopes.sort_by_key(|coverage| {
        (coverage.scope.survey_id, !coverage.scope.stream.is_windowed(), coverage.scope.stream)
    });
    let of_answers = scopes.iter().filter(|coverage| coverage.scope.stream == Stream::Responses);
    let answers_until_ms = of_answers.filter_map(|coverage| coverage.bounding_range().map(|range| range.end_ms)).max();
    let left_out = scopes.len().saturating_sub(SCOPES_MAX);
    scopes.truncate(SCOPES_MAX);
    let windowed = scopes.iter().filter(|coverage| coverage.scope.stream.is_windowed());
    let with_maps: IntervalSet = windowed.filter_map(ScopeCoverage::bounding_range).collect();
    let days = with_maps.bounding_range().map(|range| {
        let (first, last) = (range.start_ms.div_euclid(DAY_MS), (range.end_ms - 1).div_euclid(DAY_MS));
        (first, first.max(last - i64::from(days_max) + 1), last)
    });
    Ok(Coverage {
        source,
        scopes,
        left_out,
        days: days.map(|(_, from, last)| (from, last)),
        answers_until_ms,
        earlier_days: days.map_or(0, |(first, from, _)| from - first),
    })
}

/// Returns true unless the checkpoints are known to belong to another service than the warehouse.
fn is_of_same_service(state: &State, base_url: Option<&str>) -> Result<bool, StateError> {
    let found = state.meta("base_url")?;
    Ok(base_url.is_none_or(|wanted| found.as_deref().is_none_or(|found| is_same_service(found, wanted))))
}

fn from_checkpoints(state: &State) -> Result<Vec<ScopeCoverage>, StateError> {
    let mut scopes = Vec::new();
    for scope in state.covered_scopes()? {
        scopes.push(ScopeCoverage::from_intervals(scope, &state.coverage(scope)?));
    }
    Ok(scopes)
}

/// One scan in the ledger.
struct LedgerScan {
    scope: Scope,
    window: Window,
    is_unsure: bool,
    has_rows: bool,
}

fn from_ledger(reader: &mut Reader) -> Result<Vec<ScopeCoverage>, LoadError> {
    // Of a very long ledger only the newest scans are read. Scans of users cover no time.
    let sql = format!(
        "SELECT stream, survey_id, epoch_ms(window_start) AS start_ms, epoch_ms(window_end) AS end_ms, withheld, rows_read
         FROM (SELECT * FROM sync_windows WHERE stream <> 'users' ORDER BY scanned_at DESC, scan_id DESC LIMIT {}) ORDER BY scanned_at, scan_id",
        rows_max(reader)
    );
    let make = |row: Row<'_>| {
        let stream: Stream = row.text("stream")?.parse().ok()?;
        let scope = Scope { stream, survey_id: row.integer("survey_id") };
        let window = Window::new(row.count("start_ms"), row.count("end_ms"));
        let (is_unsure, has_rows) = (row.count("withheld") > 0, row.count("rows_read") > 0);
        Some(LedgerScan { scope, window, is_unsure, has_rows })
    };
    let scans = query(reader, &sql, make)?;
    // A survey without any row is left out, because its number was probably mistyped.
    let has_rows: HashSet<i64> =
        scans.iter().flatten().filter(|scan| scan.has_rows).filter_map(|scan| scan.scope.survey_id).collect();
    let mut scopes: BTreeMap<Scope, ScopeCoverage> = BTreeMap::new();
    for LedgerScan { scope, window, is_unsure, .. } in scans.into_iter().flatten() {
        if scope.survey_id.is_none_or(|id| has_rows.contains(&id)) {
            scopes.entry(scope).or_insert_with(|| ScopeCoverage::of(scope)).add_scan(window, is_unsure);
        }
    }
    Ok(scopes.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p3_a_day_is_complete_only_when_all_of_it_was_read() {
        let mut coverage = ScopeCoverage::of(Scope::all(Stream::Responses));
        coverage.add_scan(Window::new(0, 2 * DAY_MS + 1), false);
        coverage.add_scan(Window::new(4 * DAY_MS, 6 * DAY_MS), true);
        let days: Vec<CoverageState> = (0..7).map(|day| coverage.day(day)).collect();
        use CoverageState::{Complete, NeedsRecheck, NeverRead, Partly};
        assert_eq!(days, [Complete, Complete, Partly, NeverRead, NeedsRecheck, NeedsRecheck, NeverRead]);
        coverage.add_scan(Window::new(4 * DAY_MS, 5 * DAY_MS), false);
        let intervals = [
            (Window::new(0, 2 * DAY_MS + 1), Complete),
            (Window::new(2 * DAY_MS + 1, 4 * DAY_MS), NeverRead),
            (Window::new(4 * DAY_MS, 5 * DAY_MS), Complete),
            (Window::new(5 * DAY_MS, 6 * DAY_MS), NeedsRecheck),
        ];
        assert_eq!(coverage.intervals(), intervals, "a later scan ends the recheck");
        // Only complete days can be due again.
        let coverage = coverage.due_again([Window::new(DAY_MS, 2 * DAY_MS), Window::new(3 * DAY_MS, 4 * DAY_MS)]);
        let days: Vec<CoverageState> = (0..5).map(|day| coverage.day(day)).collect();
        assert_eq!(days, [Complete, CoverageState::DueAgain, Partly, NeverRead, Complete]);
    }
}
