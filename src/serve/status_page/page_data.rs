//! The values on the status page, also as the JSON of `/api/status`. No value names a person or contains a secret. Each
//! list has a limit.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat};
use maud::{Markup, html};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::{
    model::{DAY_MS, Scope, TimeParts, Untrusted, format_duration},
    pipeline::{DriftReport, Reading, ScopeBacklog},
    report::{CoverageState, ScopeCoverage, format::day_text, squares::class},
    sync_status::{HealthReason, HealthSummary, Run, RunSummary, Status, lag_secs},
};

use super::super::{HealthMonitor, ServeState, monitoring::StatusResult};

/// Columns of the progress line on the page.
const LINE_COLUMNS: usize = 120;
/// Maximum drift entries of one run.
const DRIFT_MAX: usize = 10;
/// Maximum scopes on the page.
const SCOPES_MAX: usize = 12;
/// Weeks of a calendar.
pub(super) const WEEKS: i64 = 53;

/// A time in epoch milliseconds. A timestamp is serialized as RFC 3339 in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time as `2026-01-31T08:00:00Z`.
    pub fn rfc3339(self) -> String {
        let time = DateTime::from_timestamp_millis(self.0.div_euclid(1000) * 1000);
        time.map(|time| time.to_rfc3339_opts(SecondsFormat::Secs, true)).unwrap_or_default()
    }

    /// Returns the time as `2026-01-31 08:00 UTC`.
    fn text(self) -> String {
        let time = DateTime::from_timestamp_millis(self.0);
        time.map(|time| time.format("%Y-%m-%d %H:%M UTC").to_string()).unwrap_or_default()
    }

    /// Returns the time as a `time` element.
    pub fn markup(self) -> Markup {
        html! { time datetime=(self.rfc3339()) { (self.text()) } }
    }

    /// Returns the time with its age: `2026-01-31 08:00 UTC, 3 min ago`.
    pub fn with_age(self, now: Timestamp) -> Markup {
        html! { (self.markup()) ", " (age((now.0 - self.0) / 1000)) }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.rfc3339())
    }
}

/// Returns the age of something in the past, such as `3 min ago`. For a negative age, returns the time until something
/// in the future, such as `in 3 min`. Seconds are not shown, because the page would change every second.
pub(super) fn age(secs: i64) -> String {
    let length = match secs.unsigned_abs() {
        0..60 => "less than a minute".to_owned(),
        secs => format_duration(secs),
    };
    if secs >= 0 { format!("{length} ago") } else { format!("in {length}") }
}

/// Everything that the page shows.
#[derive(Clone, Debug, Serialize)]
pub(super) struct PageData {
    pub now: Timestamp,
    pub version: &'static str,
    /// The host and the environment of the service, and the name of the machine on which `serve` runs.
    pub service: String,
    pub environment: String,
    pub host: String,
    /// When this `serve` started.
    pub started_at: Timestamp,
    #[serde(rename = "verdict")]
    pub health: HealthSummary,
    /// The reasons of the health, most urgent first, as at `/healthz`.
    pub reasons: Vec<HealthReason>,
    #[serde(rename = "under_way")]
    pub current_job: Option<CurrentJob>,
    pub schedule: String,
    pub next_run_at: Option<Timestamp>,
    pub last_run: Option<RunSummary>,
    pub last_success_at: Option<Timestamp>,
    pub failures_in_a_row: u32,
    /// The allowed lag of a stream.
    pub max_lag_secs: Option<u64>,
    pub streams: Vec<ScopeCalendar>,
    /// The number of scopes that `streams` leaves out.
    pub streams_left_out: usize,
    /// Newest first.
    pub runs: Vec<RunDetails>,
    /// What is known against the data; `None` while the warehouse cannot be read.
    pub untrusted: Option<Vec<Untrusted>>,
    pub rate_limit: RateLimit,
    pub deliveries: Deliveries,
}

/// A stream, or a survey that is read alone.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ScopeCalendar {
    #[serde(flatten)]
    pub scope: Scope,
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

/// The current job.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CurrentJob {
    pub command: String,
    pub since: Option<Timestamp>,
    /// True if another process does the job, so that its progress is unknown.
    pub is_elsewhere: bool,
    /// The progress in one line.
    pub line: Option<String>,
    pub progress: Option<Reading>,
}

/// The service's rate limit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RateLimit {
    /// The learned limit; `None` if no run has learned one.
    pub requests_per_sec: Option<f64>,
    /// The rate of the current run.
    pub requests_per_sec_now: Option<f64>,
    /// The end of the service's Retry-After.
    pub retry_after: Option<Timestamp>,
    /// Why the requests of the current run wait.
    pub waiting: Option<String>,
}

/// The webhook deliveries.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Deliveries {
    /// False if no webhooks are received.
    pub are_received: bool,
    /// The number of deliveries that are not in the warehouses yet.
    pub pending: u64,
    pub pending_bytes: u64,
    pub oldest_at: Option<Timestamp>,
    pub can_be_stored: bool,
    /// Deliveries stored since this `serve` started, by kind, without kinds that have none.
    pub stored: BTreeMap<&'static str, u64>,
}

impl PageData {
    /// Collects the values from the status and the state in memory.
    pub fn new(monitor: &HealthMonitor, sync_status: &StatusResult, now_ms: i64) -> PageData {
        let health = monitor.health(sync_status);
        let unknown = Status::default();
        let sync_status = sync_status.as_ref().unwrap_or(&unknown);
        let (state, scopes) = (&monitor.state, &sync_status.backlog);
        let daemon = state.status();
        let progress = state.progress();
        PageData {
            now: Timestamp(now_ms),
            version: env!("CARGO_PKG_VERSION"),
            service: monitor.settings.service.host(),
            environment: monitor.settings.service.environment.clone(),
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            started_at: Timestamp(state.started_ms),
            health: health.summary(),
            reasons: health.reasons,
            current_job: current_job(state, sync_status, progress.as_ref()),
            schedule: daemon.schedule.expression,
            next_run_at: daemon.schedule.next_ms.map(Timestamp),
            last_run: sync_status.last_ended.clone(),
            last_success_at: sync_status.last_success.as_ref().map(|run| Timestamp(run.ended_ms())),
            failures_in_a_row: sync_status.failures_in_a_row,
            max_lag_secs: monitor.rules.max_lag.map(|max_lag| max_lag.as_secs()),
            streams: scopes.iter().take(SCOPES_MAX).map(|backlog| scope_calendar(backlog, sync_status)).collect(),
            streams_left_out: scopes.len().saturating_sub(SCOPES_MAX),
            runs: sync_status.recent_runs.iter().map(run_details).collect(),
            untrusted: None,
            rate_limit: rate_limit(sync_status, daemon.rate_limited_until_ms, progress.as_ref(), now_ms),
            deliveries: Deliveries {
                are_received: monitor.settings.serve.webhook.is_some(),
                pending: daemon.pending.deliveries,
                pending_bytes: daemon.pending.bytes,
                oldest_at: daemon.pending.oldest_ms.map(Timestamp),
                can_be_stored: state.can_store(),
                stored: state.stored().filter(|(_, n)| *n > 0).map(|(kind, count)| (kind.name(), count)).collect(),
            },
        }
    }
}

/// Returns the current job of this process or, if there is none, the run of another process that holds the lease.
fn current_job(state: &ServeState, sync_status: &Status, progress: Option<&Reading>) -> Option<CurrentJob> {
    if let Some(job) = state.status().running {
        return Some(CurrentJob {
            command: job.command.to_owned(),
            since: Some(Timestamp(job.since_ms)),
            is_elsewhere: false,
            line: progress.map(|reading| reading.line(LINE_COLUMNS)),
            progress: progress.cloned(),
        });
    }
    let run = sync_status.last_run.as_ref().filter(|run| run.is_running())?;
    let (command, since) = (run.command.clone(), Some(Timestamp(run.started_ms)));
    Some(CurrentJob { command, since, is_elsewhere: true, line: None, progress: None })
}

/// Collects the learned rate, the current rate and the current wait. `limited_until_ms` is the end of the `Retry-After`
/// that ended the last run. `progress` is that of the current run; `None` if there is none.
fn rate_limit(
    sync_status: &Status,
    limited_until_ms: Option<i64>,
    progress: Option<&Reading>,
    now_ms: i64,
) -> RateLimit {
    let wait = progress.and_then(|progress| progress.waiting);
    let wait_end_ms = wait
        .filter(|wait| wait.why == "rate limited")
        .map(|wait| now_ms.saturating_add(i64::try_from(wait.secs).unwrap_or(0).saturating_mul(1000)));
    let stored = [limited_until_ms, sync_status.rate_limited_until_ms].into_iter().flatten();
    let stored_end_ms = stored.max().filter(|at_ms| *at_ms > now_ms);
    let learned = sync_status.learned_requests_per_sec;
    RateLimit {
        requests_per_sec: progress.and_then(|progress| progress.requests_per_sec_max).or(learned),
        requests_per_sec_now: progress.map(|progress| progress.requests_per_sec),
        retry_after: stored_end_ms.or(wait_end_ms).map(Timestamp),
        waiting: wait.map(|wait| wait.why.to_owned()),
    }
}

/// Returns the coverage and the due windows of a scope.
fn scope_calendar(backlog: &ScopeBacklog, status: &Status) -> ScopeCalendar {
    let coverage = ScopeCoverage::from_intervals(backlog.scope, &backlog.covered);
    let coverage = coverage.due_again(backlog.due.iter().map(|due| due.window));
    let range = coverage.bounding_range();
    let is_windowed = backlog.scope.stream.is_windowed();
    ScopeCalendar {
        scope: backlog.scope,
        lag_secs: lag_secs(&status.scopes, backlog.scope),
        complete_from: range.filter(|_| is_windowed).map(|range| Timestamp(range.start_ms)),
        complete_until: range.map(|range| Timestamp(range.end_ms)),
        days: if is_windowed { days(&coverage, status.clock.service_ms(status.now_ms)) } else { Vec::new() },
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

/// Returns a run with the numbers of its report. A run whose report cannot be parsed has no numbers.
fn run_details(Run { summary, report }: &Run) -> RunDetails {
    // Each entry is parsed for itself, so that an entry of another version does not hide the others.
    let drift: Vec<Value> = report.get("/drift").unwrap_or_default();
    let drift_unlisted: u64 = report.get("/drift_unlisted").unwrap_or(0);
    let streams: BTreeMap<String, RowCounts> = report.get("/streams").unwrap_or_default();
    let records = |drift: &Value| drift["records"].as_u64().unwrap_or(0);
    RunDetails {
        summary: summary.clone(),
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
        config::{Overrides, Settings, resolve},
        model::{FlagSet, NEEDS_RECHECK_MS, Proof, RunId, Scan, ScanId, Stream, Window},
        state::{ScanCheckpoint, State},
        sync_status::RECENT_RUNS_MAX,
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
        let status = Status::read(&settings, NOW_MS).unwrap();
        let runs: Vec<RunDetails> = status.recent_runs.iter().map(run_details).collect();
        assert_eq!((runs.len(), runs[0].drift.len(), runs[0].drift_left_out), (RECENT_RUNS_MAX, DRIFT_MAX, 385));
        assert_eq!((runs[0].rows.inserted, runs[0].rejected.len()), (5, 1));
        let streams: Vec<_> = status.backlog.iter().map(|backlog| scope_calendar(backlog, &status)).collect();
        let responses = streams.iter().find(|stream| stream.scope.stream == Stream::Responses).unwrap();
        let days: i64 = responses.days.iter().map(|range| range.last - range.first + 1).sum();
        assert!((WEEKS * 7 - 6..=WEEKS * 7).contains(&days), "{days}");
        for state in ["doubt", "again", "never"] {
            assert!(responses.days.iter().any(|range| range.state == state), "{state}");
        }
        let markup: usize = streams
            .iter()
            .map(|scope| super::super::tables::calendar(scope, scope.scope.stream.name()).into_string().len())
            .chain([super::super::tables::runs(&runs).into_string().len()])
            .sum();
        assert!(markup < 100_000, "{markup}");
    }

    #[test]
    fn times_are_utc_and_have_an_age() {
        let at = Timestamp(1_769_817_600_123);
        assert_eq!(at.rfc3339(), "2026-01-31T00:00:00Z", "midnight is written with its time");
        let shown = at.with_age(Timestamp(at.0 + 3 * 60_000)).into_string();
        assert_eq!(shown, "<time datetime=\"2026-01-31T00:00:00Z\">2026-01-31 00:00 UTC</time>, 3 min ago");
        assert_eq!([age(59), age(60), age(-7300)], ["less than a minute ago", "1 min ago", "in 2 h 1 min"]);
    }
}
