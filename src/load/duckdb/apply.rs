//! Applies a delta in one transaction.

use std::path::Path;

use super::{Engine, LoadError, file::explain, qualified};
use crate::{
    load::{TableDelta, diff::equal_columns},
    model::DurableStep,
    schema::quote_identifier,
};

/// Takes out and adds what the tables say, all or nothing.
pub(super) fn apply(engine: &Engine, path: &Path, tables: &[TableDelta]) -> Result<(), LoadError> {
    in_transaction(engine, path, "write the warehouse", || {
        for table in tables {
            for sql in statements(table) {
                tracing::trace!(sql);
                engine.connection().execute_batch(&sql)?;
            }
        }
        Ok(())
    })
}

/// `DELETE ... USING` and `INSERT`, never `MERGE`: several times faster on tables without an index, with half the memory.
fn statements(delta: &TableDelta) -> Vec<String> {
    let target = qualified(&delta.table.name);
    let mut statements = Vec::new();
    if let Some(deletes) = &delta.deletes {
        let same = equal_columns("t", "d", &delta.delete_columns());
        let at = delta.table.partition.as_deref().map(|at| format!("t.{}", quote_identifier(at)));
        // The constants prune row groups; the join alone would read the key of the whole table.
        let inside = match (deletes.bounds, at) {
            (Some(bounds), Some(at)) => format!(" AND {}", bounds.condition(&at)),
            _ => String::new(),
        };
        statements.push(format!("DELETE FROM {target} AS t USING {} d WHERE {same}{inside}", deletes.relation));
    }
    if let Some(upserts) = &delta.upserts {
        let columns: Vec<String> = delta.table.columns.iter().map(|column| quote_identifier(&column.name)).collect();
        let columns = columns.join(", ");
        statements.push(format!("INSERT INTO {target} ({columns}) SELECT {columns} FROM {}", upserts.relation));
    }
    statements
}

/// Runs work in a transaction. Any error rolls back: a statement that fails while it is bound leaves the transaction open, and
/// committing it would keep half of the work.
pub(super) fn in_transaction(
    engine: &Engine,
    path: &Path,
    action: &str,
    work: impl FnOnce() -> Result<(), duckdb::Error>,
) -> Result<(), LoadError> {
    let connection = engine.connection();
    let worked = connection.execute_batch("BEGIN TRANSACTION").and_then(|()| work());
    if worked.is_ok() {
        engine.reach(DurableStep::DuckDbCommitted, path)?;
    }
    worked.and_then(|()| connection.execute_batch("COMMIT")).map_err(|error| {
        // After a failed COMMIT there is nothing left to roll back; the first error is the one to tell.
        connection.execute_batch("ROLLBACK").ok();
        explain(error, action, path)
    })?;
    engine.reach(DurableStep::DuckDbCommittedNow, path)
}
