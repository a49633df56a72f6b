//! The table `sync_runs`: one row with the report of each run.

use super::{
    access::{records_in, upsert_records},
    cells::{Cell, Row},
};
use crate::{
    load::{
        LoadError, RunRecord,
        contract::contract,
        store::{BufferedStore, Filter},
    },
    model::RunId,
};

const TABLE: &str = "sync_runs";

/// Adds a row for each run, and removes the earlier row of the run, if there is one. If several records are of one run,
/// the last is used.
pub(in crate::load) fn record(store: &mut BufferedStore, runs: &[RunRecord]) -> Result<(), LoadError> {
    upsert_records(store, contract(TABLE)?, runs, |run| &run.run_id, cell)
}

/// Returns all runs, in no particular order.
pub(in crate::load) fn all(store: &mut BufferedStore) -> Result<Vec<RunRecord>, LoadError> {
    records_in(store, contract(TABLE)?, &Filter::all(), run)
}

/// Returns the value of a column of `sync_runs` for a run; NULL for an unknown column.
fn cell<'a>(column: &str, run: &'a RunRecord) -> Cell<'a> {
    match column {
        "run_id" | "_run_id" => Cell::Text(&run.run_id.0),
        "command" => Cell::Text(&run.command),
        "outcome" => Cell::Text(&run.outcome),
        "exit_code" => Cell::Integer(run.exit_code),
        "started_at" => Cell::at_ms(run.started_ms),
        "finished_at" | "_synced_at" => Cell::at_ms(run.finished_ms),
        "base_url" => Cell::Text(&run.base_url),
        "environment" => Cell::Text(&run.environment),
        "program_version" => Cell::Text(&run.program_version),
        "report" => Cell::Text(&run.report),
        _ => Cell::Null,
    }
}

/// Reads a row of `sync_runs`.
fn run(row: Row<'_>) -> Result<RunRecord, LoadError> {
    Ok(RunRecord {
        run_id: RunId(row.text("run_id")?.to_owned()),
        command: row.text("command")?.to_owned(),
        outcome: row.text("outcome")?.to_owned(),
        exit_code: row.integer("exit_code")?,
        started_ms: row.moment_ms("started_at")?,
        finished_ms: row.moment_ms("finished_at")?,
        base_url: row.text("base_url")?.to_owned(),
        environment: row.text("environment")?.to_owned(),
        program_version: row.text("program_version")?.to_owned(),
        report: row.text("report")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::fixture::memory, *};

    fn record_of(id: &str, outcome: &str) -> RunRecord {
        RunRecord {
            run_id: RunId(id.into()),
            command: "sync".into(),
            outcome: outcome.into(),
            exit_code: 3,
            started_ms: 1_772_323_200_000,
            finished_ms: 1_772_409_600_123,
            base_url: "https://service.example".into(),
            environment: "test".into(),
            program_version: "0.1.0".into(),
            report: "{\"it's\": 1}".into(),
        }
    }

    fn stored(store: &mut BufferedStore) -> Vec<RunRecord> {
        let mut runs = all(store).unwrap();
        runs.sort_by(|left, right| left.run_id.cmp(&right.run_id));
        runs
    }

    #[test]
    fn a_run_is_recorded_once() {
        let (_shelf, mut store) = memory();
        record(&mut store, &[record_of("1", "done")]).unwrap();
        record(&mut store, &[record_of("1", "needs_a_look")]).unwrap();
        assert_eq!(stored(&mut store), [record_of("1", "needs_a_look")], "before a commit");
        store.commit("test").unwrap();
        record(&mut store, &[record_of("2", "done"), record_of("1", "failed")]).unwrap();
        let both = [record_of("1", "failed"), record_of("2", "done")];
        assert_eq!(stored(&mut store), both);
        record(&mut store, &[]).unwrap();
        store.commit("test").unwrap();
        assert_eq!(stored(&mut store), both);
    }

    #[test]
    fn the_last_record_of_a_run_is_stored() {
        let (_shelf, mut store) = memory();
        record(&mut store, &[record_of("1", "failed"), record_of("2", "done"), record_of("1", "done")]).unwrap();
        assert_eq!(stored(&mut store), [record_of("1", "done"), record_of("2", "done")]);
    }

    #[test]
    fn recording_no_run_changes_nothing() {
        let (_shelf, mut store) = memory();
        record(&mut store, &[]).unwrap();
        assert!(!store.has_changes());
    }
}
