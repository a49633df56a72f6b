//! Merges sorted runs (sorted files) into one sorted stream of chunks. Keeps in memory one batch of each run, finished
//! batches that have rows of the current chunk, and the chunk.

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use arrow::{array::RecordBatch, compute::interleave_record_batch, datatypes::SchemaRef, row::Rows};

use super::{
    chunk::ChunkSize,
    order::SortKeys,
    rows_reader::{Pick, RowsReader, read_picked},
};
use crate::{
    load::{LoadError, error::invalid_rows},
    model::LongTexts,
    schema::Table,
};

/// A sorted run, open for reading.
pub(super) struct OpenRun<'a> {
    pub(super) reader: &'a RowsReader,
    /// The rows of the run that are merged.
    pub(super) pick: &'a Pick,
}

/// The next row of a run that was not merged yet.
struct Head {
    /// The sort keys of the run's current batch.
    keys: Arc<Rows>,
    long_texts: Arc<LongTexts>,
    /// Index of the row in the current batch.
    row: usize,
    /// Index of the run in [`Merge::cursors`].
    run: usize,
}

impl Ord for Head {
    /// Compares in reverse order, because the heap returns the greatest head first. Among rows with equal sort keys,
    /// the row of the oldest run comes first.
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
    /// Index of the run's current batch in [`Merge::batches`]; `None` after the end of the run.
    slot: Option<usize>,
}

/// A merge of several sorted runs, which returns their rows in order. Among rows with equal sort keys, the rows of the
/// oldest run come first.
pub(super) struct Merge<'a> {
    table: &'static Table,
    keys: SortKeys,
    /// The position in each run.
    cursors: Vec<Cursor<'a>>,
    /// The next row of each run.
    heads: BinaryHeap<Head>,
    /// The current batch of each run, and finished batches whose rows are in the current chunk.
    batches: Vec<RecordBatch>,
}

impl<'a> Merge<'a> {
    /// Begins a merge of these runs, the oldest first. `schema` is the schema of the table's Parquet files.
    pub(super) fn of(table: &'static Table, schema: &'a SchemaRef, runs: &'a [OpenRun<'a>]) -> Result<Self, LoadError> {
        let cursor =
            |run: &'a OpenRun<'a>| Cursor { batches: Box::new(read_picked(run.reader, run.pick, schema)), slot: None };
        let keys = SortKeys::new(table).map_err(invalid_rows(table))?;
        let cursors: Vec<_> = runs.iter().map(cursor).collect();
        let mut merge = Self { table, keys, cursors, heads: BinaryHeap::new(), batches: Vec::new() };
        (0..runs.len()).try_for_each(|run| merge.load_next(run))?;
        Ok(merge)
    }

    /// Returns the next chunk of rows. Returns `None` after the end.
    pub(super) fn next_chunk(&mut self) -> Result<Option<RecordBatch>, LoadError> {
        self.drop_finished();
        let (mut positions, mut size) = (Vec::new(), ChunkSize::default());
        while !size.is_full() {
            let Some(head) = self.heads.pop() else { break };
            self.take_consecutive(head, &mut positions, &mut size)?;
        }
        if positions.is_empty() {
            return Ok(None);
        }
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        interleave_record_batch(&batches, &positions).map(Some).map_err(invalid_rows(self.table))
    }

    /// Returns the number of batches in memory.
    #[cfg(test)]
    pub(super) fn open_batches(&self) -> usize {
        self.batches.len()
    }

    /// Adds the positions of consecutive rows of one run to the chunk's `positions`, from `head` on. Stops when another
    /// run has the next row, the chunk is full, or the batch ends. At the end of the batch, the next batch of the run
    /// is read.
    fn take_consecutive(
        &mut self,
        mut head: Head,
        positions: &mut Vec<(usize, usize)>,
        size: &mut ChunkSize,
    ) -> Result<(), LoadError> {
        let Some(slot) = self.cursors.get(head.run).and_then(|cursor| cursor.slot) else { return Ok(()) };
        loop {
            positions.push((slot, head.row));
            size.add(head.long_texts.row_bytes(head.row));
            head.row += 1;
            if head.row == head.keys.num_rows() {
                return self.load_next(head.run);
            }
            if size.is_full() || self.heads.peek().is_some_and(|next| *next > head) {
                self.heads.push(head);
                return Ok(());
            }
        }
    }

    /// Reads the next batch of a run that has rows, and adds its first row to the heads. At the end of the run, the run
    /// has no head any more.
    fn load_next(&mut self, run: usize) -> Result<(), LoadError> {
        let Some(cursor) = self.cursors.get_mut(run) else { return Ok(()) };
        cursor.slot = None;
        for batch in cursor.batches.by_ref() {
            let batch = batch?;
            if batch.num_rows() > 0 {
                let keys = Arc::new(self.keys.of(&batch).map_err(invalid_rows(self.table))?);
                let long_texts = Arc::new(LongTexts::of(&batch));
                cursor.slot = Some(self.batches.len());
                self.batches.push(batch);
                self.heads.push(Head { keys, long_texts, row: 0, run });
                break;
            }
        }
        Ok(())
    }

    /// Drops the batches of which all rows have been merged, and renumbers the others.
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
