//! Which stretches of a scope must be scanned, and why.

use std::fmt;

use serde::Serialize;

use crate::model::{FlagSet, HOUR_MS, IN_DOUBT_MS, IntervalSet, MINUTE_MS, Scope, Segment, Window};

use super::RescanRules;

/// New windows end on this grid, so that runs a moment apart do not leave slivers.
const GRID_MS: i64 = 5 * MINUTE_MS;
/// How far the clocks of a service's machines, and what is reckoned between two of its answers, may lie apart. A scan
/// from later than that is from a clock that was wrong, and counts as none.
const CLOCKS_DIFFER_MS_MAX: i64 = HOUR_MS;

/// How a scope is kept.
#[derive(Clone, Debug)]
pub struct Rules {
    /// The optional parts to ask for.
    pub flags: FlagSet,
    /// Answers younger than this are left for the next run: the service may still be writing them. Milliseconds.
    pub settle_ms: i64,
    /// How often closed windows are looked at again.
    pub rescan: RescanRules,
}

/// What the user asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// What is new, what is missing in between, and what is due for a re-scan. A scope without any coverage begins at
    /// `first_since_ms`; one whose coverage once began at `known_since_ms` has gaps from there on.
    Sync { first_since_ms: i64, known_since_ms: Option<i64> },
    /// Everything in the window that is not covered with the wanted flags.
    Backfill { window: Window },
}

/// Why a stretch is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Newer than anything that was scanned.
    New,
    /// Its last scan is too old for its age.
    Rescan,
    /// Complete, but read without a part that is asked for now.
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

/// A stretch to scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Due {
    pub window: Window,
    pub reason: Reason,
}

/// The stretches of a scope that are due now, most urgent first: what is new, then what is young and due for a re-scan,
/// then gaps, then older re-scans. They are disjoint. `now_ms` is the service's time.
pub fn due(scope: Scope, held: &[Segment], rules: &Rules, ask: Ask, now_ms: i64) -> Vec<Due> {
    if !scope.stream.is_windowed() {
        return due_whole(held, ask, now_ms);
    }
    let settled_ms = (now_ms - rules.settle_ms).div_euclid(GRID_MS) * GRID_MS;
    // What a clock that was ahead let us believe of the future proves nothing.
    let past = Window::new(i64::MIN, settled_ms);
    let held: Vec<Segment> = held.iter().filter_map(|segment| segment.part(past)).collect();
    match ask {
        Ask::Backfill { window } => {
            let with_flags = held.iter().filter(|segment| segment.flags.includes(rules.flags));
            let covered: IntervalSet = with_flags.map(|segment| segment.window).collect();
            let window = window.in_whole_seconds();
            let window = Window::new(window.start_ms, window.end_ms.min(settled_ms));
            let read: IntervalSet = held.iter().map(|segment| segment.window).collect();
            let gaps = covered.gaps_in(window).into_iter().flat_map(|gap| by_reason(gap, &read));
            gaps.chain(in_doubt(&held, rules, window)).collect()
        }
        Ask::Sync { first_since_ms, known_since_ms } => {
            due_for_sync(&held, rules, Since { first_ms: first_since_ms, known_ms: known_since_ms }, settled_ms, now_ms)
        }
    }
}

/// The parts of a gap, in order: what was read with fewer flags, and what never was.
fn by_reason(gap: Window, read: &IntervalSet) -> Vec<Due> {
    let never = read.gaps_in(gap).into_iter().map(|window| Due { window, reason: Reason::Gap });
    let parts = read.windows().iter().map(|read| read.intersect(gap)).filter(|window| !window.is_empty());
    let mut parts: Vec<Due> = never.chain(parts.map(|window| Due { window, reason: Reason::NewFlags })).collect();
    parts.sort_by_key(|due| due.window.start_ms);
    parts
}

/// Covered stretches that a backfill looks at again all the same: their last scan left a doubt.
fn in_doubt(held: &[Segment], rules: &Rules, window: Window) -> Vec<Due> {
    let in_doubt = held.iter().filter(|segment| segment.scanned_ms == IN_DOUBT_MS);
    let in_doubt = in_doubt.filter(|segment| segment.flags.includes(rules.flags));
    let windows: IntervalSet = in_doubt.map(|segment| segment.window.intersect(window)).collect();
    let windows = windows.windows().iter().filter(|window| !window.is_empty());
    windows.map(|window| Due { window: *window, reason: Reason::Rescan }).collect()
}

/// Where a sync begins.
struct Since {
    /// Where nothing is covered.
    first_ms: i64,
    /// Where coverage ever began.
    known_ms: Option<i64>,
}

fn due_for_sync(held: &[Segment], rules: &Rules, since: Since, settled_ms: i64, now_ms: i64) -> Vec<Due> {
    let covered: IntervalSet = held.iter().map(|segment| segment.window).collect();
    let Some(hull) = covered.hull() else {
        let window = Window::new(since.known_ms.unwrap_or(since.first_ms), settled_ms).in_whole_seconds();
        return if window.is_empty() { Vec::new() } else { vec![Due { window, reason: Reason::New }] };
    };
    let mut all = Vec::new();
    all.push(Due { window: Window::new(hull.end_ms, settled_ms), reason: Reason::New });
    let mut rescans = rules.rescan.bands(now_ms).into_iter().map(|(band, fresh_from_ms)| {
        let is_stale = move |segment: &&Segment| {
            segment.scanned_ms < fresh_from_ms || segment.scanned_ms > now_ms + CLOCKS_DIFFER_MS_MAX
        };
        let stale = held.iter().filter(is_stale);
        let windows: IntervalSet = stale.map(|segment| segment.window.intersect(band)).collect();
        windows.windows().iter().rev().map(|window| Due { window: *window, reason: Reason::Rescan }).collect::<Vec<_>>()
    });
    all.extend(rescans.next().unwrap_or_default());
    let known = Window::new(hull.start_ms.min(since.known_ms.unwrap_or(i64::MAX)), hull.end_ms);
    all.extend(covered.gaps_in(known).into_iter().rev().map(|window| Due { window, reason: Reason::Gap }));
    all.extend(rescans.flatten());
    all.retain(|due| !due.window.is_empty());
    all
}

/// Streams without windows are few rows that change at any age: a sync reads them whole in every run, a backfill once.
fn due_whole(held: &[Segment], ask: Ask, now_ms: i64) -> Vec<Due> {
    let reason = match (ask, held.is_empty()) {
        (_, true) => Reason::New,
        (Ask::Sync { .. }, false) => Reason::Rescan,
        (Ask::Backfill { .. }, false) if held.iter().any(|held| held.scanned_ms == IN_DOUBT_MS) => Reason::Rescan,
        (Ask::Backfill { .. }, false) => return Vec::new(),
    };
    vec![Due { window: Window::new(0, now_ms.max(1)), reason }]
}
