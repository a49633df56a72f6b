//! The new rows of a transaction in temporary tables, until its commit. An Iceberg catalog gets a file for each month
//! and a manifest from each statement that inserts, and each later read opens all manifests.

use std::collections::BTreeMap;

use arrow::array::{Array as _, RecordBatch};

use super::{ACTION, AttachedStore};
use crate::{
    load::{
        LoadError,
        engine::ENGINE_BYTES_MIN,
        store::{TableChange, sql},
    },
    schema::{self, Table, quote_identifier},
};

/// The rows of a table that wait take at most this part of the engine's memory beyond the least. An insert needs twice
/// as much again, which the engine does not account for. Measured with 400,000 answers. The engine keeps the memory of
/// a dropped table until the transaction ends, so no rows wait if there is little.
const MEMORY_DIVISOR: u64 = if cfg!(test) { 1 << 17 } else { 4 };

impl AttachedStore {
    /// Returns the bytes of rows of a table that wait at most. Without such bytes, rows are inserted at once.
    fn staged_bytes_max(&self) -> u64 {
        match self.dialect.stages_rows {
            true => self.engine.memory_limit_bytes().saturating_sub(ENGINE_BYTES_MIN) / MEMORY_DIVISOR,
            false => 0,
        }
    }

    /// Returns the SQL names of the relations with the rows of a table that the open transaction sees.
    pub(super) fn relations(&self, table: &Table) -> impl Iterator<Item = String> {
        let staging = self.staged.contains_key(table.name.as_str()).then(|| staging(table));
        [self.relation(&table.name)].into_iter().chain(staging)
    }

    /// Applies a change in the open transaction.
    pub(super) fn change(&self, change: &TableChange) -> Result<(), LoadError> {
        let (target, explained) = (self.relation(&change.table.name), self.explained(ACTION));
        if self.staged_bytes_max() == 0 {
            return sql::change(&self.engine, &target, change, explained);
        }
        let staging = staging(change.table);
        let create = format!("CREATE TEMPORARY TABLE IF NOT EXISTS {staging} {}", change.table.columns_sql(""));
        self.engine.connection().execute_batch(&create).map_err(explained)?;
        sql::remove(&self.engine, &target, change, explained)?;
        sql::change(&self.engine, &staging, change, explained)
    }

    /// Counts the bytes that changes have added, and inserts the rows of tables with many of them.
    pub(super) fn count_staged(&mut self, changes: &[TableChange]) -> Result<(), LoadError> {
        let bytes_max = self.staged_bytes_max();
        // A row counts at least as a byte: a table without bytes is not inserted.
        let bytes_of = |rows: &RecordBatch| {
            let columns = rows.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
            columns.sum::<usize>() + rows.num_rows()
        };
        for change in changes.iter().filter(|_| bytes_max > 0) {
            let bytes: usize = change.added.iter().map(bytes_of).sum();
            *self.staged.entry(&change.table.name).or_default() += bytes as u64;
        }
        self.insert_staged(bytes_max)
    }

    /// Inserts the staged rows of the tables that have at least so many bytes of them.
    pub(super) fn insert_staged(&mut self, bytes_min: u64) -> Result<(), LoadError> {
        let (full, waiting): (BTreeMap<_, _>, _) =
            std::mem::take(&mut self.staged).into_iter().partition(|(_, bytes)| *bytes >= bytes_min);
        self.staged = waiting;
        self.in_transaction(|store| {
            for (table, bytes) in full.iter().filter_map(|(name, bytes)| schema::table(name).zip(Some(*bytes))) {
                let staging = staging(table);
                let copy = sql::copy(table, &staging, &store.relation(&table.name));
                // An insert without rows leaves a manifest too.
                let copy = if bytes > 0 { copy } else { String::new() };
                let sql = format!("{copy} DROP TABLE {staging}");
                store.engine.connection().execute_batch(&sql).map_err(store.explained(ACTION))?;
            }
            Ok(())
        })
    }
}

/// Returns the SQL name of the temporary table with the new rows of a table.
fn staging(table: &Table) -> String {
    format!("temp.main.{}", quote_identifier(&format!("new {}", table.name)))
}
