//! Creates a second file with everything that analysts keep in the warehouse, for a replay to fill.

use std::path::Path;

use super::{
    catalog::columns_by_table,
    file,
    names::{CATALOG, META_TABLE, qualified},
    objects::{
        ACTION, NEW_CATALOG, blocking_object, clone_schema, copy_rows, is_our_table, require_no_key_to_ours, tables,
        with_new_file, with_search_path,
    },
    search_state::{INDEX_SCHEMA, is_of_index},
};
use crate::{
    load::{LoadError, LockPatience, engine::Engine},
    schema::{self, quote_identifier, quote_text},
};

/// Catalog name of the file that a replay replaces.
const LEFT_CATALOG: &str = "left_behind";

/// An index of somebody else on a table of ours, with its SQL.
struct Index {
    name: String,
    sql: String,
    comment: Option<String>,
}

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

/// Creates a file with all objects of the attached file but no rows, and without indexes of others on our tables.
pub(super) fn create_empty(engine: &Engine, path: &Path, fresh: &Path) -> Result<(), LoadError> {
    require_no_key_to_ours(&tables(engine, CATALOG)?, path)?;
    require_no_values_in_ours(engine, path)?;
    with_new_file(engine, fresh, || {
        with_search_path(engine, || clone_schema(engine, path))?;
        // Rows change faster without indexes. They are created when all rows are there.
        for index in indexes_on_ours(engine, NEW_CATALOG)? {
            let name = quote_identifier(&index.name);
            engine.execute(ACTION, &format!("DROP INDEX {NEW_CATALOG}.main.{name}"))?;
        }
        let meta = quote_identifier(META_TABLE);
        // A search index without its answers is useless; the end of a run makes it again.
        engine.execute(ACTION, &format!("DROP SCHEMA IF EXISTS {NEW_CATALOG}.{INDEX_SCHEMA} CASCADE"))?;
        let rows = format!(
            "INSERT INTO {NEW_CATALOG}.main.{meta} SELECT * FROM {CATALOG}.main.{meta} WHERE NOT ({})",
            is_of_index()
        );
        engine.execute(ACTION, &format!("{rows}; CHECKPOINT {NEW_CATALOG}"))
    })
}

/// Imports the rows of others, and their indexes on our tables, from the file at `left`.
pub(super) fn import(engine: &Engine, left: &Path, patience: &LockPatience) -> Result<(), LoadError> {
    let how = "TYPE duckdb, READ_ONLY";
    patience.until_free(|| file::attach_as(engine, left, LEFT_CATALOG, how))?;
    let imported = import_attached(engine, left);
    let closed = engine.execute(ACTION, &format!("DETACH {LEFT_CATALOG}"));
    imported.and(closed)
}

fn import_attached(engine: &Engine, left: &Path) -> Result<(), LoadError> {
    with_search_path(engine, || {
        for table in tables(engine, LEFT_CATALOG)?.iter().filter(|table| !table.is_ours()) {
            copy_rows(engine, left, table, [LEFT_CATALOG, CATALOG])?;
        }
        for Index { name, sql, comment } in indexes_on_ours(engine, LEFT_CATALOG)? {
            let failed = |error| blocking_object(error, left, format!("the index {name}"), "cannot be made again");
            engine.connection().execute_batch(&sql).map_err(failed)?;
            if let Some(comment) = comment {
                let comment = format!("COMMENT ON INDEX {} IS {}", quote_identifier(&name), quote_text(&comment));
                engine.execute(ACTION, &comment)?;
            }
        }
        Ok(())
    })
}

/// Returns an error if somebody added a column to a table of ours and values to it: rebuilt rows would lose the values.
fn require_no_values_in_ours(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    for (name, columns) in columns_by_table(engine)? {
        let Some(table) = schema::table(&name) else { continue };
        for column in columns.keys().filter(|column| table.column(column).is_none()) {
            let sql = format!("SELECT count({}) FROM {}", quote_identifier(column), qualified(&name));
            let [values] = engine.integers("count the values of a column", &sql)?;
            if values > 0 {
                let object = format!("the column {name}.{column}");
                let why = format!(
                    "is not of studysync and holds {values} values, which rows that are built anew would not have"
                );
                return Err(LoadError::ForeignObject { path: path.to_owned(), object, why });
            }
        }
    }
    Ok(())
}
