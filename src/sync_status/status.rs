//! The status of synchronisation, read once from the checkpoints. The command `status`, the status page, metrics,
//! health and notifications all show this status.

use std::{collections::BTreeMap, ops::ControlFlow};

use serde::Serialize;

use crate::{
    config::Settings,
    model::{DAY_MS, Snapshots, Untrusted, format_second, is_in_future},
    pipeline::{
        DriftReport, KnownBehaviour, LEARNED_RATE, RunReason, RunReport, RunTimes, SNAPSHOTS, ScopeBacklog,
        ValidCoverage, backlog, known_behaviours, retry_after_until_ms,
    },
    source::LearnedRate,
    state::{Inbox, PendingDeliveries, PeopleCounts, RunEntry, State, StateError},
};

use super::{
    FailedRun, LagCheck, PresentTime, ProofStatus, Run, RunStatus, RunSummary, ScopeStatus, StreamLag, is_selected,
    stream_lags,
};

/// The commands that bring the warehouse up to date. In this file, a "sync run" is a run of one of these commands.
/// `wake` is not in the list: a wake-up reads only the streams that a webhook named, so its success proves nothing
/// about other streams.
const SYNC_COMMANDS: [&str; 3] = ["sync", "backfill", "users pull"];
/// Maximum runs in [`Status::recent_runs`].
pub const RECENT_RUNS_MAX: usize = 20;
/// Maximum runs that `status` shows.
const RUNS_SHOWN: usize = 5;

/// The state of synchronisation. Serialized, it is the JSON of `status --json`.
///
/// [`Status::read`] reads what `serve` shows and measures; [`Status::add_details`] reads the rest of the checkpoints.
/// The rows of the warehouse, the waiting erasures, the copies for readers, the proofs of a range, the result of
/// --max-lag and the state of `serve` are added by the command that shows them. A failed run is *resolved* when a later
/// run succeeded in its place ([`RunSummary::resolves`]).
#[derive(Clone, Debug, Default, Serialize)]
pub struct Status {
    /// The path of the state file.
    pub state: String,
    pub base_url: Option<String>,
    pub environment: Option<String>,
    /// The process that holds the lease; `None` if no run is active.
    pub running: Option<String>,
    /// The scopes that have coverage.
    #[serde(rename = "streams")]
    pub scopes: Vec<ScopeStatus>,
    /// `None` if the stream of users is disabled and no user was ever requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<UsersStatus>,
    /// The intervals of the requested range with their proofs, or all intervals.
    pub proofs: Vec<ProofStatus>,
    /// Unfinished scans, which the next run resumes.
    #[serde(rename = "under_way")]
    pub unfinished_scans: Vec<ScanStatus>,
    /// The learned rate limit of the service, in requests per second; `None` if no run has learned one.
    #[serde(rename = "requests_per_sec")]
    pub learned_requests_per_sec: Option<f64>,
    /// What the catalog of the warehouse keeps until maintenance; `None` for a warehouse that needs none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maintenance: Option<MaintenanceStatus>,
    /// The end of the service's `Retry-After`, before which no command sends a request; `None` if none is in force.
    #[serde(rename = "no_request_before", serialize_with = "second", skip_serializing_if = "Option::is_none")]
    pub rate_limited_until_ms: Option<i64>,
    #[serde(flatten)]
    pub clock: PresentTime,
    /// The result of --max-lag; `None` without --max-lag.
    #[serde(flatten)]
    pub lag: Option<LagCheck>,
    /// The service profile.
    #[serde(rename = "traits")]
    pub behaviours: Vec<KnownBehaviour>,
    /// The newest runs.
    pub runs: Vec<RunStatus>,
    /// Erasures whose people the service may still send.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub erasures_waiting: Vec<WaitingErasure>,
    /// The copies for readers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copies: Vec<CopyStatus>,
    /// The state of `serve`; `None` if it never ran with this state file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve: Option<ServeStatus>,
    /// The drift that the newest of the shown runs found, with the same fields as in the run JSON. Runs whose JSON has
    /// no such fields, such as `verify`, are skipped.
    pub drift: Vec<DriftReport>,
    pub drift_unlisted: u64,
    /// What is known against the data of the first warehouse: the rows of its view `untrusted`. `None` if the warehouse
    /// cannot be read now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub untrusted: Option<Vec<Untrusted>>,

    /// When the status was read, epoch milliseconds by this machine.
    #[serde(skip)]
    pub now_ms: i64,
    /// Why the rows were not counted; `None` if the warehouse cannot be read.
    #[serde(skip)]
    pub rows_left_out: Option<&'static str>,
    /// What the next sync scans, for each configured scope.
    #[serde(skip)]
    pub backlog: Vec<ScopeBacklog>,
    /// How far each configured stream is behind the service's clock.
    #[serde(skip)]
    pub stream_lags: Vec<StreamLag>,
    /// The newest runs, at most [`RECENT_RUNS_MAX`].
    #[serde(skip)]
    pub recent_runs: Vec<Run>,
    /// The newest run of any command, finished or not.
    #[serde(skip)]
    pub last_run: Option<RunSummary>,
    /// The newest sync run that ended or was killed.
    #[serde(skip)]
    pub last_ended: Option<RunSummary>,
    /// The newest successful sync run that did not end in the future: everything that was due is in the warehouse.
    #[serde(skip)]
    pub last_success: Option<RunSummary>,
    /// True if a sync run has succeeded, whatever its time.
    #[serde(skip)]
    pub has_succeeded: bool,
    /// The newest failed sync run that is not resolved.
    #[serde(skip)]
    pub last_failure: Option<RunSummary>,
    /// The number of failed sync runs that are not resolved.
    #[serde(skip)]
    pub failures_in_a_row: u32,
    /// Killed sync runs, newest first, except those that a run before [`Status::last_ended`] resolved.
    #[serde(skip)]
    pub killed_runs: Vec<RunSummary>,
    /// The JSON report of [`Status::last_ended`]; `None` if that run recorded no end.
    #[serde(skip)]
    pub last_report: Option<serde_json::Value>,
    /// For each command: when its newest successful run ended, epoch milliseconds.
    #[serde(skip)]
    pub last_success_ms: BTreeMap<String, i64>,
}

/// The counts of the stream of users. The checkpoints do not have `named` and `due`: they are `None` until they are
/// counted, and if the warehouse cannot be read now.
#[derive(Clone, Debug, Serialize)]
pub struct UsersStatus {
    /// Number of users that the service returned when they were last requested.
    pub found: u64,
    /// Number of users that the service did not know when they were last requested.
    pub absent: u64,
    /// Number of users that the warehouse names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due: Option<u64>,
}

/// An unfinished scan.
#[derive(Clone, Debug, Serialize)]
pub struct ScanStatus {
    pub stream: &'static str,
    pub window: String,
    pub pages: u64,
    pub records: u64,
}

/// An erasure that waits for the service to purge.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingErasure {
    pub erasure_id: String,
    /// Number of named identifiers.
    pub people: usize,
    /// Earliest end of the suppression, by the service's clock.
    pub until: String,
}

/// A copy for readers.
#[derive(Clone, Debug, Serialize)]
pub struct CopyStatus {
    /// The kind of the warehouse: "duckdb" or "parquet".
    pub warehouse: &'static str,
    pub path: String,
    /// True if the copy is made without personal data.
    pub without_personal_data: bool,
    /// "current", "older" (than the warehouse) or "missing".
    pub age: &'static str,
    /// The last change of the warehouse that the copy has; `None` without a copy.
    pub as_of: Option<String>,
}

/// The oldest snapshot of a catalog may have this age before maintenance is due: two weeks, for weekly maintenance.
const SNAPSHOT_AGE_MAX_MS: i64 = 14 * DAY_MS;

/// The snapshots of a catalog at the end of the last run.
#[derive(Clone, Debug, Serialize)]
pub struct MaintenanceStatus {
    pub snapshots: i64,
    pub oldest_snapshot: String,
    /// When maintenance is due, or since when.
    pub due_at: String,
    pub is_due: bool,
}

impl MaintenanceStatus {
    fn read(settings: &Settings, state: &State, now_ms: i64) -> Result<Option<MaintenanceStatus>, StateError> {
        let has_catalog = settings.warehouse.locations.values().any(|location| location.catalog.is_some());
        let found = state.behaviour::<Snapshots>(SNAPSHOTS)?.filter(|_| has_catalog);
        Ok(found.map(|(Snapshots { count, oldest_ms }, _)| {
            let due_ms = oldest_ms.saturating_add(SNAPSHOT_AGE_MAX_MS);
            MaintenanceStatus {
                snapshots: count,
                oldest_snapshot: format_second(oldest_ms),
                due_at: format_second(due_ms),
                // The current snapshot stays, however old it is.
                is_due: count > 1 && due_ms <= now_ms,
            }
        }))
    }
}

/// The state of `serve`.
#[derive(Clone, Debug, Serialize)]
pub struct ServeStatus {
    /// True if a `serve` process runs now.
    pub is_running: bool,
    /// True if the configuration has settings of `[serve]`.
    #[serde(skip)]
    pub is_configured: bool,
    /// The cron expression and its time zone, or "off".
    pub schedule: String,
    pub next_run: Option<String>,
    pub last_run: Option<String>,
    pub last_run_ended: Option<String>,
    pub last_outcome: Option<String>,
    /// Why the report of `[serve] report` cannot be written; absent if it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_error: Option<String>,
    /// Number of deliveries that are not in the warehouses yet.
    pub waiting_deliveries: u64,
    pub waiting_since: Option<String>,
}

impl ServeStatus {
    /// Reads the state of `serve` and every stored delivery. Returns `None` if `serve` never ran with this state file.
    ///
    /// # Errors
    /// The inbox cannot be read.
    pub fn read(settings: &Settings) -> Result<Option<ServeStatus>, StateError> {
        let Some(inbox) = Inbox::open_read_only(&settings.state_path)? else { return Ok(None) };
        let (schedule, waiting) = (inbox.schedule()?.unwrap_or_default(), inbox.count_pending()?);
        let is_running = Inbox::lock(&settings.state_path)?.is_none();
        Ok(Some(ServeStatus {
            is_running,
            is_configured: settings.serve.is_configured,
            schedule: schedule.expression,
            // A stopped `serve` starts no run.
            next_run: schedule.next_ms.filter(|_| is_running).map(format_second),
            last_run: schedule.last_started_ms.map(format_second),
            last_run_ended: schedule.last_finished_ms.map(format_second),
            last_outcome: schedule.last_outcome,
            report_error: inbox.report_error()?,
            waiting_deliveries: waiting.deliveries,
            waiting_since: waiting.oldest_ms.map(format_second),
        }))
    }
}

impl Status {
    /// Reads the status. If there is no state file, returns a status without runs and coverage.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn read(settings: &Settings, now_ms: i64) -> Result<Status, StateError> {
        match State::open_if_current(&settings.state_path)? {
            Some(state) => Status::from_state(settings, &state, now_ms),
            None => Ok(Status {
                now_ms,
                stream_lags: stream_lags(settings, &[]),
                backlog: backlog(settings, None, None, now_ms, ValidCoverage::Stored)?,
                ..Status::default()
            }),
        }
    }

    /// Reads the status from the checkpoints. Measures lags by the [`PresentTime`].
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn from_state(settings: &Settings, state: &State, now_ms: i64) -> Result<Status, StateError> {
        let clock = PresentTime::read(state, now_ms)?;
        let scopes = ScopeStatus::read_all(settings, state, &clock)?;
        let learned = state.behaviour::<LearnedRate>(LEARNED_RATE)?;
        let mut status = Status {
            state: state.path().display().to_string(),
            base_url: state.meta("base_url")?,
            environment: state.meta("environment")?,
            stream_lags: stream_lags(settings, &scopes),
            scopes,
            learned_requests_per_sec: learned.and_then(|(rate, _)| rate.requests_per_sec),
            maintenance: MaintenanceStatus::read(settings, state, now_ms)?,
            rate_limited_until_ms: retry_after_until_ms(state, now_ms)?,
            backlog: backlog(settings, Some(state), None, clock.service_ms(now_ms), ValidCoverage::Stored)?,
            clock,
            now_ms,
            ..Status::default()
        };
        status.read_history(state)?;
        Ok(status)
    }

    /// Adds what only people ask for: the counts of users, unfinished scans and the service profile. Not read with the
    /// rest, because `serve` reads the status each second, and counting millions of users takes a quarter of a second.
    ///
    /// # Errors
    /// The checkpoints cannot be read.
    pub fn add_details(&mut self, settings: &Settings, state: &State) -> Result<(), StateError> {
        let PeopleCounts { found, absent } = state.people_counts()?;
        let users = UsersStatus { found, absent, named: None, due: None };
        self.users = (settings.users.is_enabled || found + absent > 0).then_some(users);
        let unfinished = state.unfinished_scans()?.into_iter();
        self.unfinished_scans = unfinished
            .filter(|unfinished| is_selected(settings, unfinished.scan.scope))
            .map(|unfinished| ScanStatus {
                stream: unfinished.scan.scope.stream.name(),
                window: unfinished.scan.window.to_string(),
                pages: unfinished.pages,
                records: unfinished.rows,
            })
            .collect();
        self.behaviours = known_behaviours(state)?;
        Ok(())
    }

    /// Counts the webhook deliveries that are not in the warehouses yet. Reads every stored delivery.
    ///
    /// # Errors
    /// The inbox cannot be read.
    pub fn pending_deliveries(settings: &Settings) -> Result<PendingDeliveries, StateError> {
        let inbox = Inbox::open_read_only(&settings.state_path)?;
        inbox.map_or(Ok(PendingDeliveries::default()), |inbox| inbox.count_pending())
    }

    /// Adds a run that is not in the history, because it failed before it could be recorded.
    pub fn add_unrecorded_run(&mut self, report: &RunReport, moments: RunTimes) {
        let entry = RunEntry {
            run_id: report.run_id.0.clone(),
            command: report.header.command.to_owned(),
            started_ms: moments.started_ms,
            finished_ms: Some(moments.finished_ms),
            outcome: Some(report.header.outcome.name().to_owned()),
            exit_code: Some(i64::from(report.header.exit_code)),
            report: serde_json::to_string(report).ok(),
        };
        let run = Run::from_entry(entry, None);
        self.last_report = run.json();
        let run = run.summary;
        if run.is_failure() {
            self.failures_in_a_row += 1;
            self.last_failure = Some(run.clone());
        }
        (self.last_run, self.last_ended) = (Some(run.clone()), Some(run));
    }

    fn is_last_ended(&self, run: &RunSummary) -> bool {
        self.last_ended.as_ref().is_some_and(|last| last.run_id == run.run_id)
    }

    /// Reads the history of runs, newest first, into the fields about runs.
    fn read_history(&mut self, state: &State) -> Result<(), StateError> {
        let holder = state.current_holder()?;
        self.last_success_ms = state.last_successes(self.now_ms)?;
        let (mut successes, mut is_resolved) = (Vec::new(), false);
        state.visit_runs(|entry| {
            let run = Run::from_entry(entry, holder.as_ref());
            is_resolved = is_resolved || self.add_earlier_run(&run, &mut successes);
            if self.recent_runs.len() < RECENT_RUNS_MAX {
                self.recent_runs.push(run);
            }
            let is_done = is_resolved && self.recent_runs.len() == RECENT_RUNS_MAX;
            if is_done { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let shown = &self.recent_runs[..self.recent_runs.len().min(RUNS_SHOWN)];
        let drift = |run: &Run| Some((run.report.get("/drift")?, run.report.get("/drift_unlisted")?));
        (self.drift, self.drift_unlisted) = shown.iter().find_map(drift).unwrap_or_default();
        self.runs = shown.iter().map(|run| RunStatus::new(&run.summary)).collect();
        self.running = holder.as_ref().map(ToString::to_string);
        Ok(())
    }

    /// Adds a run that is earlier than all runs added before. `successes` are the successful sync runs added before.
    /// Returns true for a success that resolves every earlier failure and is not the newest sync run: a kill before the
    /// newest run may not have been notified yet.
    fn add_earlier_run(&mut self, earlier: &Run, successes: &mut Vec<RunSummary>) -> bool {
        let run = &earlier.summary;
        self.last_run.get_or_insert_with(|| run.clone());
        if !SYNC_COMMANDS.contains(&run.command.as_str()) || run.is_running() {
            return false;
        }
        if self.last_ended.is_none() {
            self.last_ended = Some(run.clone());
            self.last_report = earlier.json();
        }
        if run.is_success() {
            let resolves_all = run.resolves(&FailedRun::default()) && !self.is_last_ended(run);
            self.has_succeeded = true;
            if !is_in_future(run.ended_ms(), self.now_ms) {
                self.last_success.get_or_insert_with(|| run.clone());
            }
            successes.push(run.clone());
            return resolves_all && self.last_success.is_some();
        }
        let failed = run.as_failed();
        let mut earlier_successes = successes.iter().filter(|success| !self.is_last_ended(success));
        if run.reason == Some(RunReason::RunKilled) && !earlier_successes.any(|success| success.resolves(&failed)) {
            self.killed_runs.push(run.clone());
        }
        if run.is_failure() && !successes.iter().any(|success| success.resolves(&failed)) {
            self.failures_in_a_row += 1;
            self.last_failure.get_or_insert_with(|| run.clone());
        }
        false
    }
}

fn second<S: serde::Serializer>(at_ms: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    at_ms.map(format_second).serialize(serializer)
}
