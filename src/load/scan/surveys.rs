//! Writes `survey_history`: every version of every survey, the current one included.

use std::sync::Arc;

use arrow::{
    array::{Int64Array, RecordBatch},
    compute::concat_batches,
};

use super::{
    versions::{closed_versions, open_versions, opened_versions},
    write::WriteResult,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TableChange, number_column},
    },
    model::Scan,
    schema::Table,
};

/// Writes versions of the surveys that are new, changed or vanished. `vanished` are the rows that vanished. Does
/// nothing if no survey is new, changed or vanished.
pub(super) fn write(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    written: &WriteResult,
    vanished: &RecordBatch,
) -> Result<(), LoadError> {
    let changed = concat_batches(&base.flat_schema(), &written.changed).map_err(invalid_rows(base))?;
    if changed.num_rows() == 0 && vanished.num_rows() == 0 {
        return Ok(());
    }
    write_history(store, scan, &changed, vanished)
}

/// Closes the open versions of changed and vanished surveys, and opens a version of each survey in `changed`, which
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
        let open = open_versions(history, scan, &rows)?;
        change.remove(&open)?;
        change.add(closed_versions(history, scan, &open)?);
    }
    change.add(opened_versions(history, scan, changed)?);
    store.change(change)
}
