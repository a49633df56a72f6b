//! Copies the tables, views and indexes that users created from a warehouse to the new file that a replay fills.

use std::path::Path;

use super::{
    catalog::columns_by_table,
    file,
    names::{CATALOG, META_TABLE, qualified},
    objects::{
        ACTION, NEW_CATALOG, clone_schema, copy_error, copy_rows, is_our_table, require_no_key_to_ours, tables,
        with_new_file, with_search_path,
    },
    search_state::{INDEX_SCHEMA, is_of_index},
};
use crate::{
    load::{LoadError, LockPatience, engine::Engine},
    schema::{self, quote_identifier, quote_text},
};

/// Catalog name under which [`import`] attaches the old file, which the replay replaces.
const OLD_CATALOG: &str = "left_behind";

/// An index that a user created on a table of this program.
struct Index {
    name: String,
    /// The CREATE INDEX statement.
    sql: String,
    comment: Option<String>,
}

/// Returns the indexes on the tables of this program. Users created all these indexes: the program creates none.
fn indexes_on_ours(engine: &Engine, catalog: &str) -> Result<Vec<Index>, LoadError> {
    let sql = format!(
        "SELECT table_name, index_name, sql, comment FROM duckdb_indexes()
         WHERE database_name = '{catalog}' AND schema_name = 'main' AND sql IS NOT NULL ORDER BY ALL"
    );
    let read = |row: &duckdb::Row<'_>| {
        let index = Index { name: row.get(1)?, sql: row.get(2)?, comment: row.get(3)? };
        Ok((row.get::<_, String>(0)?, index))
    };
    let found: Vec<(String, Index)> = engine.query("list the indexes", &sql, read)?;
    Ok(found.into_iter().filter(|(table, _)| is_our_table(table)).map(|(_, index)| index).collect())
}

/// Creates a file at `new_file` with all objects of the attached file, but without rows except the metadata. Indexes on
/// tables of this program and the search index are left out. Fails if a user's foreign key references a table of this
/// program. Also fails if such a table has values in a column that a user added: a replay builds the rows again without
/// them.
pub(super) fn create_empty(engine: &Engine, path: &Path, new_file: &Path) -> Result<(), LoadError> {
    require_no_key_to_ours(&tables(engine, CATALOG)?, path)?;
    require_no_values_in_ours(engine, path)?;
    with_new_file(engine, new_file, || {
        with_search_path(engine, || clone_schema(engine, path))?;
        // The replay writes rows faster without indexes, so [`import`] creates the indexes after the rows.
        for index in indexes_on_ours(engine, NEW_CATALOG)? {
            let name = quote_identifier(&index.name);
            engine.execute(ACTION, &format!("DROP INDEX {NEW_CATALOG}.main.{name}"))?;
        }
        let meta = quote_identifier(META_TABLE);
        // The search index contains answers, which the empty tables do not have. The end of the next run makes a new
        // index.
        engine.execute(ACTION, &format!("DROP SCHEMA IF EXISTS {NEW_CATALOG}.{INDEX_SCHEMA} CASCADE"))?;
        let rows = format!(
            "INSERT INTO {NEW_CATALOG}.main.{meta} SELECT * FROM {CATALOG}.main.{meta} WHERE NOT ({})",
            is_of_index()
        );
        engine.execute(ACTION, &format!("{rows}; CHECKPOINT {NEW_CATALOG}"))
    })
}

/// Imports the rows of users' tables, and users' indexes on tables of this program, from `old_file` into the attached
/// file. `patience` limits the wait while another process has the old file open.
pub(super) fn import(engine: &Engine, old_file: &Path, patience: &LockPatience) -> Result<(), LoadError> {
    let options = "TYPE duckdb, READ_ONLY";
    patience.until_free(|| file::attach_as(engine, old_file, OLD_CATALOG, options))?;
    let imported = import_attached(engine, old_file);
    let closed = engine.execute(ACTION, &format!("DETACH {OLD_CATALOG}"));
    imported.and(closed)
}

/// Does the work of [`import`] while the old file is attached as [`OLD_CATALOG`]: copies the rows of users' tables,
/// then creates users' indexes on tables of this program.
fn import_attached(engine: &Engine, old_file: &Path) -> Result<(), LoadError> {
    with_search_path(engine, || {
        for table in tables(engine, OLD_CATALOG)?.iter().filter(|table| !table.is_ours()) {
            copy_rows(engine, old_file, table, [OLD_CATALOG, CATALOG])?;
        }
        for Index { name, sql, comment } in indexes_on_ours(engine, OLD_CATALOG)? {
            let failed = |error| copy_error(error, old_file, format!("the index {name}"), "cannot be made again");
            engine.connection().execute_batch(&sql).map_err(failed)?;
            if let Some(comment) = comment {
                let comment = format!("COMMENT ON INDEX {} IS {}", quote_identifier(&name), quote_text(&comment));
                engine.execute(ACTION, &comment)?;
            }
        }
        Ok(())
    })
}

/// Returns an error if a user added a column with values to a table of this program. Rows that a replay builds again
/// would not have these values.
fn require_no_values_in_ours(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    for (name, columns) in columns_by_table(engine)? {
        let Some(table) = schema::table(&name) else { continue };
        for column in columns.keys().filter(|column| table.column(column).is_none()) {
            let sql = format!("SELECT count({}) FROM {}", quote_identifier(column), qualified(&name));
            let [values] = engine.integers("count the values of a column", &sql)?;
            if values > 0 {
                let object = format!("the column {name}.{column}");
                let why = format!(
                    "was not created by studysync and has {values} values, which rows that are built again would not have"
                );
                return Err(LoadError::ForeignObject { path: path.to_owned(), object, why });
            }
        }
    }
    Ok(())
}
