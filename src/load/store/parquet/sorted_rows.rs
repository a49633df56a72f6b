//! Sorts rows in memory: by partition, and within a partition in the order of the table.

use std::{collections::BTreeSet, ops::Range};

use arrow::{array::RecordBatch, compute::interleave_record_batch};

use super::{
    chunk::ChunkSize,
    order::SortKeys,
    partition::{Partition, PartitionBy},
    table_file::{Notes, TableFile},
};
use crate::{
    load::{
        LoadError,
        error::invalid_rows,
        store::{TimeRange, fit, time_column},
    },
    model::LongTexts,
    schema::Table,
};

/// Number of bytes of a sort key that are kept next to the row's position and compared first. In tables of answers,
/// these bytes contain the survey and all but two bytes of the creation time. So the rest of the key is rarely needed.
const PREFIX_BYTES: usize = 16;

/// The position of a row, with its partition and the first bytes of its sort key.
struct RowPosition {
    /// The partition of the row; `None` for a table without partitions.
    partition: Option<Partition>,
    prefix: [u8; PREFIX_BYTES],
    /// Index in [`SortedRows::batches`].
    batch: usize,
    /// Index of the row in its batch.
    row: usize,
}

/// Sorted rows of a table. Rows with equal sort keys keep the order in which they were given.
pub(super) struct SortedRows {
    table: &'static Table,
    /// The rows as they were given.
    batches: Vec<RecordBatch>,
    /// The positions of the rows in `batches`, sorted.
    positions: Vec<RowPosition>,
}

/// The rows of one partition among sorted rows.
pub(super) struct PartitionRows {
    /// The partition of the rows; `None` for a table without partitions.
    pub(super) partition: Option<Partition>,
    /// Range of the partition column over the rows; `None` for a table without partitions.
    pub(super) bounds: Option<TimeRange>,
    /// Range of indexes in [`SortedRows::positions`].
    positions: Range<usize>,
}

impl PartitionRows {
    /// Returns the number of rows.
    pub(super) fn rows(&self) -> usize {
        self.positions.len()
    }
}

impl SortedRows {
    /// Sorts rows with columns of the table. Columns are found by name; missing columns are NULL. Rows with equal sort
    /// keys keep their order.
    pub(super) fn of(
        table: &'static Table,
        partition_by: PartitionBy,
        rows: &[RecordBatch],
    ) -> Result<Self, LoadError> {
        let schema = table.parquet_schema();
        let keys = SortKeys::new(table).map_err(invalid_rows(table))?;
        let (mut batches, mut batch_keys, mut positions) = (Vec::new(), Vec::new(), Vec::new());
        for (batch, rows) in rows.iter().enumerate() {
            let rows = fit(rows, &schema).map_err(invalid_rows(table))?;
            let keys = keys.of(&rows).map_err(invalid_rows(table))?;
            let partitions = partitions_of(table, partition_by, &rows)?;
            let position =
                |(row, partition)| RowPosition { partition, prefix: prefix(keys.row(row).data()), batch, row };
            positions.extend(partitions.into_iter().enumerate().map(position));
            batches.push(rows);
            batch_keys.push(keys);
        }
        let full_key = |position: &RowPosition| batch_keys.get(position.batch).map(|keys| keys.row(position.row));
        // The sort is stable: rows with equal keys keep their order.
        positions.sort_by(|one, other| {
            let by_prefix = one.partition.cmp(&other.partition).then_with(|| one.prefix.cmp(&other.prefix));
            by_prefix.then_with(|| full_key(one).cmp(&full_key(other)))
        });
        Ok(Self { table, batches, positions })
    }

    /// Returns the partitions that have rows, earliest first. A table without partitions gives one entry, or none if
    /// there are no rows.
    pub(super) fn partitions(&self) -> Result<Vec<PartitionRows>, LoadError> {
        let mut partitions = Vec::new();
        let mut start = 0;
        for positions in self.positions.chunk_by(|one, other| one.partition == other.partition) {
            let partition = positions.first().and_then(|position| position.partition);
            let bounds = self.bounds(positions)?;
            partitions.push(PartitionRows { partition, bounds, positions: start..start + positions.len() });
            start += positions.len();
        }
        Ok(partitions)
    }

    /// Returns the range of the partition column over these rows, or `None` for a table without partitions.
    fn bounds(&self, positions: &[RowPosition]) -> Result<Option<TimeRange>, LoadError> {
        let Some(column) = &self.table.partition else { return Ok(None) };
        let times = self.batches.iter().map(|batch| time_column(batch, column)).collect::<Result<Vec<_>, _>>()?;
        let bounds =
            |position: &RowPosition| times.get(position.batch).map(|times| TimeRange::at(times.value(position.row)));
        Ok(positions.iter().filter_map(bounds).reduce(TimeRange::with))
    }

    /// Writes the rows of a partition as a sorted run, and returns their number. The file is not made durable.
    pub(super) fn write(
        &self,
        partition: &PartitionRows,
        path: &std::path::Path,
        notes: &Notes<'_>,
    ) -> Result<u64, LoadError> {
        let mut file = TableFile::create(self.table, path, notes)?;
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let long_texts: Vec<LongTexts> = self.batches.iter().map(LongTexts::of).collect();
        let mut remaining = self.positions.get(partition.positions.clone()).unwrap_or_default().iter().peekable();
        while remaining.peek().is_some() {
            let (mut positions, mut size) = (Vec::new(), ChunkSize::default());
            while let Some(position) = remaining.next_if(|_| !size.is_full()) {
                positions.push((position.batch, position.row));
                size.add(long_texts.get(position.batch).map_or(0, |long| long.row_bytes(position.row)));
            }
            let chunk = interleave_record_batch(&batches, &positions).map_err(invalid_rows(self.table))?;
            file.write(&chunk)?;
        }
        file.finish()
    }
}

/// Returns the first bytes of a sort key, followed by zeros if the key is shorter.
fn prefix(key: &[u8]) -> [u8; PREFIX_BYTES] {
    let mut prefix = [0; PREFIX_BYTES];
    for (byte, key_byte) in prefix.iter_mut().zip(key) {
        *byte = *key_byte;
    }
    prefix
}

/// Returns the partition of each row, or `None` for each row of a table without partitions.
pub(super) fn partitions_of(
    table: &Table,
    partition_by: PartitionBy,
    rows: &RecordBatch,
) -> Result<Vec<Option<Partition>>, LoadError> {
    let Some(column) = &table.partition else { return Ok(vec![None; rows.num_rows()]) };
    let times = time_column(rows, column)?;
    // Neighbouring rows mostly belong to one partition, so the last partition is tried first.
    let mut last: Option<(TimeRange, Partition)> = None;
    let mut partition = |time_us: i64| match last {
        Some((bounds, partition)) if bounds.holds(time_us) => partition,
        _ => {
            let partition = partition_by.of(time_us);
            last = Some((partition_by.bounds(partition), partition));
            partition
        }
    };
    Ok(times.values().iter().map(|time_us| Some(partition(*time_us))).collect())
}

/// Returns the partitions to which these rows belong; none for a table without partitions.
pub(super) fn distinct_partitions(
    table: &Table,
    partition_by: PartitionBy,
    rows: &[RecordBatch],
) -> Result<BTreeSet<Partition>, LoadError> {
    let mut partitions = BTreeSet::new();
    for batch in rows {
        partitions.extend(partitions_of(table, partition_by, batch)?.into_iter().flatten());
    }
    Ok(partitions)
}
