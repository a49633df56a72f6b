//! Checks that a query is one SELECT statement, or an EXPLAIN of one, that calls no function with side effects.
//! DESCRIBE, SHOW, SUMMARIZE, PIVOT, UNPIVOT, VALUES, TABLE and FROM are SELECT statements for the engine. The engine's
//! settings restrict which files and addresses a query can reach.

use duckdb::Connection;
use serde_json::Value;

use super::{
    pivot,
    script::{self, Token, TokenKind, error_position},
};
use crate::load::LoadError;

/// Functions with side effects, which queries must not call: they write, change settings, run a text as SQL, or
/// dereference a pointer.
pub(super) const REFUSED: &[&str] = &[
    "add_parquet_key",
    "arrow_scan",
    "arrow_scan_dumb",
    "checkpoint",
    "copy_database",
    "force_checkpoint",
    "import_database",
    "json_execute_serialized_sql",
    "query",
    "truncate_duckdb_logs",
    "write_log",
];
/// Prefixes of the names of functions that change a setting, or that change an attached catalog.
pub(super) const REFUSED_PREFIXES: &[&str] = &["enable_", "disable_", "verify_", "ducklake_", "iceberg_", "postgres_"];

/// Returns an error unless `sql` is one SELECT statement, or an EXPLAIN of one, without refused functions. The engine
/// serializes the statement for the check. The engine refuses to serialize statements other than SELECT.
pub(super) fn check_reads_only(connection: &Connection, sql: &str) -> Result<(), LoadError> {
    let explained = explained(sql);
    let question = explained.as_deref().unwrap_or(sql);
    let mut tree = serialized(connection, question)?;
    if is_other_statement(&tree) {
        // The engine serializes a PIVOT only if its values are listed.
        if let Some(listed) = pivot::with_listed_values(question) {
            let listed = serialized(connection, &listed)?;
            if listed["error"].as_bool() == Some(false) {
                if explained.is_some() {
                    return Err(refused("EXPLAIN needs the values of a PIVOT: PIVOT ... ON column IN (...)"));
                }
                tree = listed;
            }
        }
    }
    check_tree(&tree, sql)
}

/// Returns the statement in place of an EXPLAIN, with blanks in place of the words before it; `None` if `sql` explains
/// nothing.
pub(super) fn explained(sql: &str) -> Option<String> {
    let mut parts = script::tokens(sql).filter(|token| token.kind != TokenKind::Blank).peekable();
    let is_word = |token: &Token, word: &str| sql[token.range.clone()].eq_ignore_ascii_case(word);
    let mut end = parts.next().filter(|token| is_word(token, "explain"))?.range.end;
    if let Some(analyze) = parts.next_if(|token| is_word(token, "analyze")) {
        end = analyze.range.end;
    }
    // Options in parentheses, as in EXPLAIN (FORMAT json). A question can begin with a parenthesis, too.
    let options: Vec<Token> = match parts.next_if(|token| token.kind == TokenKind::Sign(b'(')) {
        None => Vec::new(),
        Some(open) => {
            let mut options = vec![open];
            while let Some(option) = parts.next_if(|token| token.kind != TokenKind::Sign(b')')) {
                options.push(option);
            }
            options.extend(parts.next());
            options
        }
    };
    let is_option = options.get(1).is_some_and(|token| is_word(token, "format") || is_word(token, "analyze"));
    if let (true, Some(close)) = (is_option, options.last()) {
        end = close.range.end;
    }
    Some(script::in_place(sql, &(end..sql.len())))
}

/// Returns the engine's tree of a statement, or the engine's error, as JSON.
fn serialized(connection: &Connection, sql: &str) -> Result<Value, LoadError> {
    let text: String = connection
        .query_row("SELECT json_serialize_sql(?::VARCHAR)", [sql], |row| row.get(0))
        .map_err(LoadError::engine("read the query"))?;
    serde_json::from_str(&text)
        .map_err(|source| LoadError::Engine { action: "read the query".into(), source: Box::new(source) })
}

fn refused(why: &str) -> LoadError {
    LoadError::Engine { action: "run the query".into(), source: why.into() }
}

/// Returns an error unless the tree is that of one SELECT statement without refused functions. `sql` is the statement
/// of the user.
fn check_tree(tree: &Value, sql: &str) -> Result<(), LoadError> {
    if tree["error"].as_bool() != Some(false) {
        let why = match is_other_statement(tree) {
            true => "only SELECT statements can be run",
            false => tree["error_message"].as_str().unwrap_or_default(),
        };
        let position = tree["position"].as_str().and_then(|position| position.parse().ok());
        return Err(match position {
            Some(position) => refused(&format!("{why}\n\n{}", error_position(sql, position))),
            None => refused(why),
        });
    }
    if let Some(name) = refused_function(tree) {
        return Err(refused(&format!("the function {name} is not for a question")));
    }
    match tree["statements"].as_array().map(Vec::len) {
        Some(1) => Ok(()),
        _ => Err(refused("one statement at a time")),
    }
}

/// Returns true if the engine did not serialize the statement because it is no SELECT, or because it is empty.
fn is_other_statement(tree: &Value) -> bool {
    let message = tree["error_message"].as_str().unwrap_or_default();
    tree["error"].as_bool() != Some(false)
        && (message.is_empty() || message.starts_with("Only SELECT statements can be serialized"))
}

/// Returns the name of the first function in a serialized statement that queries must not call, or `None` if there is
/// none.
fn refused_function(tree: &Value) -> Option<&str> {
    match tree {
        Value::Object(members) => {
            let name = members.get("function_name").and_then(Value::as_str).filter(|name| is_refused(name));
            name.or_else(|| members.values().find_map(refused_function))
        }
        Value::Array(values) => values.iter().find_map(refused_function),
        _ => None,
    }
}

/// Returns true if queries must not call the function, because it has side effects.
pub(super) fn is_refused(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    REFUSED.contains(&name.as_str()) || REFUSED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}
