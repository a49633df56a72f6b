//! Stores read and write rows of the tables in `schemas/`, as Arrow batches. A store knows nothing of scans, people or
//! runs.
//!
//! The rest of `load` uses a store through [`BufferedStore`].

pub(in crate::load) mod attached;
mod buffer;
mod change;
pub(in crate::load) mod duckdb;
mod filter;
#[cfg(test)]
mod memory;
mod parallel_read;
pub(in crate::load) mod parquet;
mod rows;
mod shared;
mod sql;

pub(in crate::load) use buffer::BufferedStore;
pub(in crate::load) use change::{TableChange, removal_columns, removal_key_columns, removal_keys};
pub use filter::TimeRange;
pub(in crate::load) use filter::{Filter, KeySet, clamped_us, kept_rows, rows_within};
#[cfg(test)]
pub(in crate::load) use memory::{MemoryStore, Shelf};
pub(in crate::load) use parallel_read::fold_batches;
use parallel_read::visit_batches;
pub use parquet::{NightEstimate, ParquetOptions, PartitionBy};
pub(in crate::load) use rows::{
    Take, boolean_column, concat_rows, fit, fit_column, number_column, project, read_schema, renamed, text_column,
    time_column, with_column, with_columns,
};
pub(in crate::load) use shared::SharedStore;

use std::path::Path;

use super::{
    Identity, LoadError,
    engine::Visit,
    error::{invalid, invalid_rows},
};
use crate::{model::Snapshots, schema::Table};

/// A table that a user created in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::load) struct ForeignTable {
    /// The name of the table in messages to people. The name has the schema in front unless the schema is `main`.
    pub name: String,
    /// The qualified SQL name of the table.
    pub relation: String,
    /// The columns of the table that can contain text, which may be none.
    pub columns: Vec<String>,
}

/// A store of rows, used by one thread at a time. [`Store::write`] opens a transaction if none is open.
/// [`Store::commit`] or [`Store::rollback`] ends the transaction.
pub(in crate::load) trait Store: Send {
    /// Binds the store to this identity (service address and environment), without a check of the earlier identity.
    /// Used when a service moved to another address, or an environment was renamed.
    fn rebind(&mut self, identity: &Identity) -> Result<(), LoadError>;

    /// Calls `take` with batches of the rows that match the filter, in no particular order of rows. The batches have
    /// `columns` in this order, in the types of [`crate::schema::ColumnType::arrow`]. Changes of the open transaction
    /// are visible.
    ///
    /// A store may also return rows that do not match, if that is cheaper; the caller filters the rows again. The cost
    /// of a read must grow with the filter's range, not with the table.
    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError>;

    /// Calls `visit` with batches of `columns` of all rows, as [`Store::read`] does, in several threads. Each row is
    /// in one batch. Batches without rows are not passed.
    fn visit(&mut self, table: &'static Table, columns: &[&str], visit: &Visit<'_>) -> Result<(), LoadError> {
        visit_batches(|take| self.read(table, columns, &Filter::all(), take), visit)
    }

    /// Changes tables in the open transaction; opens a transaction if none is open. The removals of a change apply
    /// before the additions of the change. After an error the caller must roll back.
    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError>;

    /// Commits the open transaction durably; does nothing if none is open. `label` names the transaction for people who
    /// look at the files or snapshots. A DuckDB store ignores the label.
    fn commit(&mut self, label: &str) -> Result<(), LoadError>;

    /// Undoes the changes of the open transaction; does nothing if none is open.
    fn rollback(&mut self);

    /// Gives the store twice the memory, because work on it failed for want of memory. Returns false if the store has
    /// no limit, or its maximum. No transaction may be open.
    fn raise_memory(&mut self) -> Result<bool, LoadError> {
        Ok(false)
    }

    /// Makes committed rows visible to other readers of the files. A Parquet store merges its commits into the files of
    /// tables. A DuckDB store closes the file. A call is cheap if nothing changed.
    fn publish(&mut self) -> Result<(), LoadError>;

    /// Returns true if so many changes are not published yet that [`Store::publish`] should run now, and not only at
    /// the end of the run. Unpublished changes need memory, or make reads slower. With `has_readers`, also returns true
    /// so that readers of a new warehouse see its first rows long before the end of a backfill.
    fn should_compact(&self, _has_readers: bool) -> bool {
        false
    }

    /// Publishes and closes the DuckDB file, so that other processes can open it. The next use of the store opens and
    /// locks the file again. Other stores do nothing: a Parquet folder stays locked until the store is dropped.
    fn release_lock(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Joins the small files of a DuckLake and expires its old snapshots, if this is due. Returns the snapshots that
    /// the catalog keeps until maintenance removes them; `None` if there are none. Called at the end of a run.
    fn maintain(&mut self, _now_ms: i64) -> Result<Option<Snapshots>, LoadError> {
        Ok(None)
    }

    /// Updates the search index and the copy for readers, if the store has them. A call is cheap if nothing changed.
    /// Called at the end of a run.
    fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Removes the bytes of removed rows from the files, as an erasure requires. The caller must have committed the
    /// removals.
    fn purge_removed_bytes(&mut self) -> Result<(), LoadError>;

    /// Returns an error if [`Store::purge_removed_bytes`] would fail. The error names the user's object that blocks it.
    fn require_purgeable(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Returns the tables that users created in the store: none if users cannot create objects in it. An erasure
    /// searches these tables, so there is no default.
    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError>;

    /// Calls `take` with batches of a user's table: the columns of [`ForeignTable::columns`], converted to text.
    fn read_foreign(&mut self, _table: &ForeignTable, _take: &mut Take<'_>) -> Result<(), LoadError> {
        Ok(())
    }

    /// Creates a store at `new_path` with the objects of this store, users' objects included, but without rows. Users'
    /// indexes on tables of this program are left out: [`Store::import_foreign`] creates them after a replay has filled
    /// the new store. An error names the object that cannot be copied. A store in which users cannot create objects
    /// does nothing.
    fn create_empty_at(&mut self, _new_path: &Path) -> Result<(), LoadError> {
        Ok(())
    }

    /// Imports the rows of users' tables, and users' indexes on tables of this program, from the store at `old_path`. A
    /// store in which users cannot create objects does nothing.
    fn import_foreign(&mut self, _old_path: &Path) -> Result<(), LoadError> {
        Ok(())
    }
}
