//! Reads the stored rows that a scan is compared with: key, hash and state of all of them, then all columns of those
//! that change.

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

/// Margin around the window that is read together with it: records outside the window are nearly always at its edges.
const EDGE_US: i64 = 1_000_000;

/// The stored rows that a scan is compared with.
#[derive(Debug, Default)]
pub(super) struct StoredRows {
    pub rows: Vec<StoredRow>,
    /// The same rows, as they were read.
    batches: Vec<RecordBatch>,
}

impl StoredRows {
    /// Reads the rows of the window, and those with the keys of records outside it, around their creation times.
    pub fn read(store: &mut BufferedStore, scan: &Scan, staged: &StagedScan) -> Result<Self, LoadError> {
        let base = staged.base;
        let mut stored = Self::default();
        if base.partition.is_none() {
            let asked = Filter::all().with_keys(&staged.asked);
            // A list of surveys is complete: rows that are not in the list have vanished.
            let filter = if scan.scope.stream == Stream::Users { asked } else { Filter::all() };
            stored.add(store, base, &filter)?;
            return Ok(stored);
        }
        let around = TimeRange::of(scan.window).widened_by(EDGE_US);
        stored.add(store, base, &Filter::within(Some(around)))?;
        let far = staged.outside_us.iter().copied().filter(|moment| !around.holds(*moment)).collect();
        for range in TimeRange::clusters(far) {
            for range in range.without(around) {
                stored.add(store, base, &Filter::within(Some(range)).with_keys(&staged.outside))?;
            }
        }
        Ok(stored)
    }

    /// Reads only the rows of the window.
    pub fn of_window(store: &mut BufferedStore, scan: &Scan, staged: &StagedScan) -> Result<Self, LoadError> {
        let base = staged.base;
        if base.partition.is_none() {
            return Self::read(store, scan, staged);
        }
        let mut stored = Self::default();
        stored.add(store, base, &Filter::within(Some(TimeRange::of(scan.window))))?;
        Ok(stored)
    }

    fn add(&mut self, store: &mut BufferedStore, base: &'static Table, filter: &Filter<'_>) -> Result<(), LoadError> {
        store.read(base, &stored_columns(base), filter, &mut |rows| {
            self.rows.extend(stored_rows(base, &rows)?);
            self.batches.push(rows);
            Ok(())
        })
    }

    /// The keys of the rows with the wanted indexes.
    fn keys(&self, base: &'static Table, mut is_wanted: impl FnMut(usize) -> bool) -> Result<KeySet, LoadError> {
        let mut keys = KeySet::new(base.key_in_order());
        let mut first = 0;
        for batch in &self.batches {
            keys.add(&rows_where(base, batch, |row| is_wanted(first + row))?)?;
            first += batch.num_rows();
        }
        Ok(keys)
    }
}

/// Stored rows with all their columns.
#[derive(Debug)]
pub(super) struct OldRows {
    /// All columns of the base table.
    pub rows: RecordBatch,
    /// Row in the batch for each index among the stored rows.
    indexes: HashMap<usize, usize>,
}

impl OldRows {
    /// Reads all columns of the stored rows with these indexes.
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
        let moments = wanted.iter().filter_map(|index| stored.rows.get(*index)).map(|row| row.created_us);
        let mut batches = Vec::new();
        for range in TimeRange::clusters_in(base, moments.collect()) {
            batches.extend(store.full_rows(base, &Filter::within(range).with_keys(&keys))?);
        }
        let rows = concat_rows(base, &schema, &batches)?;
        let mut by_name: HashMap<(u128, i64), usize> = HashMap::with_capacity(rows.num_rows());
        for (at, row) in stored_rows(base, &rows)?.iter().enumerate() {
            by_name.insert((row.key, row.created_us), at);
        }
        let mut indexes = HashMap::with_capacity(wanted.len());
        for index in wanted {
            let at = stored.rows.get(*index).and_then(|row| by_name.get(&(row.key, row.created_us)));
            let at = at.ok_or_else(|| LoadError::Bug(format!("a row of {} that was there is gone", base.name)))?;
            indexes.insert(*index, *at);
        }
        Ok(Self { rows, indexes })
    }

    /// The row in the batch for an index among the stored rows.
    pub fn at(&self, index: usize) -> Result<usize, LoadError> {
        self.indexes.get(&index).copied().ok_or_else(|| LoadError::Bug("a stored row that was not read".to_owned()))
    }

    /// The rows with these indexes among the stored rows, in this order.
    pub fn take(&self, base: &Table, indexes: impl IntoIterator<Item = usize>) -> Result<RecordBatch, LoadError> {
        let at = indexes.into_iter().map(|index| self.at(index).map(|at| at as u64)).collect::<Result<Vec<_>, _>>()?;
        take_record_batch(&self.rows, &UInt64Array::from(at)).map_err(invalid_rows(base))
    }
}
