//! Makes and drops the search index that `search_answers` reads.
//!
//! DuckDB's extension `fts` makes the tables of the index. The macro `search_answers` reads these tables with plain
//! SQL, so a session without the extension can search. `fts` reads the answers from a copy in the table
//! [`TEXTS_TABLE`], which exists only within the transaction.

use std::path::Path;

use super::{
    catalog::{in_the_file, read_meta},
    names::{CATALOG, META_TABLE},
    search_state::{INDEX_SCHEMA, forget_sql, mark_current_sql},
    transaction::in_transaction,
    views::{is_search_ours, search_sql},
};
use crate::load::{LoadError, engine::Engine};

/// The table with the texts to index, which exists only within the transaction. `fts` derives the name of the index
/// from this name.
const TEXTS_TABLE: &str = "_studysync_texts";
/// Pattern of letters of languages without blanks between words. Each such letter becomes a word of the index. The
/// macro `search_answers` splits the searched text by the same pattern.
const WITHOUT_BLANKS: &str = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]";
/// Pattern of the characters between words. The default pattern of `fts` keeps only the letters a to z as parts of
/// words. The macro `search_answers` splits the searched text by the same pattern.
const BETWEEN_WORDS: &str = r"[^\p{L}\p{M}\p{N}]+";

/// Makes the index and the macro that reads it, in one transaction. An earlier index is replaced. The extension `fts`
/// must be loaded. If somebody else created the macro `search_answers` of the file, changes nothing and returns false.
pub(super) fn make(engine: &Engine, path: &Path) -> Result<bool, LoadError> {
    if !is_search_ours(&read_meta(engine)?) {
        return Ok(false);
    }
    let scan = last_scan(engine)?;
    let texts = format!(
        "DROP SCHEMA IF EXISTS {INDEX_SCHEMA} CASCADE;
         CREATE TABLE {TEXTS_TABLE} AS
         SELECT
             question_id || ' ' || response_group_uid AS name,
             regexp_replace(replace(lower(upper(nfc_normalize(replace(answer, chr(0), ' ')))), 'ß', 'ss'), '({WITHOUT_BLANKS})', ' \\1 ', 'g') AS words
         FROM open_answers WHERE NOT is_empty"
    );
    // This statement is executed alone: the engine looks up the table when it parses the statement, so an earlier call
    // must have created the table.
    let index = format!(
        "PRAGMA create_fts_index('{TEXTS_TABLE}', 'name', 'words', stemmer = 'none', stopwords = 'none', ignore = '{BETWEEN_WORDS}',
            strip_accents = 1, lower = 1)"
    );
    let macros = format!("DROP MACRO {INDEX_SCHEMA}.match_bm25; DROP MACRO {INDEX_SCHEMA}.tokenize");
    let rest = [macros, format!("DROP TABLE {TEXTS_TABLE}"), mark_current_sql(scan.as_deref())];
    let rest = rest.into_iter().chain(search_sql(META_TABLE, true)).collect::<Vec<_>>().join(";\n");
    let statements = [texts, index, rest];
    let work = || {
        in_transaction(engine, path, "make the index of words", || {
            statements.iter().try_for_each(|sql| in_the_file(engine, sql))
        })
    };
    engine.with_all_threads(|| engine.in_any_order(work)).map(|()| true)
}

/// Drops the index and restores the macro that searches without an index, unless somebody else created the macro
/// `search_answers` of the file. The extension `fts` is not needed.
pub(super) fn drop_index(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    let mut statements = vec![format!("DROP SCHEMA IF EXISTS {INDEX_SCHEMA} CASCADE"), forget_sql()];
    if is_search_ours(&read_meta(engine)?) {
        statements.extend(search_sql(META_TABLE, false));
    }
    let sql = statements.join(";\n");
    in_transaction(engine, path, "drop the index of words", || in_the_file(engine, &sql))
}

/// Returns the identifier of the scan that was applied last according to the ledger, or `None` if the ledger is empty.
fn last_scan(engine: &Engine) -> Result<Option<String>, LoadError> {
    let sql = format!("SELECT arg_max(scan_id, (_synced_at, scan_id)) FROM {CATALOG}.main.sync_windows");
    let failed = LoadError::engine("read the ledger");
    engine.connection().query_row(&sql, [], |row| row.get(0)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_macro_and_the_index_split_texts_alike() {
        let sql = &crate::schema::indexed_search().sql;
        for same in [WITHOUT_BLANKS, BETWEEN_WORDS, INDEX_SCHEMA] {
            assert!(sql.contains(same), "{same}");
        }
        assert_eq!(INDEX_SCHEMA, format!("fts_main_{TEXTS_TABLE}"));
    }
}
