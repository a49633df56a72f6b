//! A set of records of a page.

use arrow::array::RecordBatch;

use super::records::rows_where;
use crate::{
    load::{LoadError, store::number_column},
    schema::{RECORD_COLUMN, Table},
};

/// A set of records of a page: for each record number (from 0), true if the record is in the set.
#[derive(Debug, Default)]
pub(super) struct RecordSet(Vec<bool>);

impl RecordSet {
    /// Creates the set of the records to which the rows belong.
    pub fn of(rows: &RecordBatch) -> Result<Self, LoadError> {
        let mut records = Self::default();
        records.add(rows, 0..rows.num_rows())?;
        Ok(records)
    }

    /// Adds the records to which the rows with these indexes belong.
    pub fn add(&mut self, rows: &RecordBatch, row_indexes: impl Iterator<Item = usize>) -> Result<(), LoadError> {
        let records = number_column(rows, RECORD_COLUMN)?.values();
        row_indexes.filter_map(|row| records.get(row)).for_each(|record| self.insert(*record));
        Ok(())
    }

    /// Adds a record. Ignores a negative number.
    fn insert(&mut self, record: i64) {
        let Ok(number) = usize::try_from(record) else { return };
        if self.0.len() <= number {
            self.0.resize(number + 1, false);
        }
        self.0.iter_mut().skip(number).take(1).for_each(|present| *present = true);
    }

    fn contains(&self, record: i64) -> bool {
        usize::try_from(record).is_ok_and(|number| self.0.get(number).copied().unwrap_or(false))
    }

    /// Returns the rows of `rows`, a batch of `table`, that belong to records of the set.
    pub fn rows_of(&self, table: &Table, rows: &RecordBatch) -> Result<RecordBatch, LoadError> {
        let records = number_column(rows, RECORD_COLUMN)?.values();
        rows_where(table, rows, |row| records.get(row).is_some_and(|record| self.contains(*record)))
    }
}

impl FromIterator<i64> for RecordSet {
    fn from_iter<T: IntoIterator<Item = i64>>(records: T) -> Self {
        let mut set = Self::default();
        records.into_iter().for_each(|record| set.insert(record));
        set
    }
}
