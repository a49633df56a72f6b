//! Summary of a scan without its rows: keys and hashes of its records, its rejects, and the earliest snapshot of each
//! session.
//!
//! The summary takes about 64 bytes for each record. The rows stay in the pages, and are read again when they are
//! written.

use std::{collections::BTreeMap, sync::Arc};

use arrow::array::{Array as _, ArrayRef, RecordBatch, StringArray};
use foldhash::{HashMap, HashMapExt as _, HashSet};

use super::{
    records::{Record, records_of, rows_where},
    rejects,
    stamps::{includes_snapshots, is_filled_by},
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
        for batch in &page.batches {
            check_columns(contract(batch.table)?, scan, &batch.rows)?;
        }
        let records = records_of(self.base, page)?;
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

/// Returns an error if the scan's stream does not fill the table, or if the batch does not fit the table. A batch fits
/// if it has the same columns in the same order, and no NULL where the table allows none.
fn check_columns(table: &Table, scan: &Scan, rows: &RecordBatch) -> Result<(), LoadError> {
    if !is_filled_by(table, scan) {
        return Err(LoadError::Bug(format!("{} is not filled by {}", table.name, scan.scope.stream)));
    }
    let (wanted, found) = (table.flat_schema(), rows.schema());
    let fits = wanted.fields().len() == found.fields().len()
        && wanted.fields().iter().zip(found.fields()).zip(rows.columns()).all(|((wanted, found), values)| {
            let nulls_fit = wanted.is_nullable() || values.null_count() == 0;
            wanted.name() == found.name() && wanted.data_type() == found.data_type() && nulls_fit
        });
    if fits { Ok(()) } else { Err(LoadError::Bug(format!("the columns of {} are {found}", table.name))) }
}
