//! What the checkpoints hold for the status page: which days are complete, and the last runs. Everything is bounded.

use std::{collections::BTreeMap, ops::ControlFlow};

use serde::{Deserialize, Serialize};

use crate::{
    config::Settings,
    model::{DAY_MS, TimeParts, format_ms},
    pipeline::{CLOCK_SKEW, DriftReport, ScopeWork, work},
    report::{ScopeCoverage, Standing as DayStanding, squares::class},
    standing::{RunSummary, lag_secs},
    state::{State, StateError},
};

use super::moment::Moment;

/// Runs that are shown.
const RUNS_MAX: usize = 20;
/// Kinds of drift that are shown of one run.
const DRIFT_MAX: usize = 10;
/// Streams, or surveys that are read alone, that are shown.
const SCOPES_MAX: usize = 12;
/// Weeks that the calendars show.
pub(super) const WEEKS: i64 = 53;

/// Coverage and runs.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredFacts {
    pub streams: Vec<ScopeFacts>,
    pub streams_left_out: usize,
    pub runs: Vec<RunFacts>,
}

/// A stream, or a survey that is read alone.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScopeFacts {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
    /// How far the newest complete moment lies back; `None` if nothing is complete.
    pub lag_secs: Option<i64>,
    pub complete_from: Option<Moment>,
    pub complete_until: Option<Moment>,
    /// Days of the last 53 weeks, those of one state that follow each other together; empty for a list that is always read whole.
    pub days: Vec<DayRange>,
    /// Windows that the next run would ask for.
    pub windows_due: usize,
}

/// Days of one state that follow each other.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DayRange {
    /// The first and the last day, UTC.
    pub from: String,
    pub to: String,
    /// `complete`, `again`, `doubt`, `partly` or `never`.
    pub state: &'static str,
    #[serde(skip)]
    pub standing: DayStanding,
    /// Days since 1970.
    #[serde(skip)]
    pub first: i64,
    #[serde(skip)]
    pub last: i64,
}

/// A run of the history.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunFacts {
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Where the time went; `None` of a run that wrote no report.
    pub time_ms: Option<TimeParts>,
    pub requests: Option<u64>,
    /// Rows of all streams by what became of them.
    pub rows: Rows,
    /// Rows of each stream that need a look.
    pub rejected: BTreeMap<String, Rows>,
    pub drift: Vec<DriftReport>,
    pub drift_left_out: u64,
}

/// Rows by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Rows {
    pub inserted: u64,
    pub updated: u64,
    pub unchanged: u64,
    pub soft_deleted: u64,
    pub vanished: u64,
    pub withheld: u64,
    pub rejected: u64,
    pub collisions: u64,
}

/// What is read of a run's JSON.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RunJson {
    time_ms: Option<TimeParts>,
    requests: RequestsJson,
    streams: BTreeMap<String, Rows>,
    /// Each alone, so that one of another version does not hide the rest.
    drift: Vec<serde_json::Value>,
    drift_unlisted: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestsJson {
    total: Option<u64>,
}

impl StoredFacts {
    /// Reads them. Without a state file there are none.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn read(settings: &Settings, now_ms: i64) -> Result<StoredFacts, StateError> {
        let state = State::open_read_only(&settings.state_path)?;
        let skew = state.as_ref().map(|state| state.service_trait::<i64>(CLOCK_SKEW)).transpose()?.flatten();
        let service_now_ms = now_ms.saturating_add(skew.map_or(0, |(skew_ms, _)| skew_ms));
        let scopes = work(settings, state.as_ref(), None, service_now_ms)?;
        Ok(StoredFacts {
            streams_left_out: scopes.len().saturating_sub(SCOPES_MAX),
            streams: scopes.iter().take(SCOPES_MAX).map(|scope| scope_facts(scope, service_now_ms)).collect(),
            runs: state.as_ref().map(runs).transpose()?.unwrap_or_default(),
        })
    }
}

fn scope_facts(work: &ScopeWork, now_ms: i64) -> ScopeFacts {
    let coverage = ScopeCoverage::of_segments(work.scope, &work.held);
    let coverage = coverage.due_again(work.due.iter().map(|due| due.window));
    let hull = coverage.hull();
    ScopeFacts {
        stream: work.scope.stream.name(),
        survey_id: work.scope.survey_id,
        lag_secs: hull.map(|hull| lag_secs(hull.end_ms, now_ms)),
        complete_from: hull.filter(|_| work.scope.stream.is_windowed()).map(|hull| Moment(hull.start_ms)),
        complete_until: hull.map(|hull| Moment(hull.end_ms)),
        days: if work.scope.stream.is_windowed() { days(&coverage, now_ms) } else { Vec::new() },
        windows_due: work.due.len(),
    }
}

/// The days of the last weeks, from a Monday to today.
fn days(coverage: &ScopeCoverage, now_ms: i64) -> Vec<DayRange> {
    let today = now_ms.div_euclid(DAY_MS);
    let monday = today - (today - MONDAY).rem_euclid(7);
    let mut ranges: Vec<DayRange> = Vec::new();
    for day in monday - (WEEKS - 1) * 7..=today {
        let standing = coverage.day(day);
        match ranges.last_mut() {
            Some(range) if range.standing == standing => (range.last, range.to) = (day, day_text(day)),
            _ => ranges.push(DayRange {
                from: day_text(day),
                to: day_text(day),
                state: class(standing),
                standing,
                first: day,
                last: day,
            }),
        }
    }
    ranges
}

/// 1970-01-05.
const MONDAY: i64 = 4;

fn day_text(day: i64) -> String {
    format_ms(day.saturating_mul(DAY_MS))
}

fn runs(state: &State) -> Result<Vec<RunFacts>, StateError> {
    let holder = state.current_holder()?;
    let mut runs = Vec::new();
    state.visit_runs(|entry| {
        let is_running = holder.as_ref().is_some_and(|holder| holder.run_id == entry.run_id);
        let json = entry.report.as_deref().and_then(|report| serde_json::from_str(report).ok());
        runs.push(run_facts(RunSummary::of(entry, is_running), json.unwrap_or_default()));
        if runs.len() < RUNS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(runs)
}

fn run_facts(summary: RunSummary, json: RunJson) -> RunFacts {
    let left_out = json.drift.len().saturating_sub(DRIFT_MAX) as u64 + json.drift_unlisted;
    let rows = json.streams.values().fold(Rows::default(), |all, rows| all.plus(rows));
    RunFacts {
        summary,
        time_ms: json.time_ms,
        requests: json.requests.total,
        rows,
        rejected: json.streams.into_iter().filter(|(_, rows)| rows.needs_a_look()).collect(),
        drift: json.drift.into_iter().take(DRIFT_MAX).filter_map(|drift| serde_json::from_value(drift).ok()).collect(),
        drift_left_out: left_out,
    }
}

impl Rows {
    fn plus(&self, other: &Rows) -> Rows {
        Rows {
            inserted: self.inserted + other.inserted,
            updated: self.updated + other.updated,
            unchanged: self.unchanged + other.unchanged,
            soft_deleted: self.soft_deleted + other.soft_deleted,
            vanished: self.vanished + other.vanished,
            withheld: self.withheld + other.withheld,
            rejected: self.rejected + other.rejected,
            collisions: self.collisions + other.collisions,
        }
    }

    fn needs_a_look(&self) -> bool {
        self.rejected + self.collisions + self.withheld > 0
    }
}
