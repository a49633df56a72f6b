//! The header that the reports of all commands share.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Outcome, PipelineError, chain};
use crate::model::TimeParts;

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
            exit_code: error.map_or(outcome.exit_code(), PipelineError::exit_code),
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
