//! Creates the tables of the file, adds columns that later versions of the table contracts have, and refuses a file
//! that is not this warehouse. Views are brought up to date in the same transaction.

use std::{collections::BTreeMap, path::Path};

use uuid::Uuid;

use super::{
    names::{CATALOG, META_TABLE, RULES_KEY, qualified},
    search_state::{CURRENT_KEY, IndexState, is_readable, mark_old_sql},
    transaction::in_transaction,
    views,
};
use crate::load::{
    Identity, LoadError,
    engine::Engine,
    store::sql::{FORMAT_VERSION, check_meta},
};
use crate::model::DurableStep;
use crate::schema::{self, Column, Table, quote_identifier, quote_text};

const LEDGER_TABLE: &str = "sync_windows";
const RUNS_TABLE: &str = "sync_runs";

/// Checks that the attached file is this warehouse, and creates missing tables and columns. In an empty file, creates
/// everything. Brings the views up to date too, unless `has_views` says that they are. Returns the state of the search
/// index.
///
/// A file of another service is rebound to `identity` if it has no rows of that service.
pub(super) fn make_ready(
    engine: &Engine,
    path: &Path,
    identity: &Identity,
    has_views: bool,
) -> Result<IndexState, LoadError> {
    let objects = list(engine)?;
    if objects.is_empty() {
        engine.hit(DurableStep::DuckDbCreated, path)?;
        return create(engine, path, identity).map(|()| IndexState::Missing);
    }
    if !objects.contains_key(META_TABLE) {
        let why = "it is a DuckDB database that studysync did not create".into();
        return Err(LoadError::NotOurs { path: path.to_owned(), why });
    }
    let meta = read_meta(engine)?;
    if meta.contains_key(RULES_KEY) {
        let why = "it is a copy without personal data".into();
        return Err(LoadError::NotOurs { path: path.to_owned(), why });
    }
    match check_meta(&meta, path, identity) {
        Err(LoadError::OtherIdentity { .. }) if !has_service_rows(engine)? => {
            rebind_empty_file(engine, path, identity)?
        }
        checked => checked?,
    }
    let mut changes =
        if match_contracts(&objects) { Vec::new() } else { create_missing_sql(&columns_by_table(engine)?, path)? };
    if !has_views {
        let existing = objects.keys().map(String::as_str).collect();
        changes.extend(views::update_statements(engine, &meta, META_TABLE, &existing, is_readable(&meta))?);
    }
    // The key `CURRENT_KEY` of an index that counts as old is removed. With the key, the index would count as current
    // as soon as the macro is that of this version. But answers may have changed since the index was made.
    let index = IndexState::of(&meta, views::is_search_current(&meta, is_readable(&meta)));
    if index == IndexState::Old && meta.contains_key(CURRENT_KEY) {
        changes.push(mark_old_sql());
    }
    if changes.is_empty() {
        return Ok(index);
    }
    in_transaction(engine, path, "bring the tables and views up to date", || {
        in_the_file(engine, &changes.join(";\n"))
    })?;
    Ok(index)
}

/// The columns that the attached file lacks, by table. If the file lacks a table, all columns of the table are listed.
pub(super) type MissingColumns = BTreeMap<&'static str, Vec<&'static Column>>;

/// Checks that the attached file is this warehouse, and returns the columns that the file lacks. The file is not
/// changed.
pub(super) fn check(engine: &Engine, path: &Path, identity: &Identity) -> Result<MissingColumns, LoadError> {
    let objects = list(engine)?;
    if !objects.contains_key(META_TABLE) {
        let why = "it is a DuckDB database that studysync did not create".into();
        return Err(LoadError::NotOurs { path: path.to_owned(), why });
    }
    check_meta(&read_meta(engine)?, path, identity)?;
    if match_contracts(&objects) {
        return Ok(MissingColumns::new());
    }
    let existing = columns_by_table(engine)?;
    let none = BTreeMap::new();
    let mut missing_columns = MissingColumns::new();
    for table in schema::tables() {
        let columns = columns_missing_from(table, existing.get(&table.name).unwrap_or(&none), path)?;
        if !columns.is_empty() {
            missing_columns.insert(&table.name, columns);
        }
    }
    Ok(missing_columns)
}

/// Returns the columns of the contract that a table of the file lacks. `existing` has the type of each existing column.
///
/// # Errors
/// [`LoadError::NotOurs`] if a column has another type than in the contract.
fn columns_missing_from<'t>(
    table: &'t Table,
    existing: &BTreeMap<String, String>,
    path: &Path,
) -> Result<Vec<&'t Column>, LoadError> {
    let mut missing = Vec::new();
    for column in &table.columns {
        let wanted = column.column_type.duckdb();
        match existing.get(&column.name) {
            Some(actual) if actual == wanted => {}
            Some(actual) => {
                let why = format!("{}.{} is {actual} and not {wanted}", table.name, column.name);
                return Err(LoadError::NotOurs { path: path.to_owned(), why });
            }
            None => missing.push(column),
        }
    }
    Ok(missing)
}

/// Returns a SQL relation with all columns of a table. Missing columns are NULL, or the column that they repeat. The
/// relation has no rows if the file lacks the table. Must be called only if a column is missing.
pub(super) fn with_missing_columns(table: &Table, missing_columns: &[&Column]) -> String {
    let list = |select: fn(&Column) -> String| {
        missing_columns.iter().map(|column| select(column)).collect::<Vec<_>>().join(", ")
    };
    if missing_columns.len() == table.columns.len() {
        format!("(SELECT {} WHERE false)", list(Column::select_null))
    } else {
        format!("(SELECT t.*, {} FROM {} t)", list(Column::select_missing), qualified(&table.name))
    }
}

/// Returns the statements that create the tables and columns that the file lacks. `existing` has the type of each
/// existing column, by table.
fn create_missing_sql(
    existing: &BTreeMap<String, BTreeMap<String, String>>,
    path: &Path,
) -> Result<Vec<String>, LoadError> {
    let mut statements = Vec::new();
    for table in schema::tables() {
        let Some(columns) = existing.get(&table.name) else {
            statements.push(table.create_sql());
            statements.extend(table.comment_sql());
            continue;
        };
        let missing = columns_missing_from(table, columns, path)?;
        let name = quote_identifier(&table.name);
        for column in &missing {
            let added = quote_identifier(&column.name);
            statements.push(format!("ALTER TABLE {name} ADD COLUMN {added} {}", column.column_type.duckdb()));
            let source = column.copy_of.as_deref().map(quote_identifier);
            statements.extend(source.map(|source| format!("UPDATE {name} SET {added} = {source}")));
        }
        if !missing.is_empty() {
            statements.extend(table.comment_sql());
        }
    }
    Ok(statements)
}

/// Creates all tables, views and the metadata in one transaction. After a kill before the commit, the file is empty,
/// and the next open creates all of them again.
fn create(engine: &Engine, path: &Path, identity: &Identity) -> Result<(), LoadError> {
    let statements = create_sql(identity);
    in_transaction(engine, path, "create the tables", || in_the_file(engine, &statements.join(";\n")))
}

/// Returns the statements that create all tables, views and the metadata in an empty file.
pub(super) fn create_sql(identity: &Identity) -> Vec<String> {
    let mut statements: Vec<String> = schema::tables().iter().map(Table::create_sql).collect();
    statements.extend(schema::tables().iter().flat_map(Table::comment_sql));
    statements.push(format!(
        "CREATE TABLE {META_TABLE} (key VARCHAR NOT NULL, value VARCHAR NOT NULL);
         COMMENT ON TABLE {META_TABLE} IS 'What studysync knows of this file: which service and environment it was filled from.';
         INSERT INTO {META_TABLE} VALUES ('format_version', '{FORMAT_VERSION}'), ('base_url', {}), ('environment', {}),
            ('warehouse_id', '{}')",
        quote_text(&identity.base_url),
        quote_text(&identity.environment),
        Uuid::new_v4()
    ));
    statements.extend(views::create_all(META_TABLE));
    statements
}

/// Runs statements that name the tables of the file without its catalog. Resets the default catalog afterwards, also
/// after an error.
pub(super) fn in_the_file(engine: &Engine, sql: &str) -> Result<(), duckdb::Error> {
    engine.connection().execute_batch(&format!("USE {CATALOG}.main"))?;
    let done = engine.connection().execute_batch(sql);
    engine.connection().execute_batch("USE memory.main")?;
    done
}

/// Returns true if a table of this program has rows that show that records came from a service. Rows of `sync_runs` do
/// not count, nor do ledger rows of windows without records.
pub(super) fn has_service_rows(engine: &Engine) -> Result<bool, LoadError> {
    let objects = list(engine)?;
    let tables = schema::tables().iter().filter(|table| objects.contains_key(&table.name) && table.name != RUNS_TABLE);
    let any: Vec<String> = tables
        .map(|table| {
            let condition = if table.name == LEDGER_TABLE { " WHERE rows_read > 0" } else { "" };
            format!("EXISTS (SELECT 1 FROM {}{condition})", qualified(&table.name))
        })
        .collect();
    let sql = format!("SELECT {}", any.join(" OR "));
    let failed = LoadError::engine("look for rows");
    engine.connection().query_row(&sql, [], |row| row.get(0)).map_err(failed)
}

/// Binds a file without rows of a service to another service. Empties the ledger and `sync_runs`, because their rows
/// are about the earlier service.
fn rebind_empty_file(engine: &Engine, path: &Path, identity: &Identity) -> Result<(), LoadError> {
    let delete_rows: Vec<String> =
        [LEDGER_TABLE, RUNS_TABLE].iter().map(|table| format!("DELETE FROM {}", qualified(table))).collect();
    in_transaction(engine, path, "bind the file to another service", || {
        engine.connection().execute_batch(&format!("{}; {}", delete_rows.join("; "), bind_sql(identity)))
    })
}

fn bind_sql(identity: &Identity) -> String {
    format!(
        "UPDATE {meta} SET value = {} WHERE key = 'base_url'; UPDATE {meta} SET value = {} WHERE key = 'environment'",
        quote_text(&identity.base_url),
        quote_text(&identity.environment),
        meta = qualified(META_TABLE),
    )
}

/// Binds the attached file to an identity, without a check of the service to which it was bound before.
pub(super) fn bind(engine: &Engine, path: &Path, identity: &Identity) -> Result<(), LoadError> {
    in_transaction(engine, path, "bind the file to another address", || {
        engine.connection().execute_batch(&bind_sql(identity))
    })
}

/// Reads the metadata of the file: which service it belongs to, its format, and its views and search index. The keys
/// are those of the table [`META_TABLE`].
pub(super) fn read_meta(engine: &Engine) -> Result<BTreeMap<String, String>, LoadError> {
    let sql = format!("SELECT key, value FROM {}", qualified(META_TABLE));
    engine.query("read what the file knows of itself", &sql, |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Returns the names of the tables and views in the file's schema `main`. The value is the CREATE statement for a
/// table, and `None` for a view.
fn list(engine: &Engine) -> Result<BTreeMap<String, Option<String>>, LoadError> {
    let in_file = format!("database_name = '{CATALOG}' AND schema_name = 'main' AND NOT internal");
    let sql = format!(
        "SELECT table_name, sql FROM duckdb_tables() WHERE {in_file} UNION ALL SELECT view_name, NULL FROM duckdb_views() WHERE {in_file}"
    );
    engine.query("list the tables", &sql, |row| Ok((row.get(0)?, row.get(1)?)))
}

/// Returns true if the CREATE statement of every table is that of this program version. No column is missing in such a
/// file, so [`columns_by_table`] need not list the columns. Listing columns is slow, because the engine binds every
/// view for the list.
fn match_contracts(objects: &BTreeMap<String, Option<String>>) -> bool {
    schema::tables().iter().all(|table| {
        let sql = objects.get(&table.name).and_then(Option::as_ref);
        let ours = format!("CREATE TABLE {} {}", quote_identifier(&table.name), table.columns_sql(""));
        sql.is_some_and(|sql| normalized(sql).eq(normalized(&ours)))
    })
}

/// Returns the characters of a statement without spaces, quotes and the final semicolon. Two statements for which the
/// characters are equal differ only in formatting.
fn normalized(sql: &str) -> impl Iterator<Item = char> {
    sql.trim_end_matches(';').chars().filter(|letter| !letter.is_whitespace() && *letter != '"')
}

/// Returns the SQL types of the columns of tables and views in the file's schema `main`, by table and column.
pub(super) fn columns_by_table(engine: &Engine) -> Result<BTreeMap<String, BTreeMap<String, String>>, LoadError> {
    let sql = format!(
        "SELECT table_name, column_name, data_type FROM duckdb_columns()
         WHERE database_name = '{CATALOG}' AND schema_name = 'main' AND NOT internal"
    );
    let mut tables: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    engine.query::<_, ()>("list the tables", &sql, |row| {
        tables.entry(row.get(0)?).or_default().insert(row.get(1)?, row.get(2)?);
        Ok(())
    })?;
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::load::engine::tests::engine;

    fn with_tables() -> (tempfile::TempDir, Engine) {
        let (folder, engine) = engine(1, 64 << 20);
        let identity = Identity { base_url: "https://example.com".into(), environment: "test".into() };
        engine.execute("attach a file", &format!("ATTACH ':memory:' AS {CATALOG}")).unwrap();
        create(&engine, folder.path(), &identity).unwrap();
        (folder, engine)
    }

    #[test]
    fn our_tables_are_known_by_their_statements() {
        let (_folder, engine) = with_tables();
        let found = list(&engine).unwrap();
        assert!(match_contracts(&found), "{found:#?}");
        assert_eq!(
            found.keys().cloned().collect::<BTreeSet<_>>(),
            columns_by_table(&engine).unwrap().into_keys().collect()
        );
    }

    #[test]
    fn changed_tables_have_their_columns_listed() {
        for change in [
            "ALTER TABLE warehouse.main.responses ADD COLUMN theirs BIGINT",
            "ALTER TABLE warehouse.main.responses DROP COLUMN extra",
            "ALTER TABLE warehouse.main.responses RENAME COLUMN extra TO more",
            "ALTER TABLE warehouse.main.responses ALTER COLUMN survey_id TYPE VARCHAR",
            "DROP TABLE warehouse.main.rejects",
        ] {
            let (_folder, engine) = with_tables();
            engine.execute("change a table", change).unwrap();
            assert!(!match_contracts(&list(&engine).unwrap()), "{change}");
        }
    }
}
