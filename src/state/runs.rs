//! The history of runs.

use crate::model::{DurableStep, RunId};

use super::{State, StateError};

/// Runs beyond the newest so many are forgotten.
const RUNS_KEPT: i64 = 1000;

/// One run as remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEntry {
    pub run_id: String,
    pub command: String,
    /// Epoch milliseconds by this machine.
    pub started_ms: i64,
    /// `None` while it runs, and for ever if it was killed.
    pub finished_ms: Option<i64>,
    pub outcome: Option<String>,
    pub exit_code: Option<i64>,
    /// The run's JSON.
    pub report: Option<String>,
}

impl State {
    /// Remembers that a run began.
    pub fn begin_run(&self, run_id: &RunId, command: &str, started_ms: i64) -> Result<(), StateError> {
        self.reach(DurableStep::RunBegun)?;
        let sql = "INSERT INTO runs (run_id, command, started_ms) VALUES (?1, ?2, ?3)";
        self.connection.execute(sql, (&run_id.0, command, started_ms)).map_err(self.failed("write"))?;
        let sql =
            "DELETE FROM runs WHERE run_id IN (SELECT run_id FROM runs ORDER BY started_ms DESC LIMIT -1 OFFSET ?1)";
        self.connection.execute(sql, [RUNS_KEPT]).map_err(self.failed("write"))?;
        Ok(())
    }

    /// Remembers how a run ended.
    pub fn finish_run(
        &self,
        run_id: &RunId,
        finished_ms: i64,
        outcome: &str,
        exit_code: i64,
        report: &str,
    ) -> Result<(), StateError> {
        self.reach(DurableStep::RunFinished)?;
        let sql = "UPDATE runs SET finished_ms = ?2, outcome = ?3, exit_code = ?4, report = ?5 WHERE run_id = ?1";
        self.connection
            .execute(sql, (&run_id.0, finished_ms, outcome, exit_code, report))
            .map_err(self.failed("write"))?;
        Ok(())
    }

    /// The newest runs, newest first.
    pub fn runs(&self, count_max: u32) -> Result<Vec<RunEntry>, StateError> {
        let sql = "SELECT run_id, command, started_ms, finished_ms, outcome, exit_code, report FROM runs \
                   ORDER BY started_ms DESC, run_id DESC LIMIT ?1";
        let mut statement = self.connection.prepare(sql).map_err(self.failed("read"))?;
        let rows = statement.query_map([count_max], |row| {
            Ok(RunEntry {
                run_id: row.get(0)?,
                command: row.get(1)?,
                started_ms: row.get(2)?,
                finished_ms: row.get(3)?,
                outcome: row.get(4)?,
                exit_code: row.get(5)?,
                report: row.get(6)?,
            })
        });
        rows.and_then(|rows| rows.collect()).map_err(self.failed("read"))
    }
}
