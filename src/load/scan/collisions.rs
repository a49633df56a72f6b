//! Collision losers: records that another record of the same scan replaces, because it has the same key and other
//! content. A response that lost goes to the history. In other streams a loser becomes a reject, with its row as JSON
//! text.

use arrow::array::RecordBatch;
use foldhash::{HashMap, HashSet};

use super::{
    filled_tables::is_requested,
    records::rows_where,
    stamps::{column_of, null, rows_of, stamp, started, text},
    value_hashes::value_hashes,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{
            BufferedStore, Filter, KeySet, TableChange, TimeRange, concat_rows, number_column, project, text_column,
        },
    },
    model::{Reject, RejectReason, RowContent, Scan, key_hashes},
    schema::{ROW_HASH_COLUMN, Table},
};

/// The value of the column `reason` for a collision loser in the history.
const COLLISION: &str = "collision";

/// Writes collision losers to the history, and returns how many were written. Skips losers that the history has
/// already, because otherwise every scan of the window would report the same losers as new. Also skips losers whose key
/// hash and content hash are in `edited`: this scan has just written rows with these hashes to the history. A loser was
/// never current, so its version begins and ends at the start of the scan.
pub(super) fn write_to_history(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    collision_losers: &[RecordBatch],
    edited: &HashSet<(u128, i64)>,
) -> Result<u64, LoadError> {
    if collision_losers.is_empty() {
        return Ok(0);
    }
    let history = contract("response_history")?;
    let known = known_losers(store, base, history, collision_losers)?;
    let (mut seen, mut written) = (edited.clone(), 0);
    for rows in collision_losers {
        let (losers, contents) = (Losers::of(base, rows.clone())?, number_column(rows, ROW_HASH_COLUMN)?);
        let versions: Vec<Option<usize>> = (0..rows.num_rows()).map(|row| known.find(&losers, row)).collect();
        fill_in(store, scan, history, &losers, &known, &versions)?;
        let is_new = |row: usize| {
            let identity = losers.keys.get(row).map(|key| (*key, contents.value(row)));
            versions.get(row).is_some_and(Option::is_none) && identity.is_some_and(|identity| seen.insert(identity))
        };
        let new = rows_where(base, rows, is_new)?;
        let count = new.num_rows();
        let mut change = TableChange::new(history);
        change.add(rows_of(history, count, |column| {
            Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
                (Some(stamp), _) => stamp,
                (None, "valid_from" | "valid_to") => started(scan, count),
                (None, "reason") => text(COLLISION, count),
                (None, _) if !is_requested(scan, column) => null(column, count),
                (None, name) => column_of(history, &new, name)?,
            }))
        })?);
        store.change(change)?;
        written += count as u64;
    }
    Ok(written)
}

/// Reads the versions in the history that lost a collision and have the key of one of `collision_losers`.
fn known_losers(
    store: &mut BufferedStore,
    base: &'static Table,
    history: &'static Table,
    collision_losers: &[RecordBatch],
) -> Result<Losers, LoadError> {
    let keys = KeySet::of(base.key_in_order(), collision_losers)?;
    let bounds = TimeRange::over(base, collision_losers)?;
    let mut batches = Vec::new();
    for rows in store.full_rows(history, &Filter::within(bounds).with_keys(&keys))? {
        let reasons = text_column(&rows, "reason")?;
        batches.push(rows_where(history, &rows, |row| reasons.value(row) == COLLISION)?);
    }
    Losers::of(base, concat_rows(history, &history.full_schema(), &batches)?)
}

/// Rows that lost a collision, with hashes by which they are recognised.
struct Losers {
    rows: RecordBatch,
    /// Hash of each row's key.
    keys: Vec<u128>,
    /// Indexes of the rows of each key.
    rows_by_key: HashMap<u128, Vec<usize>>,
    /// Hash of each row's values in the columns that every scan requests.
    values: Vec<u128>,
    /// The columns that only some scans request: name, and hash of each row's value.
    flagged: Vec<(&'static str, Vec<u128>)>,
}

impl Losers {
    fn of(base: &'static Table, rows: RecordBatch) -> Result<Self, LoadError> {
        let keys = key_hashes(&base.key_in_order(), &rows).map_err(invalid_rows(base))?;
        let mut rows_by_key: HashMap<u128, Vec<usize>> = HashMap::default();
        keys.iter().enumerate().for_each(|(row, key)| rows_by_key.entry(*key).or_default().push(row));
        let (flagged, always): (Vec<_>, Vec<_>) =
            base.content_columns().filter(|column| column.is_hashed()).partition(|column| column.flag.is_some());
        let always: Vec<&str> = always.iter().map(|column| column.name.as_str()).collect();
        let values = value_hashes(base, &always, &rows)?;
        let flagged = flagged.iter().map(|column| {
            let name = column.name.as_str();
            Ok((name, value_hashes(base, &[name], &rows)?))
        });
        let flagged = flagged.collect::<Result<_, LoadError>>()?;
        Ok(Self { rows, keys, rows_by_key, values, flagged })
    }

    /// Returns the index of the row that is the same record as a row of `other`; `None` if there is none. A value that
    /// one of both scans did not request is not compared.
    fn find(&self, other: &Losers, other_row: usize) -> Option<usize> {
        let no_value = value_of_null();
        let is_same_value = |row: usize, one: &[u128], other: &[u128]| {
            let (one, other) = (one.get(row), other.get(other_row));
            one == other || one == Some(&no_value) || other == Some(&no_value)
        };
        let is_same = |row: usize| {
            let mut flagged = self.flagged.iter().zip(&other.flagged);
            self.values.get(row) == other.values.get(other_row)
                && flagged.all(|((_, one), (_, other))| is_same_value(row, one, other))
        };
        self.rows_by_key.get(other.keys.get(other_row)?)?.iter().copied().find(|row| is_same(*row))
    }

    /// Returns the columns in which the row has a value, and the row of `other` has none.
    fn columns_more_than(&self, row: usize, other: &Losers, other_row: usize) -> Vec<&'static str> {
        let no_value = value_of_null();
        let flagged = self.flagged.iter().zip(&other.flagged);
        let is_more =
            |one: &[u128], other: &[u128]| one.get(row) != Some(&no_value) && other.get(other_row) == Some(&no_value);
        flagged.filter(|((_, one), (_, other))| is_more(one, other)).map(|((name, _), _)| *name).collect()
    }
}

/// Returns the hash of a row without a value.
fn value_of_null() -> u128 {
    RowContent::default().hash_128()
}

/// Fills columns of stored versions that no earlier scan requested. `versions` has, for each row of `losers`, the index
/// of its version in `known`.
fn fill_in(
    store: &mut BufferedStore,
    scan: &Scan,
    history: &'static Table,
    losers: &Losers,
    known: &Losers,
    versions: &[Option<usize>],
) -> Result<(), LoadError> {
    let mut change = TableChange::new(history);
    for (row, version) in versions.iter().enumerate().filter_map(|(row, version)| Some((row, (*version)?))) {
        let mut filled = losers.columns_more_than(row, known, version);
        filled.retain(|name| history.column(name).is_some_and(|column| is_requested(scan, column)));
        if filled.is_empty() {
            continue;
        }
        let (before, now) = (known.rows.slice(version, 1), losers.rows.slice(row, 1));
        change.remove(&before)?;
        change.add(rows_of(history, 1, |column| {
            let is_filled = filled.contains(&column.name.as_str()) || column.name == ROW_HASH_COLUMN;
            column_of(history, if is_filled { &now } else { &before }, &column.name).map(Some)
        })?);
    }
    store.change(change)
}

/// Converts collision losers to rejects, each with the hash of its content as the hash of the reject.
pub(super) fn as_rejects(
    base: &'static Table,
    collision_losers: &[RecordBatch],
) -> Result<Vec<(i64, Reject)>, LoadError> {
    let columns: Vec<&str> = base.flat_columns().map(|column| column.name.as_str()).collect();
    let mut rejects = Vec::new();
    for rows in collision_losers {
        let text = crate::load::json_rows(&project(rows, &columns)?)?;
        let text = String::from_utf8(text).map_err(|error| LoadError::Bug(format!("{}: {error}", base.name)))?;
        let contents = number_column(rows, ROW_HASH_COLUMN)?.values();
        for (content, raw) in contents.iter().zip(text.lines()) {
            let (reason, field) = (RejectReason::KeyCollision, base.key.join(", ").into());
            rejects.push((*content, Reject { reason, field, raw: raw.to_owned() }));
        }
    }
    Ok(rejects)
}
