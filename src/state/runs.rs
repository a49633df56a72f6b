//! The history of runs, for `status`. The order of runs is the order in which they were added, because times of a clock
//! that was ahead lie in the future.
//!
//! The end of a run, in the lock file of the lease: for a state file that cannot be written any more, because its disk
//! is full. The lock file reserves the space while there is some, so that the end of the run can replace it.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    ops::ControlFlow,
    os::unix::fs::FileExt as _,
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::model::{DurableStep, RunId, is_in_future};

use super::{State, StateError, lock::lock_path};

/// The maximum number of runs in the history. Older runs are deleted.
const RUNS_KEPT: i64 = 1000;

/// One run of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEntry {
    pub run_id: String,
    pub command: String,
    /// When the run started, in epoch milliseconds by this machine.
    pub started_ms: i64,
    /// When the run ended, in epoch milliseconds. `None` while the run is active, and for a run that was killed.
    pub finished_ms: Option<i64>,
    pub outcome: Option<String>,
    pub exit_code: Option<i64>,
    /// The run JSON.
    pub report: Option<String>,
}

impl RunEntry {
    /// Adds the end that the run kept outside the state file, if it is the end of this run.
    fn with_end(self, end: Option<&RunEnd>) -> RunEntry {
        match end.filter(|end| self.finished_ms.is_none() && self.run_id == end.run_id).cloned() {
            None => self,
            Some(RunEnd { finished_ms, outcome, exit_code, report, .. }) => RunEntry {
                finished_ms: Some(finished_ms),
                outcome: Some(outcome),
                exit_code: Some(exit_code),
                report: Some(report),
                ..self
            },
        }
    }
}

impl State {
    /// Adds a run to the history, and deletes all but the newest `RUNS_KEPT` runs.
    pub fn begin_run(&self, run_id: &RunId, command: &str, started_ms: i64) -> Result<(), StateError> {
        self.hit(DurableStep::RunBegun)?;
        let sql = "INSERT INTO runs (run_id, command, started_ms) VALUES (?1, ?2, ?3)";
        self.database.execute(sql, (&run_id.0, command, started_ms))?;
        let sql = "DELETE FROM runs WHERE ordinal <= (SELECT max(ordinal) FROM runs) - ?1";
        self.database.execute(sql, [RUNS_KEPT]).map(drop)
    }

    /// Records the end of a run: its outcome, exit code and run JSON.
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
        self.database.execute(sql, (&run_id.0, finished_ms, outcome, exit_code, report)).map(drop)
    }

    /// Stores the end of a run that could not store it itself. Changes nothing if the run has an end.
    pub(super) fn store_end(&self, end: &RunEnd) -> Result<(), StateError> {
        let sql = "UPDATE runs SET finished_ms = ?2, outcome = ?3, exit_code = ?4, report = ?5 \
                   WHERE run_id = ?1 AND finished_ms IS NULL";
        self.database.execute(sql, (&end.run_id, end.finished_ms, &end.outcome, end.exit_code, &end.report)).map(drop)
    }

    /// Returns the newest runs, newest first, at most `count_max`.
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

    /// Calls `visit` with each run, newest first, until `visit` returns `Break`.
    pub fn visit_runs(&self, mut visit: impl FnMut(RunEntry) -> ControlFlow<()>) -> Result<(), StateError> {
        let sql = "SELECT run_id, command, started_ms, finished_ms, outcome, exit_code, report FROM runs \
                   ORDER BY ordinal DESC";
        let mut statement = self.database.connection.prepare(sql).map_err(self.database.failed("read"))?;
        let kept_end = RunEnd::read(self.path());
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
        for run in rows.map_err(self.database.failed("read"))? {
            let run = run.map_err(self.database.failed("read"))?;
            if visit(run.with_end(kept_end.as_ref())).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Returns the latest start of a run by this machine's clock, without the run `except`; `None` without other runs.
    pub fn latest_start_ms(&self, except: &RunId) -> Result<Option<i64>, StateError> {
        self.database.query_row("SELECT max(started_ms) FROM runs WHERE run_id <> ?1", [&except.0], |row| row.get(0))
    }

    /// Returns for each command when the newest successful run ended, in epoch milliseconds by this machine. A run with
    /// exit code 0 or 3 is successful: it stored everything that was due. A run that ended in the future is left out.
    pub fn last_successes(&self, now_ms: i64) -> Result<BTreeMap<String, i64>, StateError> {
        let sql = "SELECT command, finished_ms FROM runs WHERE exit_code IN (0, 3) AND finished_ms IS NOT NULL \
                   ORDER BY ordinal";
        let successes: Vec<(String, i64)> = self.database.query_all(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(successes.into_iter().filter(|(_, ended_ms)| !is_in_future(*ended_ms, now_ms)).collect())
    }
}

/// The reserved bytes of the lock file.
const RESERVED_BYTES: usize = 16 << 10;

/// How a run ended whose end the state file does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    pub run_id: String,
    /// Epoch milliseconds.
    pub finished_ms: i64,
    pub outcome: String,
    pub exit_code: i64,
    /// The run JSON.
    pub report: String,
}

impl RunEnd {
    /// Reads the end of a run from the lock file of a state file; `None` if there is none.
    pub(super) fn read(state: &Path) -> Option<RunEnd> {
        serde_json::from_slice(&fs::read(lock_path(state)).ok()?).ok()
    }

    /// Writes the end of a run into the reserved space of a lock file. After a power loss, the run counts as killed.
    ///
    /// # Errors
    /// The space was not reserved, or the text is too long for it.
    pub(super) fn write(&self, lock: &File) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        if text.len() > RESERVED_BYTES || lock.metadata()?.len() < RESERVED_BYTES as u64 {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        text.resize(RESERVED_BYTES, b' ');
        lock.write_all_at(&text, 0)
    }
}

/// Fills the reserved space of a lock file with blanks. A failure is ignored: then a run that meets a full disk counts
/// as killed.
pub(super) fn reserve(lock: &File) {
    let _ = lock.write_all_at(&[b' '; RESERVED_BYTES], 0);
}
