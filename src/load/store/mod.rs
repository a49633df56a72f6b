//! Stores keep the rows of the tables in `schemas/`, as Arrow. Their meaning is the business of the layers above.
//!
//! A store knows no scan, no person and no run. The other modules use a store through [`BufferedStore`].

mod buffer;
mod change;
mod columns;
pub(in crate::load) mod duckdb;
mod filter;
#[cfg(test)]
mod memory;
pub(in crate::load) mod parquet;
mod rows;

pub(in crate::load) use buffer::BufferedStore;
pub(in crate::load) use change::{TableChange, owner_columns, removal_columns, removal_keys};
pub(in crate::load) use columns::{fit, fit_column, read_schema};
pub use filter::TimeRange;
pub(in crate::load) use filter::{Filter, KeySet, kept_rows, rows_within, written_us};
#[cfg(test)]
pub(in crate::load) use memory::{MemoryStore, Shelf};
pub use parquet::{ParquetOptions, PartitionBy};
pub(in crate::load) use rows::{
    boolean_column, concat_rows, number_column, project, renamed, text_column, time_column, with_columns,
};

use std::path::Path;

use super::{
    Identity, LoadError,
    error::{invalid, invalid_rows},
};
use crate::schema::Table;
use arrow::array::RecordBatch;

/// Receives batches of rows, one after the other.
pub(in crate::load) type Take<'a> = dyn FnMut(RecordBatch) -> Result<(), LoadError> + 'a;

/// A table of somebody else in the store, with its columns that can hold texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::load) struct ForeignTable {
    pub name: String,
    /// Its name in the store's language.
    pub relation: String,
    pub columns: Vec<String>,
}

/// A store of rows. One thread uses it at a time. The first [`Store::write`] opens a transaction, [`Store::commit`] or
/// [`Store::rollback`] ends it.
pub(in crate::load) trait Store: Send {
    /// "duckdb" or "parquet": a name for people, and the key in the checkpoints.
    fn name(&self) -> &'static str;

    /// Its path, for people.
    fn location(&self) -> String;

    /// Binds the store to this identity, whatever it was bound to: the service moved, or its environment was renamed.
    fn rebind(&mut self, identity: &Identity) -> Result<(), LoadError>;

    /// Calls `take` with these columns of the rows that match the filter, in no particular order. Columns have the
    /// types of [`crate::schema::ColumnType::arrow`], in the given order. Changes of the open transaction are visible.
    ///
    /// A store may return more rows where that is cheaper, since the caller filters again. The cost must depend on the
    /// filter's range, not on the table.
    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError>;

    /// Changes tables in the open transaction: first the removals of a table, then its additions. After an error the
    /// caller rolls back.
    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError>;

    /// Commits the transaction durably. `label` names it for people who look at the files.
    fn commit(&mut self, label: &str) -> Result<(), LoadError>;

    /// Undoes the transaction.
    fn rollback(&mut self);

    /// Makes committed rows visible to readers of files, and compacts them. Cheap when nothing changed.
    fn publish(&mut self) -> Result<(), LoadError>;

    /// Returns true if so many changes are pending, committed or not, that [`Store::publish`] should run now and not at the end
    /// of the run.
    fn should_compact(&self) -> bool {
        false
    }

    /// Releases the lock on the file until the store is used again.
    fn release_lock(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Exports what readers find after a run. Cheap when nothing changed.
    fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Removes every byte of removed rows from the files. Called after a commit.
    fn purge_removed_bytes(&mut self) -> Result<(), LoadError>;

    /// Returns an error that names an object of somebody else which blocks [`Store::purge_removed_bytes`].
    fn require_purgeable(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// The tables of others in the store.
    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError> {
        Ok(Vec::new())
    }

    /// Calls `take` with the columns of such a table, as texts.
    fn read_foreign(&mut self, _table: &ForeignTable, _take: &mut Take<'_>) -> Result<(), LoadError> {
        Ok(())
    }

    /// Creates a store at `fresh` with the objects of others but no rows, for a replay to fill. An error names an
    /// object that cannot be copied. Does nothing without such objects.
    fn create_empty_beside(&mut self, _fresh: &Path) -> Result<(), LoadError> {
        Ok(())
    }

    /// Imports the rows of others from the store at `left`, and creates their indexes on our tables.
    fn import_foreign(&mut self, _left: &Path) -> Result<(), LoadError> {
        Ok(())
    }
}
