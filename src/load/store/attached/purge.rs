//! Removes the bytes of removed rows from the files of a catalog.

use std::path::Path;

use super::{
    AttachedStore, CATALOG,
    tables::{LAKE_CATALOG, postgres_sql},
};
use crate::{
    files,
    load::LoadError,
    model::{CatalogAddress, LakeCatalog, PostgresAddress},
    schema::{self, quote_identifier, quote_text},
};

const ACTION: &str = "remove old bytes";
/// Lists the open transactions of other sessions, as name and holder. PostgreSQL keeps removed rows for transactions
/// that began before the removal.
const OPEN_TRANSACTIONS: &str = "SELECT l.virtualtransaction, \
     coalesce('process ' || l.pid || coalesce(' of the user ' || a.usename, '') || ' in PostgreSQL', 'a prepared transaction') \
     FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) WHERE l.granted AND l.pid IS DISTINCT FROM pg_backend_pid() \
     AND (l.locktype = 'virtualxid' AND a.datname = current_database() OR l.locktype = 'transactionid' AND l.pid IS NULL)";

/// A schema of PostgreSQL that is attached to the engine.
struct PostgresSchema {
    /// The name of the attached database.
    catalog: &'static str,
    name: String,
    tables: Vec<String>,
}

impl AttachedStore {
    /// Removes the bytes of removed rows from the files of the catalog.
    pub(super) fn purge(&mut self) -> Result<(), LoadError> {
        if matches!(self.options.catalog.address, CatalogAddress::DuckLake { .. }) {
            self.compact_lake("0", "now()", "cleanup_all => true")?;
        }
        if let Some(schema) = self.postgres_schema()? {
            return self.vacuum(&schema);
        }
        match &self.options.catalog.address {
            CatalogAddress::DuckLake { catalog: LakeCatalog::File(path), .. } => self.rewrite_catalog(&path.clone()),
            // The engine can neither rewrite the files of Iceberg nor expire snapshots: the receipt names what does.
            _ => Ok(()),
        }
    }

    /// Returns an error if this user may not remove the bytes of removed rows: PostgreSQL then skips a table with a
    /// warning.
    pub(super) fn require_owned(&self) -> Result<(), LoadError> {
        let Some(schema) = self.postgres_schema()? else { return Ok(()) };
        let names = schema.tables.iter().map(|name| quote_text(name)).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "SELECT c.relname, current_user::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             JOIN pg_database d ON d.datname = current_database() WHERE n.nspname = {} AND c.relname IN ({names}) \
             AND NOT pg_has_role(c.relowner, 'USAGE') AND NOT pg_has_role(d.datdba, 'USAGE') ORDER BY 1",
            quote_text(&schema.name)
        );
        match self.ask(schema.catalog, &sql)?.first() {
            None => Ok(()),
            Some((table, user)) => Err(LoadError::Unsupported(format!(
                "only the owner of a table can remove the bytes of its old rows (VACUUM FULL), and {user} does not own {table}: \
                 run the erasure as the owner, whose name the address may have"
            ))),
        }
    }

    /// Returns the schema with the tables, or with the catalog of a DuckLake; `None` if neither is in PostgreSQL.
    fn postgres_schema(&self) -> Result<Option<PostgresSchema>, LoadError> {
        let (catalog, PostgresAddress { schema: name, .. }) = match &self.options.catalog.address {
            CatalogAddress::Postgres(address) => (CATALOG, address),
            CatalogAddress::DuckLake { catalog: LakeCatalog::Postgres(address), .. } => (LAKE_CATALOG, address),
            _ => return Ok(None),
        };
        let tables = self.postgres_tables(catalog, name)?.into_iter();
        let tables = tables.filter(|table| catalog == LAKE_CATALOG || schema::table(table).is_some()).collect();
        Ok(Some(PostgresSchema { catalog, name: name.clone(), tables }))
    }

    /// Runs a query with two columns of text in PostgreSQL.
    fn ask(&self, catalog: &str, sql: &str) -> Result<Vec<(String, String)>, LoadError> {
        self.engine.query(ACTION, &postgres_sql(catalog, sql), |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// Rewrites the tables and their statistics without removed rows, once no transaction sees these rows.
    ///
    /// # Errors
    /// `Locked` if a transaction that began before the removal does not end.
    fn vacuum(&self, schema: &PostgresSchema) -> Result<(), LoadError> {
        let older = self.ask(schema.catalog, OPEN_TRANSACTIONS)?;
        self.options.patience.until_free(|| {
            let open = self.ask(schema.catalog, OPEN_TRANSACTIONS)?;
            match open.into_iter().find(|transaction| older.contains(transaction)) {
                Some((_, holder)) => Err(LoadError::Locked { path: self.place(), holder: Some(holder) }),
                None => Ok(()),
            }
        })?;
        for table in &schema.tables {
            let name = format!("{}.{}", quote_identifier(&schema.name), quote_identifier(table));
            let vacuum = quote_text(&format!("VACUUM (FULL, ANALYZE) {name}"));
            let sql = format!("CALL postgres_execute('{}', {vacuum}, use_transaction => false)", schema.catalog);
            self.engine.execute(ACTION, &sql)?;
        }
        Ok(())
    }

    /// Replaces the file of a DuckLake's catalog by a copy: free blocks of the file have least and greatest values of
    /// columns. Leaves the catalog detached.
    fn rewrite_catalog(&mut self, path: &Path) -> Result<(), LoadError> {
        self.detach()?;
        let log = files::with_suffix(path, ".wal");
        if log.exists() {
            let source = std::io::Error::other("its log has commits that the file lacks");
            return Err(LoadError::io("replace", &log)(source));
        }
        let new = files::with_suffix(path, ".new");
        // A killed erasure may have left the copy.
        std::fs::remove_file(&new).ok();
        std::fs::remove_file(files::with_suffix(&new, ".wal")).ok();
        let [old_sql, new_sql] = [path, &new].map(|path| quote_text(&path.to_string_lossy()));
        let copy = format!(
            "ATTACH {old_sql} AS old (READ_ONLY); ATTACH {new_sql} AS new; COPY FROM DATABASE old TO new; CHECKPOINT new; DETACH old; DETACH new"
        );
        self.engine.execute(ACTION, &copy)?;
        files::replace(&new, path).map_err(LoadError::io("replace", path))
    }
}
