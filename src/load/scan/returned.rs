//! Marks the versions after which a row had vanished when the row returns: `returned_at` in the history says when.

use arrow::array::{Array as _, RecordBatch};
use foldhash::HashSet;

use super::{records::rows_where, stamps::started};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TableChange, TimeRange, text_column, time_column, with_column},
    },
    model::{Scan, key_hashes},
    schema::{Table, history_of},
};

/// Returns the rows of `old` that had vanished. The scan replaces the rows of `old`, so these rows return.
pub(super) fn vanished_rows(base: &Table, old: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let vanished = time_column(old, "_vanished_at")?;
    rows_where(base, old, |row| vanished.is_valid(row))
}

/// Sets `returned_at` of the versions that ended when the rows in `returned` vanished. Does nothing for a table without
/// a history, and for rows whose version is not in the history.
pub(super) fn mark(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    returned: &[RecordBatch],
) -> Result<(), LoadError> {
    let (Some(history), Some(bounds)) = (history_of(&base.name), TimeRange::over(base, returned)?) else {
        return Ok(());
    };
    let history = contract(&history.name)?;
    let keys = KeySet::of(base.key_in_order(), returned)?;
    let mut ends: HashSet<(u128, i64)> = HashSet::default();
    for rows in returned {
        ends.extend(keys_and_times(base, rows, "_vanished_at")?);
    }
    let mut change = TableChange::new(history);
    for rows in store.full_rows(history, &Filter::within(Some(bounds)).with_keys(&keys))? {
        let versions = keys_and_times(base, &rows, "valid_to")?;
        let reasons = text_column(&rows, "reason")?;
        let has_ended = |row: usize| {
            reasons.value(row) == "vanished" && versions.get(row).is_some_and(|version| ends.contains(version))
        };
        let ended = rows_where(history, &rows, has_ended)?;
        change.remove(&ended)?;
        change.add(with_column(&ended, "returned_at", &started(scan, ended.num_rows()))?);
    }
    store.change(change)
}

/// Returns, for each row, the hash of its key and the time in a column, in epoch microseconds.
fn keys_and_times(base: &Table, rows: &RecordBatch, column: &str) -> Result<Vec<(u128, i64)>, LoadError> {
    let keys = key_hashes(&base.key_in_order(), rows).map_err(invalid_rows(base))?;
    Ok(keys.into_iter().zip(time_column(rows, column)?.values().iter().copied()).collect())
}
