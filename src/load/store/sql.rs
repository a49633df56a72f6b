//! Reads and changes tables of an attached file or catalog by SQL, and checks whose they are.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use arrow::{
    array::{Array as _, RecordBatch},
    datatypes::Schema,
};

use super::{Filter, KeySet, TableChange, Take, TimeRange, fit, read_schema, with_columns};
use crate::{
    load::{
        Identity, LoadError,
        engine::{Engine, Visit},
        error::invalid_rows,
    },
    model::is_same_service,
    schema::{Table, quote_identifier},
};

const ACTION: &str = "read the warehouse";
/// Version of the layout of a file or catalog. A newer layout is refused, because writing could damage it.
pub(super) const FORMAT_VERSION: u32 = 1;

/// Calls `take` with batches of `columns` of the rows of `relation` that match the filter, in the types of the
/// contracts. A read of the complete table, without range and keys, uses all threads.
pub(super) fn rows(
    engine: &Engine,
    relation: &str,
    table: &'static Table,
    columns: &[&str],
    filter: &Filter<'_>,
    take: &mut Take<'_>,
) -> Result<(), LoadError> {
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
    let sql = |rows: &str| format!("SELECT {list} FROM {}", with_keys(table, relation, rows, keys, filter.range));
    engine.each_batch_with_rows(ACTION, keys.values(), sql, &mut take)
}

/// Calls `visit` with batches of `columns` of all rows of `relation`, in all threads of the engine.
pub(super) fn visit(
    engine: &Engine,
    relation: &str,
    table: &'static Table,
    columns: &[&str],
    visit: &Visit<'_>,
) -> Result<(), LoadError> {
    let schema = read_schema(table, columns)?;
    let fitted = |batch: RecordBatch| visit(fit(&batch, &schema).map_err(invalid_rows(table))?);
    engine.with_all_threads(|| engine.visit_rows(ACTION, relation, columns, &fitted))
}

/// Calls `take` with batches of columns of a relation, converted to text. Lists and structs are converted too. Without
/// columns, the relation is not read.
pub(super) fn texts(engine: &Engine, relation: &str, columns: &[String], take: &mut Take<'_>) -> Result<(), LoadError> {
    let texts: Vec<String> =
        columns.iter().map(|name| format!("CAST({} AS VARCHAR)", quote_identifier(name))).collect();
    if texts.is_empty() {
        return Ok(());
    }
    engine.each_batch("read a table", &format!("SELECT {} FROM {relation}", texts.join(", ")), take)
}

/// Removes and inserts the rows of a change in the open transaction. `target` is the SQL name of the table.
///
/// On tables without an index, `DELETE ... USING` and then `INSERT` are several times faster than `MERGE`, and need
/// half the memory.
pub(super) fn change(
    engine: &Engine,
    target: &str,
    change: &TableChange,
    failed: impl Fn(duckdb::Error) -> LoadError + Copy,
) -> Result<(), LoadError> {
    remove(engine, target, change, failed)?;
    engine.insert(target, &without_empty_columns(change.table, &change.added)?).map_err(failed)
}

/// Removes the rows that a change removes.
pub(super) fn remove(
    engine: &Engine,
    target: &str,
    change: &TableChange,
    failed: impl Fn(duckdb::Error) -> LoadError,
) -> Result<(), LoadError> {
    if change.removed.is_empty() {
        return Ok(());
    }
    let delete = |rows: &str| {
        let has_key = has_key(change.table, &change.removed);
        let in_range = in_range(change.table, change.removed_range);
        format!("DELETE FROM {target} AS t USING {rows} k WHERE {has_key}{in_range}")
    };
    engine.execute_with_rows(change.removed.values(), delete).map(drop).map_err(failed)
}

/// Returns the statement that inserts all rows of a relation into a table.
pub(super) fn copy(table: &Table, from: &str, target: &str) -> String {
    let columns: Vec<String> = table.column_names().into_iter().map(quote_identifier).collect();
    let columns = columns.join(", ");
    format!("INSERT INTO {target} ({columns}) SELECT {columns} FROM {from};")
}

/// Returns the SQL condition ` AND t.created_at >= ...` for the rows of table `t` within the range. Returns an empty
/// text if there is no range or no partition column. The condition lets the engine skip row groups; a join alone would
/// read the key of every row.
fn in_range(table: &Table, range: Option<TimeRange>) -> String {
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
    let schema = Arc::new(Schema::new(fields));
    batches.iter().map(|rows| with_columns(table, &schema, rows)).collect()
}

/// Compares the metadata of a file or catalog with this program and `identity`. Returns `Newer` if a newer version of
/// the program wrote it or the format version cannot be read. Returns `OtherIdentity` if it belongs to another service
/// or environment.
pub(super) fn check_meta(meta: &BTreeMap<String, String>, path: &Path, identity: &Identity) -> Result<(), LoadError> {
    let value = |key: &str| meta.get(key).map_or("", String::as_str);
    let version = value("format_version");
    if version.parse::<u32>().map_or(true, |version| version > FORMAT_VERSION) {
        return Err(LoadError::Newer { path: path.to_owned(), found: format!("format {version}") });
    }
    if is_same_service(value("base_url"), &identity.base_url) && value("environment") == identity.environment {
        return Ok(());
    }
    Err(LoadError::OtherIdentity {
        path: path.to_owned(),
        found: format!("{} ({})", value("base_url"), value("environment")),
        wanted: format!("{} ({})", identity.base_url, identity.environment),
    })
}
