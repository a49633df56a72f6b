//! Transactions of the attached file, and the statements in them.

use std::path::Path;

use arrow::{
    array::{Array as _, RecordBatch},
    datatypes::Schema,
};

use super::{
    file::{checkpoint, explain},
    names::qualified,
};
use crate::{
    load::{
        LoadError,
        engine::Engine,
        store::{KeySet, TableChange, TimeRange, with_columns},
    },
    model::DurableStep,
    schema::{Table, quote_identifier},
};

const ACTION: &str = "write the warehouse";

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

/// Removes and inserts the rows of a change in the open transaction.
///
/// On tables without an index, `DELETE ... USING` and then `INSERT` are several times faster than `MERGE`, and need
/// half the memory.
pub(super) fn change(engine: &Engine, path: &Path, change: &TableChange) -> Result<(), LoadError> {
    let target = qualified(&change.table.name);
    let failed = explain(ACTION, path);
    if !change.removed.is_empty() {
        let delete = |rows: &str| {
            let has_key = has_key(change.table, &change.removed);
            let in_range = in_range(change.table, change.removed_range);
            format!("DELETE FROM {target} AS t USING {rows} k WHERE {has_key}{in_range}")
        };
        engine.execute_with_rows(change.removed.values(), delete).map_err(failed)?;
    }
    engine.insert(&target, &without_empty_columns(change.table, &change.added)?).map_err(failed)
}

/// Returns the SQL condition ` AND t.created_at >= ...` for the rows of table `t` within the range. Returns an empty
/// text if there is no range or no partition column. The condition lets the engine skip row groups; a join alone would
/// read the key of every row.
pub(super) fn in_range(table: &Table, range: Option<TimeRange>) -> String {
    let column = table.partition.as_deref().map(|column| format!("t.{}", quote_identifier(column)));
    column.zip(range).map_or(String::new(), |(column, range)| format!(" AND {}", range.condition(&column)))
}

/// Returns the SQL after FROM for the rows of `relation` that have one of the keys and are within the range. `rows` is
/// the SQL name of a relation with the values of `keys`. In the query, `t` is the table and `k` the keys.
pub(super) fn with_keys(table: &Table, relation: &str, rows: &str, keys: &KeySet, range: Option<TimeRange>) -> String {
    let (has_key, in_range) = (has_key(table, keys), in_range(table, range));
    format!("{relation} t SEMI JOIN {rows} k ON {has_key} WHERE true{in_range}")
}

/// Returns the SQL condition `t.x = k.x AND ...` with one equation for each column of the keys. NULL equals NULL if the
/// column is nullable.
fn has_key(table: &Table, keys: &KeySet) -> String {
    let is_equal = |name: &&str| {
        let equals =
            if table.column(name).is_some_and(|column| column.nullable) { "IS NOT DISTINCT FROM" } else { "=" };
        format!("t.{0} {equals} k.{0}", quote_identifier(name))
    };
    keys.columns().iter().map(is_equal).collect::<Vec<_>>().join(" AND ")
}

/// Returns the rows without those columns that are NULL in every batch. The insert makes left-out columns NULL anyway.
/// Most columns are entirely NULL, and inserting NULL values costs time.
fn without_empty_columns(table: &Table, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, LoadError> {
    let has_values = |name: &str| {
        let mut columns = batches.iter().filter_map(|rows| rows.column_by_name(name));
        columns.any(|column| column.null_count() < column.len())
    };
    let schema = table.full_schema();
    let fields: Vec<_> = schema.fields().iter().filter(|field| has_values(field.name())).cloned().collect();
    let schema = std::sync::Arc::new(Schema::new(fields));
    batches.iter().map(|rows| with_columns(table, &schema, rows)).collect()
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
