//! Summary of a scan without its rows: keys and hashes of its records, its rejects, and the earliest snapshot of each
//! session.
//!
//! The summary takes about 64 bytes for each record. The rows stay in the pages. Rows that are written are read again.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use foldhash::{HashMap, HashMapExt as _, HashSet};

use super::{
    pages::check_columns,
    records::{Record, records_of, rows_where},
    rejects,
    stamps::includes_snapshots,
};
use crate::{
    load::{
        LoadError,
        contract::contract,
        error::invalid_rows,
        store::{KeySet, TimeRange, number_column, time_column},
    },
    model::{FlatPage, Reject, RejectReason, Scan, key_hashes},
    schema::{RECORD_COLUMN, ROW_HASH_COLUMN, Table},
};

/// The summary of a complete scan.
#[derive(Debug)]
pub(in crate::load) struct StagedScan {
    pub base: &'static Table,
    /// The records of all pages, in order.
    pub records: Vec<Record>,
    /// Where the records of each page are in `records`.
    pub pages: Vec<StagedPage>,
    /// Number of records of all pages, rejects included.
    pub rows_read: u64,
    /// Rejects by [`rejects::record_hash`]. If several rejects have the same hash, the first is kept.
    pub rejects: BTreeMap<i64, Reject>,
    /// True if at least one record is not JSON.
    pub has_broken_records: bool,
    /// Key hashes of the records that the drift rules discarded.
    pub discarded: HashSet<u128>,
    /// Keys of the records that were created outside the window. Empty for a table without a partition column.
    pub outside_keys: KeySet,
    /// Creation times of the records outside the window, in epoch microseconds.
    pub outside_us: Vec<i64>,
    /// Keys that were requested, found or not. Used only for scans of users, which request records by key.
    pub requested_keys: KeySet,
    pub snapshots: StagedSnapshots,
}

/// The records of a page, as indexes in [`StagedScan::records`].
#[derive(Debug)]
pub(in crate::load) struct StagedPage {
    pub records: Range<usize>,
    /// The index of each record in the page; empty if every record of the page has a row, so that the indexes are 0, 1,
    /// 2 and so on.
    numbers: Vec<i64>,
}

impl StagedPage {
    /// `rows` are the page's rows of the base table; `first` is the index of the first of their records.
    fn new(first: usize, rows: Option<&RecordBatch>) -> Result<Self, LoadError> {
        let numbers = rows.map(|rows| number_column(rows, RECORD_COLUMN)).transpose()?;
        let numbers = numbers.map_or(&[][..], |numbers| numbers.values());
        let is_gapless = numbers.last().is_none_or(|last| *last + 1 == numbers.len() as i64);
        let records = first..first + numbers.len();
        Ok(Self { records, numbers: if is_gapless { Vec::new() } else { numbers.to_vec() } })
    }

    /// Returns the index in the page of a record, which is given by its index in [`StagedScan::records`].
    pub fn number(&self, record: usize) -> i64 {
        let row = record.saturating_sub(self.records.start);
        self.numbers.get(row).copied().unwrap_or(row as i64)
    }

    /// Returns the index in [`StagedScan::records`] of a record, which is given by its index in the page. `None` if the
    /// record has no row.
    pub fn record(&self, number: i64) -> Option<usize> {
        let row = match self.numbers.is_empty() {
            true => usize::try_from(number).ok()?,
            false => self.numbers.binary_search(&number).ok()?,
        };
        Some(self.records.start + row).filter(|record| self.records.contains(record))
    }
}

/// The earliest snapshot of each session of the scan.
#[derive(Debug)]
pub(in crate::load) struct StagedSnapshots {
    /// The earliest snapshot by the hash of the session.
    pub earliest: HashMap<u128, EarliestSnapshot>,
    /// The keys of all sessions of the scan, to read their stored snapshots.
    pub sessions: KeySet,
    /// Range of the creation times of all snapshots; `None` if there is no snapshot.
    pub bounds: Option<TimeRange>,
}

/// The time, content hash and location of a snapshot. The least value of a session is stored, which is the earliest
/// snapshot. The other fields decide between snapshots of one microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::load) struct EarliestSnapshot {
    /// Creation time of the response that contained the snapshot.
    pub created_us: i64,
    /// Hash of the snapshot's content.
    pub content: i64,
    /// Number of the page, from 0.
    pub page: usize,
    /// Index of the snapshot's record in the page.
    pub record: i64,
}

/// The columns that identify a session.
pub(super) const SESSION_COLUMNS: [&str; 1] = ["response_group_uid"];

impl StagedScan {
    /// Creates a summary without pages.
    pub fn new(scan: &Scan) -> Result<Self, LoadError> {
        let base = contract(scan.scope.stream.name())?;
        let keys = || KeySet::new(base.key_in_order());
        Ok(Self {
            base,
            records: Vec::new(),
            pages: Vec::new(),
            rows_read: 0,
            rejects: BTreeMap::new(),
            has_broken_records: false,
            discarded: HashSet::default(),
            outside_keys: keys(),
            outside_us: Vec::new(),
            requested_keys: keys(),
            snapshots: StagedSnapshots {
                earliest: HashMap::new(),
                sessions: KeySet::new(SESSION_COLUMNS.to_vec()),
                bounds: None,
            },
        })
    }

    /// Adds the next page. `page_number` counts from 0. Fails if a batch of the page does not fit its table.
    pub fn add(&mut self, scan: &Scan, page_number: usize, page: &FlatPage) -> Result<(), LoadError> {
        check_columns(scan, page)?;
        let records = records_of(self.base, page)?;
        self.pages.push(StagedPage::new(self.records.len(), page.table(&self.base.name))?);
        if let Some(rows) = page.table(&self.base.name) {
            self.note_records_outside(scan, rows, &records)?;
            if self.base.partition.is_none() {
                self.requested_keys.add(rows)?;
            }
        }
        self.records.extend(records);
        for reject in &page.rejects {
            self.has_broken_records |= reject.reason == RejectReason::NotJson;
            let hash = rejects::record_hash(scan.scope.stream, &reject.raw);
            self.rejects.entry(hash).or_insert_with(|| reject.clone());
        }
        if let Some(discarded) = &page.discarded {
            self.discarded.extend(&discarded.key_hashes);
        }
        if !page.absent.is_empty() {
            self.requested_keys.add(&absent_keys(self.base, &page.absent)?)?;
        }
        if includes_snapshots(scan) {
            self.snapshots.add(page_number, page)?;
        }
        self.rows_read += page.records as u64;
        Ok(())
    }

    /// Adds the keys and creation times of the records outside the window, by which [`super::stored::StoredRows::read`]
    /// finds the stored rows of these records. Does nothing for a table without partitions, which is not read by
    /// window.
    fn note_records_outside(&mut self, scan: &Scan, rows: &RecordBatch, records: &[Record]) -> Result<(), LoadError> {
        if self.base.partition.is_none() {
            return Ok(());
        }
        let window = TimeRange::of(scan.window);
        let is_outside = |row: usize| records.get(row).is_some_and(|record| !window.holds(record.created_us));
        if (0..records.len()).any(is_outside) {
            self.outside_keys.add(&rows_where(self.base, rows, is_outside)?)?;
            let outside = records.iter().map(|record| record.created_us).filter(|created| !window.holds(*created));
            self.outside_us.extend(outside);
        }
        Ok(())
    }
}

impl StagedSnapshots {
    /// Adds the snapshots of a page, and keeps the earliest of each session.
    fn add(&mut self, page_number: usize, page: &FlatPage) -> Result<(), LoadError> {
        let table = contract("visitor_snapshots")?;
        let Some(rows) = page.table(&table.name) else { return Ok(()) };
        self.bounds = TimeRange::bounding_range(self.bounds, TimeRange::over(table, std::slice::from_ref(rows))?);
        self.sessions.add(rows)?;
        let sessions = key_hashes(&SESSION_COLUMNS, rows).map_err(invalid_rows(table))?;
        let times = time_column(rows, "created_at")?.values();
        let contents = number_column(rows, ROW_HASH_COLUMN)?.values();
        let records = number_column(rows, RECORD_COLUMN)?.values();
        for (((session, created_us), content), record) in sessions.iter().zip(times).zip(contents).zip(records) {
            let snapshot =
                EarliestSnapshot { created_us: *created_us, content: *content, page: page_number, record: *record };
            let earliest = self.earliest.entry(*session).or_insert(snapshot);
            *earliest = snapshot.min(*earliest);
        }
        Ok(())
    }
}

/// Converts requested keys that the service does not know to rows with only the key column. Fails if the key of the
/// base table is not one column.
fn absent_keys(base: &Table, keys: &[String]) -> Result<RecordBatch, LoadError> {
    let column: ArrayRef = Arc::new(StringArray::from_iter_values(keys));
    match base.key.as_slice() {
        [name] => RecordBatch::try_from_iter([(name.as_str(), column)]).map_err(invalid_rows(base)),
        _ => Err(LoadError::Bug(format!("{} is not requested by key", base.name))),
    }
}
