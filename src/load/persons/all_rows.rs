//! Processes all rows of a table in several threads.

use std::sync::{Mutex, PoisonError};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};

use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{BufferedStore, project, removal_columns},
    },
    schema::Table,
};

/// Processes batches of `columns` of all rows of a table in several threads. `fold` adds a batch to a state, which one
/// thread uses at a time. Returns all states; `new` makes one.
pub(super) fn fold_rows<S: Send>(
    store: &mut BufferedStore,
    table: &'static Table,
    columns: &[&str],
    new: impl Fn() -> S + Sync,
    fold: impl Fn(&mut S, RecordBatch) -> Result<(), LoadError> + Sync,
) -> Result<Vec<S>, LoadError> {
    let unused = Mutex::new(Vec::new());
    store.visit(table, columns, &|rows| {
        let state = unused.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut state = state.unwrap_or_else(&new);
        let folded = fold(&mut state, rows);
        unused.lock().unwrap_or_else(PoisonError::into_inner).push(state);
        folded
    })?;
    Ok(unused.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Returns the [`removal_columns`] of all rows of a table for which `is_selected` sets a bit. `is_selected` gets
/// batches with at least `columns`, and runs in several threads.
pub(super) fn removal_keys_where(
    store: &mut BufferedStore,
    table: &'static Table,
    columns: &[&str],
    is_selected: impl Fn(&RecordBatch) -> Result<BooleanArray, LoadError> + Sync,
) -> Result<Vec<RecordBatch>, LoadError> {
    let keys = removal_columns(table);
    let mut read: Vec<&str> = keys.clone();
    for column in columns {
        if !read.contains(column) {
            read.push(column);
        }
    }
    let found = fold_rows(store, table, &read, Vec::new, |found: &mut Vec<RecordBatch>, rows| {
        let is_selected = is_selected(&rows)?;
        if is_selected.true_count() > 0 {
            found.push(project(&filter_record_batch(&rows, &is_selected).map_err(invalid_rows(table))?, &keys)?);
        }
        Ok(())
    })?;
    Ok(found.into_iter().flatten().collect())
}
