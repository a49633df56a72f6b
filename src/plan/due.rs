//! Decides which intervals of a scope must be scanned, and why.
//!
//! How often an interval is scanned again, by its age. Only a re-scan finds edits and deletions (promise P4).

use std::{fmt, str::FromStr};

use serde::Serialize;

use crate::model::{
    CoverageInterval, DAY_MS, FlagSet, HOUR_MS, IntervalSet, MINUTE_MS, NEEDS_RECHECK_MS, Scope, Window, is_in_future,
};

/// New windows end at multiples of this time, so that two runs in short succession create no tiny windows.
const GRID_MS: i64 = 5 * MINUTE_MS;

/// The settings of a scope that decide what is due.
#[derive(Clone, Debug)]
pub struct DueRules {
    /// The optional parts of records to request.
    pub flags: FlagSet,
    /// The lag, in milliseconds. A run does not scan answers younger than the lag, because the service may still write
    /// them.
    pub lag_ms: i64,
    /// How often closed windows are scanned again.
    pub rescan: RescanRules,
}

/// Which intervals the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanRequest {
    /// New intervals, gaps, and re-scans that are due.
    Sync(SyncStart),
    /// Everything in the window that is not covered with the wanted flags, or that needs a recheck.
    Backfill { window: Window },
}

/// The creation time at which a sync of a scope begins, in epoch milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncStart {
    /// Where the sync of a scope begins that never had coverage.
    pub first_ms: i64,
    /// The earliest start that the coverage ever had; `None` if there never was coverage. Missing coverage after this
    /// time is a gap.
    pub earliest_covered_ms: Option<i64>,
}

/// Why an interval is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Newer than anything that was scanned.
    New,
    /// The last scan is too old for the age of the interval, or the interval needs a recheck.
    Rescan,
    /// Complete, but scanned without an optional part that is requested now. Only a backfill has this reason.
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

/// Returns the disjoint intervals of a scope that are due. A sync returns the most urgent first: new intervals,
/// re-scans of the youngest tier, gaps, other re-scans. A backfill returns missing intervals in order of time, then
/// those that need a recheck. `now_ms` is the service's time.
pub fn due(
    scope: Scope,
    covered: &[CoverageInterval],
    rules: &DueRules,
    request: PlanRequest,
    now_ms: i64,
) -> Vec<Due> {
    if !scope.stream.is_windowed() {
        return due_complete_list(covered, request, now_ms);
    }
    let end_ms = (now_ms - rules.lag_ms).div_euclid(GRID_MS) * GRID_MS;
    // A clock that was ahead may have recorded coverage of future times, which proves nothing.
    let past = Window::new(i64::MIN, end_ms);
    let covered: Vec<CoverageInterval> = covered.iter().filter_map(|interval| interval.part(past)).collect();
    match request {
        PlanRequest::Backfill { window } => {
            let with_flags = covered_with(&covered, rules.flags);
            let window = window.widened_to_seconds().intersect(past);
            let scanned: IntervalSet = covered.iter().map(|interval| interval.window).collect();
            let gaps = with_flags.gaps_in(window).into_iter().flat_map(|gap| split_gap(gap, &scanned));
            gaps.chain(needs_recheck(&covered, rules, window)).collect()
        }
        PlanRequest::Sync(start) => due_for_sync(&covered, rules, start, end_ms, now_ms),
    }
}

/// Returns the times that scans with at least these flags have covered.
pub fn covered_with(covered: &[CoverageInterval], flags: FlagSet) -> IntervalSet {
    covered.iter().filter(|interval| interval.flags.includes(flags)).map(|interval| interval.window).collect()
}

/// Splits a gap into windows that were scanned without all wanted flags, and windows that were never scanned. `scanned`
/// are the times that any scan has covered. Returns the windows in order of time.
fn split_gap(gap: Window, scanned: &IntervalSet) -> Vec<Due> {
    let never = scanned.gaps_in(gap).into_iter().map(|window| Due { window, reason: Reason::Gap });
    let rescanned = scanned.windows().iter().map(|scanned| scanned.intersect(gap)).filter(|window| !window.is_empty());
    let rescanned = rescanned.map(|window| Due { window, reason: Reason::NewFlags });
    let mut windows: Vec<Due> = never.chain(rescanned).collect();
    windows.sort_by_key(|due| due.window.start_ms);
    windows
}

/// Returns the intervals in a backfill's window that need a recheck, because their last scan was inconclusive.
/// Intervals without all wanted flags are left out: they are due for [`Reason::NewFlags`].
fn needs_recheck(covered: &[CoverageInterval], rules: &DueRules, window: Window) -> Vec<Due> {
    let needs_recheck = covered.iter().filter(|interval| interval.scanned_ms == NEEDS_RECHECK_MS);
    let needs_recheck = needs_recheck.filter(|interval| interval.flags.includes(rules.flags));
    let windows: IntervalSet = needs_recheck.map(|interval| interval.window.intersect(window)).collect();
    let windows = windows.windows().iter().filter(|window| !window.is_empty());
    windows.map(|window| Due { window: *window, reason: Reason::Rescan }).collect()
}

/// Returns the intervals that a sync must scan, most urgent first. A sync scans only times before `end_ms`, because
/// answers younger than the lag may be incomplete. Without coverage, it starts at the earliest time that was ever
/// covered, or else at `first_ms`.
fn due_for_sync(
    covered: &[CoverageInterval],
    rules: &DueRules,
    start: SyncStart,
    end_ms: i64,
    now_ms: i64,
) -> Vec<Due> {
    let covered_times: IntervalSet = covered.iter().map(|interval| interval.window).collect();
    let Some(bounding_range) = covered_times.bounding_range() else {
        let window = Window::new(start.earliest_covered_ms.unwrap_or(start.first_ms), end_ms).widened_to_seconds();
        return if window.is_empty() { Vec::new() } else { vec![Due { window, reason: Reason::New }] };
    };
    let mut all = vec![Due { window: Window::new(bounding_range.end_ms, end_ms), reason: Reason::New }];
    let mut rescans = rules.rescan.bands(now_ms).into_iter().map(|(band, fresh_from_ms)| {
        let is_stale = move |interval: &&CoverageInterval| {
            // A wrong clock stamped a scan of the future.
            interval.scanned_ms < fresh_from_ms || is_in_future(interval.scanned_ms, now_ms)
        };
        let stale = covered.iter().filter(is_stale);
        let windows: IntervalSet = stale.map(|interval| interval.window.intersect(band)).collect();
        windows.windows().iter().rev().map(|window| Due { window: *window, reason: Reason::Rescan }).collect::<Vec<_>>()
    });
    // The re-scans of the youngest tier come before the gaps, all other re-scans after them.
    all.extend(rescans.next().unwrap_or_default());
    // Missing coverage inside this window is a gap.
    let known =
        Window::new(bounding_range.start_ms.min(start.earliest_covered_ms.unwrap_or(i64::MAX)), bounding_range.end_ms);
    all.extend(covered_times.gaps_in(known).into_iter().rev().map(|window| Due { window, reason: Reason::Gap }));
    all.extend(rescans.flatten());
    all.retain(|due| !due.window.is_empty());
    all
}

/// Plans a stream without windows, whose few rows change at any age. Every sync reads the complete list. A backfill
/// reads the list if it was never read, or needs a recheck.
fn due_complete_list(covered: &[CoverageInterval], request: PlanRequest, now_ms: i64) -> Vec<Due> {
    let reason = match (request, covered.is_empty()) {
        (_, true) => Reason::New,
        (PlanRequest::Sync(_), false) => Reason::Rescan,
        (PlanRequest::Backfill { .. }, false)
            if covered.iter().any(|interval| interval.scanned_ms == NEEDS_RECHECK_MS) =>
        {
            Reason::Rescan
        }
        (PlanRequest::Backfill { .. }, false) => return Vec::new(),
    };
    vec![Due { window: Window::new(0, now_ms.max(1)), reason }]
}

/// One tier: how often intervals younger than an age are scanned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tier {
    /// The tier covers answers younger than this, in milliseconds; `None` covers all older answers.
    pub younger_than_ms: Option<i64>,
    /// How long a scan stays fresh, in milliseconds; 0 means that every run scans again.
    pub every_ms: i64,
}

/// The tiers, youngest first. Default: younger than 3 days every run, 30 days daily, a year weekly, all others monthly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RescanRules {
    tiers: Vec<Tier>,
}

/// Share of [`Tier::every_ms`] after which a re-scan is due. The share is below 1, because a nightly job starts a
/// little early sometimes.
const DUE_SHARE: f64 = 0.9;

impl Default for RescanRules {
    fn default() -> Self {
        let tier = |days: Option<i64>, every_ms| Tier { younger_than_ms: days.map(|days| days * DAY_MS), every_ms };
        Self {
            tiers: vec![tier(Some(3), 0), tier(Some(30), DAY_MS), tier(Some(365), 7 * DAY_MS), tier(None, 30 * DAY_MS)],
        }
    }
}

impl RescanRules {
    /// Returns rules without tiers: a sync never scans complete windows again.
    pub fn never() -> Self {
        Self { tiers: Vec::new() }
    }

    /// Returns for each tier, youngest first, its range of creation time and the oldest scan time that is still fresh.
    /// The ranges start on UTC days, where windows end.
    pub(super) fn bands(&self, now_ms: i64) -> Vec<(Window, i64)> {
        let mut bands = Vec::with_capacity(self.tiers.len());
        let mut end_ms = i64::MAX;
        for tier in &self.tiers {
            let start_ms =
                tier.younger_than_ms.map_or(i64::MIN, |age_ms| (now_ms - age_ms).div_euclid(DAY_MS) * DAY_MS);
            let fresh_from_ms =
                if tier.every_ms == 0 { i64::MAX } else { now_ms - (tier.every_ms as f64 * DUE_SHARE) as i64 };
            bands.push((Window::new(start_ms, end_ms), fresh_from_ms));
            end_ms = start_ms;
        }
        bands
    }
}

impl fmt::Display for RescanRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<String> = self.tiers.iter().map(Tier::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.younger_than_ms {
            Some(age_ms) => write!(f, "{}d ", age_ms / DAY_MS)?,
            None => f.write_str("all ")?,
        }
        match self.every_ms {
            0 => f.write_str("every run"),
            every_ms if every_ms % DAY_MS == 0 => write!(f, "every {}d", every_ms / DAY_MS),
            every_ms => write!(f, "every {}h", every_ms / HOUR_MS),
        }
    }
}

impl FromStr for Tier {
    type Err = String;

    /// Parses "3d every run", "30d daily", "365d weekly", "all monthly", "7d every 12h".
    fn from_str(text: &str) -> Result<Tier, String> {
        let wrong = || {
            format!(
                "'{text}' is not a re-scan rule: write '3d every run', '30d daily', '365d weekly', 'all monthly' or '7d every 12h'"
            )
        };
        let (age, often) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let younger_than_ms = match age {
            "all" => None,
            age => Some(length_ms(age).ok_or_else(wrong)?),
        };
        let every_ms = match often.trim() {
            "every run" => 0,
            "daily" => DAY_MS,
            "weekly" => 7 * DAY_MS,
            "monthly" => 30 * DAY_MS,
            often => often.strip_prefix("every ").and_then(|often| length_ms(often.trim())).ok_or_else(wrong)?,
        };
        Ok(Tier { younger_than_ms, every_ms })
    }
}

/// Parses "30d" or "12h" into milliseconds; `None` if the text has another form.
fn length_ms(text: &str) -> Option<i64> {
    let (number, unit_ms) = match text.strip_suffix('d') {
        Some(days) => (days, DAY_MS),
        None => (text.strip_suffix('h')?, HOUR_MS),
    };
    number.parse::<u32>().ok().filter(|number| (1..=100_000).contains(number)).map(|number| i64::from(number) * unit_ms)
}

impl TryFrom<Vec<Tier>> for RescanRules {
    type Error = String;

    /// Creates rules from tiers. Fails unless their ages increase.
    fn try_from(tiers: Vec<Tier>) -> Result<Self, String> {
        let ages: Vec<i64> = tiers.iter().map(|tier| tier.younger_than_ms.unwrap_or(i64::MAX)).collect();
        if ages.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("re-scan rules go from the youngest to 'all', each age once".to_owned());
        }
        Ok(Self { tiers })
    }
}
