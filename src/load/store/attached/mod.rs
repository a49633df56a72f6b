//! A warehouse in a catalog that DuckDB attaches with an extension: DuckLake, PostgreSQL or Iceberg.
//!
//! All kinds run the same statements in transactions over several tables. [`dialect`] has what differs. Other writers
//! may commit at the same time: a transaction that they contradict fails with [`LoadError::Conflict`], and the caller
//! applies its scans again, compared with the new rows.

mod dialect;
mod tables;

use std::path::PathBuf;

use ::duckdb::Connection;

use super::{Filter, ForeignTable, Store, TableChange, Take, sql};
use crate::{
    load::{
        Identity, LoadError,
        engine::{Engine, StartedEngine},
        extension::load_extension,
    },
    model::{CatalogPlace, DurableStep, Failpoints},
    schema::{Table, quote_identifier},
};
use dialect::{Dialect, attach_sql};

/// Name under which the catalog is attached to the engine.
const CATALOG: &str = "warehouse";
const ACTION: &str = "write the warehouse";
/// The table with the metadata: pairs of key and value.
const META_TABLE: &str = "studysync_meta";

/// Which catalog to open, and how.
#[derive(Clone)]
pub(in crate::load) struct AttachedOptions {
    pub catalog: CatalogPlace,
    /// The service and environment that the warehouse must belong to.
    pub identity: Identity,
    /// True for `verify`, which changes nothing.
    pub is_read_only: bool,
}

/// A warehouse in an attached catalog.
pub(in crate::load) struct AttachedStore {
    engine: Engine,
    options: AttachedOptions,
    dialect: &'static Dialect,
    is_attached: bool,
    transaction: Transaction,
}

/// The open transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transaction {
    None,
    /// Rows were read. What the first change decides must hold for these rows.
    Reading,
    Writing,
    /// A statement failed. The engine would accept a commit, and commit nothing.
    Failed,
}

impl AttachedStore {
    /// Opens the warehouse, and creates its tables on first use.
    ///
    /// # Errors
    /// `NoExtension` if an extension cannot be loaded; `OtherIdentity`, `Newer` or `NotOurs` if the tables are not
    /// those of this warehouse; `Missing` for a read-only store without tables.
    pub fn open(
        options: AttachedOptions,
        engine: StartedEngine,
        failpoints: Failpoints,
    ) -> Result<AttachedStore, LoadError> {
        let dialect = Dialect::of(&options.catalog.address);
        let engine = engine.ready(failpoints)?;
        let mut store = Self { engine, options, dialect, is_attached: false, transaction: Transaction::None };
        store.attach()?;
        Ok(store)
    }

    fn attach(&mut self) -> Result<(), LoadError> {
        if self.is_attached {
            return Ok(());
        }
        let AttachedOptions { catalog, is_read_only, .. } = &self.options;
        let attached = attach(self.engine.connection(), catalog, CATALOG, *is_read_only)?;
        attached.map_err(self.explained("open the warehouse"))?;
        self.is_attached = true;
        self.make_ready().inspect_err(|_| {
            self.rollback();
            self.detach().ok();
        })
    }

    fn detach(&mut self) -> Result<(), LoadError> {
        if std::mem::take(&mut self.is_attached) {
            for statement in self.dialect.before_detach.iter().filter(|_| !self.options.is_read_only) {
                self.engine.execute("close the warehouse", statement)?;
            }
            self.engine.execute("close the warehouse", &format!("DETACH {CATALOG}"))?;
        }
        Ok(())
    }

    /// Returns the SQL name of a table.
    fn relation(&self, table: &str) -> String {
        format!("{CATALOG}.{}.{}", quote_identifier(self.options.catalog.address.schema()), quote_identifier(table))
    }

    /// Returns the address, for errors.
    fn place(&self) -> PathBuf {
        self.options.catalog.address.to_string().into()
    }

    /// Returns a closure for `map_err`: the error is `Conflict` if another writer has committed.
    fn explained(&self, action: &'static str) -> impl Fn(::duckdb::Error) -> LoadError + Copy + use<'_> {
        move |error| match self.dialect.is_conflict(&error.to_string()) {
            true => LoadError::Conflict { path: self.place() },
            false => LoadError::engine(action)(error),
        }
    }

    /// Opens a transaction if none is open.
    fn begin(&mut self) -> Result<(), LoadError> {
        match self.transaction {
            Transaction::Reading | Transaction::Writing => Ok(()),
            Transaction::Failed => Err(LoadError::RolledBack),
            Transaction::None => {
                self.attach()?;
                self.engine.execute(ACTION, "BEGIN TRANSACTION")?;
                self.transaction = Transaction::Reading;
                if self.dialect.needs_turn {
                    // The transaction sees the state of its first statement.
                    self.read_turn()?;
                }
                Ok(())
            }
        }
    }

    /// Runs work in the open transaction. After an error the transaction cannot be committed.
    fn in_transaction<T>(&mut self, work: impl FnOnce(&Self) -> Result<T, LoadError>) -> Result<T, LoadError> {
        let worked = self.begin().and_then(|()| work(self));
        if worked.is_err() {
            self.transaction = Transaction::Failed;
        }
        worked
    }

    fn end(&mut self, statement: &str) -> Result<(), LoadError> {
        let ended = self.engine.connection().execute_batch(statement).map_err(self.explained(ACTION));
        if ended.is_err() {
            // A failed commit has ended the transaction, then this statement fails.
            self.engine.connection().execute_batch("ROLLBACK").ok();
        }
        self.transaction = Transaction::None;
        ended
    }
}

/// Loads the extensions of a catalog, and attaches it as `name`. The inner error is that of the engine.
fn attach(
    connection: &Connection,
    catalog: &CatalogPlace,
    name: &str,
    is_read_only: bool,
) -> Result<Result<(), ::duckdb::Error>, LoadError> {
    let dialect = Dialect::of(&catalog.address);
    for extension in dialect.extensions {
        load_extension(connection, extension, catalog.extension_directory.as_deref())?;
    }
    let mut statements = dialect.settings.iter().map(|setting| (*setting).to_owned()).collect::<Vec<_>>();
    statements.extend(attach_sql(catalog, name, is_read_only));
    Ok(statements.iter().try_for_each(|statement| connection.execute_batch(statement)))
}

impl Store for AttachedStore {
    fn rebind(&mut self, identity: &Identity) -> Result<(), LoadError> {
        self.attach()?;
        self.bind(identity)?;
        self.options.identity = identity.clone();
        Ok(())
    }

    fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        let relation = self.relation(&table.name);
        let is_closed = self.transaction == Transaction::None;
        let read = self.in_transaction(|store| sql::rows(&store.engine, &relation, table, columns, filter, take));
        if is_closed && read.is_err() {
            self.rollback();
        }
        read
    }

    fn write(&mut self, changes: &[TableChange]) -> Result<(), LoadError> {
        self.in_transaction(|store| {
            if store.dialect.needs_turn && store.transaction == Transaction::Reading {
                store.take_turn()?;
            }
            changes.iter().try_for_each(|change| {
                sql::change(&store.engine, &store.relation(&change.table.name), change, store.explained(ACTION))
            })
        })?;
        self.transaction = Transaction::Writing;
        Ok(())
    }

    fn commit(&mut self, _label: &str) -> Result<(), LoadError> {
        let place = self.place();
        match self.transaction {
            Transaction::None => Ok(()),
            Transaction::Reading => self.end("ROLLBACK"),
            Transaction::Failed => Err(LoadError::RolledBack),
            Transaction::Writing => {
                self.engine.hit(DurableStep::DuckDbCommitted, &place)?;
                self.end("COMMIT")?;
                self.engine.hit(DurableStep::DuckDbCommittedNow, &place)
            }
        }
    }

    fn rollback(&mut self) {
        if self.transaction == Transaction::None {
            return;
        }
        // Fails if an error has ended the transaction.
        self.end("ROLLBACK").ok();
        for statement in self.dialect.after_rollback {
            self.engine.connection().execute_batch(statement).ok();
        }
    }

    /// Ends a transaction that has only read, so that the next one sees what others committed.
    fn publish(&mut self) -> Result<(), LoadError> {
        self.commit("publish")
    }

    fn release_lock(&mut self) -> Result<(), LoadError> {
        self.commit("release")?;
        self.detach()
    }

    fn purge_removed_bytes(&mut self) -> Result<(), LoadError> {
        self.commit("purge")?;
        self.attach()?;
        self.purge()
    }

    fn foreign_tables(&mut self) -> Result<Vec<ForeignTable>, LoadError> {
        self.attach()?;
        self.tables_of_users()
    }

    fn read_foreign(&mut self, table: &ForeignTable, take: &mut Take<'_>) -> Result<(), LoadError> {
        self.attach()?;
        sql::texts(&self.engine, &table.relation, &table.columns, take)
    }
}

#[cfg(test)]
mod suite;
