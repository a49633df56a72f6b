//! The change of a table.

use arrow::array::RecordBatch;

use super::{super::LoadError, KeySet, TimeRange, renamed};
use crate::schema::{Table, TableKind, table};

/// The change of one table: removals apply before additions.
#[derive(Clone, Debug)]
pub(in crate::load) struct TableChange {
    pub table: &'static Table,
    /// Keys: every stored row that equals one in [`removal_columns`] is removed.
    pub removed: KeySet,
    /// Range of the partition column over `removed`; `None` without removals, and for a table without partitions.
    pub removed_range: Option<TimeRange>,
    /// Rows to add: columns of the table, by name; missing columns are NULL.
    pub added: Vec<RecordBatch>,
}

impl TableChange {
    /// An empty change.
    pub fn new(table: &'static Table) -> Self {
        let removed = KeySet::new(removal_columns(table));
        Self { table, removed, removed_range: None, added: Vec::new() }
    }

    /// Adds rows.
    pub fn add(&mut self, rows: RecordBatch) {
        self.added.extend((rows.num_rows() > 0).then_some(rows));
    }

    /// Removes the rows that equal one of these in [`removal_columns`].
    pub fn remove(&mut self, rows: &RecordBatch) -> Result<(), LoadError> {
        if rows.num_rows() > 0 {
            let bounds = TimeRange::over(self.table, std::slice::from_ref(rows))?;
            self.removed_range = TimeRange::bounding_range(self.removed_range, bounds);
            self.removed.add(rows)?;
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }
}

/// The columns that identify the rows to remove: the key of a table, and its partition column. In a child table the key
/// is that of the parent's row, because children are removed as a set. NULL equals NULL.
pub(in crate::load) fn removal_columns(of: &'static Table) -> Vec<&'static str> {
    let mut columns = owner_columns(of);
    columns.extend(of.partition.as_deref().filter(|name| !columns.contains(name)));
    columns
}

/// The key of a table; in a child table the columns that name the parent's row.
pub(in crate::load) fn owner_columns(of: &'static Table) -> Vec<&'static str> {
    // The key of a child begins with that of its parent, under other names: `surveys.id` is `survey_id` in the
    // children. A test of the contracts proves it.
    let parent = of.parent.as_deref().filter(|_| of.kind == TableKind::Child).and_then(table);
    let length = parent.map_or(of.key.len(), |parent| parent.key.len());
    of.key.iter().take(length).map(String::as_str).collect()
}

/// The [`removal_columns`] of a table's rows under the names of its parent or child. Their order is the same.
pub(in crate::load) fn removal_keys(
    of: &'static Table,
    rows: &RecordBatch,
    named_as_in: &'static Table,
) -> Result<RecordBatch, LoadError> {
    renamed(rows, &removal_columns(of), &removal_columns(named_as_in))
}
