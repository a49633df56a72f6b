//! Collision losers: records that another record of the same scan replaces, because it has the same key and other
//! content. A response that lost goes to the history. In other streams a loser becomes a reject, with its row as JSON
//! text.

use arrow::array::{Array as _, RecordBatch};
use foldhash::HashSet;

use super::{
    filled_tables::is_requested,
    records::rows_where,
    stamps::{column_of, null, rows_of, stamp, started, text},
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
    let mut known = known_losers(store, base, history, collision_losers)?;
    known.extend(edited);
    let mut written = 0;
    for rows in collision_losers {
        let identities = identities_of(base, rows)?;
        let new = rows_where(base, rows, |row| identities.get(row).is_some_and(|identity| known.insert(*identity)))?;
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

/// Finds the losers in `collision_losers` that the history has already. Returns the hash of the key and the hash of the
/// content of each. The result may also contain other losers with the same keys.
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
        let identities = identities_of(base, &rows)?.into_iter().zip(reasons.iter());
        known.extend(identities.filter(|(_, reason)| *reason == Some(COLLISION)).map(|(identity, _)| identity));
        Ok(())
    })?;
    Ok(known)
}

/// Returns, for each row, the hash of its key and the hash of its content.
fn identities_of(base: &Table, rows: &RecordBatch) -> Result<Vec<(u128, i64)>, LoadError> {
    let keys = key_hashes(&base.key_in_order(), rows).map_err(invalid_rows(base))?;
    let contents = number_column(rows, ROW_HASH_COLUMN)?;
    // A row without a content hash gets a value that is hardly ever a hash, so that the row equals no row with a hash.
    let content = |row: usize| if contents.is_valid(row) { contents.value(row) } else { i64::MIN };
    Ok(keys.into_iter().enumerate().map(|(row, key)| (key, content(row))).collect())
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
