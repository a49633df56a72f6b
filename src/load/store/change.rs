//! What changes in a table.

use arrow::array::RecordBatch;

use super::{super::LoadError, KeySet, TimeBounds, renamed};
use crate::schema::{Table, TableKind, table};

/// What changes in one table: first rows go, then rows come.
#[derive(Clone, Debug)]
pub(in crate::load) struct TableChange {
    pub table: &'static Table,
    /// Every row of the table that equals one of these in [`removal_columns`] goes.
    pub removed: KeySet,
    /// Range of the partition column over `removed`; `None` for a table without one, and if nothing is removed.
    pub removed_bounds: Option<TimeBounds>,
    /// Rows that come: columns of the table, by name; those that a batch lacks are NULL.
    pub added: Vec<RecordBatch>,
}

impl TableChange {
    /// Of nothing.
    pub fn new(table: &'static Table) -> Self {
        let removed = KeySet::new(removal_columns(table));
        Self { table, removed, removed_bounds: None, added: Vec::new() }
    }

    /// Adds rows.
    pub fn add(&mut self, rows: RecordBatch) {
        self.added.extend((rows.num_rows() > 0).then_some(rows));
    }

    /// Removes the rows that equal one of these in [`removal_columns`].
    pub fn remove(&mut self, rows: &RecordBatch) -> Result<(), LoadError> {
        if rows.num_rows() > 0 {
            let bounds = TimeBounds::over(self.table, std::slice::from_ref(rows))?;
            self.removed_bounds = TimeBounds::hull(self.removed_bounds, bounds);
            self.removed.add(rows)?;
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }
}

/// The columns by which rows of a table are removed: its key, or in a child those that name the parent's row, whose
/// children go as a set; then the partition column, if there is one. Where one of them is NULL, it equals NULL.
pub(in crate::load) fn removal_columns(of: &'static Table) -> Vec<&'static str> {
    let mut columns = owner_columns(of);
    columns.extend(of.partition.as_deref().filter(|name| !columns.contains(name)));
    columns
}

/// The key of a table, or in a child the columns that name the parent's row.
pub(in crate::load) fn owner_columns(of: &'static Table) -> Vec<&'static str> {
    // The key of a child begins with that of its parent (a test of the contracts says so), whatever the columns are
    // called: `surveys.id` is `survey_id` in the children.
    let parent = of.parent.as_deref().filter(|_| of.kind == TableKind::Child).and_then(table);
    let length = parent.map_or(of.key.len(), |parent| parent.key.len());
    of.key.iter().take(length).map(String::as_str).collect()
}

/// What [`removal_columns`] of a table hold in its rows, under their names in its parent or child:
/// they stand in the same order.
pub(in crate::load) fn removal_keys(
    of: &'static Table,
    rows: &RecordBatch,
    named_as_in: &'static Table,
) -> Result<RecordBatch, LoadError> {
    renamed(rows, &removal_columns(of), &removal_columns(named_as_in))
}
