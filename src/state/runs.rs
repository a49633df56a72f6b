//! The history of runs.

use std::{collections::BTreeMap, ops::ControlFlow};

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
        self.hit(DurableStep::RunBegun)?;
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
        self.hit(DurableStep::RunFinished)?;
        let sql = "UPDATE runs SET finished_ms = ?2, outcome = ?3, exit_code = ?4, report = ?5 WHERE run_id = ?1";
        self.connection
            .execute(sql, (&run_id.0, finished_ms, outcome, exit_code, report))
            .map_err(self.failed("write"))?;
        Ok(())
    }

    /// The newest runs, newest first.
    pub fn runs(&self, count_max: u32) -> Result<Vec<RunEntry>, StateError> {
        let mut runs = Vec::new();
        if count_max > 0 {
            self.visit_runs(|run| {
                runs.push(run);
                if runs.len() < count_max as usize { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
        }
        Ok(runs)
    }

    /// Shows run after run, newest first, until `visit` has seen enough.
    pub fn visit_runs(&self, mut visit: impl FnMut(RunEntry) -> ControlFlow<()>) -> Result<(), StateError> {
        let sql = "SELECT run_id, command, started_ms, finished_ms, outcome, exit_code, report FROM runs \
                   ORDER BY started_ms DESC, run_id DESC";
        let mut statement = self.connection.prepare(sql).map_err(self.failed("read"))?;
        let rows = statement.query_map([], |row| {
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
        for run in rows.map_err(self.failed("read"))? {
            if visit(run.map_err(self.failed("read"))?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// When the newest run of each command ended that brought everything that was due:
    /// epoch milliseconds by this machine.
    pub fn last_successes(&self) -> Result<BTreeMap<String, i64>, StateError> {
        let sql = "SELECT command, max(finished_ms) FROM runs WHERE exit_code IN (0, 3) AND finished_ms IS NOT NULL \
                   GROUP BY command";
        let mut statement = self.connection.prepare(sql).map_err(self.failed("read"))?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.and_then(|rows| rows.collect()).map_err(self.failed("read"))
    }
}
