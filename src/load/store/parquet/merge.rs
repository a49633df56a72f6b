//! Merges sorted runs into one stream. In memory are one batch of each run and the current chunk.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use arrow::{array::RecordBatch, compute::interleave_record_batch, datatypes::SchemaRef, row::Rows};

use super::{
    order::SortKeys,
    pick::Pick,
    rows_reader::{RowsReader, read_picked},
    table_file::CHUNK_ROWS,
};
use crate::{
    load::{LoadError, error::invalid_rows},
    schema::Table,
};

/// A sorted run, open for reading.
pub(super) struct OpenRun<'a> {
    pub(super) reader: &'a RowsReader,
    /// The rows that take part.
    pub(super) pick: &'a Pick,
}

/// The next row of a run.
struct Head {
    keys: Arc<Rows>,
    row: usize,
    run: usize,
}

impl Ord for Head {
    /// The greatest head is the first row in order; among equal rows the oldest run comes first.
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = other.keys.row(other.row).cmp(&self.keys.row(self.row));
        keys.then_with(|| other.run.cmp(&self.run))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Head {}

/// The read position in a run.
struct Cursor<'a> {
    batches: Box<dyn Iterator<Item = Result<RecordBatch, LoadError>> + 'a>,
    /// Index of its current batch in `batches`.
    slot: Option<usize>,
}

/// The rows of several runs in order, the oldest run first among equal rows.
pub(super) struct Merge<'a> {
    table: &'static Table,
    keys: SortKeys,
    cursors: Vec<Cursor<'a>>,
    heads: BinaryHeap<Head>,
    batches: Vec<RecordBatch>,
}

impl<'a> Merge<'a> {
    /// Merges these runs, the oldest first. `schema` is the schema of the table's Parquet files.
    pub(super) fn of(table: &'static Table, schema: &'a SchemaRef, runs: &'a [OpenRun<'a>]) -> Result<Self, LoadError> {
        let cursor =
            |run: &'a OpenRun<'a>| Cursor { batches: Box::new(read_picked(run.reader, run.pick, schema)), slot: None };
        let keys = SortKeys::new(table).map_err(invalid_rows(table))?;
        let cursors: Vec<_> = runs.iter().map(cursor).collect();
        let mut merge = Self { table, keys, cursors, heads: BinaryHeap::new(), batches: Vec::new() };
        (0..runs.len()).try_for_each(|run| merge.load_next(run))?;
        Ok(merge)
    }

    /// The next [`CHUNK_ROWS`] rows, fewer at the end; `None` after the end.
    pub(super) fn next_chunk(&mut self) -> Result<Option<RecordBatch>, LoadError> {
        self.drop_finished();
        let mut positions = Vec::with_capacity(CHUNK_ROWS);
        while positions.len() < CHUNK_ROWS {
            let Some(head) = self.heads.pop() else { break };
            self.take_consecutive(head, &mut positions)?;
        }
        if positions.is_empty() {
            return Ok(None);
        }
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        interleave_record_batch(&batches, &positions).map(Some).map_err(invalid_rows(self.table))
    }

    /// Number of batches in memory.
    #[cfg(test)]
    pub(super) fn open_batches(&self) -> usize {
        self.batches.len()
    }

    /// Takes rows of one run until another run has the next row.
    fn take_consecutive(&mut self, mut head: Head, positions: &mut Vec<(usize, usize)>) -> Result<(), LoadError> {
        let Some(slot) = self.cursors.get(head.run).and_then(|cursor| cursor.slot) else { return Ok(()) };
        loop {
            positions.push((slot, head.row));
            head.row += 1;
            if head.row == head.keys.num_rows() {
                return self.load_next(head.run);
            }
            if positions.len() == CHUNK_ROWS || self.heads.peek().is_some_and(|next| *next > head) {
                self.heads.push(head);
                return Ok(());
            }
        }
    }

    /// Reads the next batch of a run, if there is one.
    fn load_next(&mut self, run: usize) -> Result<(), LoadError> {
        let Some(cursor) = self.cursors.get_mut(run) else { return Ok(()) };
        cursor.slot = None;
        for batch in cursor.batches.by_ref() {
            let batch = batch?;
            if batch.num_rows() > 0 {
                let keys = Arc::new(self.keys.of(&batch).map_err(invalid_rows(self.table))?);
                cursor.slot = Some(self.batches.len());
                self.batches.push(batch);
                self.heads.push(Head { keys, row: 0, run });
                break;
            }
        }
        Ok(())
    }

    /// Drops the batches that no run reads any more.
    fn drop_finished(&mut self) {
        let mut before: Vec<Option<RecordBatch>> = std::mem::take(&mut self.batches).into_iter().map(Some).collect();
        for cursor in &mut self.cursors {
            let batch = cursor.slot.and_then(|slot| before.get_mut(slot)?.take());
            cursor.slot = batch.map(|batch| {
                self.batches.push(batch);
                self.batches.len() - 1
            });
        }
    }
}
