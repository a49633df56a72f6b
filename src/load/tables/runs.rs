//! The table `sync_runs`: one row with the report of each run.

use super::{
    access::{record_columns, records_in, upsert_records},
    cells::{Cell, Row},
};
use crate::load::{
    LoadError, RunRecord,
    contract::contract,
    store::{BufferedStore, Filter},
};

const TABLE: &str = "sync_runs";

/// Adds a row for each run, and removes the earlier row of the run, if there is one. If several records are of one run,
/// the last is used.
pub(in crate::load) fn record(store: &mut BufferedStore, runs: &[RunRecord]) -> Result<(), LoadError> {
    upsert_records(store, contract(TABLE)?, runs, |run| &run.run_id, cell)
}

/// Returns all runs, in no particular order.
pub(in crate::load) fn all(store: &mut BufferedStore) -> Result<Vec<RunRecord>, LoadError> {
    records_in(store, contract(TABLE)?, &Filter::all(), read_record)
}

record_columns!(RunRecord {
    run_id: run_id "run_id" and "_run_id",
    command: text "command",
    outcome: text "outcome",
    exit_code: integer "exit_code",
    started_ms: moment_ms "started_at",
    finished_ms: moment_ms "finished_at" and "_synced_at",
    base_url: text "base_url",
    environment: text "environment",
    program_version: text "program_version",
    report: text "report",
});

#[cfg(test)]
mod tests {
    use super::{super::fixture::memory, *};
    use crate::model::RunId;

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
