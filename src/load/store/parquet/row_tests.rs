//! Which rows a caller means: by range, by partition and by keys.

use arrow::{
    array::{Array as _, BooleanArray, RecordBatch},
    buffer::BooleanBuffer,
    compute::filter_record_batch,
};

use super::{
    columns::read_schema,
    partition::{Partition, PartitionBy},
    pick::Pick,
    rows_reader::{PickedRows, narrow},
};
use crate::{
    load::{
        LoadError,
        error::unfit,
        store::{KeySet, TimeBounds, rows::time_column},
    },
    schema::Table,
};

/// Whether each row is within the range of the partition column.
pub(super) fn within(table: &Table, rows: &RecordBatch, range: TimeBounds) -> Result<BooleanBuffer, LoadError> {
    let Some(column) = &table.partition else { return Ok(BooleanBuffer::new_set(rows.num_rows())) };
    let moments = time_column(rows, column)?;
    let is_within = |at: usize| moments.values().get(at).is_some_and(|moment| range.holds(*moment));
    let within = BooleanBuffer::collect_bool(rows.num_rows(), is_within);
    // A file that lacks the column has rows of no time.
    Ok(match moments.nulls() {
        Some(nulls) => &within & nulls.inner(),
        None => within,
    })
}

/// The rows of a batch whose bits are set.
pub(super) fn kept_rows(table: &Table, rows: RecordBatch, kept: &BooleanBuffer) -> Result<RecordBatch, LoadError> {
    if kept.count_set_bits() == rows.num_rows() {
        return Ok(rows);
    }
    filter_record_batch(&rows, &BooleanArray::new(kept.clone(), None)).map_err(unfit(table))
}

/// Those of the picked rows that are within the range.
pub(super) fn pick_within(
    table: &Table,
    rows: &dyn PickedRows,
    pick: &Pick,
    range: TimeBounds,
) -> Result<Pick, LoadError> {
    let schema = read_schema(table, &table.partition.as_deref().into_iter().collect::<Vec<_>>())?;
    narrow(rows, pick, &schema, |batch| within(table, batch, range))
}

/// Those of the picked rows that belong to the partition.
pub(super) fn pick_partition(
    table: &Table,
    rows: &dyn PickedRows,
    pick: &Pick,
    by: PartitionBy,
    partition: Partition,
) -> Result<Pick, LoadError> {
    let Some(column) = table.partition.as_deref() else { return Ok(pick.clone()) };
    let schema = read_schema(table, &[column])?;
    narrow(rows, pick, &schema, |batch| {
        let moments = time_column(batch, column)?;
        Ok(moments.values().iter().map(|at_us| by.of(*at_us) == partition).collect())
    })
}

/// Those of the picked rows that have one of the keys.
pub(super) fn pick_keys(table: &Table, rows: &dyn PickedRows, pick: &Pick, keys: &KeySet) -> Result<Pick, LoadError> {
    let schema = read_schema(table, keys.columns())?;
    narrow(rows, pick, &schema, |batch| Ok(keys.contains(batch)?.values().clone()))
}
