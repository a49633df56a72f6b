//! Collects the status from checkpoints, warehouse, suppression list and inbox. `--json` prints the fields of
//! [`Status`].

use std::{path::Path, time::Duration};

use arrow::{array::AsArray as _, datatypes::Int64Type};
use serde::Serialize;

use crate::{
    clock,
    config::{Settings, WarehouseSettings},
    load::{LoadError, Reader},
    model::{CoverageInterval, IntervalSet, NEEDS_RECHECK_MS, Scope, StoredReport, Stream, Window, format_ms},
    person::{SuppressionError, SuppressionList},
    pipeline::{DriftReport, KnownBehaviour, LEARNED_RATE, RunReason, known_behaviours, retry_after_until_ms},
    source::LearnedRate,
    state::{Inbox, PeopleCounts, ProvenInterval, RunEntry, State, StateError},
    sync_status::{LagCheck, PresentTime, RunSummary, is_selected, scope_lags},
};

use super::{
    super::{plan::planned_users, printer::format_second, warehouse::reader_limits},
    proofs::{ProofStatus, proofs},
};

#[derive(Serialize)]
pub(super) struct Status {
    /// The path of the state file.
    pub state: String,
    pub base_url: Option<String>,
    pub environment: Option<String>,
    /// The process that holds the lease; `None` if no run is active.
    pub running: Option<String>,
    pub streams: Vec<StreamStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<UsersStatus>,
    /// The intervals of the requested range with their proofs, or all intervals.
    pub proofs: Vec<ProofStatus>,
    /// Unfinished scans, which the next run resumes.
    pub under_way: Vec<ScanStatus>,
    /// The learned rate limit; `None` if no run has learned one.
    pub requests_per_sec: Option<f64>,
    /// The end of the service's `Retry-After`, before which no command sends a request; `None` if none is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_request_before: Option<String>,
    /// Milliseconds by which the service's clock is ahead of this machine's clock; `None` if unknown.
    pub clock_skew_ms: Option<i64>,
    /// True if the service's clock is days off and not known to be right. Lags are then measured by this machine's.
    pub clock_in_doubt: bool,
    /// The result of --max-lag; `None` without --max-lag.
    #[serde(flatten)]
    pub lag: Option<LagCheck>,
    /// The service profile.
    pub traits: Vec<KnownBehaviour>,
    pub runs: Vec<RunStatus>,
    /// Erasures whose people the service may still send.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub erasures_waiting: Vec<WaitingErasure>,
    /// The state of `serve`; `None` if it never ran with this state file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve: Option<ServeStatus>,
    #[serde(flatten)]
    pub last_drift: LastDrift,
}

/// The drift that the newest of the shown runs found, with the same fields as in the run JSON. Runs whose JSON has no
/// such fields, such as `verify`, are skipped.
#[derive(Default, Serialize)]
pub(super) struct LastDrift {
    pub drift: Vec<DriftReport>,
    pub drift_unlisted: u64,
}

/// An unfinished scan.
#[derive(Serialize)]
pub(super) struct ScanStatus {
    pub stream: &'static str,
    pub window: String,
    pub pages: u64,
    pub records: u64,
}

/// A recent run.
#[derive(Serialize)]
pub(super) struct RunStatus {
    pub run_id: String,
    pub command: String,
    pub started: String,
    pub secs: Option<f64>,
    pub outcome: String,
    pub exit_code: Option<i64>,
    /// Why the outcome is not `done`, as a code. `why` is the same reason as a sentence, and `hint` says what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<RunReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// Maximum recent runs that `status` shows.
const RUNS_SHOWN: u32 = 5;

/// Returns the status. `range` is the range whose proofs are requested; `None` for the complete coverage.
pub(super) fn collect(
    settings: &Settings,
    state: &State,
    range: Option<Window>,
    max_lag: Option<Duration>,
    erasures_waiting: Vec<WaitingErasure>,
) -> Result<Status, StateError> {
    let present = PresentTime::read(state, clock::now_ms())?;
    let now_ms = present.now_ms;
    let lag = |max_lag| Ok::<_, StateError>(LagCheck::new(settings, max_lag, &scope_lags(settings, state, present)?));
    let streams = streams(settings, state, present)?;
    let unfinished =
        state.unfinished_scans()?.into_iter().filter(|unfinished| is_selected(settings, unfinished.scan.scope));
    let unfinished = unfinished.map(|unfinished| ScanStatus {
        stream: unfinished.scan.scope.stream.name(),
        window: unfinished.scan.window.to_string(),
        pages: unfinished.pages,
        records: unfinished.rows,
    });
    let holder = state.current_holder()?;
    let runs = state.runs(RUNS_SHOWN)?;
    let last_drift = last_drift(&runs);
    let runs = runs.into_iter().map(|run| run_status(RunSummary::from_entry(run, holder.as_ref())));
    Ok(Status {
        state: state.path().display().to_string(),
        base_url: state.meta("base_url")?,
        environment: state.meta("environment")?,
        running: holder.as_ref().map(ToString::to_string),
        streams,
        users: users(settings, state, now_ms)?,
        proofs: proofs(settings, state, range, now_ms)?,
        under_way: unfinished.collect(),
        requests_per_sec: state.behaviour::<LearnedRate>(LEARNED_RATE)?.and_then(|(rate, _)| rate.requests_per_sec),
        no_request_before: retry_after_until_ms(state, clock::now_ms())?.map(format_second),
        clock_skew_ms: present.skew_ms,
        clock_in_doubt: present.is_in_doubt,
        lag: max_lag.map(lag).transpose()?,
        traits: known_behaviours(state)?,
        runs: runs.collect(),
        erasures_waiting,
        serve: serving(&settings.state_path)?,
        last_drift,
    })
}

fn run_status(run: RunSummary) -> RunStatus {
    RunStatus {
        secs: run.finished_ms.map(|finished_ms| (finished_ms - run.started_ms) as f64 / 1000.0),
        outcome: run.outcome,
        started: format_second(run.started_ms),
        run_id: run.run_id,
        command: run.command,
        exit_code: run.exit_code,
        reason: run.reason,
        why: run.why,
        hint: run.hint,
    }
}

/// Returns the drift of the newest run whose report has the fields of drift. Reports of earlier versions, of `verify`
/// and of `replay` do not have them.
fn last_drift(runs: &[RunEntry]) -> LastDrift {
    let reports = runs.iter().map(|run| StoredReport::parse(run.report.as_deref()));
    let drift = |report: StoredReport| {
        Some(LastDrift { drift: report.get("/drift")?, drift_unlisted: report.get("/drift_unlisted")? })
    };
    reports.filter_map(drift).next().unwrap_or_default()
}

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

fn streams(settings: &Settings, state: &State, present: PresentTime) -> Result<Vec<StreamStatus>, StateError> {
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

/// Counts rows in a warehouse. `reader` is `None` if no warehouse can be read.
struct RowCounter {
    reader: Option<Reader>,
}

impl RowCounter {
    /// Opens the first warehouse that can be read.
    fn open(warehouse: &WarehouseSettings) -> RowCounter {
        let limits = reader_limits(warehouse);
        let reader = warehouse.paths.iter().find_map(|(kind, path)| {
            let opened = Reader::open_limited(&kind.at(path), limits);
            opened.inspect_err(|error| tracing::info!(%error, "cannot count rows")).ok()
        });
        RowCounter { reader }
    }

    /// Returns the number of rows in a stream's table, or of one survey in the table; `None` if the warehouse cannot be
    /// read now.
    fn count(&mut self, scope: Scope) -> Option<u64> {
        let reader = self.reader.as_mut()?;
        let counted = count(reader, scope);
        counted.inspect_err(|error| tracing::info!(%error, "cannot count rows")).ok()
    }
}

/// Counts the rows of the stream's table, or only those of the scope's survey.
fn count(reader: &mut Reader, scope: Scope) -> Result<u64, LoadError> {
    let table = match scope.stream {
        Stream::Responses => "responses",
        Stream::Surveys => "surveys",
        Stream::Themes => "themes",
        Stream::Users => "users",
    };
    let survey = scope.survey_id.map(|id| format!(" WHERE survey_id = {id}")).unwrap_or_default();
    let result = reader.query(&format!("SELECT count(*) FROM {table}{survey}"), 1)?;
    let column = result.batches.first().and_then(|batch| batch.column(0).as_primitive_opt::<Int64Type>());
    let rows = column.and_then(|column| column.iter().next().flatten());
    Ok(rows.map_or(0, i64::unsigned_abs))
}

#[derive(Serialize)]
pub(super) struct UsersStatus {
    /// Number of users that the service returned when they were last requested.
    pub found: u64,
    /// Number of users that the service did not know when they were last requested.
    pub absent: u64,
    /// Number of users that the warehouse names; `None` if the warehouse cannot be read now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
}

/// Returns the counts of the stream of users; `None` if the stream is disabled and no user was ever requested. `named`
/// and `due` are `None` if the warehouse is missing or cannot be read.
fn users(settings: &Settings, state: &State, now_ms: i64) -> Result<Option<UsersStatus>, StateError> {
    let PeopleCounts { found, absent } = state.people_counts()?;
    if !settings.users.is_enabled && found + absent == 0 {
        return Ok(None);
    }
    let planned = planned_users(settings, Some(state), now_ms);
    let (named, due) = (planned.as_ref().map(|users| users.named), planned.as_ref().map(|users| users.due));
    Ok(Some(UsersStatus { found, absent, named, due }))
}

/// An erasure that waits for the service to purge.
#[derive(Serialize)]
pub(super) struct WaitingErasure {
    pub erasure_id: String,
    /// Number of named identifiers.
    pub people: usize,
    /// Earliest end of the suppression, by the service's clock.
    pub until: String,
}

/// Returns the waiting erasures, ordered by the end of their suppression.
pub(super) fn erasures_waiting(settings: &Settings) -> Result<Vec<WaitingErasure>, SuppressionError> {
    let list = SuppressionList::read(&settings.erasures_folder())?;
    let mut entries: Vec<_> = list.entries().iter().collect();
    entries.sort_by_key(|entry| (entry.until_ms, &entry.erasure_id));
    let waiting = entries.into_iter().map(|entry| WaitingErasure {
        erasure_id: entry.erasure_id.clone(),
        people: entry.named.len(),
        until: format_second(entry.until_ms),
    });
    Ok(waiting.collect())
}

#[derive(Serialize)]
pub(super) struct ServeStatus {
    /// True if a `serve` process runs now.
    pub is_running: bool,
    /// The cron expression and its time zone, or "off".
    pub schedule: String,
    pub next_run: Option<String>,
    pub last_run: Option<String>,
    pub last_run_ended: Option<String>,
    pub last_outcome: Option<String>,
    /// Number of deliveries that are not in the warehouses yet.
    pub waiting_deliveries: u64,
    pub waiting_since: Option<String>,
}

/// Returns the state of `serve`; `None` if it never ran with this state file.
fn serving(state: &Path) -> Result<Option<ServeStatus>, StateError> {
    let Some(inbox) = Inbox::open_read_only(state)? else { return Ok(None) };
    let (schedule, waiting) = (inbox.schedule()?.unwrap_or_default(), inbox.count_pending()?);
    let is_running = Inbox::lock(state)?.is_none();
    Ok(Some(ServeStatus {
        is_running,
        schedule: schedule.expression,
        // A stopped `serve` starts no run.
        next_run: schedule.next_ms.filter(|_| is_running).map(format_second),
        last_run: schedule.last_started_ms.map(format_second),
        last_run_ended: schedule.last_finished_ms.map(format_second),
        last_outcome: schedule.last_outcome,
        waiting_deliveries: waiting.deliveries,
        waiting_since: waiting.oldest_ms.map(format_second),
    }))
}
