//! The values on the status page that come from the checkpoints: the coverage of each scope, and the last runs. Each
//! list has a limit.

use std::{collections::BTreeMap, ops::ControlFlow};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    config::Settings,
    model::{DAY_MS, Scope, StoredReport, TimeParts},
    pipeline::{DriftReport, ScopeBacklog, backlog},
    report::{CoverageState, ScopeCoverage, format::day_text, squares::class},
    state::{State, StateError},
    sync_status::{PresentTime, RunSummary},
};

use super::timestamp::Timestamp;

/// Maximum runs on the page.
const RUNS_MAX: usize = 20;
/// Maximum drift entries of one run.
const DRIFT_MAX: usize = 10;
/// Maximum scopes on the page.
const SCOPES_MAX: usize = 12;
/// Weeks of a calendar.
pub(super) const WEEKS: i64 = 53;

/// The values that come from the checkpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct CheckpointData {
    pub streams: Vec<ScopeStatus>,
    pub streams_left_out: usize,
    pub runs: Vec<RunDetails>,
}

/// A stream, or a survey that is read alone.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScopeStatus {
    pub stream: &'static str,
    pub survey_id: Option<i64>,
    /// Seconds since the end of the newest complete window; `None` if nothing is complete.
    pub lag_secs: Option<i64>,
    pub complete_from: Option<Timestamp>,
    pub complete_until: Option<Timestamp>,
    /// The days of the last 53 weeks, grouped into ranges of one state. Empty for a list that is always read
    /// completely.
    pub days: Vec<DayRange>,
    /// The number of time ranges that the next run scans. A run may cut a range into several windows.
    pub windows_due: usize,
}

/// Consecutive days of one state.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DayRange {
    /// The first and the last day in UTC, as text.
    pub from: String,
    pub to: String,
    /// `complete`, `again`, `doubt`, `partly` or `never`.
    pub state: &'static str,
    #[serde(skip)]
    pub coverage_state: CoverageState,
    /// The first and the last day, in days since 1970.
    #[serde(skip)]
    pub first: i64,
    #[serde(skip)]
    pub last: i64,
}

/// A run with the numbers of its report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunDetails {
    #[serde(flatten)]
    pub summary: RunSummary,
    /// The run's time by part; `None` if the run wrote no report.
    pub time_ms: Option<TimeParts>,
    pub requests: Option<u64>,
    /// The rows of all streams.
    pub rows: RowCounts,
    /// The rows of each stream that has rejected, withheld or colliding rows.
    pub rejected: BTreeMap<String, RowCounts>,
    pub drift: Vec<DriftReport>,
    pub drift_left_out: u64,
}

/// Numbers of rows by what happened to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct RowCounts {
    pub inserted: u64,
    pub updated: u64,
    pub filled_in: u64,
    pub unchanged: u64,
    pub soft_deleted: u64,
    pub vanished: u64,
    pub withheld: u64,
    pub rejected: u64,
    pub collisions: u64,
}

impl CheckpointData {
    /// Reads the checkpoints. Without a state file, nothing is covered and there are no runs.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn read(settings: &Settings, now_ms: i64) -> Result<CheckpointData, StateError> {
        let state = State::open_read_only(&settings.state_path)?;
        let present = state.as_ref().map(|state| PresentTime::read(state, now_ms)).transpose()?;
        let service_now_ms = present.map_or(now_ms, |present| present.service_ms(now_ms));
        let scopes = backlog(settings, state.as_ref(), None, service_now_ms)?;
        let streams = scopes.iter().take(SCOPES_MAX).map(|backlog| {
            let lag_secs = state.as_ref().zip(present).map(|(state, present)| lag_secs(state, present, backlog.scope));
            Ok(scope_status(backlog, lag_secs.transpose()?.flatten(), service_now_ms))
        });
        Ok(CheckpointData {
            streams_left_out: scopes.len().saturating_sub(SCOPES_MAX),
            streams: streams.collect::<Result<_, StateError>>()?,
            runs: state.as_ref().map(runs).transpose()?.unwrap_or_default(),
        })
    }
}

/// Returns the lag of a scope; `None` if nothing is complete. A range that is complete for all surveys is complete for
/// each single survey.
fn lag_secs(state: &State, present: PresentTime, scope: Scope) -> Result<Option<i64>, StateError> {
    let of_scope = present.lag_secs(&state.intervals(scope)?);
    let of_all = present.lag_secs(&state.intervals(Scope::all(scope.stream))?);
    Ok(of_scope.into_iter().chain(of_all).min())
}

/// Returns the coverage and the due windows of a scope.
fn scope_status(backlog: &ScopeBacklog, lag_secs: Option<i64>, now_ms: i64) -> ScopeStatus {
    let coverage = ScopeCoverage::from_intervals(backlog.scope, &backlog.covered);
    let coverage = coverage.due_again(backlog.due.iter().map(|due| due.window));
    let range = coverage.bounding_range();
    let is_windowed = backlog.scope.stream.is_windowed();
    ScopeStatus {
        stream: backlog.scope.stream.name(),
        survey_id: backlog.scope.survey_id,
        lag_secs,
        complete_from: range.filter(|_| is_windowed).map(|range| Timestamp(range.start_ms)),
        complete_until: range.map(|range| Timestamp(range.end_ms)),
        days: if is_windowed { days(&coverage, now_ms) } else { Vec::new() },
        windows_due: backlog.due.len(),
    }
}

/// Returns the days of the last 53 weeks, from a Monday to today, grouped into ranges of one state.
fn days(coverage: &ScopeCoverage, now_ms: i64) -> Vec<DayRange> {
    let today = now_ms.div_euclid(DAY_MS);
    let monday = today - (today - MONDAY).rem_euclid(7);
    let mut ranges: Vec<DayRange> = Vec::new();
    for day in monday - (WEEKS - 1) * 7..=today {
        let coverage_state = coverage.day(day);
        match ranges.last_mut() {
            Some(range) if range.coverage_state == coverage_state => (range.last, range.to) = (day, day_text(day)),
            _ => ranges.push(DayRange {
                from: day_text(day),
                to: day_text(day),
                state: class(coverage_state),
                coverage_state,
                first: day,
                last: day,
            }),
        }
    }
    ranges
}

/// The first Monday after 1970-01-01, in days since 1970-01-01.
const MONDAY: i64 = 4;

/// Returns the newest runs, at most [`RUNS_MAX`]. A run whose report cannot be parsed has no numbers.
fn runs(state: &State) -> Result<Vec<RunDetails>, StateError> {
    let holder = state.current_holder()?;
    let mut runs = Vec::new();
    state.visit_runs(|entry| {
        let report = StoredReport::parse(entry.report.as_deref());
        runs.push(run_details(RunSummary::from_entry(entry, holder.as_ref()), &report));
        if runs.len() < RUNS_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(runs)
}

fn run_details(summary: RunSummary, report: &StoredReport) -> RunDetails {
    // Each entry is parsed for itself, so that an entry of another version does not hide the others.
    let drift: Vec<Value> = report.get("/drift").unwrap_or_default();
    let drift_unlisted: u64 = report.get("/drift_unlisted").unwrap_or(0);
    let streams: BTreeMap<String, RowCounts> = report.get("/streams").unwrap_or_default();
    let records = |drift: &Value| drift["records"].as_u64().unwrap_or(0);
    RunDetails {
        summary,
        time_ms: report.get("/time_ms"),
        requests: report.get("/requests/total"),
        rows: streams.values().fold(RowCounts::default(), |all, rows| all.plus(rows)),
        rejected: streams.into_iter().filter(|(_, rows)| rows.has_problems()).collect(),
        drift_left_out: drift.iter().skip(DRIFT_MAX).map(records).sum::<u64>() + drift_unlisted,
        drift: drift.into_iter().take(DRIFT_MAX).filter_map(|drift| serde_json::from_value(drift).ok()).collect(),
    }
}

impl RowCounts {
    fn plus(&self, other: &RowCounts) -> RowCounts {
        RowCounts {
            inserted: self.inserted + other.inserted,
            updated: self.updated + other.updated,
            filled_in: self.filled_in + other.filled_in,
            unchanged: self.unchanged + other.unchanged,
            soft_deleted: self.soft_deleted + other.soft_deleted,
            vanished: self.vanished + other.vanished,
            withheld: self.withheld + other.withheld,
            rejected: self.rejected + other.rejected,
            collisions: self.collisions + other.collisions,
        }
    }

    fn has_problems(&self) -> bool {
        self.rejected + self.collisions + self.withheld > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::{Overrides, resolve},
        model::{FlagSet, NEEDS_RECHECK_MS, Proof, RunId, Scan, ScanId, Scope, Stream, Window},
        state::ScanCheckpoint,
    };

    const NOW_MS: i64 = 1_769_846_400_000;
    const YEARS: i64 = 10;

    /// Fills a state file with ten years of days, each scanned at another time, and with 1,000 runs.
    fn fill_state(settings: &Settings) {
        let mut state = State::open(&settings.state_path, "http://127.0.0.1:1", "test").unwrap();
        let days = NOW_MS / DAY_MS - YEARS * 365..NOW_MS / DAY_MS;
        let scans = [Stream::Responses, Stream::Themes].into_iter().flat_map(|stream| {
            days.clone().filter(|day| day % 1000 != 0).map(move |day| ScanCheckpoint {
                scan: Scan {
                    id: ScanId::new(day),
                    run_id: RunId::new(1),
                    scope: Scope::all(stream),
                    window: Window::new(day * DAY_MS, (day + 1) * DAY_MS),
                    flags: FlagSet::ALL,
                    started_ms: NOW_MS - day,
                },
                scanned_ms: if day % 100 == 0 { NEEDS_RECHECK_MS } else { NOW_MS - day },
                rows: 1,
                proof: Proof::default(),
            })
        });
        state.rebuild_coverage(&scans.collect::<Vec<_>>(), &[], &[], &[]).unwrap();
        let drift: Vec<_> = (0..200)
            .map(|nth| serde_json::json!({"stream": "responses", "kind": "new_field", "where": format!("responses.f{nth}"), "records": 2, "example": "number", "fate": "kept"}))
            .collect();
        let report = serde_json::json!({"time_ms": TimeParts::default(), "requests": {"total": 3}, "drift": drift, "drift_unlisted": 5,
            "streams": {"responses": {"inserted": 2, "rejected": 1}, "themes": {"inserted": 3}}});
        for nth in 0..1000 {
            let run_id = RunId::new(nth);
            state.begin_run(&run_id, "sync", NOW_MS - DAY_MS * (1000 - nth)).unwrap();
            state.finish_run(&run_id, NOW_MS - DAY_MS * (1000 - nth) + 1000, "done", 0, &report.to_string()).unwrap();
        }
    }

    #[test]
    fn p8_years_of_coverage_make_a_page_of_limited_size() {
        let folder = tempfile::TempDir::with_prefix_in("status-page-", "/dev/shm").or_else(|_| tempfile::tempdir());
        let folder = folder.unwrap();
        let mut settings = resolve(Overrides::default()).unwrap();
        settings.state_path = folder.path().join("state.sqlite");
        fill_state(&settings);
        let data = CheckpointData::read(&settings, NOW_MS).unwrap();
        assert_eq!(
            (data.runs.len(), data.runs[0].drift.len(), data.runs[0].drift_left_out),
            (RUNS_MAX, DRIFT_MAX, 385)
        );
        assert_eq!((data.runs[0].rows.inserted, data.runs[0].rejected.len()), (5, 1));
        let responses = data.streams.iter().find(|stream| stream.stream == "responses").unwrap();
        let days: i64 = responses.days.iter().map(|range| range.last - range.first + 1).sum();
        assert!((WEEKS * 7 - 6..=WEEKS * 7).contains(&days), "{days}");
        for state in ["doubt", "again", "never"] {
            assert!(responses.days.iter().any(|range| range.state == state), "{state}");
        }
        let markup: usize = data
            .streams
            .iter()
            .map(|scope| super::super::calendar::calendar(scope, scope.stream).into_string().len())
            .chain([super::super::run_table::runs(&data.runs).into_string().len()])
            .sum();
        assert!(markup < 100_000, "{markup}");
    }
}
