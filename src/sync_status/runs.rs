//! The runs of the history: their reports, their outcomes, why they ended so, and what to do.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    model::{StoredReport, format_ms, format_second},
    pipeline::{Outcome, RunReason},
    state::{LeaseHolder, RunEntry},
};

/// One run of the history: its outcome, why it ended so, and what to do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunSummary {
    pub run_id: String,
    pub command: String,
    #[serde(rename = "started_at", serialize_with = "moment")]
    pub started_ms: i64,
    /// `None` while the run is running, and for a killed run.
    #[serde(rename = "finished_at", serialize_with = "optional_moment")]
    pub finished_ms: Option<i64>,
    /// The outcome in the run's JSON, or `running`, or `killed`.
    pub outcome: String,
    pub exit_code: Option<i64>,
    /// Why the run did not end as `done`; `None` if it ended as `done` or is still running.
    pub reason: Option<RunReason>,
    /// The reason as a sentence.
    pub why: Option<String>,
    pub hint: Option<String>,
    /// Sentences about findings that somebody should check.
    #[serde(rename = "looks", skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// True if the run sent a request to the service, or if no report says. A run without requests does not resolve an
    /// earlier failure.
    #[serde(skip)]
    pub has_sent_requests: bool,
    /// The `--stream` and `--survey` arguments that limited the run; `None` for a run without them.
    #[serde(skip)]
    pub narrowed_to: Option<String>,
}

/// A recent run as `status` shows it.
#[derive(Clone, Debug, Serialize)]
pub struct RunStatus {
    pub run_id: String,
    pub command: String,
    pub started: String,
    #[serde(skip)]
    pub started_ms: i64,
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

impl RunStatus {
    pub(super) fn new(run: &RunSummary) -> RunStatus {
        let run = run.clone();
        RunStatus {
            secs: run.finished_ms.map(|finished_ms| (finished_ms - run.started_ms) as f64 / 1000.0),
            outcome: run.outcome,
            started: format_second(run.started_ms),
            started_ms: run.started_ms,
            run_id: run.run_id,
            command: run.command,
            exit_code: run.exit_code,
            reason: run.reason,
            why: run.why,
            hint: run.hint,
        }
    }
}

/// A run of the history with its report.
#[derive(Clone, Debug)]
pub struct Run {
    pub summary: RunSummary,
    pub report: StoredReport,
}

impl Run {
    /// Reads an entry of the history. `holder` is the run that holds the lease.
    pub fn from_entry(entry: RunEntry, holder: Option<&LeaseHolder>) -> Run {
        let report = StoredReport::parse(entry.report.as_deref());
        Run { summary: RunSummary::new(entry, &report, holder), report }
    }

    /// Returns the report as JSON; `None` if the run recorded no report.
    pub fn json(&self) -> Option<Value> {
        self.report.get("").filter(|json: &Value| !json.is_null())
    }
}

/// The part of a failed run that decides which later run resolves the failure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedRun {
    pub command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowed_to: Option<String>,
}

/// The outcome of a run whose process holds the lease.
const RUNNING: &str = "running";
/// The reason that is shown for a run without a recorded end.
const KILLED: &str = "the run was killed before its end, or the machine stopped";
const KILLED_HINT: &str = "the next run resumes it; if this happens again, check the out-of-memory killer and the time limits of the \
     program that starts the run";

impl RunSummary {
    /// Summarizes an entry of the history and its report. `holder` is the run that holds the lease. Reports of earlier
    /// versions have no `reason`, `why`, `hint` and `looks`.
    fn new(entry: RunEntry, report: &StoredReport, holder: Option<&LeaseHolder>) -> RunSummary {
        let is_running = entry.finished_ms.is_none() && holder.is_some_and(|holder| holder.run_id == entry.run_id);
        let is_killed = entry.finished_ms.is_none() && !is_running;
        let reported =
            report.get("/reason").and_then(RunReason::from_name).or_else(|| reason_of_exit_code(entry.exit_code));
        let first_failure = || {
            let field = |name: &str| report.get::<String>(&format!("/failures/0/{name}")).unwrap_or_default();
            report.get::<Value>("/failures/0")?;
            Some(format!("{} {}: {}", field("stream"), field("window"), field("error")))
        };
        let why = report.get("/why").or_else(|| report.get("/error")).or_else(first_failure);
        RunSummary {
            run_id: entry.run_id,
            command: entry.command,
            started_ms: entry.started_ms,
            finished_ms: entry.finished_ms,
            outcome: entry.outcome.unwrap_or_else(|| if is_running { RUNNING } else { "killed" }.to_owned()),
            exit_code: entry.exit_code,
            reason: if is_killed { Some(RunReason::RunKilled) } else { reported },
            why: if is_killed { Some(KILLED.to_owned()) } else { why.or_else(|| report.get("/stopped_because")) },
            hint: if is_killed { Some(KILLED_HINT.to_owned()) } else { report.get("/hint") },
            warnings: report.get("/looks").unwrap_or_default(),
            has_sent_requests: report.get("/requests/total").is_none_or(|total: u64| total > 0),
            narrowed_to: report.get("/narrowed_to"),
        }
    }

    /// Returns true if the run's process holds the lease.
    pub fn is_running(&self) -> bool {
        self.outcome == RUNNING
    }

    /// Adds a sentence about a finding that somebody should check, to a run that is done.
    pub fn add_attention(&mut self, sentence: &str) {
        if self.reason.is_none() {
            (self.reason, self.exit_code) = (Some(RunReason::NeedsALook), Some(3));
            self.outcome = Outcome::NeedsALook.name().to_owned();
            self.why = Some(sentence.to_owned());
        }
        self.warnings.push(sentence.to_owned());
    }

    /// Returns true if this run resolves the failure of an earlier run. A run resolves a failure if it succeeded, sent
    /// requests, and read at least as much as the failed run. So it is a complete `sync`, or the same command, complete
    /// or limited in the same way.
    pub fn resolves(&self, failed: &FailedRun) -> bool {
        let is_same = self.command == failed.command && self.narrowed_to == failed.narrowed_to;
        let is_complete = self.narrowed_to.is_none() && (self.command == "sync" || self.command == failed.command);
        self.is_success() && self.has_sent_requests && (is_same || is_complete)
    }

    /// Returns the part of this run that [`RunSummary::resolves`] compares.
    pub fn as_failed(&self) -> FailedRun {
        FailedRun { command: self.command.clone(), narrowed_to: self.narrowed_to.clone() }
    }

    /// Returns true if everything that was due is in the warehouse.
    pub fn is_success(&self) -> bool {
        matches!(self.exit_code, Some(0 | 3))
    }

    /// Returns true if the run failed. A run that was skipped, stopped early or interrupted neither succeeded nor
    /// failed.
    pub fn is_failure(&self) -> bool {
        self.reason.is_some_and(RunReason::is_failure)
    }

    /// Returns when the run ended, or for a killed run, when it began.
    pub fn ended_ms(&self) -> i64 {
        self.finished_ms.unwrap_or(self.started_ms)
    }

    /// Returns one line on how the run ended.
    pub fn sentence(&self) -> String {
        self.why.clone().unwrap_or_else(|| self.outcome.replace('_', " "))
    }
}

/// Returns the reason of a run whose report has none: earlier versions wrote only the exit code.
fn reason_of_exit_code(exit_code: Option<i64>) -> Option<RunReason> {
    match exit_code? {
        0 => None,
        2 => Some(RunReason::Configuration),
        3 => Some(RunReason::NeedsALook),
        4 => Some(RunReason::KeyRefused),
        5 => Some(RunReason::WarehouseLocked),
        6 => Some(RunReason::StoppedEarly),
        130 => Some(RunReason::Interrupted),
        _ => Some(RunReason::RunFailed),
    }
}

fn moment<S: serde::Serializer>(at_ms: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_ms(*at_ms))
}

fn optional_moment<S: serde::Serializer>(at_ms: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    at_ms.map(format_ms).serialize(serializer)
}
