//! Decides which intervals of a scope must be scanned, and why.

use std::fmt;

use serde::Serialize;

use crate::model::{CoverageInterval, FlagSet, HOUR_MS, IntervalSet, MINUTE_MS, NEEDS_RECHECK_MS, Scope, Window};

use super::RescanRules;

/// New windows end on this grid, so that two runs in short succession create no tiny windows.
const GRID_MS: i64 = 5 * MINUTE_MS;
/// The largest tolerated difference between clocks of the service's machines. A scan with a time further in the future
/// comes from a wrong clock, and its interval is scanned again.
const CLOCKS_DIFFER_MS_MAX: i64 = HOUR_MS;

/// The settings of a scope that decide what is due.
#[derive(Clone, Debug)]
pub struct DueRules {
    /// The optional parts of records to request.
    pub flags: FlagSet,
    /// The lag: answers younger than this are left for the next run,
    /// because the service may still write them. Milliseconds.
    pub lag_ms: i64,
    /// How often closed windows are scanned again.
    pub rescan: RescanRules,
}

/// What the user requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanRequest {
    /// New intervals, gaps, and re-scans that are due. A scope without coverage begins at `first_since_ms`. If coverage
    /// once began at `known_since_ms`, gaps are counted from there.
    Sync { first_since_ms: i64, known_since_ms: Option<i64> },
    /// Everything in the window that is not covered with the wanted flags.
    Backfill { window: Window },
}

/// Why an interval is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Newer than anything that was scanned.
    New,
    /// The last scan is too old for the age of the interval.
    Rescan,
    /// Complete, but scanned without an optional part that is requested now.
    NewFlags,
    /// Never proven complete.
    Gap,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::New => "new",
            Reason::Rescan => "re-scan",
            Reason::NewFlags => "new flags",
            Reason::Gap => "never scanned",
        })
    }
}

/// An interval to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Due {
    pub window: Window,
    pub reason: Reason,
}

/// Returns the intervals of a scope that are due now, most urgent first: new ones, young re-scans, gaps, older
/// re-scans. The intervals are disjoint. `now_ms` is the service's time.
pub fn due(scope: Scope, covered: &[CoverageInterval], rules: &DueRules, ask: PlanRequest, now_ms: i64) -> Vec<Due> {
    if !scope.stream.is_windowed() {
        return due_complete_list(covered, ask, now_ms);
    }
    let settled_ms = (now_ms - rules.lag_ms).div_euclid(GRID_MS) * GRID_MS;
    // A clock that was ahead may have recorded coverage of the future. Such coverage proves nothing.
    let past = Window::new(i64::MIN, settled_ms);
    let covered: Vec<CoverageInterval> = covered.iter().filter_map(|interval| interval.part(past)).collect();
    match ask {
        PlanRequest::Backfill { window } => {
            let with_flags = covered_with(&covered, rules.flags);
            let window = window.widened_to_seconds();
            let window = Window::new(window.start_ms, window.end_ms.min(settled_ms));
            let read: IntervalSet = covered.iter().map(|interval| interval.window).collect();
            let gaps = with_flags.gaps_in(window).into_iter().flat_map(|gap| by_reason(gap, &read));
            gaps.chain(needs_recheck(&covered, rules, window)).collect()
        }
        PlanRequest::Sync { first_since_ms, known_since_ms } => due_for_sync(
            &covered,
            rules,
            Since { first_ms: first_since_ms, known_ms: known_since_ms },
            settled_ms,
            now_ms,
        ),
    }
}

/// Returns the times that scans with at least these flags have covered.
pub fn covered_with(covered: &[CoverageInterval], flags: FlagSet) -> IntervalSet {
    covered.iter().filter(|interval| interval.flags.includes(flags)).map(|interval| interval.window).collect()
}

/// Splits a gap, in order of time, into parts that were read with fewer flags and parts that were never read.
fn by_reason(gap: Window, read: &IntervalSet) -> Vec<Due> {
    let never = read.gaps_in(gap).into_iter().map(|window| Due { window, reason: Reason::Gap });
    let parts = read.windows().iter().map(|read| read.intersect(gap)).filter(|window| !window.is_empty());
    let mut parts: Vec<Due> = never.chain(parts.map(|window| Due { window, reason: Reason::NewFlags })).collect();
    parts.sort_by_key(|due| due.window.start_ms);
    parts
}

/// Returns the covered intervals that a backfill scans again, because their last scan was unsure.
fn needs_recheck(covered: &[CoverageInterval], rules: &DueRules, window: Window) -> Vec<Due> {
    let needs_recheck = covered.iter().filter(|interval| interval.scanned_ms == NEEDS_RECHECK_MS);
    let needs_recheck = needs_recheck.filter(|interval| interval.flags.includes(rules.flags));
    let windows: IntervalSet = needs_recheck.map(|interval| interval.window.intersect(window)).collect();
    let windows = windows.windows().iter().filter(|window| !window.is_empty());
    windows.map(|window| Due { window: *window, reason: Reason::Rescan }).collect()
}

/// The time at which a sync begins.
struct Since {
    /// Start if nothing is covered.
    first_ms: i64,
    /// Earliest start that coverage ever had.
    known_ms: Option<i64>,
}

fn due_for_sync(
    covered: &[CoverageInterval],
    rules: &DueRules,
    since: Since,
    settled_ms: i64,
    now_ms: i64,
) -> Vec<Due> {
    let covered_times: IntervalSet = covered.iter().map(|interval| interval.window).collect();
    let Some(bounding_range) = covered_times.bounding_range() else {
        let window = Window::new(since.known_ms.unwrap_or(since.first_ms), settled_ms).widened_to_seconds();
        return if window.is_empty() { Vec::new() } else { vec![Due { window, reason: Reason::New }] };
    };
    let mut all = Vec::new();
    all.push(Due { window: Window::new(bounding_range.end_ms, settled_ms), reason: Reason::New });
    let mut rescans = rules.rescan.bands(now_ms).into_iter().map(|(band, fresh_from_ms)| {
        let is_stale = move |interval: &&CoverageInterval| {
            interval.scanned_ms < fresh_from_ms || interval.scanned_ms > now_ms + CLOCKS_DIFFER_MS_MAX
        };
        let stale = covered.iter().filter(is_stale);
        let windows: IntervalSet = stale.map(|interval| interval.window.intersect(band)).collect();
        windows.windows().iter().rev().map(|window| Due { window: *window, reason: Reason::Rescan }).collect::<Vec<_>>()
    });
    all.extend(rescans.next().unwrap_or_default());
    let known = Window::new(bounding_range.start_ms.min(since.known_ms.unwrap_or(i64::MAX)), bounding_range.end_ms);
    all.extend(covered_times.gaps_in(known).into_iter().rev().map(|window| Due { window, reason: Reason::Gap }));
    all.extend(rescans.flatten());
    all.retain(|due| !due.window.is_empty());
    all
}

/// Plans a stream without windows: few rows that change at any age.
/// Every sync reads the complete list, a backfill once.
fn due_complete_list(covered: &[CoverageInterval], ask: PlanRequest, now_ms: i64) -> Vec<Due> {
    let reason = match (ask, covered.is_empty()) {
        (_, true) => Reason::New,
        (PlanRequest::Sync { .. }, false) => Reason::Rescan,
        (PlanRequest::Backfill { .. }, false)
            if covered.iter().any(|interval| interval.scanned_ms == NEEDS_RECHECK_MS) =>
        {
            Reason::Rescan
        }
        (PlanRequest::Backfill { .. }, false) => return Vec::new(),
    };
    vec![Due { window: Window::new(0, now_ms.max(1)), reason }]
}
