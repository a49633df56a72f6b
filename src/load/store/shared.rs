//! A store whose lock is given back between two commits, because several workers share the warehouse.

use std::path::Path;

use super::{Filter, ForeignTable, Store, TableChange, Take};
use crate::{
    load::{Identity, LoadError, engine::Visit},
    model::Snapshots,
    schema::Table,
};

/// Opens the store.
pub(in crate::load) type OpenStore = Box<dyn Fn() -> Result<Box<dyn Store>, LoadError> + Send>;

/// A store that is opened again after its lock was released.
pub(in crate::load) struct SharedStore {
    open: OpenStore,
    /// `None` after the lock was released.
    opened: Option<Box<dyn Store>>,
}

impl SharedStore {
    /// Opens the store.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn new(open: OpenStore) -> Result<Self, LoadError> {
        let opened = Some(open()?);
        Ok(Self { open, opened })
    }

    fn opened(&mut self) -> Result<&mut dyn Store, LoadError> {
        let opened = match self.opened.take() {
            Some(opened) => opened,
            None => (self.open)()?,
        };
        Ok(&mut **self.opened.insert(opened))
    }
}

impl Store for SharedStore {
    fn rebind(&mut self, identity: &Identity) -> Result<(), LoadError> {
        self.opened()?.rebind(identity)
    }

    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        self.opened()?.read(table, columns, filter, take)
    }

    fn visit(&mut self, table: &'static Table, columns: &[&str], visit: &Visit<'_>) -> Result<(), LoadError> {
        self.opened()?.visit(table, columns, visit)
    }

    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError> {
        self.opened()?.write(changes)
    }

    fn commit(&mut self, label: &str) -> Result<(), LoadError> {
        self.opened.as_mut().map_or(Ok(()), |opened| opened.commit(label))
    }

    fn rollback(&mut self) {
        self.opened.iter_mut().for_each(|opened| opened.rollback());
    }

    fn raise_memory(&mut self) -> Result<bool, LoadError> {
        self.opened()?.raise_memory()
    }

    fn publish(&mut self) -> Result<(), LoadError> {
        self.opened()?.publish()
    }

    fn should_compact(&self, has_readers: bool) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.should_compact(has_readers))
    }

    fn release_lock(&mut self) -> Result<(), LoadError> {
        let released = self.opened.as_mut().map_or(Ok(()), |opened| opened.release_lock());
        self.opened = None;
        released
    }

    fn maintain(&mut self, now_ms: i64) -> Result<Option<Snapshots>, LoadError> {
        self.opened()?.maintain(now_ms)
    }

    fn export_reader_copy(&mut self) -> Result<(), LoadError> {
        self.opened()?.export_reader_copy()
    }

    fn purge_removed_bytes(&mut self) -> Result<(), LoadError> {
        self.opened()?.purge_removed_bytes()
    }

    fn require_purgeable(&mut self) -> Result<(), LoadError> {
        self.opened()?.require_purgeable()
    }

    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError> {
        self.opened()?.foreign_tables()
    }

    fn read_foreign(&mut self, table: &ForeignTable, take: &mut Take<'_>) -> Result<(), LoadError> {
        self.opened()?.read_foreign(table, take)
    }

    fn import_foreign(&mut self, old_path: &Path) -> Result<(), LoadError> {
        self.opened()?.import_foreign(old_path)
    }

    fn create_empty_at(&mut self, new_path: &Path) -> Result<(), LoadError> {
        self.opened()?.create_empty_at(new_path)
    }
}
