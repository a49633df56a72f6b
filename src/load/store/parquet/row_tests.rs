//! Reduces picks of rows by time range, by partition and by keys.

use super::{
    partition::{Partition, PartitionBy},
    pick::Pick,
    rows_reader::{PickedRows, narrow},
};
use crate::{
    load::{
        LoadError,
        store::{KeySet, TimeRange, read_schema, rows_within, time_column},
    },
    schema::Table,
};

/// Reduces a pick to the rows whose partition column is within the range. In a table without partitions, keeps every
/// row.
pub(super) fn pick_within(
    table: &Table,
    rows: &dyn PickedRows,
    pick: &Pick,
    range: TimeRange,
) -> Result<Pick, LoadError> {
    let schema = read_schema(table, &table.partition.as_deref().into_iter().collect::<Vec<_>>())?;
    narrow(rows, pick, &schema, |batch| rows_within(table, batch, range))
}

/// Reduces a pick to the rows that belong to the partition. In a table without partitions, keeps every row.
pub(super) fn pick_partition(
    table: &Table,
    rows: &dyn PickedRows,
    pick: &Pick,
    partition_by: PartitionBy,
    partition: Partition,
) -> Result<Pick, LoadError> {
    let Some(column) = table.partition.as_deref() else { return Ok(pick.clone()) };
    let schema = read_schema(table, &[column])?;
    narrow(rows, pick, &schema, |batch| {
        let times = time_column(batch, column)?;
        Ok(times.values().iter().map(|time_us| partition_by.of(*time_us) == partition).collect())
    })
}

/// Reduces a pick to the rows that have one of the keys.
pub(super) fn pick_keys(table: &Table, rows: &dyn PickedRows, pick: &Pick, keys: &KeySet) -> Result<Pick, LoadError> {
    let schema = read_schema(table, keys.columns())?;
    narrow(rows, pick, &schema, |batch| keys.contains(batch))
}
