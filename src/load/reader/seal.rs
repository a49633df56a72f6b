//! Lets only read-only statements through: one SELECT without functions that have side effects.
//!
//! The engine's settings restrict files and addresses.

use duckdb::Connection;
use serde_json::Value;

use super::script::error_position;
use crate::load::LoadError;

/// Functions with side effects: they write, change settings, run a text as SQL, or take a pointer.
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
/// Prefixes of functions that change a setting.
pub(super) const REFUSED_BEGINNINGS: &[&str] = &["enable_", "disable_", "verify_"];

/// Refuses everything but one statement of the SELECT family. The engine serializes no other statement.
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

/// The first refused function in the tree.
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

pub(super) fn is_refused(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    REFUSED.contains(&name.as_str()) || REFUSED_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// A plain message for statements that the engine cannot serialize.
fn explain_refusal(message: &str) -> &str {
    match message {
        "" => "only SELECT statements can be run",
        message if message.starts_with("Only SELECT statements can be serialized") => {
            "only SELECT statements can be run"
        }
        message => message,
    }
}
