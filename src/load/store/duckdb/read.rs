//! Reads rows of the attached file in the types of the contracts.

use arrow::array::RecordBatch;

use super::{
    catalog::{MissingColumns, with_missing_columns},
    names::qualified,
    transaction::{in_range, with_keys},
};
use crate::{
    load::{
        LoadError,
        engine::{Engine, Visit},
        error::invalid_rows,
        store::{Filter, Take, fit, read_schema},
    },
    schema::{Table, quote_identifier},
};

const ACTION: &str = "read the warehouse";

/// Calls `take` with batches of `columns` of the rows that match the filter. Columns in `missing_columns` are read as
/// NULL. A read of the complete table, without range and keys, uses all threads.
pub(super) fn rows(
    engine: &Engine,
    missing_columns: &MissingColumns,
    table: &'static Table,
    columns: &[&str],
    filter: &Filter<'_>,
    take: &mut Take<'_>,
) -> Result<(), LoadError> {
    let relation = match missing_columns.get(table.name.as_str()) {
        None => qualified(&table.name),
        Some(missing_columns) => with_missing_columns(table, missing_columns),
    };
    let list: Vec<String> = columns.iter().map(|name| format!("t.{}", quote_identifier(name))).collect();
    let list = list.join(", ");
    // The engine's types are those of the contract, except for the names of list items. `fit` changes these names.
    let schema = read_schema(table, columns)?;
    let mut take = |batch: RecordBatch| take(fit(&batch, &schema).map_err(invalid_rows(table))?);
    let Some(keys) = filter.keys else {
        let in_range = in_range(table, filter.range);
        let sql = format!("SELECT {list} FROM {relation} t WHERE true{in_range}");
        return match filter.range {
            Some(_) => engine.each_batch(ACTION, &sql, take),
            None => engine.with_all_threads(|| engine.each_batch(ACTION, &sql, take)),
        };
    };
    let sql = |rows: &str| format!("SELECT {list} FROM {}", with_keys(table, &relation, rows, keys, filter.range));
    engine.each_batch_with_rows(ACTION, keys.values(), sql, &mut take)
}

/// Calls `visit` with batches of `columns` of all rows, in all threads of the engine.
pub(super) fn visit(
    engine: &Engine,
    table: &'static Table,
    columns: &[&str],
    visit: &Visit<'_>,
) -> Result<(), LoadError> {
    let schema = read_schema(table, columns)?;
    let fitted = |batch: RecordBatch| visit(fit(&batch, &schema).map_err(invalid_rows(table))?);
    engine.with_all_threads(|| engine.visit_rows(ACTION, &qualified(&table.name), columns, &fitted))
}
