//! What a scan changes, as relations of the engine: the whole interface between the comparison and a destination.

use arrow::array::RecordBatch;

use super::{
    super::{LoadError, RowCounts, engine::Engine},
    fill::Fill,
};
use crate::schema::Table;

/// Half-open range of a table's partition column, in epoch microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBounds {
    pub start_us: i64,
    pub end_us: i64,
}

/// How the comparison reads the warehouse.
pub trait Targets {
    /// SQL of a relation (it is put behind `FROM`, so a subquery needs its parentheses) that has every column of the table's
    /// contract, by name and with the types of [`crate::schema::ColumnType::duckdb`] (plain TIMESTAMP in UTC).
    ///
    /// It holds at least the committed rows whose partition column is within `bounds`; `None`, and tables without a partition
    /// column, mean every row. It may hold more: the comparison filters again. It must cost by bounds, not by table.
    fn relation(&mut self, table: &'static Table, bounds: Option<TimeBounds>) -> Result<String, LoadError>;

    /// These SQL expressions over the columns of `t`, of the rows of a table whose `created_at` is within the bounds, where they are at
    /// hand; `None`: the engine is to be asked.
    fn kept(
        &mut self,
        _engine: &Engine,
        _table: &'static Table,
        _bounds: TimeBounds,
        _expressions: &str,
    ) -> Result<Option<Vec<RecordBatch>>, LoadError> {
        Ok(None)
    }

    /// Whether a table holds such a row, where that is known; `None`: the engine is to be asked.
    fn is_known_to_hold(&mut self, _table: &'static Table, _bounds: TimeBounds) -> Result<Option<bool>, LoadError> {
        Ok(None)
    }
}

/// What a scan changes. The relations live in the engine until the next `Stage::begin`.
#[derive(Clone, Debug, Default)]
pub struct Delta {
    /// Counts by fate; they hold whether or not anything changes.
    pub counts: RowCounts,
    /// Rows to be added as they are, the ledger's among them: of a scan that is all new.
    pub fills: Vec<Fill>,
    /// Tables with something to change, parents before children, the ledger (`sync_windows`) last. Empty: write nothing at all.
    pub tables: Vec<TableDelta>,
}

impl Delta {
    /// Whether nothing is to be written.
    pub fn is_empty(&self) -> bool {
        self.fills.is_empty() && self.tables.is_empty()
    }
}

/// What changes in one table: first take out `deletes`, then add `upserts`.
#[derive(Clone, Debug)]
pub struct TableDelta {
    pub table: &'static Table,
    /// Relation with the rows to take out: the columns [`TableDelta::delete_columns`]. Every row of the table that equals one of
    /// them in these columns goes.
    pub deletes: Option<DeltaRows>,
    /// Relation with the rows to add: every column of the contract, in its order.
    pub upserts: Option<DeltaRows>,
}

impl TableDelta {
    /// The columns that `deletes` names rows by: the key of the table, or of the parent whose children go as a set; then the
    /// partition column, if there is one. None of them is ever NULL.
    pub fn delete_columns(&self) -> Vec<&'static str> {
        delete_columns(self.table)
    }
}

/// A temporary relation `delta_*` of the engine.
#[derive(Clone, Debug)]
pub struct DeltaRows {
    /// Its name as SQL, such as `delta_upsert_responses`.
    pub relation: String,
    /// Its rows; never 0.
    pub rows: u64,
    /// Range of the partition column over its rows; `None` for a table without one.
    pub bounds: Option<TimeBounds>,
}

/// See [`TableDelta::delete_columns`].
pub(in super::super) fn delete_columns(table: &'static Table) -> Vec<&'static str> {
    let mut columns: Vec<&'static str> = super::sql::owner_key(table).into_iter().collect();
    columns.extend(table.partition.as_deref().filter(|name| !columns.contains(name)));
    columns
}
