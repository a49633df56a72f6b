//! Rows that were applied as they are and wait to be written, those of several scans together: each writing costs as much as a
//! statement, or as a file, whatever it brings.
//!
//! What waits here is in the warehouse for nobody: a destination writes it before anything reads those tables, and when it is sealed.

use arrow::{array::RecordBatch, error::ArrowError};

use super::{
    Fill, LoadError, RowCounts, TimeBounds,
    stage::{filled, with_columns},
};
use crate::{
    model::{Scan, ScanId},
    schema::Table,
};

/// The rows that wait.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// In the order in which they were applied, unless some were taken out and put back.
    scans: Vec<Waiting>,
    bytes: usize,
}

/// A scan whose rows wait.
#[derive(Debug)]
pub(super) struct Waiting {
    pub applied: AppliedScan,
    /// A table comes before its children.
    pub fills: Vec<Fill>,
    /// Range of the partition columns over the rows; `None` without rows of tables that have one.
    pub bounds: Option<TimeBounds>,
    /// Bytes of the rows.
    pub bytes: usize,
}

/// A scan, and what applying it did.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct AppliedScan {
    pub scan: Scan,
    pub counts: RowCounts,
}

impl Pending {
    pub fn add(&mut self, applied: AppliedScan, fills: Vec<Fill>) {
        let bounds = fills.iter().fold(None, |hull, fill| TimeBounds::hull(hull, fill.bounds));
        let bytes = fills.iter().map(Fill::bytes).sum();
        self.put(Waiting { applied, fills, bounds, bytes });
    }

    fn put(&mut self, waiting: Waiting) {
        self.bytes += waiting.bytes;
        self.scans.push(waiting);
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The scans that wait, in order.
    pub fn scans(&self) -> &[Waiting] {
        &self.scans
    }

    /// Takes out the scans for which this holds, asked for each in order.
    pub fn take_out(&mut self, mut is_out: impl FnMut(&Waiting) -> bool) -> Self {
        let (mut left, mut others) = (Self::default(), Self::default());
        for waiting in std::mem::take(&mut self.scans) {
            if is_out(&waiting) { others.put(waiting) } else { left.put(waiting) }
        }
        *self = left;
        others
    }

    /// Lets these wait as well, behind those that do.
    pub fn append(&mut self, more: Self) {
        more.scans.into_iter().for_each(|waiting| self.put(waiting));
    }

    /// Whether rows wait that lie in the window of this scan.
    pub fn touches(&self, scan: &Scan) -> bool {
        self.scans.iter().any(|held| held.applied.scan.meets(scan))
    }

    /// Rows that wait for a table.
    pub fn rows(&self, table: &Table) -> impl Iterator<Item = &RecordBatch> {
        let fills = self.scans.iter().flat_map(|waiting| &waiting.fills);
        fills.filter(move |fill| fill.table.name == table.name).flat_map(|fill| &fill.rows)
    }

    /// What applying this scan did, if it waits.
    pub fn counts_of(&self, scan: &ScanId) -> Option<RowCounts> {
        self.scans.iter().map(|held| &held.applied).find(|held| held.scan.id == *scan).map(|held| held.counts)
    }

    /// What waits for each table, a table before its children. The batches are shared, not copied.
    pub fn tables(&self) -> Vec<Fill> {
        let mut tables: Vec<Fill> = Vec::new();
        for fill in self.scans.iter().flat_map(|waiting| &waiting.fills) {
            match tables.iter_mut().find(|held| held.table.name == fill.table.name) {
                Some(held) => held.append(fill.clone()),
                None => tables.push(fill.clone()),
            }
        }
        tables
    }
}

impl Fill {
    /// Bytes of the rows.
    pub(super) fn bytes(&self) -> usize {
        self.rows.iter().map(RecordBatch::get_array_memory_size).sum()
    }

    /// Adds the rows of another one of the same table.
    pub(super) fn append(&mut self, more: Fill) {
        self.rows.extend(more.rows);
        self.bounds = TimeBounds::hull(self.bounds, more.bounds);
    }

    /// The rows, in batches of the columns that have a value in some of them.
    pub(super) fn filled(&self) -> Result<Vec<RecordBatch>, LoadError> {
        filled(&self.table.full_schema(), &self.rows).map_err(|error| self.unfit(&error))
    }

    /// The rows, in batches of all columns of the table.
    pub(super) fn full(&self) -> Result<Vec<RecordBatch>, LoadError> {
        with_columns(&self.table.full_schema(), &self.rows).map_err(|error| self.unfit(&error))
    }

    fn unfit(&self, error: &ArrowError) -> LoadError {
        LoadError::Contract(format!("{}: {error}", self.table.name))
    }
}
