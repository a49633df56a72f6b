//! What the reports of all commands have in common.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Outcome, PipelineError, chain};
use crate::model::TimeParts;

/// When a command began and ended, epoch milliseconds by this machine's clock.
#[derive(Clone, Copy, Debug)]
pub struct RunTimes {
    pub started_ms: i64,
    pub finished_ms: i64,
}

/// How a command ended, and what it took. The reference of the run JSON shows the docs of the fields, so they speak of
/// runs.
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
    /// Where the time went, in milliseconds; everything but `wall` adds up to it.
    pub time_ms: TimeParts,
    /// The most memory that the process had; 0 where the system does not say.
    pub peak_rss_bytes: u64,
    /// What ended the run, if an error did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ReportHeader {
    /// The header of a command that reached this outcome. An error makes the outcome `failed`.
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

    /// The wall time of the command, in seconds.
    pub fn secs(&self) -> f64 {
        self.time_ms.wall as f64 / 1000.0
    }
}

fn rfc3339(at_ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(at_ms)
        .map(|moment| moment.to_rfc3339_opts(chrono::SecondsFormat::Millis, true))
        .unwrap_or_default()
}

/// The most memory that the process ever had, in bytes; 0 where the system does not say.
fn peak_rss_bytes() -> u64 {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}
