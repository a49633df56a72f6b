//! Writes `survey_history` (every version of every survey, the current one included) and `survey_status_changes`.

use std::sync::Arc;

use arrow::{
    array::{Array as _, Int64Array, RecordBatch},
    compute::concat_batches,
};

use super::{
    versions::{closed_versions, current_versions, opened_versions},
    write::WriteResult,
};
use crate::{
    load::{
        LoadError, Stamp,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TableChange, number_column, text_column, time_column},
        tables::status_changes::{self, ScannedStatus},
    },
    model::Scan,
    schema::Table,
};

/// Writes versions and status changes of the surveys that are new, changed or vanished. `old` are the stored rows to
/// whose indexes `written.changed` refers; `vanished` are the rows that vanished. Does nothing if no survey is new,
/// changed or vanished.
pub(super) fn write(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    written: &WriteResult,
    old: &RecordBatch,
    vanished: &RecordBatch,
) -> Result<(), LoadError> {
    let batches: Vec<RecordBatch> = written.changed.iter().map(|(rows, _)| rows.clone()).collect();
    let changed = concat_batches(&base.flat_schema(), &batches).map_err(invalid_rows(base))?;
    if changed.num_rows() == 0 && vanished.num_rows() == 0 {
        return Ok(());
    }
    write_history(store, scan, &changed, vanished)?;
    let mut statuses = statuses_of_changed(written, &changed, old)?;
    let ids = number_column(vanished, "id")?.values();
    for (survey_id, before) in ids.iter().zip(text_column(vanished, "status")?) {
        statuses.push(ScannedStatus { survey_id: *survey_id, before: before.map(str::to_owned), after: None });
    }
    status_changes::add_scanned(store, &statuses, Stamp { run_id: &scan.run_id, at_ms: scan.started_ms })
}

/// Returns the statuses of new and changed surveys, before and after the scan. `changed` are the rows of
/// `written.changed` in one batch. A survey that is new, or that had vanished, has no status before the scan.
fn statuses_of_changed(
    written: &WriteResult,
    changed: &RecordBatch,
    old: &RecordBatch,
) -> Result<Vec<ScannedStatus>, LoadError> {
    let (old_statuses, vanished_at) = (text_column(old, "status")?, time_column(old, "_vanished_at")?);
    let has_status = |row: &usize| *row < old.num_rows() && vanished_at.is_null(*row) && old_statuses.is_valid(*row);
    let before = written.changed.iter().flat_map(|(_, old_rows)| old_rows).map(|row| row.filter(has_status));
    let ids = number_column(changed, "id")?.values();
    let statuses = ids.iter().zip(text_column(changed, "status")?).zip(before).map(|((survey_id, after), before)| {
        let before = before.map(|row| old_statuses.value(row).to_owned());
        ScannedStatus { survey_id: *survey_id, before, after: after.map(str::to_owned) }
    });
    Ok(statuses.collect())
}

/// Closes the current versions of changed and vanished surveys, and opens a version of each survey in `changed`, which
/// contains the new surveys too.
fn write_history(
    store: &mut BufferedStore,
    scan: &Scan,
    changed: &RecordBatch,
    vanished: &RecordBatch,
) -> Result<(), LoadError> {
    let history = contract("survey_history")?;
    let ids = [changed, vanished].map(|rows| number_column(rows, "id").map(Int64Array::values));
    let ids = ids.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().copied();
    let keys = KeySet::of_values("id", Arc::new(Int64Array::from_iter_values(ids)))?;
    let mut change = TableChange::new(history);
    for rows in store.full_rows(history, &Filter::all().with_keys(&keys))? {
        let current = current_versions(history, &rows)?;
        change.remove(&current)?;
        change.add(closed_versions(history, scan, &current)?);
    }
    change.add(opened_versions(history, scan, changed)?);
    store.change(change)
}
