//! Selects rows of a table by a time range, by keys, or by both.

use arrow::{
    array::{Array as _, ArrayRef, BooleanArray, RecordBatch},
    buffer::BooleanBuffer,
    compute::filter_record_batch,
};
use chrono::DateTime;
use foldhash::HashSet;

use super::{super::LoadError, invalid, invalid_rows, rows::time_column};
use crate::{
    model::{DAY_MS, Window, key_hashes},
    schema::Table,
};

/// First microsecond of the year 1. Many programs that read a warehouse fail on times outside of the years 1 to 9999.
/// So this program writes only times of these years.
const EARLIEST_US: i64 = -62_135_596_800_000_000;
/// Last microsecond of the year 9999, the latest time that this program writes.
const LATEST_US: i64 = 253_402_300_799_999_999;

/// Gap in microseconds above which [`TimeRange::clusters`] puts two times into separate ranges. Stores read complete
/// row groups or months, so a smaller gap would save nothing.
const CLUSTER_GAP_US: i64 = 32 * DAY_MS * 1000;

/// Half-open range of a table's partition column, in epoch microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub start_us: i64,
    pub end_us: i64,
}

impl TimeRange {
    /// The range of creation times of a window.
    pub fn of(window: Window) -> Self {
        Self { start_us: window.start_ms.saturating_mul(1000), end_us: window.end_ms.saturating_mul(1000) }
    }

    /// Returns the range that contains only this time.
    pub fn at(time_us: i64) -> Self {
        Self { start_us: time_us, end_us: time_us.saturating_add(1) }
    }

    /// Returns true if the time is within the range.
    pub fn holds(self, time_us: i64) -> bool {
        self.start_us <= time_us && time_us < self.end_us
    }

    /// Returns true if some time is within both ranges.
    pub fn overlaps(self, other: Self) -> bool {
        self.start_us < other.end_us && other.start_us < self.end_us
    }

    /// Returns the smallest range that contains both ranges.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { start_us: self.start_us.min(other.start_us), end_us: self.end_us.max(other.end_us) }
    }

    /// Returns the smallest range that contains `one` and `other`. A range that is `None` is ignored; the result is
    /// `None` if both are.
    pub fn bounding_range(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.zip(other).map(|(one, other)| one.with(other)).or(one).or(other)
    }

    /// Returns the range with its start `margin_us` earlier and its end `margin_us` later.
    #[must_use]
    pub fn widened_by(self, margin_us: i64) -> Self {
        Self { start_us: self.start_us.saturating_sub(margin_us), end_us: self.end_us.saturating_add(margin_us) }
    }

    /// Returns the times of this range that are outside `other`, as up to two ranges. Empty ranges are left out.
    pub fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let before = Self { end_us: self.end_us.min(other.start_us), ..self };
        let after = Self { start_us: self.start_us.max(other.end_us), ..self };
        [before, after].into_iter().filter(|range| range.start_us < range.end_us)
    }

    /// Returns the smallest range that contains the partition column of all rows. Returns `None` if there are no rows
    /// or the table has no partitions. Fails if a row has NULL in the partition column.
    pub(in crate::load) fn over(table: &Table, rows: &[RecordBatch]) -> Result<Option<Self>, LoadError> {
        let Some(column) = &table.partition else { return Ok(None) };
        let mut bounding_range = None;
        for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
            let times = time_column(batch, column)?;
            let (Some(first), Some(last), 0) =
                (arrow::compute::min(times), arrow::compute::max(times), times.null_count())
            else {
                return Err(LoadError::Bug(format!("a row of {} without {column}", table.name)));
            };
            bounding_range =
                Self::bounding_range(bounding_range, Some(Self { start_us: first, end_us: last.saturating_add(1) }));
        }
        Ok(bounding_range)
    }

    /// Returns sorted ranges that together contain all these times (epoch microseconds). Times that are more than
    /// [`CLUSTER_GAP_US`] apart get separate ranges, so that reading the ranges skips the time between them.
    pub fn clusters(mut times: Vec<i64>) -> Vec<Self> {
        times.sort_unstable();
        let mut ranges: Vec<Self> = Vec::new();
        for time in times.into_iter().map(Self::at) {
            match ranges.last_mut() {
                Some(last) if time.start_us.saturating_sub(last.end_us) <= CLUSTER_GAP_US => *last = last.with(time),
                _ => ranges.push(time),
            }
        }
        ranges
    }

    /// Returns the ranges in which rows with these times are looked up in a table, as [`TimeRange::clusters`] makes
    /// them. For a table without partitions, returns a single `None`, which stands for all rows.
    pub(in crate::load) fn clusters_in(table: &Table, times: Vec<i64>) -> Vec<Option<Self>> {
        match table.partition {
            Some(_) => Self::clusters(times).into_iter().map(Some).collect(),
            None => vec![None],
        }
    }

    /// Returns the ranges of [`TimeRange::clusters_in`] for the times in the partition column of these rows.
    pub(in crate::load) fn clusters_of(table: &Table, rows: &[RecordBatch]) -> Result<Vec<Option<Self>>, LoadError> {
        let mut times = Vec::new();
        if let Some(column) = &table.partition {
            for batch in rows {
                times.extend_from_slice(time_column(batch, column)?.values());
            }
        }
        Ok(Self::clusters_in(table, times))
    }

    /// Returns the SQL condition `column >= start AND column < end`. Start and end are constants, limited to the years
    /// 1 to 9999. With constants the engine can skip row groups by their statistics.
    pub(in crate::load) fn condition(self, column: &str) -> String {
        format!("({column} >= {} AND {column} < {})", timestamp_sql(self.start_us), timestamp_sql(self.end_us))
    }
}

/// Returns the time in epoch microseconds, limited to the years 1 to 9999, as the warehouse stores it.
pub(in crate::load) fn clamped_us(time_us: i64) -> i64 {
    time_us.clamp(EARLIEST_US, LATEST_US)
}

/// Returns the time as a SQL constant, limited to the years 1 to 9999 and the first microsecond after them, which ends
/// a range.
fn timestamp_sql(time_us: i64) -> String {
    let time_us = time_us.clamp(EARLIEST_US, LATEST_US + 1);
    match DateTime::from_timestamp_micros(time_us) {
        Some(time) if time_us <= LATEST_US => format!("TIMESTAMP '{}'", time.format("%Y-%m-%d %H:%M:%S%.6f")),
        // In a text, a year of five digits would need a sign.
        _ => format!("make_timestamp({time_us})"),
    }
}

/// A selection of rows of a table: the rows within `range` that have one of `keys`. A field that is `None` excludes no
/// row.
#[derive(Clone, Copy, Default)]
pub(in crate::load) struct Filter<'k> {
    /// Range of the partition column; ignored for a table without partitions.
    pub range: Option<TimeRange>,
    /// Keys of the selected rows. An empty set selects no row.
    pub keys: Option<&'k KeySet>,
}

impl<'k> Filter<'k> {
    /// Creates a filter that selects all rows.
    pub fn all() -> Self {
        Self::default()
    }

    /// Creates a filter that selects the rows within the range, or all rows if `range` is `None`.
    pub fn within(range: Option<TimeRange>) -> Self {
        Self { range, keys: None }
    }

    /// Returns this filter with the further condition that a row has one of these keys. Earlier keys are replaced.
    pub fn with_keys(self, keys: &'k KeySet) -> Self {
        Self { keys: Some(keys), ..self }
    }

    /// Returns the columns that [`Filter::select`] tests: the partition column if there is a range, and the columns of
    /// the keys.
    pub fn columns(&self, table: &'static Table) -> impl Iterator<Item = &'static str> + use<'_, 'k> {
        let partition_column = self.range.and(table.partition.as_deref());
        let keys = self.keys.into_iter().flat_map(|keys| keys.columns.iter().copied());
        partition_column.into_iter().chain(keys)
    }

    /// Returns the rows of a batch that the filter selects. The batch must have the columns of [`Filter::columns`].
    pub fn select(&self, table: &'static Table, rows: RecordBatch) -> Result<RecordBatch, LoadError> {
        let rows = match self.range {
            Some(range) => {
                let within = rows_within(table, &rows, range)?;
                kept_rows(table, rows, &within)?
            }
            None => rows,
        };
        match self.keys {
            Some(keys) => keys.rows_in(table, rows),
            None => Ok(rows),
        }
    }
}

/// Returns for each row a bit that is set if the row's partition column is within the range. In a table without
/// partitions all bits are set.
pub(in crate::load) fn rows_within(
    table: &Table,
    rows: &RecordBatch,
    range: TimeRange,
) -> Result<BooleanBuffer, LoadError> {
    let Some(column) = &table.partition else { return Ok(BooleanBuffer::new_set(rows.num_rows())) };
    let times = time_column(rows, column)?;
    let is_within = |row: usize| times.values().get(row).is_some_and(|time| range.holds(*time));
    let within = BooleanBuffer::collect_bool(rows.num_rows(), is_within);
    // In rows of a file without the partition column, this column is NULL. NULL is within no range.
    Ok(match times.nulls() {
        Some(nulls) => &within & nulls.inner(),
        None => within,
    })
}

/// Returns the rows whose bits in `kept` are set. An error names `table`.
pub(in crate::load) fn kept_rows(
    table: &Table,
    rows: RecordBatch,
    kept: &BooleanBuffer,
) -> Result<RecordBatch, LoadError> {
    if kept.count_set_bits() == rows.num_rows() {
        return Ok(rows);
    }
    filter_record_batch(&rows, &BooleanArray::new(kept.clone(), None)).map_err(invalid_rows(table))
}

/// A set of keys of rows. Rows in memory are tested by the hashes of their keys. A store that looks the keys up gets
/// their values.
#[derive(Clone, Debug)]
pub(in crate::load) struct KeySet {
    /// The names of the columns of a key.
    columns: Vec<&'static str>,
    /// A hash of each key.
    hashes: HashSet<u128>,
    /// The values of each key, in batches of `columns`.
    values: Vec<RecordBatch>,
}

impl KeySet {
    /// Creates an empty set of keys with these columns.
    pub fn new(columns: Vec<&'static str>) -> Self {
        Self { columns, hashes: HashSet::default(), values: Vec::new() }
    }

    /// Creates the set of the keys of all rows in these batches. The batches must have the columns of the key, and may
    /// have others.
    pub fn of(columns: Vec<&'static str>, rows: &[RecordBatch]) -> Result<Self, LoadError> {
        let mut keys = Self::new(columns);
        rows.iter().try_for_each(|batch| keys.add(batch))?;
        Ok(keys)
    }

    /// Creates a set of keys with one column from the values of that column.
    pub fn of_values(column: &'static str, values: ArrayRef) -> Result<Self, LoadError> {
        let rows = RecordBatch::try_from_iter([(column, values)]).map_err(invalid(column))?;
        Self::of(vec![column], &[rows])
    }

    /// Adds the keys of these rows. A key that the set contains already is not added again.
    pub fn add(&mut self, rows: &RecordBatch) -> Result<(), LoadError> {
        let before = self.hashes.len();
        let hashes = self.hashes_of(rows)?;
        let new: BooleanArray = hashes.into_iter().map(|hash| Some(self.hashes.insert(hash))).collect();
        if self.hashes.len() > before {
            let values = super::rows::project(rows, &self.columns)?;
            self.values.push(filter_record_batch(&values, &new).map_err(invalid("keys"))?);
        }
        Ok(())
    }

    /// Returns a hash of the key of each row.
    fn hashes_of(&self, rows: &RecordBatch) -> Result<Vec<u128>, LoadError> {
        key_hashes(&self.columns, rows).map_err(invalid("keys"))
    }

    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Returns the number of distinct keys.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Returns the approximate memory of the set, in bytes.
    pub fn bytes(&self) -> usize {
        let values: usize = self.values.iter().map(RecordBatch::get_array_memory_size).sum();
        values + self.hashes.capacity() * size_of::<u128>()
    }

    /// Returns the names of the columns of a key.
    pub fn columns(&self) -> &[&'static str] {
        &self.columns
    }

    /// Returns each key once, in batches of [`KeySet::columns`].
    pub fn values(&self) -> &[RecordBatch] {
        &self.values
    }

    /// Returns for each row a bit that is set if the row's key is in the set.
    pub fn contains(&self, rows: &RecordBatch) -> Result<BooleanBuffer, LoadError> {
        let hashes = self.hashes_of(rows)?;
        Ok(hashes.iter().map(|hash| self.hashes.contains(hash)).collect())
    }

    /// Returns the rows whose key is in the set.
    pub fn rows_in(&self, table: &Table, rows: RecordBatch) -> Result<RecordBatch, LoadError> {
        if self.is_empty() {
            return Ok(rows.slice(0, 0));
        }
        let has_key = self.contains(&rows)?;
        kept_rows(table, rows, &has_key)
    }

    /// Returns the rows whose key is not in the set.
    pub fn rows_not_in(&self, table: &Table, rows: RecordBatch) -> Result<RecordBatch, LoadError> {
        if self.is_empty() {
            return Ok(rows);
        }
        let has_key = self.contains(&rows)?;
        kept_rows(table, rows, &!&has_key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray as _, Int64Array, StringArray, TimestampMicrosecondArray};
    use arrow::datatypes::Int64Type;

    use super::*;
    use crate::schema::table;

    fn rows(keys: &[(&str, i64, i64)]) -> RecordBatch {
        let groups: ArrayRef = Arc::new(StringArray::from_iter_values(keys.iter().map(|(group, ..)| group)));
        let questions: ArrayRef = Arc::new(Int64Array::from_iter_values(keys.iter().map(|(_, question, _)| *question)));
        let moments: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(keys.iter().map(|(.., at)| *at)));
        RecordBatch::try_from_iter([
            ("response_group_uid", groups),
            ("question_id", questions),
            ("created_at", moments),
        ])
        .unwrap()
    }

    fn questions(rows: &RecordBatch) -> Vec<i64> {
        rows["question_id"].as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn rows_are_kept_by_range_and_by_keys() {
        let table = table("responses").unwrap();
        let all = rows(&[("a", 1, 10), ("a", 2, 20), ("b", 3, 30), ("b", 4, 30)]);
        let keys = KeySet::of(vec!["response_group_uid"], &[rows(&[("b", 9, 9), ("b", 8, 8), ("c", 7, 7)])]).unwrap();
        assert_eq!((keys.len(), keys.values().iter().map(RecordBatch::num_rows).sum::<usize>()), (2, 2));
        let range = Some(TimeRange { start_us: 20, end_us: 30 });
        let kept = |filter: Filter<'_>| questions(&filter.select(table, all.clone()).unwrap());
        assert_eq!(kept(Filter::all()), [1, 2, 3, 4]);
        assert_eq!(kept(Filter::within(range)), [2]);
        assert_eq!(kept(Filter::all().with_keys(&keys)), [3, 4]);
        assert!(kept(Filter::within(range).with_keys(&keys)).is_empty());
        let none = KeySet::new(vec!["question_id"]);
        assert!(kept(Filter::all().with_keys(&none)).is_empty());
        assert_eq!(questions(&keys.rows_not_in(table, all.clone()).unwrap()), [1, 2]);
    }

    #[test]
    fn times_far_apart_are_looked_up_separately() {
        let range = |start_us, end_us| TimeRange { start_us, end_us };
        assert_eq!(TimeRange::clusters(vec![]), []);
        assert_eq!(TimeRange::clusters(vec![7, 3, 5]), [range(3, 8)]);
        let far = 3 + 2 * CLUSTER_GAP_US;
        assert_eq!(TimeRange::clusters(vec![far, 3, far + 1, 4]), [range(3, 5), range(far, far + 2)]);
    }

    #[test]
    fn a_range_ends_before_its_end() {
        let range = TimeRange { start_us: 5, end_us: 7 };
        assert_eq!([4, 5, 6, 7].map(|moment| range.holds(moment)), [false, true, true, false]);
        let parts = |start_us, end_us| range.without(TimeRange { start_us, end_us }).collect::<Vec<_>>();
        assert_eq!(parts(6, 9), [TimeRange::at(5)]);
        assert_eq!(parts(0, 6), [TimeRange::at(6)]);
        assert_eq!(parts(0, 9), []);
        assert_eq!(parts(9, 12), [range]);
        assert!(range.overlaps(TimeRange::at(6)) && !range.overlaps(TimeRange::at(7)));
        assert_eq!(
            range.condition("t"),
            "(t >= TIMESTAMP '1970-01-01 00:00:00.000005' AND t < TIMESTAMP '1970-01-01 00:00:00.000007')"
        );
    }
}
