//! Tables that keep every version of child rows: attributes of users; questions, options and constraints of surveys.
//! When a child row changes, its current version is closed and a new version is opened.
//!
//! The child rows of a vanished row have no current version. If the row returns, each child row that the scan found
//! gets a new version.

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
        store::{BufferedStore, Filter, KeySet, TableChange, renamed, time_column},
    },
    model::{Scan, key_hashes},
    schema::{Table, version_tables_of},
};

/// Closes and opens versions of the child rows of written rows, and closes the current versions of the child rows of
/// `vanished` rows. Does this for each table that keeps versions of child rows of the base table.
pub(super) fn write(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    written: &WriteResult,
    vanished: &RecordBatch,
) -> Result<(), LoadError> {
    for table in version_tables_of(&base.name) {
        let mut parent_keys = KeySet::new(parent_key_columns(table, base));
        parent_keys.add(&parent_keys_of(table, base, vanished)?)?;
        written.changed.iter().try_for_each(|rows| parent_keys.add(&parent_keys_of(table, base, rows)?))?;
        let of_table = written.version_rows.iter().filter(|(name, _)| *name == table.name.as_str());
        let scanned: Vec<&RecordBatch> = of_table.map(|(_, rows)| rows).collect();
        write_versions(store, scan, table, &parent_keys, &scanned)?;
    }
    Ok(())
}

fn parent_key_columns(table: &'static Table, base: &Table) -> Vec<&'static str> {
    table.key.iter().take(base.key.len()).map(String::as_str).collect()
}

/// Returns the keys of rows of the base table, under the column names that the key has in the table of versions.
fn parent_keys_of(table: &'static Table, base: &Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    renamed(rows, &base.key.iter().map(String::as_str).collect::<Vec<_>>(), &parent_key_columns(table, base))
}

/// Compares the current versions in one table with `scanned`, the child rows that the scan found for the parent rows
/// with `parent_keys`. Closes versions that the scan did not find, and opens a version for each new child row. Child
/// rows with equal content keep their current version.
fn write_versions(
    store: &mut BufferedStore,
    scan: &Scan,
    table: &'static Table,
    parent_keys: &KeySet,
    scanned: &[&RecordBatch],
) -> Result<(), LoadError> {
    let columns: Vec<&str> = table.flat_columns().map(|column| column.name.as_str()).collect();
    let mut scanned_hashes: HashSet<u128> = HashSet::default();
    for rows in scanned {
        scanned_hashes.extend(value_hashes(table, &columns, rows)?);
    }
    let mut stored_hashes: HashSet<u128> = HashSet::default();
    let mut change = TableChange::new(table);
    for rows in store.full_rows(table, &Filter::all().with_keys(parent_keys))? {
        let rows = open_versions(table, scan, &rows)?;
        let (values, ends) = (value_hashes(table, &columns, &rows)?, time_column(&rows, "valid_to")?);
        let is_kept =
            |row: usize| ends.is_null(row) && values.get(row).is_some_and(|value| scanned_hashes.contains(value));
        stored_hashes.extend(values.iter().enumerate().filter_map(|(row, value)| is_kept(row).then_some(value)));
        let ended = rows_where(table, &rows, |row| !is_kept(row))?;
        change.remove(&ended)?;
        change.add(closed_versions(table, scan, &ended)?);
    }
    for rows in scanned {
        let values = value_hashes(table, &columns, rows)?;
        let new = rows_where(table, rows, |row| values.get(row).is_some_and(|value| !stored_hashes.contains(value)))?;
        change.add(opened_versions(table, scan, &new)?);
    }
    store.change(change)
}

/// Returns the rows of a table of versions that end after the start of this scan: the current versions. If an earlier
/// scan started later than this one because the clock went back, versions that ended with that scan are included.
pub(super) fn open_versions(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let (ends, started_us) = (time_column(rows, "valid_to")?, started_us(scan));
    rows_where(table, rows, |row| ends.is_null(row) || ends.value(row) > started_us)
}

/// Returns rows of a page as current versions, which begin at the start of this scan.
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

/// Returns stored versions, changed so that they end at the start of this scan and are not current. A version that
/// would end when it began, or before, was never valid, so it is left out. A scan can start before a stored version
/// began if the clock went back.
pub(super) fn closed_versions(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let (opened, started_us) = (time_column(rows, "valid_from")?, started_us(scan));
    let rows = &rows_where(table, rows, |row| opened.is_valid(row) && opened.value(row) < started_us)?;
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

/// Fills each empty table of versions from its child table, because earlier versions of the program filled only the
/// child tables. A first version begins at the `_synced_at` of the child row, and ends when the parent row vanished. If
/// the parent row has not vanished, the version is current. Does nothing for a table with rows.
pub(super) fn backfill_missing(store: &mut BufferedStore, base: &'static Table) -> Result<(), LoadError> {
    for table in version_tables_of(&base.name) {
        let Some(child) = table.versions_of.as_deref() else { continue };
        let key_columns = parent_key_columns(table, base);
        let has_versions = store.rows(table, &key_columns, &Filter::all())?.iter().any(|rows| rows.num_rows() > 0);
        if has_versions {
            continue;
        }
        let child_rows = store.full_rows(contract(child)?, &Filter::all())?;
        if child_rows.iter().all(|rows| rows.num_rows() == 0) {
            continue;
        }
        let vanished = vanished_at(store, base)?;
        let mut change = TableChange::new(table);
        for rows in &child_rows {
            change.add(first_versions(table, base, rows, &vanished)?);
        }
        store.change(change)?;
    }
    Ok(())
}

/// Returns the time at which each vanished row of the base table vanished, in epoch microseconds, by the hash of its
/// key.
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

/// Converts rows of a child table to the first versions in `table`, its table of versions. `base` is the table of the
/// parent rows. `vanished` has the time at which each vanished parent row vanished, by key hash: the version ends at
/// this time. If the parent row has not vanished, the version is current.
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
