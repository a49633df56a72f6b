//! The change of one table: keys of rows to remove, and rows to add.

use arrow::array::RecordBatch;

use super::{super::LoadError, KeySet, TimeRange, renamed};
use crate::schema::{self, Table, TableKind};

/// The change of one table. Removals apply before additions.
#[derive(Clone, Debug)]
pub(in crate::load) struct TableChange {
    pub table: &'static Table,
    /// Keys of rows to remove. A stored row is removed if a key has the same values in [`removal_columns`].
    pub removed: KeySet,
    /// Range of the partition column over `removed`; `None` without removals, or for a table without partitions.
    pub removed_range: Option<TimeRange>,
    /// Rows to add, with columns of the table. Missing columns are NULL.
    pub added: Vec<RecordBatch>,
}

impl TableChange {
    /// Creates an empty change of this table.
    pub fn new(table: &'static Table) -> Self {
        let removed = KeySet::new(removal_columns(table));
        Self { table, removed, removed_range: None, added: Vec::new() }
    }

    /// Adds rows to insert. A batch without rows is ignored.
    pub fn add(&mut self, rows: RecordBatch) {
        self.added.extend((rows.num_rows() > 0).then_some(rows));
    }

    /// Adds keys of rows to remove. A stored row is removed if it has the same values as one of `rows` in
    /// [`removal_columns`].
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

/// Returns the columns that identify rows to remove: the key and the partition column. In a child table, the key of the
/// parent row takes the place of the key. The reason is that all child rows of a parent row are removed together. The
/// partition column tells in which partition the rows are. Two NULLs count as equal.
pub(in crate::load) fn removal_columns(table: &'static Table) -> Vec<&'static str> {
    let mut columns = removal_key_columns(table);
    columns.extend(table.partition.as_deref().filter(|name| !columns.contains(name)));
    columns
}

/// Returns the key columns by which rows are removed. In a child table, these columns contain the key of the parent
/// row. In any other table, they are the complete key.
pub(in crate::load) fn removal_key_columns(table: &'static Table) -> Vec<&'static str> {
    // The key of a child table begins with the key of its parent. The columns have the same names, except that
    // `surveys.id` is `survey_id` in the child tables. A test of the contracts checks this.
    let parent = table.parent.as_deref().filter(|_| table.kind == TableKind::Child).and_then(schema::table);
    let length = parent.map_or(table.key.len(), |parent| parent.key.len());
    table.key.iter().take(length).map(String::as_str).collect()
}

/// Returns the [`removal_columns`] of rows of `table`, renamed to the removal columns of `target`. `target` is the same
/// table, its parent or its child. The columns are renamed by position, because the removal columns of both tables are
/// in the same order.
pub(in crate::load) fn removal_keys(
    table: &'static Table,
    rows: &RecordBatch,
    target: &'static Table,
) -> Result<RecordBatch, LoadError> {
    renamed(rows, &removal_columns(table), &removal_columns(target))
}
