//! A warehouse in a catalog that DuckDB attaches with an extension: DuckLake, PostgreSQL or Iceberg.
//!
//! All kinds run the same statements in transactions over several tables. [`dialect`] has what differs. Other writers
//! may commit at the same time: a transaction that they contradict fails with [`LoadError::Conflict`], and the caller
//! applies its scans again, compared with the new rows.

mod dialect;
mod purge;
mod reading;
mod staging;
mod tables;

use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
};

use ::duckdb::Connection;

use super::{
    Filter, ForeignTable, Store, TableChange, Take,
    duckdb::{Claim, explain},
    sql,
};
use crate::{
    load::{
        Identity, LoadError, LockPatience,
        engine::{Engine, StartedEngine},
        extension::load_extension,
        lock_wait::Conflicts,
    },
    model::{CatalogAddress, CatalogPlace, DurableStep, Failpoints, LakeCatalog, ScanId, Snapshots},
    schema::{self, Table, quote_identifier, quote_text},
};
use dialect::{Dialect, attach_sql, is_created_by_others};
pub(in crate::load) use reading::{AttachedTables, check_extensions, exists};

/// Name under which the catalog is attached to the engine.
const CATALOG: &str = "warehouse";
const ACTION: &str = "write the warehouse";
const OPEN: &str = "open the warehouse";
/// The table with the metadata: pairs of key and value.
const META_TABLE: &str = "studysync_meta";

/// Which catalog to open, and how.
#[derive(Clone)]
pub(in crate::load) struct AttachedOptions {
    pub catalog: CatalogPlace,
    /// The service and environment that the warehouse must belong to.
    pub identity: Identity,
    /// How long to wait for another process that has the catalog file of a DuckLake open.
    pub patience: LockPatience,
    /// True for `verify`, which changes nothing.
    pub is_read_only: bool,
}

/// A warehouse in an attached catalog.
pub(in crate::load) struct AttachedStore {
    engine: Engine,
    options: AttachedOptions,
    dialect: &'static Dialect,
    /// What keeps others from the catalog while it is attached; `None` if it is not attached.
    claim: Option<Attachment>,
    transaction: Transaction,
    /// Bytes of the rows by table that the open transaction has added and that wait in temporary tables.
    staged: BTreeMap<&'static str, u64>,
}

/// The right to have a catalog attached: a claim of the catalog file of a DuckLake.
struct Attachment {
    file: Option<Claim>,
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
        let mut store =
            Self { engine, options, dialect, claim: None, transaction: Transaction::None, staged: BTreeMap::new() };
        store.attach()?;
        Ok(store)
    }

    fn attach(&mut self) -> Result<(), LoadError> {
        if self.claim.is_some() {
            return Ok(());
        }
        let mut conflicts = Conflicts::default();
        loop {
            let AttachedOptions { catalog, is_read_only, patience, .. } = &self.options;
            let attached = patience.until_free(|| attach(self.engine.connection(), catalog, CATALOG, *is_read_only));
            let ready = attached.and_then(|attached| {
                self.claim = Some(attached);
                self.make_ready()
            });
            let Err(error) = ready else { return Ok(()) };
            self.rollback();
            self.detach().ok();
            // Another worker creates the tables at the same time.
            if !matches!(error, LoadError::Conflict { .. }) || !conflicts.wait() {
                return Err(error);
            }
        }
    }

    fn detach(&mut self) -> Result<(), LoadError> {
        let Some(_until_detached) = self.claim.take() else { return Ok(()) };
        for statement in self.dialect.before_detach.iter().filter(|_| !self.options.is_read_only) {
            self.engine.execute("close the warehouse", statement)?;
        }
        self.engine.execute("close the warehouse", &format!("DETACH {CATALOG}"))
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
        worked.map_err(|error| {
            self.transaction = Transaction::Failed;
            match &error {
                LoadError::Engine { source, .. } if self.dialect.is_conflict(&source.to_string()) => {
                    LoadError::Conflict { path: self.place() }
                }
                _ => error,
            }
        })
    }

    fn end(&mut self, statement: &str) -> Result<(), LoadError> {
        let ended = self.engine.connection().execute_batch(statement).map_err(self.explained(ACTION));
        if ended.is_err() {
            // A failed commit has ended the transaction, then this statement fails.
            self.engine.connection().execute_batch("ROLLBACK").ok();
        }
        self.transaction = Transaction::None;
        self.staged.clear();
        ended
    }
}

/// Loads the extensions of a catalog, and attaches it as `name`.
///
/// # Errors
/// `NoExtension` if an extension cannot be loaded; `Locked` while another process, or this one, has the catalog file of
/// a DuckLake open.
fn attach(
    connection: &Connection,
    catalog: &CatalogPlace,
    name: &str,
    is_read_only: bool,
) -> Result<Attachment, LoadError> {
    for extension in Dialect::extensions_of(&catalog.address) {
        load_extension(connection, extension, catalog.extension_directory.as_deref())?;
    }
    let claim = match &catalog.address {
        CatalogAddress::DuckLake { catalog: LakeCatalog::File(path), .. } if is_read_only => {
            LoadError::require_file(path)?;
            Some(Claim::for_reading(path)?)
        }
        CatalogAddress::DuckLake { catalog: LakeCatalog::File(path), .. } => Some(Claim::for_writing(path)?),
        _ => None,
    };
    let place = catalog.address.to_string();
    let settings = Dialect::settings_of(&catalog.address).map(str::to_owned);
    for statement in settings.chain(attach_sql(catalog, name, is_read_only)) {
        connection.execute_batch(&statement).map_err(|error| match explain(OPEN, Path::new(&place))(error) {
            // The engine may quote the statement.
            LoadError::Engine { source, .. } if is_created_by_others(&source.to_string()) => {
                LoadError::Conflict { path: place.clone().into() }
            }
            LoadError::Engine { source, .. } => {
                let shown = catalog.keys.hidden_in(&source.to_string());
                LoadError::Engine { action: OPEN.into(), source: shown.into() }
            }
            error => error,
        })?;
    }
    Ok(Attachment { file: claim })
}

impl AttachedStore {
    /// Replaces all rows of this program's tables by those of a DuckDB file, in one transaction.
    ///
    /// `scans` are those that the file was made of.
    ///
    /// # Errors
    /// `Conflict` if another writer has committed since the file was begun.
    pub fn replace_rows(&mut self, built: &Path, scans: &HashSet<&ScanId>) -> Result<(), LoadError> {
        let file = quote_text(&built.to_string_lossy());
        self.engine.execute(ACTION, &format!("ATTACH {file} AS built (TYPE duckdb, READ_ONLY)"))?;
        let mut conflicts = Conflicts::default();
        let replaced = loop {
            let copied = match self.in_transaction(|store| store.copy_built(scans)) {
                Ok(false) => break Err(LoadError::Conflict { path: self.place() }),
                Ok(true) => {
                    self.transaction = Transaction::Writing;
                    self.commit("replace")
                }
                Err(error) => Err(error),
            };
            match copied {
                Err(LoadError::Conflict { .. }) if conflicts.wait() => self.rollback(),
                replaced => break replaced,
            }
        };
        self.rollback();
        self.engine.execute(ACTION, "DETACH built")?;
        replaced
    }

    /// Returns false without a change if other writers have added what the file was not made of.
    fn copy_built(&self, scans: &HashSet<&ScanId>) -> Result<bool, LoadError> {
        if self.dialect.needs_turn {
            self.take_turn()?;
        }
        let sql = format!("SELECT scan_id FROM {}", self.relation("sync_windows"));
        let ledger: Vec<String> = self.engine.query(ACTION, &sql, |row| row.get(0))?;
        if !ledger.into_iter().all(|id| scans.contains(&ScanId(id))) {
            return Ok(false);
        }
        for table in ["sync_runs", "erasures", "webhook_events"].into_iter().filter_map(schema::table) {
            let (target, name) = (self.relation(&table.name), quote_identifier(&table.name));
            let keys = table.key.iter().map(|key| quote_identifier(key)).collect::<Vec<_>>().join(", ");
            let sql = format!("SELECT count(*) FROM {target} ANTI JOIN built.main.{name} USING ({keys})");
            if self.engine.integers::<1>(ACTION, &sql)? != [0] {
                return Ok(false);
            }
        }
        for table in schema::tables() {
            let target = self.relation(&table.name);
            let copy = sql::copy(table, &format!("built.main.{}", quote_identifier(&table.name)), &target);
            let sql = format!("DELETE FROM {target}; {copy}");
            self.engine.connection().execute_batch(&sql).map_err(self.explained(ACTION))?;
        }
        Ok(true)
    }
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
        let is_closed = self.transaction == Transaction::None;
        let read = self.in_transaction(|store| {
            let mut relations = store.relations(table);
            relations.try_for_each(|relation| sql::rows(&store.engine, &relation, table, columns, filter, take))
        });
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
            changes.iter().try_for_each(|change| store.change(change))
        })?;
        self.transaction = Transaction::Writing;
        self.count_staged(changes)
    }

    fn commit(&mut self, label: &str) -> Result<(), LoadError> {
        let place = self.place();
        match self.transaction {
            Transaction::None => Ok(()),
            Transaction::Reading => self.end("ROLLBACK"),
            Transaction::Failed => Err(LoadError::RolledBack),
            Transaction::Writing => {
                self.insert_staged(0)?;
                self.engine.hit(DurableStep::DuckDbCommitted, &place)?;
                let named = self.dialect.before_commit.replace("{label}", &quote_text(label));
                self.end(&format!("{named}COMMIT"))?;
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

    /// Replaces the engine by one with twice the memory, which has no catalog attached.
    fn raise_memory(&mut self) -> Result<bool, LoadError> {
        // An engine without memory may refuse every statement.
        self.detach().ok();
        self.engine.restart_with_more_memory()
    }

    /// Ends a transaction that has only read, so that the next one sees what others committed. Closes the catalog file
    /// of a DuckLake for readers.
    fn publish(&mut self) -> Result<(), LoadError> {
        self.commit("publish")?;
        match &self.claim {
            Some(Attachment { file: Some(_) }) => self.detach(),
            _ => Ok(()),
        }
    }

    fn release_lock(&mut self) -> Result<(), LoadError> {
        self.commit("release")?;
        self.detach()
    }

    fn maintain(&mut self, now_ms: i64) -> Result<Option<Snapshots>, LoadError> {
        self.commit("maintain")?;
        self.attach()?;
        self.maintain_lake(now_ms)
    }

    fn purge_removed_bytes(&mut self) -> Result<(), LoadError> {
        self.commit("purge")?;
        self.attach()?;
        self.purge()
    }

    fn require_purgeable(&mut self) -> Result<(), LoadError> {
        self.attach()?;
        self.require_owned()
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
mod erasures;
#[cfg(test)]
mod races;
#[cfg(test)]
mod suite;
