//! Which days are proven complete, which are in doubt and which were never read.
//!
//! The checkpoints know best: they also know of scans that changed nothing. Without them (an analyst has the warehouse
//! alone) the ledger proves the same days, only later re-scans and some doubts are not in it.

use std::collections::{BTreeMap, HashSet};

use super::{
    limits::{ROWS_MAX, SCOPES_MAX},
    rows::{Row, ask},
};
use crate::{
    load::{LoadError, Reader},
    model::{CoverageInterval, DAY_MS, IntervalSet, NEEDS_RECHECK_MS, Scope, Stream, Window, is_same_service},
    state::{State, StateError},
};

use super::ReportError;

/// What is known of all scopes.
pub(super) struct Coverage {
    pub source: Source,
    pub scopes: Vec<ScopeCoverage>,
    /// Scopes that are not shown.
    pub left_out: usize,
    /// The days that the maps show: first and last, days since 1970; `None` if nothing was ever read.
    pub days: Option<(i64, i64)>,
    /// Days with coverage before them.
    pub earlier_days: i64,
}

/// Where coverage was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Checkpoints,
    Ledger,
    /// The ledger, since the checkpoints are of another service.
    LedgerInstead,
}

/// What of one stream, or of one survey of it, was read to the end of results.
pub struct ScopeCoverage {
    pub scope: Scope,
    complete: IntervalSet,
    in_doubt: IntervalSet,
    due_again: IntervalSet,
}

/// What is known of a day or an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CoverageState {
    /// All of it was read to the end of results.
    Complete,
    /// The same, and the next run reads some of it again. Only said where the rules are known.
    DueAgain,
    /// Read, and the last scan left a doubt somewhere in it.
    NeedsRecheck,
    /// A part of the day is complete, the rest was not read (yet).
    Partly,
    NeverRead,
}

impl ScopeCoverage {
    fn of(scope: Scope) -> Self {
        let nothing = IntervalSet::new;
        ScopeCoverage { scope, complete: nothing(), in_doubt: nothing(), due_again: nothing() }
    }

    /// What the checkpoints know of a scope.
    pub fn from_intervals(scope: Scope, intervals: &[CoverageInterval]) -> Self {
        let mut held = ScopeCoverage::of(scope);
        for interval in intervals {
            held.lay(interval.window, interval.scanned_ms == NEEDS_RECHECK_MS);
        }
        held
    }

    /// Notes what of it the next run reads again.
    #[must_use]
    pub fn due_again(mut self, windows: impl IntoIterator<Item = Window>) -> Self {
        self.due_again = windows.into_iter().collect();
        self
    }

    /// Lays one more scan over what is known.
    fn lay(&mut self, window: Window, leaves_doubt: bool) {
        self.complete.insert(window);
        self.in_doubt.remove(window);
        if leaves_doubt {
            self.in_doubt.insert(window);
        }
    }

    /// From the first to the last moment that was ever read.
    pub fn bounding_range(&self) -> Option<Window> {
        self.complete.bounding_range()
    }

    /// What is known of a day, given in days since 1970.
    pub fn day(&self, day: i64) -> CoverageState {
        let window = Window::new(day * DAY_MS, (day + 1) * DAY_MS);
        let touches = |set: &IntervalSet| {
            let windows = set.windows();
            let at = windows.partition_point(|held| held.end_ms <= window.start_ms);
            windows.get(at).is_some_and(|held| held.overlaps(window))
        };
        match () {
            () if touches(&self.in_doubt) => CoverageState::NeedsRecheck,
            () if self.complete.covers(window) && touches(&self.due_again) => CoverageState::DueAgain,
            () if self.complete.covers(window) => CoverageState::Complete,
            () if touches(&self.complete) => CoverageState::Partly,
            () => CoverageState::NeverRead,
        }
    }

    /// The intervals from the first to the last moment that was ever read, each of one state, in order.
    pub fn intervals(&self) -> Vec<(Window, CoverageState)> {
        let Some(bounding_range) = self.bounding_range() else { return Vec::new() };
        let gaps = self.complete.gaps_in(bounding_range).into_iter().map(|window| (window, CoverageState::NeverRead));
        let doubts = self.in_doubt.windows().iter().map(|window| (*window, CoverageState::NeedsRecheck));
        let mut settled = self.complete.clone();
        self.in_doubt.windows().iter().for_each(|window| settled.remove(*window));
        let settled: Vec<_> = settled.windows().iter().map(|window| (*window, CoverageState::Complete)).collect();
        let mut intervals: Vec<_> = gaps.chain(doubts).chain(settled).collect();
        intervals.sort();
        intervals
    }
}

pub(super) fn coverage(
    reader: &mut Reader,
    state: Option<&State>,
    base_url: Option<&str>,
    days_max: u32,
) -> Result<Coverage, ReportError> {
    let (source, mut scopes) = match state {
        Some(state) if is_of(state, base_url)? => (Source::Checkpoints, of_checkpoints(state)?),
        Some(_) => (Source::LedgerInstead, of_ledger(reader)?),
        None => (Source::Ledger, of_ledger(reader)?),
    };
    // Whole streams first; of those, the ones with a map.
    scopes.sort_by_key(|held| (held.scope.survey_id, !held.scope.stream.is_windowed(), held.scope.stream));
    let left_out = scopes.len().saturating_sub(SCOPES_MAX);
    scopes.truncate(SCOPES_MAX);
    let bounding_ranges =
        scopes.iter().filter(|held| held.scope.stream.is_windowed()).filter_map(ScopeCoverage::bounding_range);
    let bounding_range = bounding_ranges
        .reduce(|one, other| Window::new(one.start_ms.min(other.start_ms), one.end_ms.max(other.end_ms)));
    let days = bounding_range.filter(|bounding_range| !bounding_range.is_empty()).map(|bounding_range| {
        let (first, last) =
            (bounding_range.start_ms.div_euclid(DAY_MS), (bounding_range.end_ms - 1).div_euclid(DAY_MS));
        (first, first.max(last - i64::from(days_max) + 1), last)
    });
    Ok(Coverage {
        source,
        scopes,
        left_out,
        days: days.map(|(_, from, last)| (from, last)),
        earlier_days: days.map_or(0, |(first, from, _)| from - first),
    })
}

/// Whether the checkpoints are of the service that filled the warehouse, as far as it says.
fn is_of(state: &State, base_url: Option<&str>) -> Result<bool, StateError> {
    let found = state.meta("base_url")?;
    Ok(base_url.is_none_or(|wanted| found.as_deref().is_none_or(|found| is_same_service(found, wanted))))
}

fn of_checkpoints(state: &State) -> Result<Vec<ScopeCoverage>, StateError> {
    let mut scopes = Vec::new();
    for scope in state.covered_scopes()? {
        scopes.push(ScopeCoverage::from_intervals(scope, &state.coverage(scope)?));
    }
    Ok(scopes)
}

/// A row of the ledger, as far as it is read here.
struct LedgerScan {
    scope: Scope,
    window: Window,
    leaves_doubt: bool,
    has_rows: bool,
}

fn of_ledger(reader: &mut Reader) -> Result<Vec<ScopeCoverage>, LoadError> {
    // Of a ledger that is longer than that, the newest scans count. People are asked for one by one:
    // they cover no time.
    let sql = format!(
        "SELECT stream, survey_id, epoch_ms(window_start) AS start_ms, epoch_ms(window_end) AS end_ms, withheld, rows_read
         FROM (SELECT * FROM sync_windows WHERE stream <> 'users' ORDER BY scanned_at DESC, scan_id DESC LIMIT {ROWS_MAX}) ORDER BY scanned_at, scan_id"
    );
    let make = |row: Row<'_>| {
        let stream: Stream = row.text("stream")?.parse().ok()?;
        let scope = Scope { stream, survey_id: row.whole("survey_id") };
        let window = Window::new(row.count("start_ms"), row.count("end_ms"));
        let (leaves_doubt, has_rows) = (row.count("withheld") > 0, row.count("rows_read") > 0);
        Some(LedgerScan { scope, window, leaves_doubt, has_rows })
    };
    let read = ask(reader, &sql, make)?;
    // A survey without a single row was mistyped.
    let has_rows: HashSet<i64> =
        read.iter().flatten().filter(|scan| scan.has_rows).filter_map(|scan| scan.scope.survey_id).collect();
    let mut scopes: BTreeMap<Scope, ScopeCoverage> = BTreeMap::new();
    for LedgerScan { scope, window, leaves_doubt, .. } in read.into_iter().flatten() {
        if scope.survey_id.is_none_or(|id| has_rows.contains(&id)) {
            scopes.entry(scope).or_insert_with(|| ScopeCoverage::of(scope)).lay(window, leaves_doubt);
        }
    }
    Ok(scopes.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p3_a_day_is_complete_only_when_all_of_it_was_read() {
        let mut held = ScopeCoverage::of(Scope::all(Stream::Responses));
        held.lay(Window::new(0, 2 * DAY_MS + 1), false);
        held.lay(Window::new(4 * DAY_MS, 6 * DAY_MS), true);
        let days: Vec<CoverageState> = (0..7).map(|day| held.day(day)).collect();
        use CoverageState::{Complete, NeedsRecheck, NeverRead, Partly};
        assert_eq!(days, [Complete, Complete, Partly, NeverRead, NeedsRecheck, NeedsRecheck, NeverRead]);
        held.lay(Window::new(4 * DAY_MS, 5 * DAY_MS), false);
        let intervals = [
            (Window::new(0, 2 * DAY_MS + 1), Complete),
            (Window::new(2 * DAY_MS + 1, 4 * DAY_MS), NeverRead),
            (Window::new(4 * DAY_MS, 5 * DAY_MS), Complete),
            (Window::new(5 * DAY_MS, 6 * DAY_MS), NeedsRecheck),
        ];
        assert_eq!(held.intervals(), intervals, "a later look settles a doubt");
        // What is not complete cannot be due again.
        let held = held.due_again([Window::new(DAY_MS, 2 * DAY_MS), Window::new(3 * DAY_MS, 4 * DAY_MS)]);
        let days: Vec<CoverageState> = (0..5).map(|day| held.day(day)).collect();
        assert_eq!(days, [Complete, CoverageState::DueAgain, Partly, NeverRead, Complete]);
    }
}
