//! What a warehouse must be able to do: keep rows of the tables in `schemas/`, as Arrow. What rows mean is for those above.
//!
//! A store knows no scan, no person and no run. [`BufferedStore`] is how the rest of this module uses one.

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

/// Takes batches of rows, one after the other.
pub(in crate::load) type Take<'a> = dyn FnMut(RecordBatch) -> Result<(), LoadError> + 'a;

/// A table of somebody else's in the store, as far as it can hold texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::load) struct ForeignTable {
    pub name: String,
    /// What the store calls it.
    pub relation: String,
    pub columns: Vec<String>,
}

/// A warehouse as a place for rows. One thread uses it at a time. Changes are made in one transaction, which begins with the first
/// [`Store::write`] and ends with [`Store::commit`] or [`Store::rollback`].
pub(in crate::load) trait Store: Send {
    /// "duckdb", "parquet": for people, and the key under which `state` remembers it.
    fn name(&self) -> &'static str;

    /// Where it is, for people.
    fn location(&self) -> String;

    /// Writes that the store belongs to this identity, whatever it belonged to: the service moved, or its environment has another name.
    fn rebind(&mut self, identity: &Identity) -> Result<(), LoadError>;

    /// Hands over these columns of the rows that the filter names, in no particular order: those of [`crate::schema::ColumnType::arrow`],
    /// in the order asked for. What was written in the open transaction is among them, and what it removed is not.
    ///
    /// Rows that the filter does not name may come as well, where that is cheaper: the caller filters again. It must cost by the
    /// filter's range and not by the table.
    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError>;

    /// Changes tables in the open transaction: in each, first the removals, then the additions. After an error the caller rolls back.
    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError>;

    /// Ends the transaction: after this no kill loses what it wrote. `label` names it for people who look at the files.
    fn commit(&mut self, label: &str) -> Result<(), LoadError>;

    /// Ends the transaction as if it had not been.
    fn rollback(&mut self);

    /// Makes what was committed visible to readers of files, and compact. Cheap when there is nothing to do.
    fn publish(&mut self) -> Result<(), LoadError>;

    /// Whether so much waits for [`Store::publish`], written in the open transaction or before, that a commit and a publish are better made
    /// now than later.
    fn should_compact(&self) -> bool {
        false
    }

    /// Lets other processes at the warehouse until it is used again, if it is one that keeps them out.
    fn release_lock(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Leaves what others are to find when a run is over. Cheap when nothing changed since.
    fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Sees to it that no byte of removed rows is left in any file. Everything is committed.
    fn purge_removed_bytes(&mut self) -> Result<(), LoadError>;

    /// An error that names what somebody else keeps in the store if [`Store::purge_removed_bytes`] could not be done because of it.
    fn require_purgeable(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    /// Tables that somebody else keeps in it.
    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError> {
        Ok(Vec::new())
    }

    /// Hands over the columns of such a table as texts.
    fn read_foreign(&mut self, _table: &ForeignTable, _take: &mut Take<'_>) -> Result<(), LoadError> {
        Ok(())
    }

    /// Makes a warehouse at `fresh` with all that others keep in this one, as far as it has no rows: for a replay, which fills it. An
    /// error names what could not come along. A store that holds nothing of others makes none.
    fn create_empty_beside(&mut self, _fresh: &Path) -> Result<(), LoadError> {
        Ok(())
    }

    /// Brings the rows of others from the warehouse at `left`, beside which this one was made, and what was left out until all rows are
    /// there.
    fn import_foreign(&mut self, _left: &Path) -> Result<(), LoadError> {
        Ok(())
    }
}
