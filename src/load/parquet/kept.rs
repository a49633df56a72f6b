//! What scans are compared with, of one partition: read once for all windows of it. In a file that is sorted by survey, the rows of each
//! window lie everywhere.

use arrow::{
    array::{BooleanArray, RecordBatch},
    buffer::BooleanBuffer,
    compute::filter_record_batch,
    datatypes::TimestampMicrosecondType,
};

use super::partition::Partition;
use crate::{
    load::{Engine, LoadError, TimeBounds, stage::column_of},
    schema::Table,
};

/// Larger partitions are asked for a window at a time.
pub(super) const ROWS_MAX: u64 = 250_000;
/// The moment by which rows belong to a window.
const MOMENT_COLUMN: &str = "created_at";

/// Some expressions over all rows of a partition.
#[derive(Debug)]
pub(super) struct Kept {
    table: &'static Table,
    partition: Partition,
    expressions: String,
    /// The moment stands behind the expressions.
    rows: Vec<RecordBatch>,
}

impl Kept {
    /// Reads them; `relation` holds the rows of the partition, and no others.
    pub(super) fn read(
        engine: &Engine,
        (table, partition): (&'static Table, Partition),
        relation: &str,
        expressions: &str,
    ) -> Result<Self, LoadError> {
        let sql = format!("SELECT {expressions}, t.{MOMENT_COLUMN} FROM {relation} t");
        let mut rows = Vec::new();
        engine.each_batch("read a partition", &sql, |batch| {
            rows.push(batch);
            Ok(())
        })?;
        Ok(Self { table, partition, expressions: expressions.to_owned(), rows })
    }

    /// Whether it is of this partition.
    pub(super) fn is_of(&self, table: &Table, partition: Partition) -> bool {
        self.table.name == table.name && self.partition == partition
    }

    /// Whether it has these expressions.
    pub(super) fn has(&self, expressions: &str) -> bool {
        self.expressions == expressions
    }

    /// Whether there is a row within the bounds.
    pub(super) fn holds_within(&self, bounds: TimeBounds) -> Result<bool, LoadError> {
        for batch in &self.rows {
            if within(batch, bounds)?.has_true() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The expressions of the rows within the bounds.
    pub(super) fn within(&self, bounds: TimeBounds) -> Result<Vec<RecordBatch>, LoadError> {
        let mut rows = Vec::new();
        for batch in &self.rows {
            let kept = within(batch, bounds)?;
            if kept.has_true() {
                let kept = filter_record_batch(batch, &kept);
                rows.push(kept.map_err(|error| LoadError::Contract(format!("{}: {error}", self.table.name)))?);
            }
        }
        Ok(rows)
    }
}

/// Which rows are within the bounds. A moment of a row is never NULL.
fn within(batch: &RecordBatch, bounds: TimeBounds) -> Result<BooleanArray, LoadError> {
    let moments = column_of::<TimestampMicrosecondType>(batch, MOMENT_COLUMN)?.values();
    let is_within = |at: usize| (bounds.start_us..bounds.end_us).contains(&moments[at]);
    Ok(BooleanArray::new(BooleanBuffer::collect_bool(moments.len(), is_within), None))
}
