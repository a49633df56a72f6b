//! The table `visitor_snapshots`: one row for each session, although each response of the session contains a snapshot.
//!
//! The snapshot of the session's earliest response is stored, so that the order of scans does not matter. A snapshot is
//! never marked as vanished, because it records what was known of the visitor when the survey was shown.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    array::{Array as _, ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray},
    compute::concat_batches,
};
use foldhash::{HashMap, HashMapExt as _, HashSet};

use super::{
    records::rows_where,
    staged::{EarliestSnapshot, SESSION_COLUMNS, StagedSnapshots},
    stamps::{ended_versions, new_rows, not_later_than_scan, rows_of},
    value_hashes::content_hashes,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{
            BufferedStore, Filter, KeySet, TableChange, TimeRange, number_column, project, removal_columns,
            time_column, with_column,
        },
    },
    model::{DAY_MS, Scan, key_hashes},
    schema::{RECORD_COLUMN, ROW_HASH_COLUMN, Table, history_of},
};

/// Longest expected session, in microseconds. A session may cross the edge of a window, so its stored row is searched
/// this far before and after the scanned snapshots. A longer session can get a second row with another time.
const SESSION_US_MAX: i64 = 7 * DAY_MS * 1000;

/// The snapshots of a scan that must be written, and the stored rows that they replace.
#[derive(Debug, Default)]
pub(super) struct NewSnapshots {
    /// The snapshots to write, by the number of their page (from 0).
    by_page: BTreeMap<usize, Vec<NewSnapshot>>,
    /// The stored rows that new snapshots replace.
    replaced: Vec<RecordBatch>,
    /// The replaced rows whose new snapshot has the same time and other content: the service edited them.
    edited: Vec<RecordBatch>,
    /// Stored rows with the same content as the scanned snapshot, but another hash: an earlier version of the program
    /// hashed them in another way. The rows have all columns, and the new hash.
    rehashed: Vec<RecordBatch>,
}

/// A snapshot that is to be written.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewSnapshot {
    /// Index of the snapshot's record in the page.
    pub record: i64,
    /// `_first_seen_at` of the replaced row in epoch microseconds; `None` if no row is replaced.
    first_seen_us: Option<i64>,
}

/// The stored row of a session.
#[derive(Clone, Copy, Debug)]
struct StoredSnapshot {
    created_us: i64,
    content: Option<i64>,
    first_seen_us: Option<i64>,
    /// Index of the batch that contains the row, and index of the row in this batch.
    location: (usize, usize),
}

impl StoredSnapshot {
    /// Returns true if this row is earlier than `other`, so that it counts as the row of their session.
    fn is_before(&self, other: &Self) -> bool {
        (self.created_us, self.content) < (other.created_us, other.content)
    }

    /// Returns true if the scanned snapshot is earlier than this row, or has the same time and other content.
    fn is_replaced_by(&self, scanned: &EarliestSnapshot) -> bool {
        scanned.created_us < self.created_us
            || (scanned.created_us == self.created_us && Some(scanned.content) != self.content)
    }
}

impl NewSnapshots {
    /// Returns the snapshots to write from the page with this number.
    pub fn of_page(&self, page: usize) -> &[NewSnapshot] {
        self.by_page.get(&page).map_or(&[], Vec::as_slice)
    }

    /// Returns all snapshots to write, each with the number of the page that contains it.
    pub fn all(&self) -> impl Iterator<Item = (usize, &NewSnapshot)> {
        self.by_page.iter().flat_map(|(page, new)| new.iter().map(|new| (*page, new)))
    }

    pub fn is_empty(&self) -> bool {
        self.by_page.is_empty()
    }

    /// Writes the edited rows to the history, removes all replaced rows and their child rows from the store, and writes
    /// the new hashes of rows whose content is the same.
    pub fn remove_replaced(&self, store: &mut BufferedStore, scan: &Scan) -> Result<(), LoadError> {
        let table = contract("visitor_snapshots")?;
        let mut change = TableChange::new(table);
        for rows in &self.rehashed {
            change.remove(rows)?;
            change.add(rows.clone());
        }
        store.change(change)?;
        if let (Some(history), false) = (history_of(&table.name), self.edited.is_empty()) {
            let keys = KeySet::of(removal_columns(table), &self.edited)?;
            let bounds = TimeRange::over(table, &self.edited)?;
            for rows in store.full_rows(table, &Filter::within(bounds).with_keys(&keys))? {
                store.change(ended_versions(history, scan, &rows, "edited")?)?;
            }
        }
        let Some(batch) = self.replaced.first() else { return Ok(()) };
        let replaced = concat_batches(&batch.schema(), &self.replaced).map_err(invalid_rows(table))?;
        store.remove_with_children(table, &replaced)
    }

    /// Converts rows of a page to new rows of `table`, which is `visitor_snapshots` or one of its child tables. A
    /// snapshot that replaces a row keeps the `_first_seen_at` of the replaced row, unless it is later than this scan.
    pub fn rows(&self, table: &Table, scan: &Scan, page: usize, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
        let new = new_rows(table, scan, rows)?;
        if table.column("_first_seen_at").is_none() {
            return Ok(new);
        }
        let seen: HashMap<i64, Option<i64>> =
            self.of_page(page).iter().map(|new| (new.record, new.first_seen_us)).collect();
        let records = number_column(rows, RECORD_COLUMN)?.values();
        let before = records.iter().map(|record| seen.get(record).copied().flatten());
        let first_seen = not_later_than_scan(scan, &before.collect::<TimestampMicrosecondArray>());
        rows_of(table, rows.num_rows(), |column| {
            Ok(match column.name.as_str() {
                "_first_seen_at" => Some(Arc::clone(&first_seen)),
                name => new.column_by_name(name).map(Arc::clone),
            })
        })
    }
}

/// Finds the snapshots that must be written. A session's earliest snapshot is written if the session has no stored row,
/// a later one, or one of the same time with other content. Returns nothing to write if the scan has no snapshots.
pub(super) fn find(store: &mut BufferedStore, staged: &StagedSnapshots) -> Result<NewSnapshots, LoadError> {
    let mut new = NewSnapshots::default();
    let Some(bounds) = staged.bounds else { return Ok(new) };
    let table = contract("visitor_snapshots")?;
    let filter = Filter::within(Some(bounds.widened_by(SESSION_US_MAX))).with_keys(&staged.sessions);
    let columns = [SESSION_COLUMNS[0], "created_at", ROW_HASH_COLUMN, "_first_seen_at"];
    let batches = store.rows(table, &columns, &filter)?;
    let stored = stored_by_session(table, &batches)?;
    let (mut replaced, mut edited) = (HashSet::default(), HashSet::default());
    new.rehashed = rehashed(store, table, &batches, &stored, staged)?;
    let mut has_same_content = HashSet::default();
    for rows in &new.rehashed {
        has_same_content.extend(key_hashes(&SESSION_COLUMNS, rows).map_err(invalid_rows(table))?);
    }
    for (session, earliest) in &staged.earliest {
        let row = stored.get(session);
        if has_same_content.contains(session) || row.is_some_and(|row| !row.is_replaced_by(earliest)) {
            continue;
        }
        let first_seen_us = row.and_then(|row| row.first_seen_us);
        let snapshot = NewSnapshot { record: earliest.record, first_seen_us };
        new.by_page.entry(earliest.page).or_default().push(snapshot);
        replaced.extend(row.map(|row| row.location));
        edited.extend(row.filter(|row| row.created_us == earliest.created_us).map(|row| row.location));
    }
    new.replaced = rows_at(table, &batches, &replaced)?;
    new.edited = rows_at(table, &batches, &edited)?;
    Ok(new)
}

/// Returns the stored rows with the same content as the scanned snapshot of their session, but another hash, with all
/// columns and the new hash. An earlier version of the program hashed them in another way.
fn rehashed(
    store: &mut BufferedStore,
    table: &'static Table,
    batches: &[RecordBatch],
    stored: &HashMap<u128, StoredSnapshot>,
    staged: &StagedSnapshots,
) -> Result<Vec<RecordBatch>, LoadError> {
    let has_other_hash = |(session, row): (&u128, &StoredSnapshot)| {
        let scanned = staged.earliest.get(session)?;
        let is_other = scanned.created_us == row.created_us && Some(scanned.content) != row.content;
        is_other.then_some(row.location)
    };
    let keys = rows_at(table, batches, &stored.iter().filter_map(has_other_hash).collect())?;
    let Some(bounds) = TimeRange::over(table, &keys)? else { return Ok(Vec::new()) };
    let keys = KeySet::of(removal_columns(table), &keys)?;
    let mut same = Vec::new();
    for rows in store.full_rows(table, &Filter::within(Some(bounds)).with_keys(&keys))? {
        let sessions = key_hashes(&SESSION_COLUMNS, &rows).map_err(invalid_rows(table))?;
        let contents = content_hashes(table, &rows)?;
        let scanned = |session: &u128| staged.earliest.get(session).map(|snapshot| snapshot.content);
        let is_same = |row: usize| sessions.get(row).and_then(scanned) == contents.get(row).copied();
        let kept = rows_where(table, &rows, is_same)?;
        let contents = sessions.iter().zip(&contents).filter(|(session, content)| scanned(session) == Some(**content));
        let hashes: ArrayRef = Arc::new(contents.map(|(_, content)| Some(*content)).collect::<Int64Array>());
        same.push(with_column(&kept, ROW_HASH_COLUMN, &hashes)?);
    }
    same.retain(|rows| rows.num_rows() > 0);
    Ok(same)
}

/// Returns the rows at these locations (index of batch, index of row), with only the columns that identify a row to
/// remove. Batches without such a row are left out.
fn rows_at(
    table: &'static Table,
    batches: &[RecordBatch],
    locations: &HashSet<(usize, usize)>,
) -> Result<Vec<RecordBatch>, LoadError> {
    let mut rows = Vec::new();
    if locations.is_empty() {
        return Ok(rows);
    }
    for (batch_index, batch) in batches.iter().enumerate() {
        let batch = project(batch, &removal_columns(table))?;
        rows.push(rows_where(table, &batch, |row| locations.contains(&(batch_index, row)))?);
    }
    rows.retain(|rows| rows.num_rows() > 0);
    Ok(rows)
}

/// Returns the earliest stored snapshot of each session, by the hash of the session.
fn stored_by_session(table: &Table, batches: &[RecordBatch]) -> Result<HashMap<u128, StoredSnapshot>, LoadError> {
    let mut stored: HashMap<u128, StoredSnapshot> = HashMap::new();
    for (batch_index, batch) in batches.iter().enumerate() {
        let sessions = key_hashes(&SESSION_COLUMNS, batch).map_err(invalid_rows(table))?;
        let (times, contents) = (time_column(batch, "created_at")?, number_column(batch, ROW_HASH_COLUMN)?);
        let first_seen = time_column(batch, "_first_seen_at")?;
        for (row, session) in sessions.into_iter().enumerate() {
            let snapshot = StoredSnapshot {
                created_us: times.value(row),
                content: contents.is_valid(row).then(|| contents.value(row)),
                first_seen_us: first_seen.is_valid(row).then(|| first_seen.value(row)),
                location: (batch_index, row),
            };
            let earliest = stored.entry(session).or_insert(snapshot);
            if snapshot.is_before(earliest) {
                *earliest = snapshot;
            }
        }
    }
    Ok(stored)
}
