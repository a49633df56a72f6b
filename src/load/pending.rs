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

/// Bytes of rows that may wait.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The rows that wait.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// In the order in which they were applied.
    pub scans: Vec<AppliedScan>,
    /// A table comes before its children.
    pub tables: Vec<Fill>,
    bytes: usize,
}

/// A scan, and what applying it did.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(super) struct AppliedScan {
    pub scan: Scan,
    pub counts: RowCounts,
}

impl Pending {
    /// These scans, of which these rows wait.
    pub fn of(scans: Vec<AppliedScan>, fills: Vec<Fill>) -> Self {
        let mut pending = Self { scans, ..Self::default() };
        pending.put(fills);
        pending
    }

    pub fn add(&mut self, scan: AppliedScan, fills: Vec<Fill>) {
        self.scans.push(scan);
        self.put(fills);
    }

    fn put(&mut self, fills: Vec<Fill>) {
        for fill in fills {
            self.bytes += fill.rows.iter().map(RecordBatch::get_array_memory_size).sum::<usize>();
            match self.tables.iter_mut().find(|held| held.table.name == fill.table.name) {
                Some(held) => held.append(fill),
                None => self.tables.push(fill),
            }
        }
    }

    /// Whether it is time to write them.
    pub fn is_large(&self) -> bool {
        self.bytes >= BYTES_MAX
    }

    /// Bytes of the rows.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether rows wait that lie in the window of this scan.
    pub fn touches(&self, scan: &Scan) -> bool {
        let is_met = |held: &Scan| held.scope.stream == scan.scope.stream && held.window.overlaps(scan.window);
        self.scans.iter().any(|held| is_met(&held.scan))
    }

    /// Rows that wait for a table.
    pub fn rows(&self, table: &Table) -> &[RecordBatch] {
        self.tables.iter().find(|held| held.table.name == table.name).map_or(&[], |held| &held.rows)
    }

    /// What applying this scan did, if it waits.
    pub fn counts_of(&self, scan: &ScanId) -> Option<RowCounts> {
        self.scans.iter().find(|held| held.scan.id == *scan).map(|held| held.counts)
    }
}

impl Fill {
    fn append(&mut self, more: Fill) {
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
