//! Transactions of the attached file.

use std::path::Path;

use super::file::{checkpoint, explain};
use crate::{
    load::{LoadError, engine::Engine},
    model::DurableStep,
};

pub(super) const ACTION: &str = "write the warehouse";

/// Opens a transaction.
pub(super) fn open(engine: &Engine) -> Result<(), LoadError> {
    engine.execute(ACTION, "BEGIN TRANSACTION")
}

/// Commits the open transaction durably, with a failpoint before and after the commit.
pub(super) fn commit(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    engine.hit(DurableStep::DuckDbCommitted, path)?;
    engine.connection().execute_batch("COMMIT").map_err(explain(ACTION, path))?;
    checkpoint(engine, path)?;
    engine.hit(DurableStep::DuckDbCommittedNow, path)
}

/// Commits the open transaction in memory, and opens the next one. The changes are not durable, and closing the file
/// drops them.
pub(super) fn continue_in_another(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    engine.connection().execute_batch("COMMIT; BEGIN TRANSACTION").map_err(explain(ACTION, path))
}

/// Runs the statements of `work` in one transaction and makes it durable. Rolls back if a statement or the commit
/// fails. Without the rollback, a statement that fails while the engine binds it would leave the transaction open.
/// `action` completes the error message "the engine failed to ...".
pub(super) fn in_transaction(
    engine: &Engine,
    path: &Path,
    action: &str,
    work: impl FnOnce() -> Result<(), duckdb::Error>,
) -> Result<(), LoadError> {
    let connection = engine.connection();
    let worked = connection.execute_batch("BEGIN TRANSACTION").and_then(|()| work());
    if worked.is_ok() {
        engine.hit(DurableStep::DuckDbCommitted, path)?;
    }
    worked.and_then(|()| connection.execute_batch("COMMIT")).map_err(|error| {
        // This ROLLBACK fails after a failed COMMIT, which has rolled back itself. The error of `work` or COMMIT is
        // returned.
        connection.execute_batch("ROLLBACK").ok();
        explain(action, path)(error)
    })?;
    checkpoint(engine, path)?;
    engine.hit(DurableStep::DuckDbCommittedNow, path)
}
