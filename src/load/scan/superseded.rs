//! Finds the records of a scan that lost to a record with their key in another window.
//!
//! The history has such a record with the creation time of the record that won (`collided_with`). So a re-scan finds
//! the winner without a search of the complete table, and writes nothing while the winner is still current.

use std::collections::BTreeSet;

use arrow::array::{Array as _, RecordBatch};
use foldhash::{HashMap, HashMapExt as _};

use super::{
    classify::{Classification, RecordChange},
    collisions::{COLLISION, has_history},
    memory::ScanMemory,
    records::{Record, rows_where, stored_records, value},
    staged::StagedScan,
    stamps::WINNER_COLUMN,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TimeRange, number_column, text_column, time_column},
    },
    model::{Scan, Window, key_hashes},
    schema::{ROW_HASH_COLUMN, Table},
};

/// Key hash and creation time of a record.
type Place = (u128, i64);

/// What the history has of a record that lost.
#[derive(Debug, Default)]
struct Loser {
    /// True if the history has exactly this record.
    is_known: bool,
    /// Creation times of the records that won.
    winners_us: Vec<i64>,
}

/// Marks new records as superseded whose key has a newer record in another window. Records that the history lacks, or
/// has with other content, become collision losers, which are written later.
pub(super) fn mark(
    store: &mut BufferedStore,
    scan: &Scan,
    staged: &StagedScan,
    classification: &mut Classification,
) -> Result<(), LoadError> {
    let base = staged.base;
    if !has_history(base) {
        return Ok(());
    }
    let changes = classification.records.iter().enumerate();
    let new = changes.filter(|(_, change)| **change == RecordChange::New).map(|(index, _)| index);
    let new = new.filter_map(|index| staged.records.get(index).map(|record| ((record.key, record.created_us), index)));
    let new: HashMap<Place, usize> = new.collect();
    if new.is_empty() {
        return Ok(());
    }
    let record = |place: &Place| new.get(place).and_then(|index| staged.records.get(*index));
    let (losers, keys) = losers(store, scan, staged, &record)?;
    if losers.is_empty() {
        return Ok(());
    }
    let winners = live_records(store, base, &keys, losers.values().flat_map(|loser| loser.winners_us.iter().copied()))?;
    for (place, loser) in &losers {
        let (Some(index), Some(record)) = (new.get(place), record(place)) else { continue };
        let winner = winners.get(&record.key).filter(|winner| winner.precedence() > record.precedence());
        let Some(winner) = winner else { continue };
        classification.winners.insert(record.key, winner.created_us);
        classification.records.iter_mut().skip(*index).take(1).for_each(|change| *change = RecordChange::Superseded);
        if !loser.is_known {
            classification.collision_losers.push(*index);
        }
    }
    classification.collision_losers.sort_unstable();
    Ok(())
}

/// Remembers the keys of responses that vanished in a scan.
pub(super) fn note_vanished(
    memory: &mut ScanMemory,
    base: &'static Table,
    rows: &[RecordBatch],
) -> Result<(), LoadError> {
    if has_history(base) && !rows.is_empty() {
        let keys = memory.vanished.get_or_insert_with(|| KeySet::new(base.key_in_order()));
        rows.iter().try_for_each(|rows| keys.add(rows))?;
    }
    Ok(())
}

/// Returns windows with the records that lost to rows which vanished since the last commit. A scan of these windows
/// makes the newest of the records current, if the service still has it.
pub(in crate::load) fn losers_of_vanished(
    store: &mut BufferedStore,
    memory: &mut ScanMemory,
) -> Result<Vec<Window>, LoadError> {
    let Some(keys) = memory.vanished.take() else { return Ok(Vec::new()) };
    let history = contract("response_history")?;
    let mut columns = keys.columns().to_vec();
    columns.extend(["created_at", "reason", WINNER_COLUMN]);
    let mut times_ms = BTreeSet::new();
    store.read(history, &columns, &Filter::all().with_keys(&keys), &mut |rows| {
        let reasons = text_column(&rows, "reason")?;
        let (created, winners) = (time_column(&rows, "created_at")?, time_column(&rows, WINNER_COLUMN)?);
        let is_elsewhere = |row: &usize| {
            let winner = value(Some(winners), *row);
            reasons.value(*row) == COLLISION && winner.is_some_and(|winner| winner != created.value(*row))
        };
        times_ms.extend((0..rows.num_rows()).filter(is_elsewhere).map(|row| created.value(row).div_euclid(1000)));
        Ok(())
    })?;
    Ok(times_ms.into_iter().map(|at_ms| Window::new(at_ms, at_ms + 1)).collect())
}

/// Reads the losers in the history that have the key and the creation time of a record for which `record` returns one.
/// Returns them, and their keys.
fn losers<'s>(
    store: &mut BufferedStore,
    scan: &Scan,
    staged: &StagedScan,
    record: &dyn Fn(&Place) -> Option<&'s Record>,
) -> Result<(HashMap<Place, Loser>, KeySet), LoadError> {
    let (base, history) = (staged.base, contract("response_history")?);
    let mut columns = base.key_in_order();
    columns.extend(["created_at", ROW_HASH_COLUMN, "reason", WINNER_COLUMN]);
    let window = TimeRange::of(scan.window);
    let mut ranges = vec![window];
    let outside = TimeRange::clusters(staged.outside_us.clone());
    ranges.extend(outside.into_iter().flat_map(|range| range.without(window).collect::<Vec<_>>()));
    let (mut losers, mut keys) = (HashMap::<Place, Loser>::new(), KeySet::new(base.key_in_order()));
    for range in ranges {
        store.read(history, &columns, &Filter::within(Some(range)), &mut |rows| {
            let reasons = text_column(&rows, "reason")?;
            let rows = rows_where(history, &rows, |row| reasons.value(row) == COLLISION)?;
            let (created, winners) = (time_column(&rows, "created_at")?, time_column(&rows, WINNER_COLUMN)?);
            let contents = number_column(&rows, ROW_HASH_COLUMN)?;
            let places = key_hashes(&base.key_in_order(), &rows).map_err(invalid_rows(base))?;
            let places: Vec<Place> = places.into_iter().zip(created.values().iter().copied()).collect();
            for (row, place) in places.iter().enumerate() {
                let (Some(record), Some(winner_us)) = (record(place), value(Some(winners), row)) else { continue };
                let loser = losers.entry(*place).or_default();
                loser.is_known |= value(Some(contents), row) == Some(record.content);
                loser.winners_us.push(winner_us);
            }
            keys.add(&rows_where(history, &rows, |row| {
                places.get(row).is_some_and(|place| losers.contains_key(place))
            })?)
        })?;
    }
    Ok((losers, keys))
}

/// Reads the stored rows with these keys and creation times that have not vanished, reduced to what decides which one
/// is current. Of several rows with one key, returns the one that takes precedence.
fn live_records(
    store: &mut BufferedStore,
    base: &'static Table,
    keys: &KeySet,
    times_us: impl Iterator<Item = i64>,
) -> Result<HashMap<u128, Record>, LoadError> {
    let mut columns = base.key_in_order();
    columns.extend(["created_at", "updated_at", "_vanished_at", ROW_HASH_COLUMN]);
    let mut records: HashMap<u128, Record> = HashMap::new();
    for range in TimeRange::clusters_in(base, times_us.collect()) {
        store.read(base, &columns, &Filter::within(range).with_keys(keys), &mut |rows| {
            let vanished = time_column(&rows, "_vanished_at")?;
            let rows = stored_records(base, &rows)?;
            for (_, record) in rows.into_iter().enumerate().filter(|(row, _)| vanished.is_null(*row)) {
                let best = records.entry(record.key).or_insert(record);
                if record.precedence() > best.precedence() {
                    *best = record;
                }
            }
            Ok(())
        })?;
    }
    Ok(records)
}
