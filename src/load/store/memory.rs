//! A store in memory, for tests.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use arrow::array::RecordBatch;

use super::{super::LoadError, Filter, ForeignTable, Identity, Store, TableChange, Take, project, with_columns};
use crate::schema::Table;

/// The rows of each table, in batches of all its columns.
pub(in crate::load) type Tables = BTreeMap<&'static str, Vec<RecordBatch>>;

/// The content of a [`MemoryStore`], which outlives the store, as files do.
#[derive(Clone, Debug, Default)]
pub(in crate::load) struct Shelf(Arc<Mutex<Content>>);

#[derive(Debug, Default)]
pub(in crate::load) struct Content {
    pub tables: Tables,
    /// Number of commits.
    pub commits: u64,
    /// Rows that reads examined.
    pub rows_read: u64,
}

impl Shelf {
    pub fn content(&self) -> MutexGuard<'_, Content> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store in memory.
#[derive(Debug)]
pub(in crate::load) struct MemoryStore {
    shelf: Shelf,
    /// The tables of the open transaction.
    open: Option<Tables>,
}

impl MemoryStore {
    pub fn open(shelf: &Shelf) -> Self {
        Self { shelf: shelf.clone(), open: None }
    }
}

impl Store for MemoryStore {
    fn rebind(&mut self, _identity: &Identity) -> Result<(), LoadError> {
        Ok(())
    }

    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        let mut content = self.shelf.content();
        let tables = self.open.as_ref().unwrap_or(&content.tables);
        let range = Filter { keys: None, ..*filter };
        let batches = tables.get(table.name.as_str()).into_iter().flatten();
        let kept = batches.map(|batch| range.select(table, batch.clone())).collect::<Result<Vec<_>, _>>()?;
        content.rows_read += kept.iter().map(|batch| batch.num_rows() as u64).sum::<u64>();
        drop(content);
        kept.iter().filter(|batch| batch.num_rows() > 0).try_for_each(|batch| take(project(batch, columns)?))
    }

    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError> {
        let mut tables = match self.open.take() {
            Some(open) => open,
            None => self.shelf.content().tables.clone(),
        };
        for change in changes {
            let table = change.table;
            let rows = tables.entry(&table.name).or_default();
            for batch in rows.iter_mut() {
                *batch = change.removed.rows_not_in(table, batch.clone())?;
            }
            rows.retain(|batch| batch.num_rows() > 0);
            for batch in &change.added {
                rows.push(with_columns(table, &table.full_schema(), batch)?);
            }
        }
        self.open = Some(tables);
        Ok(())
    }

    fn commit(&mut self, _label: &str) -> Result<(), LoadError> {
        if let Some(tables) = self.open.take() {
            let mut content = self.shelf.content();
            content.tables = tables;
            content.commits += 1;
        }
        Ok(())
    }

    fn rollback(&mut self) {
        self.open = None;
    }

    fn publish(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    fn purge_removed_bytes(&mut self) -> Result<(), LoadError> {
        Ok(())
    }

    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError> {
        Ok(Vec::new())
    }
}

mod tests;
