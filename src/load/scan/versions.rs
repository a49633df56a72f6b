//! Tables that keep every version of parts of rows: attributes of users; questions, options and constraints of
//! surveys. When a part changes, its current version is closed and a new version is opened.
//!
//! A vanished row has no current versions. A row that returned gets new versions of the parts that the scan found.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, BooleanArray, RecordBatch, TimestampMicrosecondArray};
use foldhash::{HashMap, HashSet};

use super::{
    records::rows_where,
    stamps::{column_of, null, rows_of, stamp, started, started_us},
    value_hashes::value_hashes,
    write::WriteResult,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TableChange, boolean_column, renamed, time_column},
    },
    model::{Scan, key_hashes},
    schema::{Table, versioned_parts_of},
};

/// Closes and opens versions of the parts of written rows, and closes all versions of the parts of `vanished` rows.
/// Does this for each table that keeps versions of parts of the base table.
pub(super) fn write(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    written: &WriteResult,
    vanished: &RecordBatch,
) -> Result<(), LoadError> {
    for table in versioned_parts_of(&base.name) {
        let mut parent_keys = KeySet::new(parent_key_columns(table, base));
        parent_keys.add(&parent_keys_of(table, base, vanished)?)?;
        written.changed.iter().try_for_each(|(rows, _)| parent_keys.add(&parent_keys_of(table, base, rows)?))?;
        let parts: Vec<&RecordBatch> =
            written.parts.iter().filter(|(name, _)| *name == table.name.as_str()).map(|(_, rows)| rows).collect();
        write_parts(store, scan, table, &parent_keys, &parts)?;
    }
    Ok(())
}

/// The columns of a table of parts that contain the key of the base row to which the part belongs.
fn parent_key_columns(table: &'static Table, base: &Table) -> Vec<&'static str> {
    table.key.iter().take(base.key.len()).map(String::as_str).collect()
}

/// The keys of base rows, with the column names that the key has in the table of parts.
fn parent_keys_of(table: &'static Table, base: &Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    renamed(rows, &base.key.iter().map(String::as_str).collect::<Vec<_>>(), &parent_key_columns(table, base))
}

/// Compares the current versions of the parts of some base rows (`parent_keys`) with `parts`, which the scan found.
/// Closes versions that the scan did not find, and opens a version for each new part. Parts with equal content keep
/// their version.
fn write_parts(
    store: &mut BufferedStore,
    scan: &Scan,
    table: &'static Table,
    parent_keys: &KeySet,
    parts: &[&RecordBatch],
) -> Result<(), LoadError> {
    let columns: Vec<&str> = table.flat_columns().map(|column| column.name.as_str()).collect();
    let mut found: HashSet<u128> = HashSet::default();
    for rows in parts {
        found.extend(value_hashes(&columns, rows)?);
    }
    let mut stored: HashSet<u128> = HashSet::default();
    let mut change = TableChange::new(table);
    for rows in store.full_rows(table, &Filter::all().with_keys(parent_keys))? {
        let rows = current_versions(table, &rows)?;
        let values = value_hashes(&columns, &rows)?;
        stored.extend(&values);
        let ended = rows_where(table, &rows, |row| values.get(row).is_some_and(|value| !found.contains(value)))?;
        change.remove(&ended)?;
        // A version that would end when it began, or before, was never valid and is dropped.
        let (opened, started_us) = (time_column(&ended, "valid_from")?, started_us(scan));
        let closed = rows_where(table, &ended, |row| opened.is_valid(row) && opened.value(row) < started_us)?;
        change.add(closed_versions(table, scan, &closed)?);
    }
    for rows in parts {
        let values = value_hashes(&columns, rows)?;
        let new = rows_where(table, rows, |row| values.get(row).is_some_and(|value| !stored.contains(value)))?;
        change.add(opened_versions(table, scan, &new)?);
    }
    store.change(change)
}

/// The versions among these rows that are current.
pub(super) fn current_versions(table: &Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let is_current = boolean_column(rows, "is_current")?;
    rows_where(table, rows, |row| is_current.is_valid(row) && is_current.value(row))
}

/// Rows of a page as versions that begin with this scan and are current.
pub(super) fn opened_versions(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let count = rows.num_rows();
    rows_of(table, count, |column| {
        Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => stamp,
            (None, "valid_from") => started(scan, count),
            (None, "valid_to") => null(column, count),
            (None, "is_current") => Arc::new(BooleanArray::from(vec![true; count])),
            (None, name) => column_of(table, rows, name)?,
        }))
    })
}

/// Stored versions, changed so that they end with this scan and are not current.
pub(super) fn closed_versions(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let count = rows.num_rows();
    rows_of(table, count, |column| {
        Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
            (Some(stamp), _) => stamp,
            (None, "valid_to") => started(scan, count),
            (None, "is_current") => Arc::new(BooleanArray::from(vec![false; count])),
            (None, name) => column_of(table, rows, name)?,
        }))
    })
}

/// Fills an empty table of versions from the child table that it keeps versions of. Earlier versions of the program
/// filled only the child tables. The first version of a part begins with the scan that wrote it, and ends when its base
/// row vanished.
pub(super) fn backfill_missing(store: &mut BufferedStore, base: &'static Table) -> Result<(), LoadError> {
    for table in versioned_parts_of(&base.name) {
        let Some(child) = table.versions_of.as_deref() else { continue };
        let key_columns = parent_key_columns(table, base);
        let has_versions = store.rows(table, &key_columns, &Filter::all())?.iter().any(|rows| rows.num_rows() > 0);
        if has_versions {
            continue;
        }
        let parts = store.full_rows(contract(child)?, &Filter::all())?;
        if parts.iter().all(|rows| rows.num_rows() == 0) {
            continue;
        }
        let vanished = vanished_at(store, base)?;
        let mut change = TableChange::new(table);
        for rows in &parts {
            change.add(first_versions(table, base, rows, &vanished)?);
        }
        store.change(change)?;
    }
    Ok(())
}

/// When each vanished row of the base table vanished, in epoch microseconds, by the hash of its key.
fn vanished_at(store: &mut BufferedStore, base: &'static Table) -> Result<HashMap<u128, i64>, LoadError> {
    let mut vanished = HashMap::default();
    let mut columns = base.key_in_order();
    columns.push("_vanished_at");
    for rows in store.rows(base, &columns, &Filter::all())? {
        let keys = key_hashes(&base.key_in_order(), &rows).map_err(invalid_rows(base))?;
        let times = time_column(&rows, "_vanished_at")?.iter();
        vanished.extend(keys.into_iter().zip(times).filter_map(|(key, time)| Some((key, time?))));
    }
    Ok(vanished)
}

/// Child rows as first versions. `vanished` has the time at which each vanished base row vanished, by key hash.
fn first_versions(
    table: &'static Table,
    base: &'static Table,
    rows: &RecordBatch,
    vanished: &HashMap<u128, i64>,
) -> Result<RecordBatch, LoadError> {
    let parent_keys =
        renamed(rows, &parent_key_columns(table, base), &base.key.iter().map(String::as_str).collect::<Vec<_>>())?;
    let keys = key_hashes(&base.key_in_order(), &parent_keys).map_err(invalid_rows(base))?;
    let ended: TimestampMicrosecondArray = keys.iter().map(|key| vanished.get(key).copied()).collect();
    let is_current: BooleanArray = ended.iter().map(|ended| Some(ended.is_none())).collect();
    rows_of(table, rows.num_rows(), |column| {
        Ok(Some(match column.name.as_str() {
            "valid_from" => column_of(table, rows, "_synced_at")?,
            "valid_to" => Arc::new(ended.clone()) as ArrayRef,
            "is_current" => Arc::new(is_current.clone()),
            name => column_of(table, rows, name)?,
        }))
    })
}
