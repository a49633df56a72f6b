//! Reads the stored rows that a scan is compared with: first key, hash and state of all these rows, then all columns of
//! the rows that change or may change.

use arrow::{
    array::{RecordBatch, UInt64Array},
    compute::take_record_batch,
};
use foldhash::{HashMap, HashMapExt as _};

use super::{
    records::{StoredRow, rows_where, stored_columns, stored_rows},
    staged::StagedScan,
};
use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{BufferedStore, Filter, KeySet, TimeRange, concat_rows},
    },
    model::{Scan, Stream},
    schema::Table,
};

/// Microseconds before and after the window whose stored rows are read together with the window. Nearly all records
/// that a scan returns from outside the window are this close to it, so their stored rows need no second read.
const WINDOW_MARGIN_US: i64 = 1_000_000;

/// The stored rows that a scan is compared with.
#[derive(Debug, Default)]
pub(super) struct StoredRows {
    pub rows: Vec<StoredRow>,
    /// The rows of `rows` in the same order, with the columns of [`stored_columns`].
    batches: Vec<RecordBatch>,
}

impl StoredRows {
    /// Reads the stored rows of the window, and the stored rows of the scan's records outside the window. From a table
    /// without partitions, reads all rows; for a scan of users, only the rows with the requested keys.
    pub fn read(store: &mut BufferedStore, scan: &Scan, staged: &StagedScan) -> Result<Self, LoadError> {
        let base = staged.base;
        let mut stored = Self::default();
        if base.partition.is_none() {
            let requested = Filter::all().with_keys(&staged.requested_keys);
            // A scan of surveys returns all surveys, so stored surveys that it does not return have vanished.
            let filter = if scan.scope.stream == Stream::Users { requested } else { Filter::all() };
            stored.add(store, base, &filter)?;
            return Ok(stored);
        }
        let around = TimeRange::of(scan.window).widened_by(WINDOW_MARGIN_US);
        stored.add(store, base, &Filter::within(Some(around)))?;
        // The stored rows of the other records are read by key, in one range for records with near times.
        let far = staged.outside_us.iter().copied().filter(|time_us| !around.holds(*time_us)).collect();
        for range in TimeRange::clusters(far) {
            for range in range.without(around) {
                stored.add(store, base, &Filter::within(Some(range)).with_keys(&staged.outside_keys))?;
            }
        }
        Ok(stored)
    }

    /// Reads only the stored rows of the window, for a verification, which compares no other rows. From a table without
    /// partitions, reads all rows; for a scan of users, only the rows with the requested keys.
    pub fn of_window(store: &mut BufferedStore, scan: &Scan, staged: &StagedScan) -> Result<Self, LoadError> {
        let base = staged.base;
        if base.partition.is_none() {
            return Self::read(store, scan, staged);
        }
        let mut stored = Self::default();
        stored.add(store, base, &Filter::within(Some(TimeRange::of(scan.window))))?;
        Ok(stored)
    }

    /// Reads the rows that the filter selects and appends them.
    fn add(&mut self, store: &mut BufferedStore, base: &'static Table, filter: &Filter<'_>) -> Result<(), LoadError> {
        store.read(base, &stored_columns(base), filter, &mut |rows| {
            self.rows.extend(stored_rows(base, &rows)?);
            self.batches.push(rows);
            Ok(())
        })
    }

    /// Returns the keys of the rows for whose index `is_wanted` returns true.
    fn keys(&self, base: &'static Table, mut is_wanted: impl FnMut(usize) -> bool) -> Result<KeySet, LoadError> {
        let mut keys = KeySet::new(base.key_in_order());
        let mut batch_start = 0;
        for batch in &self.batches {
            keys.add(&rows_where(base, batch, |row| is_wanted(batch_start + row))?)?;
            batch_start += batch.num_rows();
        }
        Ok(keys)
    }
}

/// Stored rows that change or may change, with all their columns.
#[derive(Debug)]
pub(super) struct OldRows {
    /// The rows, with all columns of the base table.
    pub rows: RecordBatch,
    /// For each index in [`StoredRows::rows`] that was read, the index of its row in `rows`.
    batch_rows: HashMap<usize, usize>,
}

impl OldRows {
    /// Reads all columns of the stored rows with the indexes `wanted` in [`StoredRows::rows`]. Fails if one of the rows
    /// is no longer stored.
    pub fn read(
        store: &mut BufferedStore,
        base: &'static Table,
        stored: &StoredRows,
        wanted: &[usize],
    ) -> Result<Self, LoadError> {
        let schema = base.full_schema();
        let mut is_wanted = vec![false; stored.rows.len()];
        wanted.iter().for_each(|index| is_wanted.iter_mut().skip(*index).take(1).for_each(|wanted| *wanted = true));
        let keys = stored.keys(base, |index| is_wanted.get(index).copied().unwrap_or(false))?;
        let times = wanted.iter().filter_map(|index| stored.rows.get(*index)).map(|row| row.created_us);
        let mut batches = Vec::new();
        for range in TimeRange::clusters_in(base, times.collect()) {
            batches.extend(store.full_rows(base, &Filter::within(range).with_keys(&keys))?);
        }
        let rows = concat_rows(base, &schema, &batches)?;
        let mut by_key_and_time: HashMap<(u128, i64), usize> = HashMap::with_capacity(rows.num_rows());
        for (batch_row, row) in stored_rows(base, &rows)?.iter().enumerate() {
            by_key_and_time.insert((row.key, row.created_us), batch_row);
        }
        let mut batch_rows = HashMap::with_capacity(wanted.len());
        for index in wanted {
            let batch_row = stored.rows.get(*index).and_then(|row| by_key_and_time.get(&(row.key, row.created_us)));
            let is_gone = || LoadError::Bug(format!("a row of {} that was there is gone", base.name));
            batch_rows.insert(*index, *batch_row.ok_or_else(is_gone)?);
        }
        Ok(Self { rows, batch_rows })
    }

    /// Returns the index in [`OldRows::rows`] for an index in [`StoredRows::rows`]. Fails if the row was not read.
    pub fn batch_row(&self, index: usize) -> Result<usize, LoadError> {
        self.batch_rows.get(&index).copied().ok_or_else(|| LoadError::Bug("a stored row that was not read".to_owned()))
    }

    /// Returns the rows with these indexes in [`StoredRows::rows`], in the order of `indexes`.
    pub fn take(&self, base: &Table, indexes: impl IntoIterator<Item = usize>) -> Result<RecordBatch, LoadError> {
        let batch_rows = indexes.into_iter().map(|index| self.batch_row(index).map(|row| row as u64));
        let batch_rows = batch_rows.collect::<Result<Vec<_>, _>>()?;
        take_record_batch(&self.rows, &UInt64Array::from(batch_rows)).map_err(invalid_rows(base))
    }
}
