//! Copies tables, views, macros, sequences, types, schemas, indexes and comments into another DuckDB file. Objects that
//! users created are copied too. The other file is a rewrite of the warehouse, or the file that a replay fills.
//! [`require_copyable`] reports an object that cannot be copied before anything changes.
//!
//! `COPY FROM DATABASE (SCHEMA)` creates the objects. Rows are copied table by table, referenced tables first, because
//! the engine checks foreign keys against rows that earlier statements inserted.

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
    load::{LoadError, engine::Engine, error::is_full, store::ForeignTable},
    schema::{self, quote_identifier, quote_text},
};

pub(super) const ACTION: &str = "copy the objects of the warehouse";
/// Catalog name of the new file while it is attached.
pub(super) const NEW_CATALOG: &str = "new_file";
/// SQL condition for columns whose type can contain text. It lists the types that cannot, so an unknown type counts as
/// text.
const CAN_HOLD_TEXT: &str =
    "NOT regexp_full_match(data_type, '.*INT|.*INTEGER|DOUBLE|FLOAT|BOOLEAN|DECIMAL.*|DATE|TIME.*|INTERVAL')";
/// Largest number of rows in a chain of references that can be copied, in a table with a foreign key to itself.
const GENERATIONS_MAX: usize = 1000;

/// A table of an attached file, of this program or of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredTable {
    schema: String,
    name: String,
    /// True if the table may have generated columns. Values cannot be inserted into generated columns.
    may_have_generated: bool,
    /// The foreign keys of this table, which reference other tables or this table itself.
    keys: Vec<ForeignKey>,
}

/// A foreign key of a table. DuckDB allows foreign keys only between tables of one schema.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ForeignKey {
    /// The columns of the referencing table.
    columns: Vec<String>,
    /// The name of the referenced table.
    to: String,
    /// The referenced columns, in the order of `columns`.
    to_columns: Vec<String>,
}

impl StoredTable {
    /// Returns true if this program created the table, or the extension `fts` for its search index.
    pub(super) fn is_ours(&self) -> bool {
        self.schema == INDEX_SCHEMA || self.schema == "main" && is_our_table(&self.name)
    }

    /// Returns the qualified SQL name of the table in this catalog.
    pub(super) fn sql(&self, catalog: &str) -> String {
        format!("{catalog}.{}.{}", quote_identifier(&self.schema), quote_identifier(&self.name))
    }

    /// Returns the name of the table for messages, such as `the table notes`.
    pub(super) fn for_people(&self) -> String {
        match self.schema.as_str() {
            "main" => format!("the table {}", self.name),
            schema => format!("the table {schema}.{}", self.name),
        }
    }
}

/// Returns true if a table with this name in the schema `main` is a table of this program.
pub(super) fn is_our_table(name: &str) -> bool {
    name == META_TABLE || schema::table(name).is_some()
}

/// Returns the tables of an attached file, of this program and of users, in the order of [`parents_first`].
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

/// Returns the foreign keys of an attached file, each with the schema and the name of its table.
fn foreign_keys(engine: &Engine, catalog: &str) -> Result<Vec<(String, String, ForeignKey)>, LoadError> {
    // The query returns one row for each pair of referencing and referenced column.
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

/// Sorts tables so that each stands after the tables that it references. A reference of a table to itself is ignored.
/// Tables in a circle of references come last.
fn parents_first(mut unsorted: Vec<StoredTable>) -> Vec<StoredTable> {
    let mut sorted: Vec<StoredTable> = Vec::with_capacity(unsorted.len());
    while !unsorted.is_empty() {
        let has_unsorted_parent = |table: &StoredTable| {
            let is_unsorted = |key: &ForeignKey| {
                let mut others = unsorted.iter().filter(|other| other.schema == table.schema);
                key.to != table.name && others.any(|other| other.name == key.to)
            };
            table.keys.iter().any(is_unsorted)
        };
        let (later, next): (Vec<StoredTable>, Vec<StoredTable>) =
            unsorted.iter().cloned().partition(has_unsorted_parent);
        if next.is_empty() {
            sorted.extend(later);
            return sorted;
        }
        sorted.extend(next);
        unsorted = later;
    }
    sorted
}

/// Returns the tables that users created in the attached file, each with its columns that can contain text.
pub(super) fn foreign_tables(engine: &Engine) -> Result<Vec<ForeignTable>, LoadError> {
    let foreign = tables(engine, CATALOG)?.into_iter().filter(|table| !table.is_ours());
    let of_table = |table: StoredTable| {
        let name = if table.schema == "main" { table.name.clone() } else { format!("{}.{}", table.schema, table.name) };
        let columns = columns(engine, &table, CATALOG, CAN_HOLD_TEXT)?;
        Ok(ForeignTable { name, relation: table.sql(CATALOG), columns })
    };
    foreign.map(of_table).collect()
}

/// Returns the names of the columns of a table that match the SQL condition, in table order.
fn columns(engine: &Engine, table: &StoredTable, catalog: &str, condition: &str) -> Result<Vec<String>, LoadError> {
    let sql = format!(
        "SELECT column_name FROM duckdb_columns() WHERE database_name = '{catalog}' AND schema_name = {} AND table_name = {}
            AND {condition} ORDER BY column_index",
        quote_text(&table.schema),
        quote_text(&table.name)
    );
    engine.query("list the columns", &sql, |row| row.get(0))
}

/// Creates every object of the warehouse, without rows, in the new file, which is attached as [`NEW_CATALOG`]. On
/// failure the error names the user's table that cannot be created, if it is known. Must run inside
/// [`with_search_path`].
pub(super) fn clone_schema(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let sql = format!("COPY FROM DATABASE {CATALOG} TO {NEW_CATALOG} (SCHEMA)");
    engine.connection().execute_batch(&sql).map_err(|error| {
        let object = unbound_table(engine).unwrap_or_else(|| "an object that studysync did not create".to_owned());
        copy_error(error, path, object, "cannot be made in a new file")
    })
}

/// Runs `work` with all schemas of the warehouse in the search path. Statements in `work` find macros and sequences by
/// unqualified names, as in the session that created them. The search path is reset afterwards.
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

/// Returns the name, for messages, of the first user's table whose defaults, checks or indexes the engine cannot bind.
/// An example is a default that calls a missing function. Returns `None` if there is no such table.
fn unbound_table(engine: &Engine) -> Option<String> {
    let foreign = tables(engine, CATALOG).ok()?.into_iter().filter(|table| !table.is_ours());
    let is_unbound = |table: &StoredTable| {
        let sql = format!("EXPLAIN INSERT INTO {} DEFAULT VALUES", table.sql(CATALOG));
        engine.connection().execute_batch(&sql).is_err()
    };
    foreign.into_iter().find(is_unbound).map(|table| table.for_people())
}

/// Returns the error for a user's object that cannot be copied: `ForeignObject`, or `Full` if the disk is full. `why`
/// begins the explanation, and the engine's message follows.
pub(super) fn copy_error(error: duckdb::Error, path: &Path, object: String, why: &str) -> LoadError {
    if is_full(&error.to_string()) {
        LoadError::engine(ACTION)(error)
    } else {
        LoadError::ForeignObject { path: path.to_owned(), object, why: format!("{why}: {error}") }
    }
}

/// Copies all rows of a table between two attached files: from the first of `catalogs` to the second. Generated columns
/// are left out, because the engine computes their values. Must run inside [`with_search_path`]. `path` is the file to
/// name in errors about a user's table.
pub(super) fn copy_rows(
    engine: &Engine,
    path: &Path,
    table: &StoredTable,
    catalogs: [&str; 2],
) -> Result<(), LoadError> {
    let [from, to] = catalogs.map(|catalog| table.sql(catalog));
    let failed = |error| {
        if table.is_ours() {
            LoadError::engine(ACTION)(error)
        } else {
            copy_error(error, path, table.for_people(), "cannot be copied")
        }
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
        // The order of rows has no meaning in tables of this program. In a user's table the order may have a meaning.
        return if table.is_ours() { engine.in_any_order(insert) } else { insert() };
    }
    copy_generations(engine, path, table, &RowCopy { from, to, into, columns }, failed)
}

/// The source and the target of a copy of rows, as SQL.
struct RowCopy {
    /// The SQL name of the source table.
    from: String,
    /// The SQL name of the target table.
    to: String,
    /// The target of INSERT INTO: `to`, with a list of columns if the table has generated columns.
    into: String,
    /// The columns to select.
    columns: String,
}

/// Copies the rows of a table with a foreign key to itself. The first round copies the rows that reference no row; each
/// further round copies the rows whose referenced rows are copied. Fails if rows are left after [`GENERATIONS_MAX`]
/// rounds, or after a round without rows: they reference each other in a circle or in too long a chain.
fn copy_generations(
    engine: &Engine,
    path: &Path,
    table: &StoredTable,
    copy: &RowCopy,
    failed: impl Fn(duckdb::Error) -> LoadError,
) -> Result<(), LoadError> {
    let RowCopy { from, to, into, columns } = copy;
    let keys_to_itself = table.keys.iter().filter(|key| key.to == table.name);
    // The SQL condition that a row `o` has NULL in the key, or references a row that is copied already.
    let has_copied_parent = |key: &ForeignKey| {
        let pairs = || key.columns.iter().zip(&key.to_columns);
        let equal = pairs().map(|(column, to)| format!("p.{} = o.{}", quote_identifier(to), quote_identifier(column)));
        let empty = pairs().map(|(column, _)| format!("o.{} IS NULL", quote_identifier(column)));
        let (equal, empty) = (equal.collect::<Vec<_>>().join(" AND "), empty.collect::<Vec<_>>().join(" OR "));
        format!("({empty} OR EXISTS (SELECT 1 FROM {to} p WHERE {equal}))")
    };
    let have_copied_parents = keys_to_itself.map(has_copied_parent).collect::<Vec<_>>().join(" AND ");
    engine.execute(ACTION, &format!("CREATE OR REPLACE TEMP TABLE work_left AS SELECT rowid AS id FROM {from}"))?;
    // `work_left` has the rows that are not copied yet, `work_now` the rows of this round.
    for _ in 0..GENERATIONS_MAX {
        let select_next = format!(
            "CREATE OR REPLACE TEMP TABLE work_now AS SELECT o.rowid AS id FROM {from} o
             WHERE o.rowid IN (SELECT id FROM work_left) AND {have_copied_parents}"
        );
        engine.execute(ACTION, &select_next)?;
        let [rows] = engine.integers(ACTION, "SELECT count(*) FROM work_now")?;
        if rows == 0 {
            break;
        }
        let insert = format!(
            "INSERT INTO {into} SELECT {columns} FROM {from} WHERE rowid IN (SELECT id FROM work_now) ORDER BY rowid;
             DELETE FROM work_left WHERE id IN (SELECT id FROM work_now)"
        );
        engine.connection().execute_batch(&insert).map_err(&failed)?;
    }
    let [rows_left] = engine.integers(ACTION, "SELECT count(*) FROM work_left")?;
    engine.execute(ACTION, "DROP TABLE work_left; DROP TABLE IF EXISTS work_now")?;
    match rows_left {
        0 => Ok(()),
        rows_left => Err(LoadError::ForeignObject {
            path: path.to_owned(),
            object: table.for_people(),
            why: format!(
                "has {rows_left} rows that reference each other in a circle, or in too long a chain, by its foreign key to itself"
            ),
        }),
    }
}

/// Returns the columns of a table that are not generated, as a SQL list. Returns `None` if no column is generated.
fn columns_with_values(engine: &Engine, table: &StoredTable, catalog: &str) -> Result<Option<String>, LoadError> {
    let names = columns(engine, table, catalog, "true")?;
    let quoted: Vec<String> = names.iter().map(|name| quote_identifier(name)).collect();
    // DuckDB's catalog does not say which columns are generated. So the engine is asked to plan an INSERT into each
    // column: the engine refuses a value for a generated column.
    let is_generated = |column: &&String| {
        let sql = format!("EXPLAIN INSERT INTO {} ({column}) SELECT NULL", table.sql(catalog));
        let error = engine.connection().execute_batch(&sql).err();
        error.is_some_and(|refusal| refusal.to_string().contains("generated column"))
    };
    let with_values: Vec<String> = quoted.iter().filter(|column| !is_generated(column)).cloned().collect();
    Ok((with_values.len() < quoted.len()).then(|| with_values.join(", ")))
}

/// Returns an error if a foreign key references a table of this program. The engine would refuse to delete rows of a
/// referenced table.
pub(super) fn require_no_key_to_ours(tables: &[StoredTable], path: &Path) -> Result<(), LoadError> {
    for table in tables {
        if let Some(key) = table.keys.iter().find(|key| table.schema == "main" && is_our_table(&key.to)) {
            let why = format!("has a foreign key to {}, whose rows could then not be removed", key.to);
            return Err(LoadError::ForeignObject { path: path.to_owned(), object: table.for_people(), why });
        }
    }
    Ok(())
}

/// Attaches a new database file at `new_file` as [`NEW_CATALOG`], runs `work` and detaches the file. An earlier file at
/// this path is removed. Removes the new file if `work` or detaching fails.
pub(super) fn with_new_file(
    engine: &Engine,
    new_file: &Path,
    work: impl FnOnce() -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    file::remove_database(new_file)?;
    let text = quote_text(&new_file.to_string_lossy());
    engine.execute(ACTION, &format!("ATTACH {text} AS {NEW_CATALOG} ({})", file::NEW_FILE_OPTIONS))?;
    let done = work();
    let closed = engine.execute(ACTION, &format!("DETACH {NEW_CATALOG}"));
    let worked = done.and(closed);
    if worked.is_err() {
        // The first error is returned. The unfinished file would take space.
        file::remove_database(new_file).ok();
    }
    worked
}

/// Returns an error if the warehouse cannot be rewritten with all objects that users created. Tries the rewrite with a
/// file at `new_file`, which is removed again. If users created no table and no index, no rewrite is tried.
pub(super) fn require_copyable(engine: &Engine, path: &Path, new_file: &Path) -> Result<(), LoadError> {
    let tables = tables(engine, CATALOG)?;
    require_no_key_to_ours(&tables, path)?;
    let sql = format!("SELECT count(*) FROM duckdb_indexes() WHERE database_name = '{CATALOG}'");
    let [indexes] = engine.integers("list the indexes", &sql)?;
    if indexes == 0 && tables.iter().all(StoredTable::is_ours) {
        return Ok(());
    }
    // All objects are created in the new file, but few rows are copied. A foreign key can keep rows from being copied.
    // So rows are copied only for the tables with foreign keys and for the tables that they reference.
    let referenced: BTreeSet<(String, String)> =
        tables.iter().flat_map(|table| table.keys.iter().map(|key| (table.schema.clone(), key.to.clone()))).collect();
    let is_referenced = |table: &StoredTable| referenced.contains(&(table.schema.clone(), table.name.clone()));
    let is_tried = |table: &&StoredTable| !table.keys.is_empty() || is_referenced(table);
    with_new_file(engine, new_file, || {
        with_search_path(engine, || {
            clone_schema(engine, path)?;
            let mut tried = tables.iter().filter(is_tried);
            tried.try_for_each(|table| copy_rows(engine, path, table, [CATALOG, NEW_CATALOG]))
        })
    })?;
    file::remove_database(new_file)
}
