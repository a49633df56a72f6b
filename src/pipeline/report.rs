//! The report of a run: the JSON of `--json`, of `sync_runs` and of `status`.
//!
//! The header that the reports of all commands share.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::{
    config::Settings,
    load::RowCounts,
    model::{Fault, Outcome, RunId, RunReason, TimeParts, Untrusted},
    source::{RequestStats, Stop},
};

use super::{
    drift::DriftReport,
    error::{Failure, PipelineError, chain},
};

/// What a run did about recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RecordingsReport {
    /// Recordings that were downloaded.
    pub fetched: u64,
    /// Bytes that this run downloaded.
    pub bytes: u64,
    /// Recordings that cannot be downloaded, for now or for ever: `recording_status` says why.
    pub missing: u64,
    /// Recordings that are left to the next run.
    pub waiting: u64,
}

/// How much of a stream a run has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// The run ended before it read the stream.
    #[default]
    None,
    /// The next run has to continue the stream.
    Part,
    /// Everything that was due was read.
    All,
}

impl Reached {
    fn is_all(&self) -> bool {
        *self == Reached::All
    }
}

/// One stream's part of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct StreamReport {
    /// How much of the stream the run has read.
    #[serde(skip_serializing_if = "Reached::is_all")]
    pub reached: Reached,
    /// Committed scans.
    pub windows: u64,
    /// Pages of those scans.
    pub pages: u64,
    /// Rows of those scans, by what they changed.
    #[serde(flatten)]
    pub counts: RowCounts,
}

impl StreamReport {
    /// Adds the counts of a committed scan.
    pub(super) fn add_scan(&mut self, pages: u64, counts: &RowCounts) {
        self.windows += 1;
        self.pages += pages;
        self.counts += *counts;
    }
}

/// The report of a run of `sync`, `backfill` or `users pull`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct RunReport {
    /// A version 7 UUID; the column `_run_id` of the rows that the run wrote.
    #[schemars(with = "String")]
    pub run_id: RunId,
    #[serde(flatten)]
    pub header: ReportHeader,
    /// The lists and surveys that `--stream` and `--survey` selected; absent if the run read everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub narrowed_to: Option<String>,
    /// Windows and rows by stream: `responses`, `surveys`, `themes`, `users`.
    pub streams: BTreeMap<&'static str, StreamReport>,
    /// Fields and values that the contracts do not know, at most 100 places per stream (`DRIFT_PLACES_MAX`).
    pub drift: Vec<DriftReport>,
    /// Records with drift that the list has no room for. A record counts once per field.
    pub drift_unlisted: u64,
    /// What the checkpoints and the clocks know against the data after the run, at most 100 entries. The view
    /// `untrusted` has them and more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untrusted: Vec<Untrusted>,
    /// Webhook events that this run added to the warehouses.
    #[serde(skip_serializing_if = "is_none")]
    pub webhook_events: u64,
    /// Recordings, if they are enabled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recordings: Option<RecordingsReport>,
    /// Requests that the run sent.
    pub requests: RequestStats,
    /// Why the run was stopped early, and until when no request may be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_because: Option<String>,
    /// When the next run may send requests, epoch milliseconds by this machine.
    #[serde(skip)]
    pub resume_after_ms: Option<i64>,
    /// The end of the wait, if a wait longer than the patience ended the run.
    #[serde(skip)]
    pub limited_until_ms: Option<i64>,
    /// Why the outcome is not `done`, as one word of a fixed list, for monitors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<RunReason>,
    /// Why the outcome is not `done`, as a sentence: the error, the first failure, or `looks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What to do about the error, if the program knows a way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Findings that somebody must read, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<String>,
    /// Windows that failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Further notes, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Returns true for 0, which the JSON leaves out.
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl RunReport {
    /// Creates a report without findings.
    pub(super) fn new(run_id: RunId, header: ReportHeader) -> RunReport {
        RunReport {
            run_id,
            header,
            narrowed_to: None,
            streams: BTreeMap::new(),
            drift: Vec::new(),
            drift_unlisted: 0,
            untrusted: Vec::new(),
            webhook_events: 0,
            recordings: None,
            requests: RequestStats::default(),
            stopped_because: None,
            resume_after_ms: None,
            limited_until_ms: None,
            reason: None,
            why: None,
            hint: None,
            looks: Vec::new(),
            failures: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Creates the report of a run that failed before it could send a request.
    pub fn failed_start(run_id: RunId, command: &'static str, times: RunTimes, error: &PipelineError) -> RunReport {
        let header = ReportHeader::new(command, times, TimeParts::default(), Outcome::Failed, Some(error));
        RunReport::new(run_id, header).with_reason(Some(error), None)
    }

    /// Sets which lists and surveys the settings select.
    pub fn with_lists_of(mut self, settings: &Settings) -> RunReport {
        self.narrowed_to = settings.narrowed_to();
        self
    }

    /// Sets the reason, as a word and as a sentence, and the hint. Call it after all other fields are set. `error`
    /// ended the run, and `stop` says why the run was stopped early.
    pub(super) fn with_reason(mut self, error: Option<&PipelineError>, stop: Option<Stop>) -> RunReport {
        let of_outcome = match (self.header.outcome, stop) {
            (Outcome::StoppedEarly | Outcome::Interrupted, Some(stop)) => Some(stop.reason()),
            (outcome, _) => outcome.reason(),
        };
        self.reason = error.map(Fault::reason).or(of_outcome);
        let hint = error.and_then(Fault::hint).map(str::to_owned);
        self.hint = hint.or_else(|| self.failures.first().filter(|_| error.is_none())?.hint.clone());
        self.why = match self.header.outcome {
            Outcome::Done => None,
            Outcome::NeedsALook => Some(self.looks.join("; ")),
            Outcome::Failed => {
                self.header.error.clone().or_else(|| self.failures.first().map(|first| first.sentence())).map(|why| {
                    match self.failures.len().saturating_sub(1) {
                        more if more > 0 && self.header.error.is_none() => format!("{why} (and {more} more)"),
                        _ => why,
                    }
                })
            }
            Outcome::StoppedEarly | Outcome::Interrupted => self.stopped_because.clone(),
        };
        self
    }
}

/// The start and the end of a command, in epoch milliseconds by this machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct RunTimes {
    pub started_ms: i64,
    pub finished_ms: i64,
}

/// The outcome of a command, its times and its memory. The reference of the run JSON shows the docs of the fields, so
/// they speak of runs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ReportHeader {
    /// The command: `sync`, `backfill`, `users pull`.
    pub command: &'static str,
    /// How the run ended.
    pub outcome: Outcome,
    /// The exit code of the command.
    pub exit_code: u8,
    /// When the run began: RFC 3339, by this machine's clock.
    pub started_at: String,
    /// When the run ended: RFC 3339, by this machine's clock.
    pub finished_at: String,
    /// Milliseconds by activity. The sum of all but `wall` is `wall`.
    pub time_ms: TimeParts,
    /// The peak memory of the process in bytes; 0 if the system does not report it.
    pub peak_rss_bytes: u64,
    /// The error that ended the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ReportHeader {
    /// Creates the header of a command with this outcome. An error makes the outcome `failed`.
    pub fn new(
        command: &'static str,
        times: RunTimes,
        time_ms: TimeParts,
        outcome: Outcome,
        error: Option<&PipelineError>,
    ) -> Self {
        ReportHeader {
            command,
            outcome: if error.is_some() { Outcome::Failed } else { outcome },
            exit_code: error.map_or(outcome.exit_code(), Fault::exit_code),
            started_at: rfc3339(times.started_ms),
            finished_at: rfc3339(times.finished_ms),
            time_ms,
            peak_rss_bytes: peak_rss_bytes(),
            error: error.map(|error| chain(error)),
        }
    }

    /// Returns the wall time of the command, in seconds.
    pub fn secs(&self) -> f64 {
        self.time_ms.wall as f64 / 1000.0
    }
}

/// Returns a time as RFC 3339 text with milliseconds, in UTC.
fn rfc3339(at_ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(at_ms)
        .map(|moment| moment.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
        .unwrap_or_default()
}

/// Returns the peak memory of the process in bytes, or 0 if the operating system does not report it.
fn peak_rss_bytes() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
