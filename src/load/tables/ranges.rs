//! Replaces the rows of a time range by the rows of another store, for a replay of one range. Does not compare rows.

use super::access::{add_rows, copy_rows, scan_keys};
use crate::{
    load::{
        LoadError, Replacement,
        contract::contract,
        store::{BufferedStore, Filter, KeySet, TableChange, TimeRange, removal_columns},
    },
    schema::{Table, tables},
};

const REJECTS: &str = "rejects";
const LEDGER: &str = "sync_windows";
/// Largest number of row keys that are in memory while rows are removed. If more rows than this share one microsecond,
/// all their keys are in memory together.
const KEYS_AT_ONCE: u64 = 200_000;

/// Removes the rows of a time range from all tables of a stream, and adds the rows that `source` has in this range.
/// Replaces rejects and ledger rows by the ids of the scans in `replacement`. Returns the number of added rows. The
/// memory does not grow with the range.
///
/// # Errors
/// `Unsupported` if a table of the stream has no partition column.
pub(in crate::load) fn replace(
    store: &mut BufferedStore,
    source: &mut BufferedStore,
    replacement: &Replacement,
) -> Result<u64, LoadError> {
    let stream_tables = || tables().iter().filter(|table| table.stream.as_deref() == Some(replacement.stream.name()));
    if let Some(table) = stream_tables().find(|table| table.partition.is_none()) {
        return Err(LoadError::Unsupported(format!(
            "{} has no creation time by which a range could be replaced",
            table.name
        )));
    }
    let range = TimeRange::of(replacement.window);
    let scans = scan_keys(&replacement.scans)?;
    let mut added = 0;
    for table in stream_tables() {
        remove_range(store, table, range, KEYS_AT_ONCE)?;
        added += copy_rows(source, store, table, &Filter::within(Some(range)))?;
    }
    added += replace_rejects(store, source, &scans)?;
    added += replace_ledger(store, source, &scans)?;
    Ok(added)
}

/// Removes the rows of a range from one table. Splits a range with more than `keys_at_once` rows into smaller ranges.
fn remove_range(
    store: &mut BufferedStore,
    table: &'static Table,
    range: TimeRange,
    keys_at_once: u64,
) -> Result<(), LoadError> {
    let mut pieces = vec![range];
    while let Some(piece) = pieces.pop() {
        // A range of one microsecond cannot be split.
        let is_one_microsecond = piece.end_us.saturating_sub(piece.start_us) <= 1;
        let (mut rows, mut keys) = (0, Vec::new());
        store.read(table, &removal_columns(table), &Filter::within(Some(piece)), &mut |batch| {
            rows += batch.num_rows() as u64;
            if rows <= keys_at_once || is_one_microsecond {
                keys.push(batch);
            } else {
                // The range is split below, so these keys are not needed.
                keys.clear();
            }
            Ok(())
        })?;
        if rows > keys_at_once && !is_one_microsecond {
            pieces.extend(split_range(piece, 2 * rows.div_ceil(keys_at_once)));
            continue;
        }
        let mut change = TableChange::new(table);
        keys.iter().try_for_each(|batch| change.remove(batch))?;
        store.change(change)?;
    }
    Ok(())
}

/// Splits a range into at most `pieces` ranges of about equal length.
fn split_range(range: TimeRange, pieces: u64) -> Vec<TimeRange> {
    let length_us = range.end_us.abs_diff(range.start_us);
    let step_us = i64::try_from(length_us.div_ceil(pieces.max(1))).unwrap_or(i64::MAX).max(1);
    let (mut ranges, mut start_us) = (Vec::new(), range.start_us);
    while start_us < range.end_us {
        let end_us = start_us.saturating_add(step_us).min(range.end_us);
        ranges.push(TimeRange { start_us, end_us });
        start_us = end_us;
    }
    ranges
}

/// Removes the rejects of the scans, and adds the rejects that `source` has for these scans. Returns the number of
/// added rejects. A reject is stored once, for the first scan that returned it. So a reject that `store` has for
/// another scan stays, and is not added again.
fn replace_rejects(store: &mut BufferedStore, source: &mut BufferedStore, scans: &KeySet) -> Result<u64, LoadError> {
    let table = contract(REJECTS)?;
    let key = removal_columns(table);
    let in_scans = Filter::all().with_keys(scans);
    let mut change = TableChange::new(table);
    store.read(table, &key, &in_scans, &mut |rows| change.remove(&rows))?;
    let mut added_keys = KeySet::new(key.clone());
    source.read(table, &key, &in_scans, &mut |rows| added_keys.add(&rows))?;
    let mut of_other_scans = KeySet::new(key);
    let columns: Vec<&str> = of_other_scans.columns().iter().copied().chain(["scan_id"]).collect();
    store.read(table, &columns, &Filter::all().with_keys(&added_keys), &mut |rows| {
        of_other_scans.add(&scans.rows_not_in(table, rows)?)
    })?;
    store.change(change)?;
    let mut added = 0;
    source.read(table, &table.column_names(), &in_scans, &mut |rows| {
        let rows = of_other_scans.rows_not_in(table, rows)?;
        added += rows.num_rows() as u64;
        add_rows(store, table, rows)
    })?;
    Ok(added)
}

/// Replaces the ledger rows of the scans by the ledger rows of `source`, and returns the number of added rows.
fn replace_ledger(store: &mut BufferedStore, source: &mut BufferedStore, scans: &KeySet) -> Result<u64, LoadError> {
    let table = contract(LEDGER)?;
    let mut change = TableChange::new(table);
    scans.values().iter().try_for_each(|rows| change.remove(rows))?;
    store.change(change)?;
    copy_rows(source, store, table, &Filter::all().with_keys(scans))
}

#[cfg(test)]
mod tests;
