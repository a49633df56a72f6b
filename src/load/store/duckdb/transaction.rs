//! Transactions of the attached file, and the statements in them.

use std::path::Path;

use arrow::{
    array::{Array as _, RecordBatch},
    datatypes::Schema,
};

use super::{file::explain, names::qualified};
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

/// Commits durably.
pub(super) fn close(engine: &Engine, path: &Path) -> Result<(), LoadError> {
    engine.hit(DurableStep::DuckDbCommitted, path)?;
    engine.connection().execute_batch("COMMIT").map_err(explain(ACTION, path))?;
    engine.hit(DurableStep::DuckDbCommittedNow, path)
}

/// Changes a table in the open transaction.
///
/// `DELETE ... USING` and `INSERT` are several times faster than `MERGE` on tables without an index, with half the
/// memory.
pub(super) fn change(engine: &Engine, path: &Path, change: &TableChange) -> Result<(), LoadError> {
    let target = qualified(&change.table.name);
    let failed = explain(ACTION, path);
    if !change.removed.is_empty() {
        let delete = |rows: &str| {
            let same = are_same(change.table, &change.removed);
            let inside = within(change.table, change.removed_range);
            format!("DELETE FROM {target} AS t USING {rows} k WHERE {same}{inside}")
        };
        engine.execute_with_rows(change.removed.values(), delete).map_err(failed)?;
    }
    engine.insert(&target, &filled(change.table, &change.added)?).map_err(failed)
}

/// ` AND t.created_at >= ...`. The constants prune row groups; a join alone would read the key of the whole table.
pub(super) fn within(table: &Table, range: Option<TimeRange>) -> String {
    let at = table.partition.as_deref().map(|at| format!("t.{}", quote_identifier(at)));
    at.zip(range).map_or(String::new(), |(at, range)| format!(" AND {}", range.condition(&at)))
}

/// The `FROM` clause for the rows of a table with one of the keys, within the range. `t` is the table, `rows` the keys.
pub(super) fn with_keys(table: &Table, relation: &str, rows: &str, keys: &KeySet, range: Option<TimeRange>) -> String {
    let (same, inside) = (are_same(table, keys), within(table, range));
    format!("{relation} t SEMI JOIN {rows} k ON {same} WHERE true{inside}")
}

/// `t.x = k.x AND ...`; NULL equals NULL where a key is nullable.
fn are_same(table: &Table, keys: &KeySet) -> String {
    let same = |name: &&str| {
        let equals =
            if table.column(name).is_some_and(|column| column.nullable) { "IS NOT DISTINCT FROM" } else { "=" };
        format!("t.{0} {equals} k.{0}", quote_identifier(name))
    };
    keys.columns().iter().map(same).collect::<Vec<_>>().join(" AND ")
}

/// The rows without columns that are NULL in every batch. Most columns are, and they cost time.
fn filled(table: &Table, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, LoadError> {
    let has_values = |name: &str| {
        let mut columns = batches.iter().filter_map(|rows| rows.column_by_name(name));
        columns.any(|column| column.null_count() < column.len())
    };
    let schema = table.full_schema();
    let fields: Vec<_> = schema.fields().iter().filter(|field| has_values(field.name())).cloned().collect();
    let schema = std::sync::Arc::new(Schema::new(fields));
    batches.iter().map(|rows| with_columns(table, &schema, rows)).collect()
}

/// Runs statements in a transaction of their own. Any error rolls back: a statement that fails while it is bound leaves
/// the transaction open with half of the work.
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
        // A failed COMMIT has rolled back. The first error is returned.
        connection.execute_batch("ROLLBACK").ok();
        explain(action, path)(error)
    })?;
    engine.hit(DurableStep::DuckDbCommittedNow, path)
}
