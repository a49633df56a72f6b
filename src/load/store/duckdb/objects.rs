//! The objects of others in the file: tables, views, macros, sequences, types, schemas, indexes and comments. All of
//! them are copied when the file is rewritten and when a replay builds another file. An object that cannot be copied is
//! reported before anything changes.
//!
//! `COPY FROM DATABASE (SCHEMA)` creates the objects. Rows are copied table by table, in the order of foreign keys:
//! within one statement the engine does not see the statement's own rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use super::{
    file,
    names::{CATALOG, META_TABLE},
    search_state::INDEX_SCHEMA,
};
use crate::{
    load::{
        LoadError,
        engine::Engine,
        error::is_full,
        store::{ForeignTable, Take},
    },
    schema::{self, quote_identifier, quote_text},
};

pub(super) const ACTION: &str = "copy the objects of the warehouse";
/// Catalog name of a new file.
pub(super) const NEW_CATALOG: &str = "fresh";
/// Condition for columns whose type can hold a name.
const HOLDS_TEXT: &str =
    "NOT regexp_full_match(data_type, '.*INT|.*INTEGER|DOUBLE|FLOAT|BOOLEAN|DECIMAL.*|DATE|TIME.*|INTERVAL')";
/// Longest chain of rows of one table that reference each other.
const GENERATIONS_MAX: usize = 1000;

/// A table of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredTable {
    schema: String,
    name: String,
    may_have_generated: bool,
    keys: Vec<ForeignKey>,
}

/// A foreign key. Its tables are in one schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ForeignKey {
    columns: Vec<String>,
    to: String,
    to_columns: Vec<String>,
}

impl StoredTable {
    pub(super) fn is_ours(&self) -> bool {
        self.schema == INDEX_SCHEMA || self.schema == "main" && is_our_table(&self.name)
    }

    /// The table in SQL.
    pub(super) fn sql(&self, catalog: &str) -> String {
        format!("{catalog}.{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }

    /// The table, for people.
    pub(super) fn shown(&self) -> String {
        match self.schema.as_str() {
            "main" => format!("the table {}", self.name),
            schema => format!("the table {schema}.{}", self.name),
        }
    }
}

pub(super) fn is_our_table(name: &str) -> bool {
    name == META_TABLE || schema::table(name).is_some()
}

/// Every table of an attached file, in the order of foreign keys.
pub(super) fn tables(engine: &Engine, catalog: &str) -> Result<Vec<StoredTable>, LoadError> {
    let sql = format!(
        "SELECT schema_name, table_name, contains(sql, 'GENERATED ALWAYS') FROM duckdb_tables()
         WHERE database_name = '{catalog}' AND NOT internal AND NOT temporary ORDER BY ALL"
    );
    let read = |row: &duckdb::Row<'_>| {
        Ok(StoredTable { schema: row.get(0)?, name: row.get(1)?, may_have_generated: row.get(2)?, keys: Vec::new() })
    };
    let mut tables: Vec<StoredTable> = engine.query("list the tables", &sql, read)?;
    for (schema, name, key) in foreign_keys(engine, catalog)? {
        if let Some(table) = tables.iter_mut().find(|table| table.schema == schema && table.name == name) {
            table.keys.push(key);
        }
    }
    Ok(parents_first(tables))
}

/// The foreign keys, with the schema and the name of their tables.
fn foreign_keys(engine: &Engine, catalog: &str) -> Result<Vec<(String, String, ForeignKey)>, LoadError> {
    // The query returns a row for each pair of columns.
    let sql = format!(
        "SELECT schema_name, table_name, constraint_index, referenced_table, unnest(constraint_column_names),
            unnest(referenced_column_names) FROM duckdb_constraints()
         WHERE database_name = '{catalog}' AND constraint_type = 'FOREIGN KEY' ORDER BY 1, 2, 3"
    );
    let mut keys: BTreeMap<(String, String, i64), ForeignKey> = BTreeMap::new();
    engine.query::<_, ()>("list the foreign keys", &sql, |row| {
        let key = keys.entry((row.get(0)?, row.get(1)?, row.get(2)?)).or_default();
        key.to = row.get(3)?;
        key.columns.push(row.get(4)?);
        key.to_columns.push(row.get(5)?);
        Ok(())
    })?;
    Ok(keys.into_iter().map(|((schema, name, _), key)| (schema, name, key)).collect())
}

/// Sorts tables after the tables that they reference. A table references only earlier ones or itself, so there is no
/// cycle.
fn parents_first(mut left: Vec<StoredTable>) -> Vec<StoredTable> {
    let mut sorted: Vec<StoredTable> = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waits = |table: &StoredTable| {
            let is_left = |key: &ForeignKey| {
                key.to != table.name && left.iter().any(|other| other.schema == table.schema && other.name == key.to)
            };
            table.keys.iter().any(is_left)
        };
        let (later, now): (Vec<StoredTable>, Vec<StoredTable>) = left.iter().cloned().partition(waits);
        if now.is_empty() {
            sorted.extend(later);
            return sorted;
        }
        sorted.extend(now);
        left = later;
    }
    sorted
}

/// The tables of others, with their columns that can hold a text.
pub(super) fn foreign_tables(engine: &Engine) -> Result<Vec<ForeignTable>, LoadError> {
    let theirs = tables(engine, CATALOG)?.into_iter().filter(|table| !table.is_ours());
    let of_table = |table: StoredTable| {
        let name = if table.schema == "main" { table.name.clone() } else { format!("{}.{}", table.schema, table.name) };
        let columns = columns(engine, &table, CATALOG, HOLDS_TEXT)?;
        Ok(ForeignTable { name, relation: table.sql(CATALOG), columns })
    };
    theirs.map(of_table).collect()
}

/// Calls `take` with the columns of such a table as texts; lists and structures too.
pub(super) fn read_foreign(engine: &Engine, table: &ForeignTable, take: &mut Take<'_>) -> Result<(), LoadError> {
    let shown: Vec<String> =
        table.columns.iter().map(|name| format!("CAST({} AS VARCHAR)", quote_identifier(name))).collect();
    if shown.is_empty() {
        return Ok(());
    }
    engine.each_batch("read a table", &format!("SELECT {} FROM {}", shown.join(", "), table.relation), take)
}

fn columns(engine: &Engine, table: &StoredTable, catalog: &str, which: &str) -> Result<Vec<String>, LoadError> {
    let sql = format!(
        "SELECT column_name FROM duckdb_columns() WHERE database_name = '{catalog}' AND schema_name = {} AND table_name = {}
            AND {which} ORDER BY column_index",
        quote_text(&table.schema),
        quote_text(&table.name)
    );
    engine.query("list the columns", &sql, |row| row.get(0))
}

/// Creates every object of the warehouse, without rows, in the attached new file. Must run inside [`with_search_path`].
pub(super) fn clone_schema(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let sql = format!("COPY FROM DATABASE {CATALOG} TO {NEW_CATALOG} (SCHEMA)");
    engine.connection().execute_batch(&sql).map_err(|error| {
        let object = unbound_table(engine).unwrap_or_else(|| "an object that is not of studysync".to_owned());
        blocking_object(error, path, object, "cannot be made in a new file")
    })
}

/// Runs work with all schemas in the search path: statements find macros and sequences by their names alone, as in the
/// session that created them.
pub(super) fn with_search_path<T>(
    engine: &Engine,
    work: impl FnOnce() -> Result<T, LoadError>,
) -> Result<T, LoadError> {
    let sql =
        format!("SELECT schema_name FROM duckdb_schemas() WHERE database_name = '{CATALOG}' AND schema_name <> 'main'");
    let others: Vec<String> = engine.query("list the schemas", &sql, |row| row.get(0))?;
    let schemas = std::iter::once("main").chain(others.iter().map(String::as_str));
    let path: Vec<String> = schemas.map(|schema| format!("{CATALOG}.{}", quote_identifier(schema))).collect();
    engine.execute(ACTION, &format!("SET search_path = {}", quote_text(&path.join(","))))?;
    let done = work();
    engine.execute(ACTION, "USE memory.main")?;
    done
}

/// The first table whose defaults, checks or indexes the engine cannot bind here.
fn unbound_table(engine: &Engine) -> Option<String> {
    let theirs = tables(engine, CATALOG).ok()?.into_iter().filter(|table| !table.is_ours());
    let is_unbound = |table: &StoredTable| {
        let sql = format!("EXPLAIN INSERT INTO {} DEFAULT VALUES", table.sql(CATALOG));
        engine.connection().execute_batch(&sql).is_err()
    };
    theirs.into_iter().find(is_unbound).map(|table| table.shown())
}

pub(super) fn blocking_object(error: duckdb::Error, path: &Path, object: String, why: &str) -> LoadError {
    match is_full(&error.to_string()) {
        true => LoadError::engine(ACTION)(error),
        false => LoadError::ForeignObject { path: path.to_owned(), object, why: format!("{why}: {error}") },
    }
}

/// Copies all rows of a table from one attached file to another. Must run inside [`with_search_path`].
pub(super) fn copy_rows(
    engine: &Engine,
    path: &Path,
    table: &StoredTable,
    catalogs: [&str; 2],
) -> Result<(), LoadError> {
    let [from, to] = catalogs.map(|catalog| table.sql(catalog));
    let failed = |error| match table.is_ours() {
        true => LoadError::engine(ACTION)(error),
        false => blocking_object(error, path, table.shown(), "cannot be copied"),
    };
    let columns = if table.may_have_generated { columns_with_values(engine, table, catalogs[0])? } else { None };
    let (into, columns) = match columns {
        Some(columns) => (format!("{to} ({columns})"), columns),
        None => (to.clone(), "*".to_owned()),
    };
    if table.keys.iter().all(|key| key.to != table.name) {
        let insert = || {
            let sql = format!("INSERT INTO {into} SELECT {columns} FROM {from}");
            engine.connection().execute_batch(&sql).map_err(failed)
        };
        // The order of our rows has no meaning; that of others may have.
        return if table.is_ours() { engine.in_any_order(insert) } else { insert() };
    }
    copy_generations(engine, path, table, &RowCopy { from, to, into, columns }, failed)
}

/// The tables and columns of a copy, as SQL.
struct RowCopy {
    from: String,
    to: String,
    /// `to` with its list of columns.
    into: String,
    columns: String,
}

/// Copies the rows of a table that reference each other: first those that reference none, then those that reference
/// copied ones, and so on.
fn copy_generations(
    engine: &Engine,
    path: &Path,
    table: &StoredTable,
    copy: &RowCopy,
    failed: impl Fn(duckdb::Error) -> LoadError,
) -> Result<(), LoadError> {
    let RowCopy { from, to, into, columns } = copy;
    let own_keys = table.keys.iter().filter(|key| key.to == table.name);
    let is_known = |key: &ForeignKey| {
        let pairs = || key.columns.iter().zip(&key.to_columns);
        let equal = pairs().map(|(column, to)| format!("p.{} = o.{}", quote_identifier(to), quote_identifier(column)));
        let empty = pairs().map(|(column, _)| format!("o.{} IS NULL", quote_identifier(column)));
        let (equal, empty) = (equal.collect::<Vec<_>>().join(" AND "), empty.collect::<Vec<_>>().join(" OR "));
        format!("({empty} OR EXISTS (SELECT 1 FROM {to} p WHERE {equal}))")
    };
    let is_known = own_keys.map(is_known).collect::<Vec<_>>().join(" AND ");
    engine.execute(ACTION, &format!("CREATE OR REPLACE TEMP TABLE work_left AS SELECT rowid AS id FROM {from}"))?;
    for _ in 0..GENERATIONS_MAX {
        let now = format!(
            "CREATE OR REPLACE TEMP TABLE work_now AS SELECT o.rowid AS id FROM {from} o
             WHERE o.rowid IN (SELECT id FROM work_left) AND {is_known}"
        );
        engine.execute(ACTION, &now)?;
        let [found] = engine.integers(ACTION, "SELECT count(*) FROM work_now")?;
        if found == 0 {
            break;
        }
        let insert = format!(
            "INSERT INTO {into} SELECT {columns} FROM {from} WHERE rowid IN (SELECT id FROM work_now) ORDER BY rowid;
             DELETE FROM work_left WHERE id IN (SELECT id FROM work_now)"
        );
        engine.connection().execute_batch(&insert).map_err(&failed)?;
    }
    let [left] = engine.integers(ACTION, "SELECT count(*) FROM work_left")?;
    engine.execute(ACTION, "DROP TABLE work_left; DROP TABLE IF EXISTS work_now")?;
    match left {
        0 => Ok(()),
        left => Err(LoadError::ForeignObject {
            path: path.to_owned(),
            object: table.shown(),
            why: format!(
                "has {left} rows that name each other in a circle, or in too long a chain, by its foreign key to itself"
            ),
        }),
    }
}

/// The columns that are not generated, as a SQL list; `None` if no column is generated.
fn columns_with_values(engine: &Engine, table: &StoredTable, catalog: &str) -> Result<Option<String>, LoadError> {
    let names = columns(engine, table, catalog, "true")?;
    let quoted: Vec<String> = names.iter().map(|name| quote_identifier(name)).collect();
    // No catalog table tells generated columns. The engine refuses a value for one.
    let is_refused = |column: &&String| {
        let sql = format!("EXPLAIN INSERT INTO {} ({column}) SELECT NULL", table.sql(catalog));
        let error = engine.connection().execute_batch(&sql).err();
        error.is_some_and(|refusal| refusal.to_string().contains("generated column"))
    };
    let given: Vec<String> = quoted.iter().filter(|column| !is_refused(column)).cloned().collect();
    Ok((given.len() < quoted.len()).then(|| given.join(", ")))
}

/// Returns an error if a foreign key references one of our tables.
pub(super) fn require_no_key_to_ours(tables: &[StoredTable], path: &Path) -> Result<(), LoadError> {
    for table in tables {
        if let Some(key) = table.keys.iter().find(|key| table.schema == "main" && is_our_table(&key.to)) {
            let why = format!("has a foreign key to {}, whose rows could then not be taken out", key.to);
            return Err(LoadError::ForeignObject { path: path.to_owned(), object: table.shown(), why });
        }
    }
    Ok(())
}

/// Runs work with a new file attached next to the warehouse. Removes the file after an error.
pub(super) fn with_new_file(
    engine: &Engine,
    fresh: &Path,
    work: impl FnOnce() -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    file::clear(fresh)?;
    let text = quote_text(&fresh.to_string_lossy());
    engine.execute(ACTION, &format!("ATTACH {text} AS {NEW_CATALOG} ({})", file::AS_NEW))?;
    let done = work();
    let closed = engine.execute(ACTION, &format!("DETACH {NEW_CATALOG}"));
    let worked = done.and(closed);
    if worked.is_err() {
        // The first error is returned. An unfinished file would take space.
        file::clear(fresh).ok();
    }
    worked
}

/// Tries whether the file can be rewritten with all objects of others.
pub(super) fn require_copyable(engine: &Engine, path: &Path, fresh: &Path) -> Result<(), LoadError> {
    let tables = tables(engine, CATALOG)?;
    require_no_key_to_ours(&tables, path)?;
    let sql = format!("SELECT count(*) FROM duckdb_indexes() WHERE database_name = '{CATALOG}'");
    let [indexes] = engine.integers("list the indexes", &sql)?;
    if indexes == 0 && tables.iter().all(StoredTable::is_ours) {
        return Ok(());
    }
    // Rows without foreign keys can always be copied; the others are tried.
    let named: BTreeSet<(String, String)> =
        tables.iter().flat_map(|table| table.keys.iter().map(|key| (table.schema.clone(), key.to.clone()))).collect();
    let is_tried =
        |table: &&StoredTable| !table.keys.is_empty() || named.contains(&(table.schema.clone(), table.name.clone()));
    with_new_file(engine, fresh, || {
        with_search_path(engine, || {
            clone_schema(engine, path)?;
            let mut tried = tables.iter().filter(is_tried);
            tried.try_for_each(|table| copy_rows(engine, path, table, [CATALOG, NEW_CATALOG]))
        })
    })?;
    file::clear(fresh)
}
