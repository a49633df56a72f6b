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

/// First microsecond of the year 1. Many readers fail on earlier times, so the warehouse's own columns have none.
const EARLIEST_US: i64 = -62_135_596_800_000_000;
/// Last microsecond of the year 9999.
const LATEST_US: i64 = 253_402_300_799_999_999;

/// Times further apart than this are looked up separately. Stores read by row group or month, so less saves nothing.
const APART_US: i64 = 32 * DAY_MS * 1000;

/// Half-open range of a table's partition column, in epoch microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    pub start_us: i64,
    pub end_us: i64,
}

impl TimeRange {
    /// The range of a window.
    pub fn of(window: Window) -> Self {
        Self { start_us: window.start_ms.saturating_mul(1000), end_us: window.end_ms.saturating_mul(1000) }
    }

    /// The range of one time.
    pub fn at(moment_us: i64) -> Self {
        Self { start_us: moment_us, end_us: moment_us.saturating_add(1) }
    }

    /// Returns true if a time is within the range.
    pub fn holds(self, moment_us: i64) -> bool {
        self.start_us <= moment_us && moment_us < self.end_us
    }

    /// Returns true if the ranges overlap.
    pub fn overlaps(self, other: Self) -> bool {
        self.start_us < other.end_us && other.start_us < self.end_us
    }

    /// The smallest range that contains both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { start_us: self.start_us.min(other.start_us), end_us: self.end_us.max(other.end_us) }
    }

    /// The smallest range that contains both, as far as they exist.
    pub fn bounding_range(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.zip(other).map(|(one, other)| one.with(other)).or(one).or(other)
    }

    /// The range with a margin on either side.
    #[must_use]
    pub fn widened_by(self, margin_us: i64) -> Self {
        Self { start_us: self.start_us.saturating_sub(margin_us), end_us: self.end_us.saturating_add(margin_us) }
    }

    /// The parts of the range that are outside of another: before it and after it.
    pub fn without(self, other: Self) -> impl Iterator<Item = Self> {
        let before = Self { end_us: self.end_us.min(other.start_us), ..self };
        let after = Self { start_us: self.start_us.max(other.end_us), ..self };
        [before, after].into_iter().filter(|range| range.start_us < range.end_us)
    }

    /// The range of the partition column over rows; `None` without rows, and for a table without partitions.
    pub(in crate::load) fn over(table: &Table, rows: &[RecordBatch]) -> Result<Option<Self>, LoadError> {
        let Some(at) = &table.partition else { return Ok(None) };
        let mut bounding_range = None;
        for batch in rows.iter().filter(|batch| batch.num_rows() > 0) {
            let moments = time_column(batch, at)?;
            let (Some(first), Some(last), 0) =
                (arrow::compute::min(moments), arrow::compute::max(moments), moments.null_count())
            else {
                return Err(LoadError::Bug(format!("a row of {} without {at}", table.name)));
            };
            bounding_range =
                Self::bounding_range(bounding_range, Some(Self { start_us: first, end_us: last.saturating_add(1) }));
        }
        Ok(bounding_range)
    }

    /// Ranges that together contain all these times. Times far apart get ranges of their own.
    pub fn clusters(mut moments: Vec<i64>) -> Vec<Self> {
        moments.sort_unstable();
        let mut ranges: Vec<Self> = Vec::new();
        for moment in moments.into_iter().map(Self::at) {
            match ranges.last_mut() {
                Some(last) if moment.start_us.saturating_sub(last.end_us) <= APART_US => *last = last.with(moment),
                _ => ranges.push(moment),
            }
        }
        ranges
    }

    /// As [`TimeRange::clusters`], for lookups in a table; `None` stands for all rows of a table without partitions.
    pub(in crate::load) fn clusters_in(table: &Table, moments: Vec<i64>) -> Vec<Option<Self>> {
        match table.partition {
            Some(_) => Self::clusters(moments).into_iter().map(Some).collect(),
            None => vec![None],
        }
    }

    /// As [`TimeRange::clusters_in`], for rows that have the partition column.
    pub(in crate::load) fn clusters_of(table: &Table, rows: &[RecordBatch]) -> Result<Vec<Option<Self>>, LoadError> {
        let mut moments = Vec::new();
        if let Some(at) = &table.partition {
            for batch in rows {
                moments.extend_from_slice(time_column(batch, at)?.values());
            }
        }
        Ok(Self::clusters_in(table, moments))
    }

    /// `column >= start AND column < end` with constants, which the engine prunes by.
    pub(in crate::load) fn condition(self, column: &str) -> String {
        format!("({column} >= {} AND {column} < {})", timestamp_sql(self.start_us), timestamp_sql(self.end_us))
    }
}

/// A time clamped to the years 1 to 9999, as the warehouse writes it.
pub(in crate::load) fn written_us(at_us: i64) -> i64 {
    at_us.clamp(EARLIEST_US, LATEST_US)
}

/// A constant time as SQL.
fn timestamp_sql(at_us: i64) -> String {
    let at_us = written_us(at_us);
    match DateTime::from_timestamp_micros(at_us) {
        Some(moment) => format!("TIMESTAMP '{}'", moment.format("%Y-%m-%d %H:%M:%S%.6f")),
        // Never used: every time of the years 1 to 9999 can be written.
        None => format!("make_timestamp({at_us})"),
    }
}

/// Selects the rows within the range, if there is one, and with one of the keys, if there are any.
#[derive(Clone, Copy, Default)]
pub(in crate::load) struct Filter<'k> {
    /// Range of the partition column; ignored for a table without one.
    pub range: Option<TimeRange>,
    pub keys: Option<&'k KeySet>,
}

impl<'k> Filter<'k> {
    /// Selects all rows.
    pub fn all() -> Self {
        Self::default()
    }

    /// Selects the rows within the range.
    pub fn within(range: Option<TimeRange>) -> Self {
        Self { range, keys: None }
    }

    /// Selects only rows with one of the keys.
    pub fn with_keys(self, keys: &'k KeySet) -> Self {
        Self { keys: Some(keys), ..self }
    }

    /// The columns that [`Filter::keep`] needs.
    pub fn columns(&self, table: &'static Table) -> impl Iterator<Item = &'static str> + use<'_, 'k> {
        let at = self.range.and(table.partition.as_deref());
        let keys = self.keys.into_iter().flat_map(|keys| keys.columns.iter().copied());
        at.into_iter().chain(keys)
    }

    /// The selected rows of a batch.
    pub fn keep(&self, table: &'static Table, rows: RecordBatch) -> Result<RecordBatch, LoadError> {
        let rows = match self.range {
            Some(range) => {
                let within = rows_within(table, &rows, range)?;
                kept_rows(table, rows, &within)?
            }
            None => rows,
        };
        match self.keys {
            Some(keys) => keys.keep(table, rows, true),
            None => Ok(rows),
        }
    }
}

/// For each row, whether it is within the range of the partition column; true in a table without one.
pub(in crate::load) fn rows_within(
    table: &Table,
    rows: &RecordBatch,
    range: TimeRange,
) -> Result<BooleanBuffer, LoadError> {
    let Some(at) = &table.partition else { return Ok(BooleanBuffer::new_set(rows.num_rows())) };
    let moments = time_column(rows, at)?;
    let is_within = |row: usize| moments.values().get(row).is_some_and(|moment| range.holds(*moment));
    let within = BooleanBuffer::collect_bool(rows.num_rows(), is_within);
    // Rows of a file without the column have no time.
    Ok(match moments.nulls() {
        Some(nulls) => &within & nulls.inner(),
        None => within,
    })
}

/// The rows whose bits are set.
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

/// A set of keys: hashes for tests in memory, and values for stores that look them up.
#[derive(Clone, Debug)]
pub(in crate::load) struct KeySet {
    /// In the order of the values.
    columns: Vec<&'static str>,
    hashes: HashSet<u128>,
    values: Vec<RecordBatch>,
}

impl KeySet {
    /// An empty set.
    pub fn new(columns: Vec<&'static str>) -> Self {
        Self { columns, hashes: HashSet::default(), values: Vec::new() }
    }

    /// The keys in batches that have these columns.
    pub fn of(columns: Vec<&'static str>, rows: &[RecordBatch]) -> Result<Self, LoadError> {
        let mut keys = Self::new(columns);
        rows.iter().try_for_each(|batch| keys.add(batch))?;
        Ok(keys)
    }

    /// The keys are the values of one column.
    pub fn of_values(column: &'static str, values: ArrayRef) -> Result<Self, LoadError> {
        let rows = RecordBatch::try_from_iter([(column, values)]).map_err(invalid(column))?;
        Self::of(vec![column], &[rows])
    }

    /// Adds the keys of these rows.
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

    fn hashes_of(&self, rows: &RecordBatch) -> Result<Vec<u128>, LoadError> {
        key_hashes(&self.columns, rows).map_err(invalid("keys"))
    }

    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Number of distinct keys.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Approximate memory, in bytes.
    pub fn bytes(&self) -> usize {
        let values: usize = self.values.iter().map(RecordBatch::get_array_memory_size).sum();
        values + self.hashes.capacity() * size_of::<u128>()
    }

    pub fn columns(&self) -> &[&'static str] {
        &self.columns
    }

    /// Each key once, in batches of [`KeySet::columns`].
    pub fn values(&self) -> &[RecordBatch] {
        &self.values
    }

    /// For each row, whether its key is in the set.
    pub fn contains(&self, rows: &RecordBatch) -> Result<BooleanBuffer, LoadError> {
        let hashes = self.hashes_of(rows)?;
        Ok(hashes.iter().map(|hash| self.hashes.contains(hash)).collect())
    }

    /// The rows whose key is in the set, or the others.
    pub fn keep(&self, table: &Table, rows: RecordBatch, with: bool) -> Result<RecordBatch, LoadError> {
        if self.is_empty() {
            return Ok(if with { rows.slice(0, 0) } else { rows });
        }
        let found = self.contains(&rows)?;
        let kept = if with { found } else { !&found };
        kept_rows(table, rows, &kept)
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
        let kept = |filter: Filter<'_>| questions(&filter.keep(table, all.clone()).unwrap());
        assert_eq!(kept(Filter::all()), [1, 2, 3, 4]);
        assert_eq!(kept(Filter::within(range)), [2]);
        assert_eq!(kept(Filter::all().with_keys(&keys)), [3, 4]);
        assert!(kept(Filter::within(range).with_keys(&keys)).is_empty());
        let none = KeySet::new(vec!["question_id"]);
        assert!(kept(Filter::all().with_keys(&none)).is_empty());
        assert_eq!(questions(&keys.keep(table, all.clone(), false).unwrap()), [1, 2]);
    }

    #[test]
    fn times_far_apart_are_looked_up_separately() {
        let range = |start_us, end_us| TimeRange { start_us, end_us };
        assert_eq!(TimeRange::clusters(vec![]), []);
        assert_eq!(TimeRange::clusters(vec![7, 3, 5]), [range(3, 8)]);
        let far = 3 + 2 * APART_US;
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
