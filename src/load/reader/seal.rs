//! Checks that a query is one SELECT statement that calls no function with side effects. The engine's settings restrict
//! which files and addresses a query can reach.

use duckdb::Connection;
use serde_json::Value;

use super::script::error_position;
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
/// Prefixes of the names of functions that change a setting.
pub(super) const REFUSED_PREFIXES: &[&str] = &["enable_", "disable_", "verify_"];

/// Returns an error unless `sql` is one SELECT statement without refused functions. The engine serializes the statement
/// for the check. The engine refuses to serialize statements other than SELECT.
pub(super) fn check_reads_only(connection: &Connection, sql: &str) -> Result<(), LoadError> {
    let text: String = connection
        .query_row("SELECT json_serialize_sql(?::VARCHAR)", [sql], |row| row.get(0))
        .map_err(LoadError::engine("read the query"))?;
    let tree: serde_json::Value = serde_json::from_str(&text)
        .map_err(|source| LoadError::Engine { action: "read the query".into(), source: Box::new(source) })?;
    let refused = |why: &str| LoadError::Engine { action: "run the query".into(), source: why.into() };
    if tree["error"].as_bool() != Some(false) {
        let why = explain_refusal(tree["error_message"].as_str().unwrap_or_default());
        let position = tree["position"].as_str().and_then(|position| position.parse().ok());
        return Err(match position {
            Some(position) => refused(&format!("{why}\n\n{}", error_position(sql, position))),
            None => refused(why),
        });
    }
    if let Some(name) = refused_function(&tree) {
        return Err(refused(&format!("the function {name} is not for a question")));
    }
    match tree["statements"].as_array().map(Vec::len) {
        Some(1) => Ok(()),
        _ => Err(refused("one statement at a time")),
    }
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

/// Returns the message to users for a statement that the engine did not serialize. `message` is the engine's message.
/// Messages about another kind of statement, and an empty one, become a message about SELECT.
fn explain_refusal(message: &str) -> &str {
    match message {
        "" => "only SELECT statements can be run",
        message if message.starts_with("Only SELECT statements can be serialized") => {
            "only SELECT statements can be run"
        }
        message => message,
    }
}
