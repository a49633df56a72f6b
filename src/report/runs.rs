//! The last runs that changed the warehouse, with the numbers of their JSON in `sync_runs`.

use serde::Deserialize;

use super::{
    limits::RUNS_MAX,
    rows::{Row, query},
};
use crate::{
    load::{LoadError, Reader},
    model::TimeParts,
};

pub(super) struct RunRow {
    pub run_id: String,
    pub command: String,
    pub outcome: String,
    /// When the run started, epoch milliseconds by the clock of its machine.
    pub started_ms: i64,
    /// `None` if the run's JSON cannot be parsed.
    pub report: Option<RunJson>,
}

/// The fields that are read from a run's JSON.
#[derive(Deserialize)]
pub(super) struct RunJson {
    pub requests: Requests,
    pub time_ms: TimeParts,
}

#[derive(Deserialize)]
pub(super) struct Requests {
    pub total: u64,
}

/// Returns the last runs, newest first.
pub(super) fn runs(reader: &mut Reader) -> Result<Vec<RunRow>, LoadError> {
    let sql = format!(
        "SELECT run_id, command, outcome, epoch_ms(started_at) AS started_ms, report::VARCHAR AS report
         FROM sync_runs ORDER BY sync_runs.started_at DESC, run_id DESC LIMIT {RUNS_MAX}"
    );
    let make = |row: Row<'_>| RunRow {
        run_id: row.text("run_id").unwrap_or_default(),
        command: row.text("command").unwrap_or_default(),
        outcome: row.text("outcome").unwrap_or_default(),
        started_ms: row.count("started_ms"),
        report: row.text("report").and_then(|report| serde_json::from_str(&report).ok()),
    };
    query(reader, &sql, make)
}
