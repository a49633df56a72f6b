//! Keeps the keys of responses unique over all windows (promise P2).
//!
//! A scan is compared only with the stored rows near its window. So a row that a scan adds can have the key of a row in
//! another window. The keys of added rows are collected, and before a commit they are compared with the keys of the
//! complete table, in one read. Of rows with one key, the row that takes precedence stays; the others go to the
//! history.
//!
//! The rows of a key are compared in the order in which their scans were applied. A scan that changes a row with a
//! collected key is applied only after the keys were compared. So the result does not depend on how many scans one
//! commit contains, and a replay gives the same.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array as _, ArrayRef, RecordBatch, TimestampMicrosecondArray, UInt64Array},
    compute::{take, take_record_batch},
};
use foldhash::{HashMap, HashSet};

use super::{
    collisions::{LostRows, write_lost},
    hashes::{HashFilter, sorted_by_hash},
    records::{Record, rows_where, stored_records},
    stamps::column_of,
};
use crate::{
    load::{
        LoadError, RowCounts,
        contract::contract,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TableChange, TimeRange, concat_rows, time_column, with_column},
    },
    model::{ScanId, key_hashes},
    schema::Table,
};

/// Maximum number of collected keys (24 bytes each). If more are collected, they are compared before the next scan.
const NEW_KEYS_MAX: usize = 500_000;
/// Maximum number of key hashes in memory while a complete table is searched for keys that it has twice.
const HASHES_MAX: usize = 2_000_000;

/// The key of an added row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NewKey {
    /// Lower half of the key's hash.
    hash: u64,
    created_us: i64,
    /// Index in [`NewKeys::scans`].
    scan: u32,
}

/// The keys of the rows that scans have added and that have not been compared with the complete table.
#[derive(Debug, Default)]
pub(in crate::load) struct NewKeys {
    keys: Vec<NewKey>,
    /// The scans that added rows, in the order in which they were applied.
    scans: Vec<ScanId>,
}

/// How the counts of a scan change, because rows that it added have the key of another row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::load) struct CountCorrection {
    /// Added rows that are not current.
    pub lost: u64,
    /// Added rows that replaced the current row of their key.
    pub replaced: u64,
    /// Losers that were not in the history.
    pub collisions: u64,
}

impl CountCorrection {
    pub fn add(&mut self, other: CountCorrection) {
        self.lost += other.lost;
        self.replaced += other.replaced;
        self.collisions += other.collisions;
    }

    /// Returns the counts with this correction.
    pub fn of(self, counts: &RowCounts) -> RowCounts {
        RowCounts {
            inserted: counts.inserted.saturating_sub(self.lost + self.replaced),
            updated: counts.updated + self.replaced,
            unchanged: counts.unchanged + self.lost,
            collisions: counts.collisions + self.collisions,
            ..*counts
        }
    }
}

impl NewKeys {
    /// Adds the keys of the records that a scan adds.
    pub fn note<'r>(&mut self, scan: &ScanId, new: impl Iterator<Item = &'r Record>) {
        let (index, before) = (self.scans.len() as u32, self.keys.len());
        self.keys.extend(new.map(|record| NewKey {
            hash: record.key as u64,
            created_us: record.created_us,
            scan: index,
        }));
        if self.keys.len() > before {
            self.scans.push(scan.clone());
        }
    }

    /// Returns true if one of these keys, given by their hashes, was collected.
    pub fn has_any(&self, keys: impl Iterator<Item = u128>) -> bool {
        if self.keys.is_empty() {
            return false;
        }
        let keys: HashSet<u64> = keys.map(|key| key as u64).collect();
        !keys.is_empty() && self.keys.iter().any(|key| keys.contains(&key.hash))
    }

    /// Returns true if the keys must be compared before the next scan.
    pub fn is_full(&self) -> bool {
        self.keys.len() >= NEW_KEYS_MAX
    }

    /// Returns the keys with a hash, once the keys are sorted.
    fn with_hash(&self, hash: u64) -> &[NewKey] {
        sorted_by_hash(&self.keys, |key| key.hash, hash)
    }

    /// Returns the position among the scans of the scan that added a row; `None` if the row was stored before.
    fn scan_of(&self, record: &Record) -> Option<u32> {
        let mut same = self.with_hash(record.key as u64).iter();
        same.find(|key| key.created_us == record.created_us).map(|key| key.scan)
    }

    /// Compares the collected keys with the complete table, and leaves one row for each key. Returns the corrections of
    /// the counts of the scans that added the rows.
    pub fn resolve(&mut self, store: &mut BufferedStore) -> Result<HashMap<ScanId, CountCorrection>, LoadError> {
        if self.keys.is_empty() {
            return Ok(HashMap::default());
        }
        let mut new = std::mem::take(self);
        new.keys.sort_unstable();
        let base = contract("responses")?;
        let mut filter = HashFilter::with_room_for(new.keys.len());
        new.keys.iter().for_each(|key| filter.add(key.hash));
        let mut shared = SharedKeys::new(base);
        each_key(store, base, &Filter::all(), &mut |rows, hashes, times| {
            let others = |row: usize| {
                let (hash, created_us) = (*hashes.get(row)? as u64, *times.values().get(row)?);
                let same = if filter.may_contain(hash) { new.with_hash(hash) } else { &[] };
                same.iter().any(|key| key.created_us != created_us).then_some(same)
            };
            shared.add(rows, times, |row| others(row).map(|keys| keys.iter().map(|key| key.created_us)))
        })?;
        let corrections = resolve_shared(store, base, &shared, &new)?;
        Ok(corrections.into_iter().filter_map(|(scan, correction)| Some((scan?, correction))).collect())
    }
}

/// Leaves one row for each key of the complete table, of which earlier versions of the program could leave several.
/// Returns the number of rows that went to the history as losers.
pub(in crate::load) fn resolve_all(store: &mut BufferedStore) -> Result<u64, LoadError> {
    let base = contract("responses")?;
    let repeated = repeated_hashes(store, base)?;
    let mut shared = SharedKeys::new(base);
    if !repeated.is_empty() {
        each_key(store, base, &Filter::all(), &mut |rows, hashes, times| {
            let is_repeated = |row: usize| hashes.get(row).is_some_and(|hash| repeated.contains(&(*hash as u64)));
            shared.add(rows, times, |row| is_repeated(row).then(std::iter::empty))
        })?;
    }
    let corrections = resolve_shared(store, base, &shared, &NewKeys::default())?;
    Ok(corrections.values().map(|correction| correction.collisions).sum())
}

/// Compares the keys of all rows in a range with the complete table. Called after a replay replaced the range.
pub(in crate::load) fn resolve_range(store: &mut BufferedStore, range: TimeRange) -> Result<(), LoadError> {
    let base = contract("responses")?;
    let mut new = NewKeys::default();
    each_key(store, base, &Filter::within(Some(range)), &mut |_, hashes, times| {
        if !new.is_full() {
            let keys = hashes.iter().zip(times.values());
            new.keys.extend(keys.map(|(hash, at)| NewKey { hash: *hash as u64, created_us: *at, scan: 0 }));
        }
        Ok(())
    })?;
    match new.is_full() {
        true => resolve_all(store).map(|_| ()),
        false => new.resolve(store).map(|_| ()),
    }
}

/// Keys that several rows have, and the creation times of these rows.
struct SharedKeys {
    keys: KeySet,
    times_us: Vec<i64>,
}

impl SharedKeys {
    fn new(base: &'static Table) -> Self {
        Self { keys: KeySet::new(base.key_in_order()), times_us: Vec::new() }
    }

    /// Adds the rows for which `others` returns the creation times of other rows with their key.
    fn add<T: Iterator<Item = i64>>(
        &mut self,
        rows: &RecordBatch,
        times: &TimestampMicrosecondArray,
        mut others: impl FnMut(usize) -> Option<T>,
    ) -> Result<(), LoadError> {
        let mut shared = Vec::new();
        for row in 0..rows.num_rows() {
            if let Some(others) = others(row) {
                self.times_us.extend(others.chain(times.values().get(row).copied()));
                shared.push(row as u64);
            }
        }
        if !shared.is_empty() {
            let shared = take_record_batch(rows, &UInt64Array::from(shared));
            self.keys.add(&shared.map_err(|error| LoadError::Bug(error.to_string()))?)?;
        }
        Ok(())
    }
}

/// Takes rows, the hashes of their keys, and their creation times.
type TakeKeys<'t> = dyn FnMut(&RecordBatch, &[u128], &TimestampMicrosecondArray) -> Result<(), LoadError> + 't;

/// Passes the keys of rows to `take`.
fn each_key(
    store: &mut BufferedStore,
    base: &'static Table,
    filter: &Filter<'_>,
    take: &mut TakeKeys<'_>,
) -> Result<(), LoadError> {
    let mut columns = base.key_in_order();
    columns.push("created_at");
    store.read(base, &columns, filter, &mut |rows| {
        let hashes = key_hashes(&base.key_in_order(), &rows).map_err(invalid_rows(base))?;
        take(&rows, &hashes, time_column(&rows, "created_at")?)
    })
}

/// Returns the hashes of the keys that several rows of the table have. Reads the table once for each
/// [`HASHES_MAX`] rows, so that the memory does not grow with the table.
fn repeated_hashes(store: &mut BufferedStore, base: &'static Table) -> Result<HashSet<u64>, LoadError> {
    let (mut parts, mut part, mut repeated) = (1_u64, 0, HashSet::default());
    while part < parts {
        let mut hashes: Vec<u64> = Vec::new();
        each_key(store, base, &Filter::all(), &mut |_, keys, _| {
            if hashes.len() <= HASHES_MAX {
                hashes.extend(keys.iter().map(|key| *key as u64).filter(|hash| hash % parts == part));
            }
            Ok(())
        })?;
        if hashes.len() > HASHES_MAX {
            // Nothing was found yet in a table that is too large for the number of parts.
            (parts, part) = (parts * 2, 0);
            repeated.clear();
            continue;
        }
        hashes.sort_unstable();
        repeated.extend(hashes.windows(2).filter(|pair| pair.first() == pair.last()).filter_map(|pair| pair.first()));
        part += 1;
    }
    Ok(repeated)
}

/// Reads the rows with shared keys, and leaves one row for each key.
fn resolve_shared(
    store: &mut BufferedStore,
    base: &'static Table,
    shared: &SharedKeys,
    new: &NewKeys,
) -> Result<HashMap<Option<ScanId>, CountCorrection>, LoadError> {
    if shared.times_us.is_empty() {
        return Ok(HashMap::default());
    }
    let mut batches = Vec::new();
    for range in TimeRange::clusters_in(base, shared.times_us.clone()) {
        batches.extend(store.full_rows(base, &Filter::within(range).with_keys(&shared.keys))?);
    }
    let rows = concat_rows(base, &base.full_schema(), &batches)?;
    let meetings = Meetings::of(base, &rows, new)?;
    meetings.write(store, base, &rows, new)
}

/// Two rows with one key that met.
struct Meeting {
    /// Index of the row that is current.
    winner: usize,
    loser: usize,
    /// The row whose scan was applied later: this scan found the collision.
    later: usize,
}

/// The rows of each shared key, in the order in which they met.
struct Meetings {
    vanished: Vec<bool>,
    meetings: Vec<Meeting>,
    /// For each row, the scan that added it: its position in [`NewKeys::scans`].
    scans: Vec<Option<u32>>,
    /// For each row that stays and was written later than another row of its key: when its key was first seen.
    first_seen_us: BTreeMap<usize, i64>,
}

impl Meetings {
    fn of(base: &'static Table, rows: &RecordBatch, new: &NewKeys) -> Result<Self, LoadError> {
        let created = time_column(rows, "created_at")?;
        let (synced, first_seen) = (time_column(rows, "_synced_at")?, time_column(rows, "_first_seen_at")?);
        let vanished = time_column(rows, "_vanished_at")?;
        let records = stored_records(base, rows)?;
        let vanished: Vec<bool> = (0..records.len()).map(|row| vanished.is_valid(row)).collect();
        let mut by_key: BTreeMap<u128, Vec<usize>> = BTreeMap::new();
        records.iter().enumerate().for_each(|(row, record)| by_key.entry(record.key).or_default().push(row));
        let scans: Vec<Option<u32>> = records.iter().map(|record| new.scan_of(record)).collect();
        let order = |row: &usize| (scans.get(*row).copied(), synced.value(*row), created.value(*row));
        let precedence = |row: usize| {
            let is_live = !vanished.get(row).copied().unwrap_or(false);
            (is_live, records.get(row).map(Record::precedence))
        };
        let (mut meetings, mut first_seen_us) = (Vec::new(), BTreeMap::new());
        for mut same in by_key.into_values() {
            same.sort_by_key(order);
            let mut same = same.into_iter();
            let Some(mut current) = same.next() else { continue };
            let mut first_us = first_seen.value(current);
            for later in same {
                let (winner, loser) =
                    if precedence(later) > precedence(current) { (later, current) } else { (current, later) };
                meetings.push(Meeting { winner, loser, later });
                first_us = first_us.min(first_seen.value(later));
                current = winner;
            }
            if first_us < first_seen.value(current) {
                first_seen_us.insert(current, first_us);
            }
        }
        Ok(Self { vanished, meetings, scans, first_seen_us })
    }

    /// Removes the losers with their child rows, and writes them to the history. Returns the corrections of counts, by
    /// the scan of `new` that added the row; `None` for rows that no scan of `new` added.
    fn write(
        self,
        store: &mut BufferedStore,
        base: &'static Table,
        rows: &RecordBatch,
        new: &NewKeys,
    ) -> Result<HashMap<Option<ScanId>, CountCorrection>, LoadError> {
        let losers: Vec<u64> = self.meetings.iter().map(|meeting| meeting.loser as u64).collect();
        let losers = take_record_batch(rows, &UInt64Array::from(losers)).map_err(invalid_rows(base))?;
        store.remove_with_children(base, &losers)?;
        self.write_winners(store, base, rows)?;
        // The content of a row that had vanished is in the history already.
        let lost: Vec<&Meeting> = self.meetings.iter().filter(|meeting| !self.is_vanished(meeting.loser)).collect();
        let is_new = write_lost(store, base, self.lost_rows(base, rows, &lost)?, |_| true)?;
        let mut is_new = is_new.into_iter();
        let mut corrections: HashMap<Option<ScanId>, CountCorrection> = HashMap::default();
        for meeting in &self.meetings {
            let is_collision = !self.is_vanished(meeting.loser) && is_new.next().unwrap_or(false);
            let scan = self.scans.get(meeting.later).copied().flatten().and_then(|scan| new.scans.get(scan as usize));
            let correction = CountCorrection {
                lost: u64::from(scan.is_some() && meeting.later == meeting.loser),
                replaced: u64::from(scan.is_some() && meeting.later == meeting.winner),
                collisions: u64::from(is_collision),
            };
            corrections.entry(scan.cloned()).or_default().add(correction);
        }
        Ok(corrections)
    }

    fn is_vanished(&self, row: usize) -> bool {
        self.vanished.get(row).copied().unwrap_or(false)
    }

    /// Writes when the key was first seen to the rows that stay.
    fn write_winners(
        &self,
        store: &mut BufferedStore,
        base: &'static Table,
        rows: &RecordBatch,
    ) -> Result<(), LoadError> {
        let stays = rows_where(base, rows, |row| self.first_seen_us.contains_key(&row))?;
        let first_seen: ArrayRef =
            Arc::new(TimestampMicrosecondArray::from_iter_values(self.first_seen_us.values().copied()));
        let mut change = TableChange::new(base);
        change.remove(&stays)?;
        change.add(with_column(&stays, "_first_seen_at", &first_seen)?);
        store.change(change)
    }

    /// Returns the rows that lost in these meetings. A row that was written before the winner was current until then.
    fn lost_rows(&self, base: &Table, rows: &RecordBatch, meetings: &[&Meeting]) -> Result<LostRows, LoadError> {
        let taken = |name: &str, row: fn(&Meeting) -> usize| {
            let indexes = UInt64Array::from_iter_values(meetings.iter().map(|meeting| row(meeting) as u64));
            take(&column_of(base, rows, name)?, &indexes, None).map_err(invalid_rows(base))
        };
        let losers = UInt64Array::from_iter_values(meetings.iter().map(|meeting| meeting.loser as u64));
        // Scans that ran at the same time can be applied in another order than that of their starts.
        let synced = time_column(rows, "_synced_at")?;
        let found_at = TimestampMicrosecondArray::from_iter_values(
            meetings.iter().map(|meeting| synced.value(meeting.later).max(synced.value(meeting.loser))),
        );
        Ok(LostRows {
            rows: take_record_batch(rows, &losers).map_err(invalid_rows(base))?,
            since: taken("_synced_at", |meeting| meeting.loser)?,
            found_at: Arc::new(found_at),
            run_ids: taken("_run_id", |meeting| meeting.later)?,
            winners: taken("created_at", |meeting| meeting.winner)?,
        })
    }
}
