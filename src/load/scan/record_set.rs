//! Some of the records of a page.

use arrow::array::RecordBatch;

use super::records::rows_where;
use crate::{
    load::{LoadError, store::number_column},
    schema::{RECORD_COLUMN, Table},
};

/// Records of a page, by their places in it.
#[derive(Debug, Default)]
pub(super) struct RecordSet(Vec<bool>);

impl RecordSet {
    /// Those of all these rows.
    pub fn of(rows: &RecordBatch) -> Result<Self, LoadError> {
        let mut records = Self::default();
        records.add(rows, 0..rows.num_rows())?;
        Ok(records)
    }

    pub fn add(&mut self, rows: &RecordBatch, at: impl Iterator<Item = usize>) -> Result<(), LoadError> {
        let places = number_column(rows, RECORD_COLUMN)?.values();
        at.filter_map(|row| places.get(row)).for_each(|record| self.put(*record));
        Ok(())
    }

    fn put(&mut self, record: i64) {
        let Ok(at) = usize::try_from(record) else { return };
        if self.0.len() <= at {
            self.0.resize(at + 1, false);
        }
        self.0.iter_mut().skip(at).take(1).for_each(|held| *held = true);
    }

    fn holds(&self, record: i64) -> bool {
        usize::try_from(record).is_ok_and(|at| self.0.get(at).copied().unwrap_or(false))
    }

    /// The rows of these records.
    pub fn keep(&self, table: &Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
        let records = number_column(rows, RECORD_COLUMN)?.values();
        rows_where(table, rows, |row| records.get(row).is_some_and(|record| self.holds(*record)))
    }
}

impl FromIterator<i64> for RecordSet {
    fn from_iter<T: IntoIterator<Item = i64>>(records: T) -> Self {
        let mut set = Self::default();
        records.into_iter().for_each(|record| set.put(record));
        set
    }
}
