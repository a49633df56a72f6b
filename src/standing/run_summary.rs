//! A run of the history, with why it did not end as `done`.

use serde::{Deserialize, Serialize};

use crate::{model::format_ms, pipeline::RunReason, state::RunEntry};

/// A run of the history, with why it did not end as `done`: in a word, in a sentence, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunSummary {
    pub run_id: String,
    pub command: String,
    #[serde(rename = "started_at", serialize_with = "moment")]
    pub started_ms: i64,
    /// `None` while it runs, and of a run that was killed.
    #[serde(rename = "finished_at", serialize_with = "optional_moment")]
    pub finished_ms: Option<i64>,
    /// As in the run's JSON; or `running`, or `killed`.
    pub outcome: String,
    pub exit_code: Option<i64>,
    /// `None` if the run is done, or still works.
    pub reason: Option<RunReason>,
    pub why: Option<String>,
    pub hint: Option<String>,
    /// What needs a look, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<String>,
    /// Whether it sent the service a request. A run of an earlier version that does not say counts as one that did.
    #[serde(skip)]
    pub has_asked: bool,
    /// What `--stream` and `--survey` left of the lists; `None` if they left all.
    #[serde(skip)]
    pub narrowed_to: Option<String>,
}

/// Which run failed: what a later one has to be to make it good.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FailedRun {
    pub command: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowed_to: Option<String>,
}

/// What is read of a run's JSON. One of an earlier version has no `reason`, `why`, `hint` and `looks`.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Facts {
    reason: Option<String>,
    why: Option<String>,
    hint: Option<String>,
    looks: Vec<String>,
    error: Option<String>,
    stopped_because: Option<String>,
    failures: Vec<FailureFacts>,
    requests: Option<RequestFacts>,
    narrowed_to: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestFacts {
    total: u64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FailureFacts {
    stream: String,
    window: String,
    error: String,
}

/// What is said of a run whose end nobody wrote down.
const KILLED: &str = "the run was killed before its end, or the machine stopped";
const KILLED_HINT: &str = "the next run resumes it; where this happens again, look for the out-of-memory killer and for time limits of \
     whatever starts the run";

impl RunSummary {
    /// The run of an entry of the history. `is_running`: its process holds the lease.
    pub fn of(entry: RunEntry, is_running: bool) -> RunSummary {
        let facts: Facts =
            entry.report.as_deref().and_then(|report| serde_json::from_str(report).ok()).unwrap_or_default();
        let is_killed = entry.finished_ms.is_none() && !is_running;
        let reason = match is_killed {
            true => Some(RunReason::RunKilled),
            false => facts.reason.as_deref().and_then(RunReason::named).or_else(|| of_exit_code(entry.exit_code)),
        };
        let first = facts.failures.first();
        let first = first.map(|FailureFacts { stream, window, error }| format!("{stream} {window}: {error}"));
        let why = facts.why.or(facts.error).or(first).or(facts.stopped_because);
        RunSummary {
            run_id: entry.run_id,
            command: entry.command,
            started_ms: entry.started_ms,
            finished_ms: entry.finished_ms,
            outcome: entry.outcome.unwrap_or_else(|| if is_running { "running" } else { "killed" }.to_owned()),
            exit_code: entry.exit_code,
            reason,
            why: if is_killed { Some(KILLED.to_owned()) } else { why },
            hint: if is_killed { Some(KILLED_HINT.to_owned()) } else { facts.hint },
            looks: facts.looks,
            has_asked: facts.requests.is_none_or(|requests| requests.total > 0),
            narrowed_to: facts.narrowed_to,
        }
    }

    /// Whether it makes good a run that failed before it: it succeeded, it asked the service, and it was a whole
    /// `sync`, or the same command for the same lists or all of them.
    pub fn makes_good(&self, failed: &FailedRun) -> bool {
        let is_same = self.command == failed.command && self.narrowed_to == failed.narrowed_to;
        let is_whole = self.narrowed_to.is_none() && (self.command == "sync" || self.command == failed.command);
        self.is_success() && self.has_asked && (is_same || is_whole)
    }

    /// What a later run has to be to make this one good.
    pub fn as_failed(&self) -> FailedRun {
        FailedRun { command: self.command.clone(), narrowed_to: self.narrowed_to.clone() }
    }

    /// Whether everything that was due is in the warehouse.
    pub fn is_success(&self) -> bool {
        matches!(self.exit_code, Some(0 | 3))
    }

    /// Whether it failed. A run that was left out, stopped early or interrupted is neither a success nor a failure.
    pub fn is_failure(&self) -> bool {
        self.reason.is_some_and(RunReason::is_failure)
    }

    /// When it ended; of a run that was killed, when it began.
    pub fn ended_ms(&self) -> i64 {
        self.finished_ms.unwrap_or(self.started_ms)
    }

    /// How it ended, on one line.
    pub fn sentence(&self) -> String {
        self.why.clone().unwrap_or_else(|| self.outcome.replace('_', " "))
    }
}

/// The reason of a run of an earlier version.
fn of_exit_code(exit_code: Option<i64>) -> Option<RunReason> {
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
