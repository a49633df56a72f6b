//! Makes the copy without personal data of the file. The rules are those of [`crate::load::AnalystCopy`].
//!
//! The copy has the tables, views and macros of this program. Objects of users are left out, because nobody knows what
//! they contain; so is the search index, which has the words of answers.

use std::{
    fs::{self, File, FileTimes},
    path::Path,
};

use super::{
    catalog,
    claims::Claim,
    copy::{self, UNFINISHED},
    file,
    names::{META_TABLE, RULES_KEY, qualified},
    objects::{NEW_CATALOG, with_new_file},
};
use crate::{
    files,
    load::{AnalystCopy, Identity, LoadError, analyst_copy::CopySql, engine::Engine},
    schema::{self, quote_identifier, quote_text},
};

const ACTION: &str = "write the copy without personal data";

/// Returns true if the copy has the content of the original by these rules. The original must not be attached.
pub(super) fn is_current(
    engine: &Engine,
    [original, copy]: [&Path; 2],
    rules: &AnalystCopy,
    identity: &Identity,
) -> Result<bool, LoadError> {
    let changed = |path: &Path| fs::metadata(path).and_then(|found| found.modified()).ok();
    let is_of_original = changed(original).is_some_and(|time| changed(copy) == Some(time));
    let is_empty = fs::metadata(copy).map_or(true, |found| found.len() == 0);
    if !is_of_original || is_empty || file::has_commit_log(original) {
        return Ok(false);
    }
    let _claim = Claim::for_reading(copy)?;
    file::attach_read_only(engine, copy)?;
    let sql = format!(
        "SELECT count(*) FROM {} WHERE key = '{RULES_KEY}' AND value = {}",
        qualified(META_TABLE),
        quote_text(&rules.fingerprint(identity))
    );
    let found = engine.integers("read the metadata of the copy", &sql);
    file::detach(engine, copy).and(found).map(|[found]| found > 0)
}

/// Writes the copy next to its path, from the attached original. The engine streams the rows, so memory is bounded.
pub(super) fn write(engine: &Engine, copy: &Path, rules: &AnalystCopy, identity: &Identity) -> Result<(), LoadError> {
    let folder = files::folder_of(copy);
    files::create_folders(folder).map_err(LoadError::io("create the folder", folder))?;
    let unfinished = files::with_suffix(copy, UNFINISHED);
    with_new_file(engine, &unfinished, || {
        create_objects(engine, rules, identity)?;
        engine.with_all_threads(|| {
            engine.in_any_order(|| schema::tables().iter().try_for_each(|table| insert(engine, table, rules)))?;
            engine.execute(ACTION, &format!("CHECKPOINT {NEW_CATALOG}"))
        })
    })
}

/// Replaces the copy by the one that [`write()`] wrote, if the original is still as it was then.
pub(super) fn replace(engine: &Engine, original: &Path, copy: &Path) -> Result<(), LoadError> {
    let unfinished = files::with_suffix(copy, UNFINISHED);
    let stamped = fs::metadata(original).and_then(|found| found.modified()).and_then(|time| {
        let file = File::options().write(true).open(&unfinished)?;
        file.set_times(FileTimes::new().set_modified(time))?;
        copy::make_read_only(&file)
    });
    stamped.map_err(LoadError::io("write", &unfinished))?;
    copy::put_in_place(engine, &unfinished, copy)
}

/// Creates the tables and views in the new file, and notes the rules.
fn create_objects(engine: &Engine, rules: &AnalystCopy, identity: &Identity) -> Result<(), LoadError> {
    let mut statements = catalog::create_sql(identity);
    for table in schema::tables() {
        statements.extend(rules.nullable(table).into_iter().map(|column| {
            let [table, column] = [&table.name, column].map(quote_identifier);
            format!("ALTER TABLE {table} ALTER COLUMN {column} DROP NOT NULL")
        }));
    }
    let fingerprint = rules.fingerprint(identity);
    statements.push(format!("INSERT INTO {META_TABLE} VALUES ('{RULES_KEY}', {})", quote_text(&fingerprint)));
    engine.execute(ACTION, &format!("USE {NEW_CATALOG}.main"))?;
    let created = engine.execute(ACTION, &statements.join(";\n"));
    engine.execute(ACTION, "USE memory.main").and(created)
}

/// Copies the rows of a table. The parameter is the key of pseudonyms, which is not logged.
fn insert(engine: &Engine, table: &schema::Table, rules: &AnalystCopy) -> Result<(), LoadError> {
    let CopySql { sql, key } = rules.select(table, &qualified(&table.name));
    let sql = format!("INSERT INTO {NEW_CATALOG}.main.{} {sql}", quote_identifier(&table.name));
    let inserted = match key {
        Some(key) => engine.connection().execute(&sql, duckdb::params![key]),
        None => engine.connection().execute(&sql, []),
    };
    inserted.map(drop).map_err(LoadError::engine(ACTION))
}
