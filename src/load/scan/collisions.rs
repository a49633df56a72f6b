//! Records that lost to another one of their key with other content: the key does not name a record as it should. Those of answers go to the
//! history; other streams have none that could keep them, so there they are rejects, as the row that they would have been.

use arrow::array::{Array as _, RecordBatch};
use foldhash::HashSet;

use super::{
    records::rows_where,
    stamps::{column_of, moment, null, rows_of, stamp, text},
    tables::was_asked_for,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TableChange, TimeRange, number_column, project, text_column},
    },
    model::{Reject, RejectReason, Scan, key_hashes},
    schema::{ROW_HASH_COLUMN, Table},
};

/// Why a version is in the history that lost a collision.
const COLLISION: &str = "collision";

/// Writes collision_losers to the history, but for those that it holds, and those that it got as edited from this scan. Returns how many were new: what
/// is known already must not call for a look again in every run.
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
    let mut known = known_losers(store, base, history, collision_losers)?;
    known.extend(edited);
    let mut written = 0;
    for rows in collision_losers {
        let names = names_of(base, rows)?;
        let new = rows_where(base, rows, |row| names.get(row).is_some_and(|name| known.insert(*name)))?;
        let count = new.num_rows();
        let mut change = TableChange::new(history);
        change.add(rows_of(history, count, |column| {
            Ok(Some(match (stamp(scan, column, count), column.name.as_str()) {
                (Some(stamp), _) => stamp,
                (None, "valid_from" | "valid_to") => moment(scan.started_ms, count),
                (None, "reason") => text(COLLISION, count),
                (None, _) if !was_asked_for(scan, column) => null(column, count),
                (None, name) => column_of(history, &new, name)?,
            }))
        })?);
        store.change(change)?;
        written += count as u64;
    }
    Ok(written)
}

/// Keys and contents of collision_losers that the history holds.
fn known_losers(
    store: &mut BufferedStore,
    base: &'static Table,
    history: &'static Table,
    collision_losers: &[RecordBatch],
) -> Result<HashSet<(u128, i64)>, LoadError> {
    let keys = KeySet::of(base.key_in_order(), collision_losers)?;
    let mut known = HashSet::default();
    let Some(bounds) = TimeRange::over(base, collision_losers)? else { return Ok(known) };
    let mut columns = base.key_in_order();
    columns.extend([ROW_HASH_COLUMN, "reason"]);
    store.read(history, &columns, &Filter::within(Some(bounds)).with_keys(&keys), &mut |rows| {
        let reasons = text_column(&rows, "reason")?;
        let names = names_of(base, &rows)?.into_iter().zip(reasons.iter());
        known.extend(names.filter(|(_, reason)| *reason == Some(COLLISION)).map(|(name, _)| name));
        Ok(())
    })?;
    Ok(known)
}

/// The hashes of key and content of each row.
fn names_of(base: &Table, rows: &RecordBatch) -> Result<Vec<(u128, i64)>, LoadError> {
    let keys = key_hashes(&base.key_in_order(), rows).map_err(invalid_rows(base))?;
    let contents = number_column(rows, ROW_HASH_COLUMN)?;
    // A content without a hash equals no other.
    let content = |row: usize| if contents.is_valid(row) { contents.value(row) } else { i64::MIN };
    Ok(keys.into_iter().enumerate().map(|(row, key)| (key, content(row))).collect())
}

/// Losers as rejects, by the hashes of their contents.
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
