//! Creates the views and table macros of the file, and replaces them if a definition changed. "View" stands for both in
//! this module.
//!
//! If a user's object has the name of a view, the object stays. The view with this name is not created, nor are the
//! views that read it. If all views are up to date, nothing is written.

use std::collections::{BTreeMap, BTreeSet};

use xxhash_rust::xxh3::xxh3_64;

use super::names::{CATALOG, qualified};
use crate::load::{LoadError, engine::Engine};
use crate::schema::{View, ViewKind, indexed_search, quote_identifier, quote_text, views};

/// Prefix of the metadata keys of views and macros that this program created. The values are fingerprints of their
/// definitions.
const KEY_PREFIX: &str = "view:";

/// Returns the statements that bring the views up to date. If one view is missing, out of date or obsolete, the
/// statements drop all obsolete views and create all others again. If every view is up to date, the list is empty. A
/// view is obsolete if an earlier program version created it and this version does not have it.
///
/// `meta` is the content of `meta_table`. `existing` are the names of the file's tables and views. `has_index` is true
/// if the file has a search index that this program can read.
pub(super) fn update_statements(
    engine: &Engine,
    meta: &BTreeMap<String, String>,
    meta_table: &str,
    existing: &BTreeSet<&str>,
    has_index: bool,
) -> Result<Vec<String>, LoadError> {
    let macros = table_macros(engine)?;
    let exists = |view: &View| match view.kind {
        ViewKind::View => existing.contains(view.name.as_str()),
        ViewKind::Macro => macros.contains(&view.name),
    };
    // A view without a metadata key is a user's object.
    let wanted = without_foreign_and_their_readers(|view| exists(view) && !meta.contains_key(&key(view)));
    let wanted: Vec<&View> = wanted.into_iter().map(|view| defined(view, has_index)).collect();
    let is_current = |view: &&View| exists(view) && meta.get(&key(view)) == Some(&fingerprint(view));
    // The names of the obsolete views.
    let obsolete: Vec<&str> = meta
        .keys()
        .filter_map(|key| key.strip_prefix(KEY_PREFIX))
        .filter(|name| !views().iter().any(|view| view.name == *name))
        .collect();
    if wanted.iter().all(is_current) && obsolete.is_empty() {
        return Ok(Vec::new());
    }
    let mut statements: Vec<String> = obsolete.into_iter().map(drop_sql).collect();
    statements.extend(create(meta_table, &wanted));
    Ok(statements)
}

/// Returns the statements that create every view in an empty file.
pub(super) fn create_all(meta_table: &str) -> Vec<String> {
    create(meta_table, &views().iter().collect::<Vec<_>>())
}

/// Returns the definition of a view for a file with or without a search index. No definition depends on the index,
/// except that of `search_answers`.
fn defined(view: &'static View, has_index: bool) -> &'static View {
    let indexed = indexed_search();
    if has_index && view.name == indexed.name { indexed } else { view }
}

/// Returns true if this program created the macro `search_answers` of the file.
pub(super) fn is_search_ours(meta: &BTreeMap<String, String>) -> bool {
    meta.contains_key(&key(indexed_search()))
}

/// Returns true if the macro `search_answers` of the file is this program version's macro for a file with, or without,
/// a search index.
pub(super) fn is_search_current(meta: &BTreeMap<String, String>, has_index: bool) -> bool {
    search(has_index).is_some_and(|view| meta.get(&key(view)) == Some(&fingerprint(view)))
}

/// Returns the statements that create or replace the macro `search_answers` and store its fingerprint. The file must
/// have a fingerprint of the macro already. `has_index` is true for the macro that reads a search index.
pub(super) fn search_sql(meta_table: &str, has_index: bool) -> Vec<String> {
    let Some(view) = search(has_index) else { return Vec::new() };
    let update_fingerprint =
        format!("UPDATE {meta_table} SET value = '{}' WHERE key = {}", fingerprint(view), quote_text(&key(view)));
    std::iter::once(view.create_sql()).chain(view.comment_sql()).chain([update_fingerprint]).collect()
}

/// Returns the definition of the macro `search_answers`, for a file with or without a search index.
fn search(has_index: bool) -> Option<&'static View> {
    let plain = views().iter().find(|view| view.name == indexed_search().name);
    plain.map(|view| defined(view, has_index))
}

/// Returns the statements that create these views or replace them, and that replace all stored fingerprints by those of
/// these views.
fn create(meta_table: &str, wanted: &[&View]) -> Vec<String> {
    let delete_all = format!("DELETE FROM {meta_table} WHERE key LIKE '{KEY_PREFIX}%'");
    let values = wanted.iter().map(|view| format!("({}, '{}')", quote_text(&key(view)), fingerprint(view)));
    let values = values.collect::<Vec<_>>().join(", ");
    let insert = (!values.is_empty()).then(|| format!("INSERT INTO {meta_table} VALUES {values}"));
    let create = wanted.iter().flat_map(|view| std::iter::once(view.create_sql()).chain(view.comment_sql()));
    create.chain([delete_all]).chain(insert).collect()
}

/// Returns all views of this program, except two kinds. A view is left out if a user's object has its name, for which
/// `is_foreign` returns true. A view is also left out if it reads a view that is left out.
fn without_foreign_and_their_readers(is_foreign: impl Fn(&View) -> bool) -> Vec<&'static View> {
    let mut skipped = BTreeSet::new();
    // Views come after the views that they read, so one pass is enough.
    for view in views() {
        if is_foreign(view) {
            tracing::info!(name = view.name, "the warehouse has something else under the name of a view; it stays");
        }
        // `reads` searches the view's text, the slowest step here. In most files no view is skipped, so `reads` is not
        // called.
        let reads_skipped = || !skipped.is_empty() && view.reads().any(|read| skipped.contains(read.name.as_str()));
        if is_foreign(view) || reads_skipped() {
            skipped.insert(view.name.as_str());
        }
    }
    views().iter().filter(|view| !skipped.contains(view.name.as_str())).collect()
}

fn drop_sql(name: &str) -> String {
    let name = quote_identifier(name);
    format!("DROP VIEW IF EXISTS {name}; DROP MACRO TABLE IF EXISTS {name}")
}

fn key(view: &View) -> String {
    format!("{KEY_PREFIX}{}", view.name)
}

/// Returns a hash of the definition of a view and its comments.
fn fingerprint(view: &View) -> String {
    let text = format!("{}\n{}", view.create_sql(), view.comment_sql().join("\n"));
    format!("{:016x}", xxh3_64(text.as_bytes()))
}

/// Returns the names of the table macros in the file. If all macros of this program exist, returns only their names,
/// because listing all macros is slow.
fn table_macros(engine: &Engine) -> Result<BTreeSet<String>, LoadError> {
    let failed = LoadError::engine("list the macros");
    let ours = || views().iter().filter(|view| view.kind == ViewKind::Macro);
    // COMMENT ON fails if a macro does not exist, so its success shows that all macros exist. The comments are rolled
    // back. Listing the macros takes a hundred times as long, because the engine lists every function. Binding a call
    // of each macro takes ten times as long.
    let connection = engine.connection();
    connection.execute_batch("BEGIN TRANSACTION").map_err(failed)?;
    let comment = |view: &View| format!("COMMENT ON MACRO TABLE {} IS NULL", qualified(&view.name));
    let do_all_exist = connection.execute_batch(&ours().map(comment).collect::<Vec<_>>().join("; ")).is_ok();
    connection.execute_batch("ROLLBACK").map_err(failed)?;
    if do_all_exist {
        return Ok(ours().map(|view| view.name.clone()).collect());
    }
    let sql = format!(
        "SELECT DISTINCT function_name FROM duckdb_functions()
         WHERE database_name = '{CATALOG}' AND function_type = 'table_macro'"
    );
    engine.query("list the macros", &sql, |row| row.get(0))
}
