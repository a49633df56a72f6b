//! The tables of an attached catalog: creates them, checks whose they are, and maintains a DuckLake.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_64;

use super::{ACTION, AttachedStore, CATALOG, META_TABLE, dialect::is_created_by_others};
use crate::{
    load::{
        Identity, LoadError,
        store::{
            ForeignTable,
            sql::{FORMAT_VERSION, check_meta},
        },
    },
    model::{CatalogAddress, DAY_MS, DurableStep, LakeCatalog, SECOND_MS, Snapshots},
    schema::{self, Column, quote_identifier, quote_text},
};

/// Name under which the engine attaches the catalog of a DuckLake.
pub(super) const LAKE_CATALOG: &str = "__ducklake_metadata_warehouse";
/// Key of the row that each transaction changes, if the dialect needs a turn.
const TURN: &str = "turn";
/// Age of the oldest snapshot of a DuckLake at which a run does its maintenance: a day before the status calls it due.
const OLDEST_SNAPSHOT_MS: i64 = 13 * DAY_MS;
/// Age of the snapshots that the maintenance keeps.
const KEPT_SNAPSHOTS_MS: i64 = 7 * DAY_MS;
/// Share of removed rows from which the maintenance writes a file anew. A small file with one removed row has more, and
/// only files without removed rows are joined.
const REWRITTEN_SHARE: &str = "0.001";
const LIST: &str = "list the tables";
/// Begins the engine's message about a table or schema that a catalog lacks.
const NO_TABLE: &str = "Catalog Error";
/// Begins the engine's message about a column that a table lacks.
const NO_COLUMN: &str = "Binder Error";
/// Key of the hash of the contracts whose tables and columns exist.
const CONTRACT: &str = "contract";

impl AttachedStore {
    /// Creates the tables and columns that are missing, and checks whose they are.
    pub(super) fn make_ready(&mut self) -> Result<(), LoadError> {
        let list = if self.options.is_read_only { readable_tables_in } else { tables_in };
        let found = list(self.engine.connection(), CATALOG, self.options.catalog.address.schema())?;
        if !found.contains(META_TABLE) {
            if self.options.is_read_only {
                return Err(LoadError::Missing { path: self.place() });
            }
            return self.create(&found);
        }
        let meta = self.check_meta()?;
        let is_complete = schema::tables().iter().all(|table| found.contains(&table.name));
        if is_complete && meta.get(CONTRACT) == Some(&contract_hash()) {
            return Ok(());
        }
        let statements = self.missing_sql(&found)?;
        match self.options.is_read_only {
            true => Err(LoadError::Unfinished { path: self.place() }),
            false => self.change_tables(&statements),
        }
    }

    /// Creates the tables. A killed worker may have created some of `found`, which are empty then.
    fn create(&self, found: &BTreeSet<String>) -> Result<(), LoadError> {
        let address = &self.options.catalog.address;
        require_creatable(self.engine.connection(), address, found)?;
        let schema = address.schema();
        if schema != "main" {
            let sql = format!("CREATE SCHEMA IF NOT EXISTS {CATALOG}.{}", quote_identifier(schema));
            self.engine.connection().execute_batch(&sql).map_err(self.explained_creation())?;
        }
        let meta = self.relation(META_TABLE);
        let mut statements = vec![format!("CREATE TABLE {meta} (key VARCHAR, value VARCHAR)")];
        for table in schema::tables().iter().filter(|table| !found.contains(&table.name)) {
            statements.extend(self.dialect.create_sql(table, &self.relation(&table.name)));
        }
        let Identity { base_url, environment } = &self.options.identity;
        let (base_url, environment) = (quote_text(base_url), quote_text(environment));
        statements.push(format!(
            "INSERT INTO {meta} VALUES ('format_version', '{FORMAT_VERSION}'), ('base_url', {base_url}), \
             ('environment', {environment}), ('{TURN}', '0'), ('{CONTRACT}', '{}')",
            contract_hash()
        ));
        self.change_tables(&statements)
    }

    /// Creates or changes tables in one transaction.
    fn change_tables(&self, statements: &[String]) -> Result<(), LoadError> {
        self.in_one(statements, self.explained_creation())
    }

    /// Changes the metadata in one transaction.
    fn change_meta(&self, statements: &[String]) -> Result<(), LoadError> {
        self.in_one(statements, self.explained("change the metadata"))
    }

    fn in_one(&self, statements: &[String], failed: impl Fn(duckdb::Error) -> LoadError) -> Result<(), LoadError> {
        self.engine.hit(DurableStep::DuckDbCreated, &self.place())?;
        let connection = self.engine.connection();
        let sql = format!("BEGIN TRANSACTION; {}; COMMIT", statements.join(";\n"));
        connection.execute_batch(&sql).map_err(failed).inspect_err(|_| {
            connection.execute_batch("ROLLBACK").ok();
        })
    }

    /// Returns a closure for `map_err`: the error is `Conflict` if another worker has created the tables meanwhile.
    fn explained_creation(&self) -> impl Fn(duckdb::Error) -> LoadError + Copy + use<'_> {
        move |error| match is_created_by_others(&error.to_string()) {
            true => LoadError::Conflict { path: self.place() },
            false => self.explained("create the tables")(error),
        }
    }

    /// Returns the statements that create missing tables and columns. `found` are the tables of the schema.
    fn missing_sql(&self, found: &BTreeSet<String>) -> Result<Vec<String>, LoadError> {
        let mut statements = Vec::new();
        for table in schema::tables() {
            let relation = self.relation(&table.name);
            if !found.contains(&table.name) {
                statements.extend(self.dialect.create_sql(table, &relation));
                continue;
            }
            let existing = self.columns_of(&relation)?;
            for column in table.columns.iter().filter(|column| !existing.contains(&column.name)) {
                statements.extend(add_column_sql(&relation, column));
            }
        }
        statements.push(self.set_meta_sql(CONTRACT, &contract_hash()));
        Ok(statements)
    }

    /// Returns the names of the columns of a table.
    fn columns_of(&self, relation: &str) -> Result<Vec<String>, LoadError> {
        self.engine.query("list the columns", &columns_sql(relation), |row| row.get(0))
    }

    /// Reads the metadata and compares it with this program and the identity.
    fn check_meta(&self) -> Result<BTreeMap<String, String>, LoadError> {
        let sql = format!("SELECT key, value FROM {}", self.relation(META_TABLE));
        let read = self.engine.query("read the metadata", &sql, |row| Ok((row.get(0)?, row.get(1)?)));
        let meta: BTreeMap<String, String> = read.map_err(|error| match &error {
            LoadError::Engine { source, .. } if source.to_string().contains(NO_COLUMN) => {
                is_of_others(&self.options.catalog.address, META_TABLE)
            }
            _ => error,
        })?;
        check_meta(&meta, &self.place(), &self.options.identity)?;
        Ok(meta)
    }

    /// Binds the warehouse to another identity.
    pub(super) fn bind(&mut self, identity: &Identity) -> Result<(), LoadError> {
        let Identity { base_url, environment } = identity;
        self.change_meta(&[self.set_meta_sql("base_url", base_url), self.set_meta_sql("environment", environment)])
    }

    fn set_meta_sql(&self, key: &str, value: &str) -> String {
        format!("UPDATE {} SET value = {} WHERE key = '{key}'", self.relation(META_TABLE), quote_text(value))
    }

    /// Reads a text that [`AttachedStore::keep_text`] has stored; `None` if there is none.
    pub fn kept_text(&mut self, key: &str) -> Result<Option<String>, LoadError> {
        self.attach()?;
        let sql = format!("SELECT value FROM {} WHERE key = {}", self.relation(META_TABLE), quote_text(key));
        Ok(self.engine.query::<_, Vec<String>>("read the metadata", &sql, |row| row.get(0))?.pop())
    }

    /// Stores a text in the metadata, in its own transaction.
    pub fn keep_text(&mut self, key: &str, text: &str) -> Result<(), LoadError> {
        self.attach()?;
        let (meta, key, text) = (self.relation(META_TABLE), quote_text(key), quote_text(text));
        let statements =
            [format!("DELETE FROM {meta} WHERE key = {key}"), format!("INSERT INTO {meta} VALUES ({key}, {text})")];
        self.change_meta(&statements)
    }

    /// Reads the row that each transaction changes.
    pub(super) fn read_turn(&self) -> Result<(), LoadError> {
        let sql = format!("SELECT value::BIGINT FROM {} WHERE key = '{TURN}'", self.relation(META_TABLE));
        self.engine.integers::<1>(ACTION, &sql).map(drop)
    }

    /// Changes the row that each transaction changes: two of them conflict.
    pub(super) fn take_turn(&self) -> Result<(), LoadError> {
        let meta = self.relation(META_TABLE);
        let sql = format!("UPDATE {meta} SET value = (value::BIGINT + 1)::VARCHAR WHERE key = '{TURN}'");
        self.engine.connection().execute_batch(&sql).map_err(self.explained(ACTION))
    }

    /// Returns the tables of the schema that this program did not create, with all their columns, and the tables of the
    /// catalog of a DuckLake in PostgreSQL, which have least and greatest values of columns.
    pub(super) fn tables_of_users(&self) -> Result<Vec<ForeignTable>, LoadError> {
        let is_foreign = |name: &String| name != META_TABLE && schema::table(name).is_none();
        let own = readable_tables_in(self.engine.connection(), CATALOG, self.options.catalog.address.schema())?;
        let named = own.into_iter().filter(is_foreign).map(|name| (self.relation(&name), name));
        let mut foreign: Vec<(String, String)> = named.collect();
        if let CatalogAddress::DuckLake { catalog: LakeCatalog::Postgres(address), .. } = &self.options.catalog.address
        {
            let schema = quote_identifier(&address.schema);
            let relation = |name: &String| format!("{LAKE_CATALOG}.{schema}.{}", quote_identifier(name));
            let names = self.postgres_tables(LAKE_CATALOG, &address.schema)?.into_iter();
            foreign.extend(names.map(|name| (relation(&name), format!("catalog {name}"))));
        }
        let with_columns = foreign.into_iter().map(|(relation, name)| {
            let columns = self.columns_of(&relation)?;
            Ok(ForeignTable { name, relation, columns })
        });
        with_columns.collect()
    }

    /// Returns the names of the tables of a schema in PostgreSQL, which is attached as `catalog`. The engine does not
    /// list those of the catalog of a DuckLake.
    pub(super) fn postgres_tables(&self, catalog: &str, schema: &str) -> Result<Vec<String>, LoadError> {
        let sql = format!("SELECT tablename::text FROM pg_tables WHERE schemaname = {}", quote_text(schema));
        texts(self.engine.connection(), &postgres_sql(catalog, &sql))
    }

    /// Returns the snapshots of the ledger, which each commit changes.
    pub(super) fn kept_snapshots(&self) -> Result<Option<Snapshots>, LoadError> {
        let (time, source) = match &self.options.catalog.address {
            CatalogAddress::DuckLake { .. } => ("snapshot_time", format!("ducklake_snapshots('{CATALOG}')")),
            CatalogAddress::Iceberg { .. } => {
                ("timestamp_ms", format!("iceberg_snapshots({})", self.relation("sync_windows")))
            }
            CatalogAddress::Postgres(_) => return Ok(None),
        };
        let sql = format!("SELECT count(*), coalesce(epoch_ms(min({time})), 0) FROM {source}");
        let [count, oldest_ms] = self.engine.integers("count the snapshots", &sql)?;
        Ok((count > 0).then_some(Snapshots { count, oldest_ms }))
    }

    /// Joins the small files of a DuckLake and expires its old snapshots, if the oldest is old. Readers of the kept
    /// snapshots see no change. Returns the kept snapshots.
    pub(super) fn maintain_lake(&self, now_ms: i64) -> Result<Option<Snapshots>, LoadError> {
        let kept = self.kept_snapshots()?;
        let is_lake = matches!(self.options.catalog.address, CatalogAddress::DuckLake { .. });
        let is_old = |kept: Snapshots| kept.count > 1 && kept.oldest_ms < now_ms - OLDEST_SNAPSHOT_MS;
        if !is_lake || !kept.is_some_and(is_old) {
            return Ok(kept);
        }
        let kept_from = format!("to_timestamp({})", (now_ms - KEPT_SNAPSHOTS_MS) / SECOND_MS);
        self.compact_lake(REWRITTEN_SHARE, &kept_from, &format!("older_than => {kept_from}"))?;
        self.kept_snapshots()
    }

    /// Writes files with removed rows anew, joins small files, and expires snapshots. `threshold` is the share of
    /// removed rows from which a file is written anew, `kept_from` the time of the oldest kept snapshot, and `cleanup`
    /// says which files without a snapshot are removed; all in SQL.
    pub(super) fn compact_lake(&self, threshold: &str, kept_from: &str, cleanup: &str) -> Result<(), LoadError> {
        let calls = [
            format!("ducklake_flush_inlined_data('{CATALOG}')"),
            format!("ducklake_rewrite_data_files('{CATALOG}', delete_threshold => {threshold})"),
            format!("ducklake_merge_adjacent_files('{CATALOG}')"),
            format!("ducklake_expire_snapshots('{CATALOG}', older_than => {kept_from})"),
            format!("ducklake_cleanup_old_files('{CATALOG}', {cleanup})"),
        ];
        let run = |call| self.engine.connection().execute_batch(&format!("CALL {call}"));
        calls.iter().try_for_each(run).map_err(self.explained("join the files of the lake"))
    }
}

/// Returns an error if the tables cannot be created in the attached catalog, which has the tables `found`.
pub(super) fn require_creatable(
    connection: &duckdb::Connection,
    address: &CatalogAddress,
    found: &BTreeSet<String>,
) -> Result<(), LoadError> {
    require_free(connection, address, found)?;
    match address {
        CatalogAddress::Postgres(address) => require_privilege(connection, &address.schema),
        _ => Ok(()),
    }
}

/// Returns an error if this user may not create tables in PostgreSQL.
fn require_privilege(connection: &duckdb::Connection, schema: &str) -> Result<(), LoadError> {
    let sql = format!(
        "SELECT current_user FROM (SELECT 1) one LEFT JOIN pg_namespace n ON n.nspname = {} \
         WHERE NOT coalesce(has_schema_privilege(n.oid, 'CREATE'), has_database_privilege(current_database(), 'CREATE'))",
        quote_text(schema)
    );
    match texts(connection, &postgres_sql(CATALOG, &sql))?.first() {
        None => Ok(()),
        Some(user) => Err(LoadError::Unsupported(format!(
            "the user {user} may not create tables in the schema {schema} of PostgreSQL: GRANT CREATE ON the schema, or on the database \
             if there is no such schema"
        ))),
    }
}

/// Returns a query that runs a query in a PostgreSQL that is attached as `catalog`.
pub(super) fn postgres_sql(catalog: &str, sql: &str) -> String {
    format!("SELECT * FROM postgres_query('{catalog}', {})", quote_text(sql))
}

/// Returns an error if one of the `found` tables has the name of a table of this program, and is not an empty one that
/// a killed worker has created.
fn require_free(
    connection: &duckdb::Connection,
    address: &CatalogAddress,
    found: &BTreeSet<String>,
) -> Result<(), LoadError> {
    for table in schema::tables().iter().filter(|table| found.contains(&table.name)) {
        let relation = format!("{CATALOG}.{}.{}", quote_identifier(address.schema()), quote_identifier(&table.name));
        let columns = texts(connection, &columns_sql(&relation))?;
        let has_columns = table.columns.iter().all(|column| columns.contains(&column.name));
        if !has_columns || !texts(connection, &format!("SELECT 'row' FROM {relation} LIMIT 1"))?.is_empty() {
            return Err(is_of_others(address, &table.name));
        }
    }
    Ok(())
}

fn is_of_others(address: &CatalogAddress, table: &str) -> LoadError {
    let why = format!("it has a table {table} that studysync did not create");
    LoadError::NotOurs { path: address.to_string().into(), why }
}

fn columns_sql(relation: &str) -> String {
    format!("SELECT column_name FROM (DESCRIBE {relation})")
}

pub(super) fn texts(connection: &duckdb::Connection, sql: &str) -> Result<Vec<String>, LoadError> {
    let failed = LoadError::engine(LIST);
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let rows = statement.query_map([], |row| row.get(0)).map_err(failed)?;
    rows.collect::<Result<_, _>>().map_err(failed)
}

/// Returns the names of the tables of a schema of an attached catalog.
fn tables_in(connection: &duckdb::Connection, catalog: &str, schema: &str) -> Result<BTreeSet<String>, LoadError> {
    let [named_catalog, named_schema] = [catalog, schema].map(quote_text);
    let sql = format!(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = {named_catalog} AND schema_name = {named_schema}"
    );
    Ok(texts(connection, &sql)?.into_iter().collect())
}

/// Returns the names of the tables of a schema to read them.
///
/// # Errors
/// That of the catalog, if it answers with one: the engine then lists no tables. A schema that was read while it was
/// missing cannot be created by this engine.
pub(super) fn readable_tables_in(
    connection: &duckdb::Connection,
    catalog: &str,
    schema: &str,
) -> Result<BTreeSet<String>, LoadError> {
    let found = tables_in(connection, catalog, schema)?;
    if !found.contains(META_TABLE) {
        let sql = format!("SELECT 1 FROM {catalog}.{}.{META_TABLE} LIMIT 0", quote_identifier(schema));
        match connection.execute_batch(&sql) {
            Err(error) if !error.to_string().contains(NO_TABLE) => return Err(LoadError::engine(LIST)(error)),
            _ => {}
        }
    }
    Ok(found)
}

/// Returns a hash of the tables of this program.
fn contract_hash() -> String {
    let tables: Vec<String> = schema::tables().iter().map(schema::Table::create_sql).collect();
    format!("{:016x}", xxh3_64(tables.join("\n").as_bytes()))
}

fn add_column_sql(relation: &str, column: &Column) -> Vec<String> {
    let name = quote_identifier(&column.name);
    let mut statements = vec![format!("ALTER TABLE {relation} ADD COLUMN {name} {}", column.column_type.duckdb())];
    let source = column.copy_of.as_deref().map(quote_identifier);
    statements.extend(source.map(|source| format!("UPDATE {relation} SET {name} = {source}")));
    statements
}
