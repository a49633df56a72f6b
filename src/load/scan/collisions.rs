//! Collision losers: records that are not current, because another record with the same key is newer and has other
//! content. A response that lost goes to the history. In other streams a loser becomes a reject, with its row as JSON
//! text.

use std::sync::Arc;

use arrow::{
    array::{Array as _, ArrayRef, RecordBatch, TimestampMicrosecondArray, UInt64Array},
    compute::{kernels::cmp::neq, take},
};
use foldhash::{HashMap, HashSet};

use super::{
    records::{Record, rows_where, stored_rows},
    stamps::{WINNER_COLUMN, column_of, is_requested, not_later_than_scan, null, rows_of, started, text},
    value_hashes::value_hashes,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{
            BufferedStore, Filter, KeySet, TableChange, TimeRange, concat_rows, number_column, project, text_column,
            time_column,
        },
    },
    model::{Reject, RejectReason, RowContent, Scan, key_hashes},
    schema::{Column, ROW_HASH_COLUMN, Table},
};

/// The value of the column `reason` for a collision loser in the history.
pub(super) const COLLISION: &str = "collision";

/// Returns true if the losers of the base table go to a history.
pub(super) fn has_history(base: &Table) -> bool {
    base.name == "responses"
}

/// Returns, for each stored row, true if the row is the same record as one of the losers of a scan. Returns an empty
/// list if there is no loser, or if losers do not go to a history.
pub(super) fn have_lost<'r>(
    base: &'static Table,
    rows: &RecordBatch,
    losers: impl Iterator<Item = &'r Record>,
) -> Result<Vec<bool>, LoadError> {
    let losers: HashSet<(u128, Option<i64>)> = losers.map(|record| (record.key, Some(record.content))).collect();
    if losers.is_empty() || !has_history(base) {
        return Ok(Vec::new());
    }
    let rows = stored_rows(base, rows)?;
    Ok(rows.iter().map(|row| losers.contains(&(row.key, row.content))).collect())
}

/// Rows that lost, with the values of their versions in the history.
pub(super) struct LostRows {
    pub rows: RecordBatch,
    /// Since when the row was current; equal to `found_at` for a record that never was.
    pub since: ArrayRef,
    /// When a scan found the record that won.
    pub found_at: ArrayRef,
    /// The run of this scan.
    pub run_ids: ArrayRef,
    /// Creation time of the record that won.
    pub winners: ArrayRef,
}

/// Writes the losers of a scan to the history, and returns how many of them the history did not have before.
/// `page_losers` are rows of pages. `stored_losers` are rows that were current until this scan. `winners` has the
/// creation time of the current record by the hash of the key.
pub(super) fn write_to_history(
    store: &mut BufferedStore,
    scan: &Scan,
    base: &'static Table,
    page_losers: &[RecordBatch],
    stored_losers: &[RecordBatch],
    winners: &HashMap<u128, i64>,
) -> Result<u64, LoadError> {
    let mut written = 0;
    let stored = concat_rows(base, &base.full_schema(), stored_losers)?;
    let was_current: HashSet<(u128, i64, i64)> = identities(base, &stored)?.into_iter().collect();
    let lost = concat_rows(base, &base.flat_schema(), page_losers)?;
    let identities = identities(base, &lost)?;
    let is_never_current = |row: usize| identities.get(row).is_none_or(|identity| !was_current.contains(identity));
    let lost = rows_where(base, &lost, is_never_current)?;
    for (rows, is_stored) in [(stored, true), (lost, false)] {
        let count = rows.num_rows();
        let keys = key_hashes(&base.key_in_order(), &rows).map_err(invalid_rows(base))?;
        let winners = keys.iter().map(|key| winners.get(key).copied()).collect::<TimestampMicrosecondArray>();
        let since = match is_stored {
            true => not_later_than_scan(scan, time_column(&rows, "_synced_at")?),
            false => started(scan, count),
        };
        let (found_at, run_ids) = (started(scan, count), text(&scan.run_id.0, count));
        let lost = LostRows { rows, since, found_at, run_ids, winners: Arc::new(winners) };
        let is_new = write_lost(store, base, lost, |column| is_stored || is_requested(scan, column))?;
        written += is_new.into_iter().filter(|is_new| *is_new).count() as u64;
    }
    Ok(written)
}

/// Returns, for each row, the hash of its key, the hash of its content, and its creation time.
fn identities(base: &Table, rows: &RecordBatch) -> Result<Vec<(u128, i64, i64)>, LoadError> {
    let keys = key_hashes(&base.key_in_order(), rows).map_err(invalid_rows(base))?;
    let (contents, times) = (number_column(rows, ROW_HASH_COLUMN)?.values(), time_column(rows, "created_at")?.values());
    Ok(keys.into_iter().zip(contents).zip(times).map(|((key, content), time)| (key, *content, *time)).collect())
}

/// Writes rows that lost to the history. Skips a row that never was current and is in the history already. Returns, for
/// each row, true if the history had no such loser. `is_requested` returns true if the scan of the rows requested the
/// column.
pub(super) fn write_lost(
    store: &mut BufferedStore,
    base: &'static Table,
    lost: LostRows,
    is_requested: impl Fn(&Column) -> bool,
) -> Result<Vec<bool>, LoadError> {
    if lost.rows.num_rows() == 0 {
        return Ok(Vec::new());
    }
    let history = contract("response_history")?;
    let known = known_losers(store, base, history, std::slice::from_ref(&lost.rows))?;
    let losers = Losers::of(base, lost.rows.clone())?;
    let versions: Vec<Option<usize>> = (0..lost.rows.num_rows()).map(|row| known.find(&losers, row)).collect();
    correct_known(store, history, &lost, &losers, &known, &versions, &is_requested)?;
    let mut seen = HashSet::default();
    let identities = identities(base, &lost.rows)?;
    let is_new: Vec<bool> = (versions.iter().zip(identities))
        .map(|(version, identity)| version.is_none() && seen.insert(identity))
        .collect();
    let was_current = neq(&lost.since, &lost.found_at).map_err(invalid_rows(history))?;
    let is_written = is_new.iter().enumerate().filter(|(row, is_new)| **is_new || was_current.value(*row));
    let indexes = UInt64Array::from_iter_values(is_written.map(|(row, _)| row as u64));
    let mut change = TableChange::new(history);
    change.add(rows_of(history, indexes.len(), |column| {
        let values = match column.name.as_str() {
            "_run_id" => &lost.run_ids,
            "valid_from" => &lost.since,
            "_synced_at" | "valid_to" => &lost.found_at,
            WINNER_COLUMN => &lost.winners,
            "reason" => return Ok(Some(text(COLLISION, indexes.len()))),
            "returned_at" => return Ok(Some(null(column, indexes.len()))),
            _ if !is_requested(column) => return Ok(Some(null(column, indexes.len()))),
            name => &column_of(history, &lost.rows, name)?,
        };
        take(values, &indexes, None).map(Some).map_err(invalid_rows(history))
    })?);
    store.change(change)?;
    Ok(is_new)
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

/// Corrects stored versions of losers: fills columns that no earlier scan requested, and names the record that has won
/// now. `versions` has, for each row of `lost`, the index of its version in `known`.
fn correct_known(
    store: &mut BufferedStore,
    history: &'static Table,
    lost: &LostRows,
    losers: &Losers,
    known: &Losers,
    versions: &[Option<usize>],
    is_requested: &impl Fn(&Column) -> bool,
) -> Result<(), LoadError> {
    let mut change = TableChange::new(history);
    for (row, version) in versions.iter().enumerate().filter_map(|(row, version)| Some((row, (*version)?))) {
        let mut filled = losers.columns_more_than(row, known, version);
        filled.retain(|name| history.column(name).is_some_and(is_requested));
        let (before, now, winner) = (known.rows.slice(version, 1), lost.rows.slice(row, 1), lost.winners.slice(row, 1));
        let has_same_winner =
            winner.is_null(0) || column_of(history, &before, WINNER_COLUMN)?.as_ref() == winner.as_ref();
        if filled.is_empty() && has_same_winner {
            continue;
        }
        change.remove(&before)?;
        change.add(rows_of(history, 1, |column| match column.name.as_str() {
            WINNER_COLUMN if !has_same_winner => Ok(Some(Arc::clone(&winner))),
            name => {
                let is_filled = filled.contains(&name) || (name == ROW_HASH_COLUMN && !filled.is_empty());
                column_of(history, if is_filled { &now } else { &before }, name).map(Some)
            }
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
