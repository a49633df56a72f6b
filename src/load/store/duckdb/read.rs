//! Reads rows of the attached file as the contracts have them.

use std::sync::Arc;

use arrow::{
    array::{Array as _, ArrayRef, AsArray as _, ListArray, RecordBatch},
    datatypes::{DataType, Field, Schema},
};

use super::{
    catalog::{Lacking, filled_up},
    names::qualified,
    transaction::{are_same, within},
};
use crate::{
    load::{
        LoadError,
        engine::Engine,
        error::unfit,
        store::{Filter, Take},
    },
    schema::{Table, quote_identifier},
};

const ACTION: &str = "read the warehouse";

/// Hands over these columns of the rows that the filter names.
pub(super) fn rows(
    engine: &Engine,
    lacking: &Lacking,
    table: &'static Table,
    columns: &[&str],
    filter: &Filter<'_>,
    take: &mut Take<'_>,
) -> Result<(), LoadError> {
    let relation = match lacking.get(table.name.as_str()) {
        None => qualified(&table.name),
        Some(lacking) => filled_up(table, lacking),
    };
    let list: Vec<String> = columns.iter().map(|name| format!("t.{}", quote_identifier(name))).collect();
    let (list, inside) = (list.join(", "), within(table, filter.range));
    let mut take = |batch: RecordBatch| take(as_contracted(table, columns, &batch)?);
    let Some(keys) = filter.keys else {
        return engine.each_batch(ACTION, &format!("SELECT {list} FROM {relation} t WHERE true{inside}"), take);
    };
    let sql = |rows: &str| {
        format!("SELECT {list} FROM {relation} t SEMI JOIN {rows} k ON {} WHERE true{inside}", are_same(table, keys))
    };
    engine.each_batch_with_rows(ACTION, keys.values(), sql, &mut take)
}

/// A batch of the engine with the types of the contract. The values are the same; the types differ in the names of what is in lists.
fn as_contracted(table: &Table, columns: &[&str], batch: &RecordBatch) -> Result<RecordBatch, LoadError> {
    let (mut fields, mut arrays) = (Vec::with_capacity(columns.len()), Vec::with_capacity(columns.len()));
    for (name, array) in columns.iter().zip(batch.columns()) {
        let array = match (table.column(name), array.data_type()) {
            (Some(column), DataType::List(_)) => {
                renamed_items(&column.column_type.arrow(), array).map_err(unfit(table))?
            }
            _ => Arc::clone(array),
        };
        fields.push(Field::new(*name, array.data_type().clone(), true));
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).map_err(unfit(table))
}

fn renamed_items(wanted: &DataType, array: &ArrayRef) -> Result<ArrayRef, arrow::error::ArrowError> {
    let DataType::List(item) = wanted else { return Ok(Arc::clone(array)) };
    let list = array.as_list::<i32>();
    let (offsets, values, nulls) = (list.offsets().clone(), Arc::clone(list.values()), list.nulls().cloned());
    Ok(Arc::new(ListArray::try_new(Arc::clone(item), offsets, values, nulls)?))
}
