//! Partitions that are written whole, from rows in memory, while the warehouse is built anew: neither as a part before nor read again.
//!
//! A kill in between leaves files without their ledger. That is for a folder alone of which nothing is kept then.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    thread,
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::{filter_record_batch, max, min},
    datatypes::TimestampMicrosecondType,
};

use super::{
    LoadError, ParquetDestination, PartitionBy, Pending, Table,
    partition::{Partition, overlap},
    table_file::{self, Notes},
    tree::FileFacts,
};
use crate::{
    load::{Fill, TimeBounds, stage::column_of},
    model::Window,
};

/// Bytes of rows that wait for their partitions to be complete.
pub(super) const BYTES_MAX: usize = 128 * 1024 * 1024;
/// Scans that were applied last, of which others may be near: the partitions that they touch are not taken for complete.
const SCANS_NEAR: usize = 2;

/// A partition to be written.
type Whole = (Partition, Fill);

impl ParquetDestination {
    /// Writes what waits, if it is much: whole partitions as they are, and where that does not help a part.
    pub(super) fn write_if_large(&mut self) -> Result<(), LoadError> {
        let Some(bytes_max) = self.built_bytes_max else {
            return if self.pending.is_large() { self.commit_pending() } else { Ok(()) };
        };
        if self.pending.bytes() < bytes_max {
            return Ok(());
        }
        let last = self.pending.scans.iter().rev().take(SCANS_NEAR);
        let near: Vec<TimeBounds> = last.map(|applied| bounds_of(applied.scan.window)).collect();
        self.write_whole(&near)?;
        // The rest is of one partition, more or less.
        if self.pending.bytes() >= bytes_max / 2 { self.commit_pending() } else { Ok(()) }
    }

    /// Writes each partition of which rows wait and none are held, unless it is near; what is left goes on waiting.
    pub(super) fn write_whole(&mut self, near: &[TimeBounds]) -> Result<(), LoadError> {
        self.change(|this| {
            let Pending { scans, tables, .. } = std::mem::take(&mut this.pending);
            let run_id = scans.last().map(|applied| applied.scan.run_id.0.clone());
            let (mut whole, mut rest) = (Vec::new(), Vec::new());
            for fill in tables {
                for (partition, fill) in by_partition(fill, this.root.partition_by())? {
                    match partition {
                        Some(partition) if this.is_free(fill.table, partition, near)? => whole.push((partition, fill)),
                        _ => rest.push(fill),
                    }
                }
            }
            // The largest first: they are to end at the same time.
            whole.sort_by_key(|(_, fill)| std::cmp::Reverse(bytes_of(fill)));
            this.write_files(&whole, run_id.as_deref())?;
            this.pending = Pending::of(scans, rest);
            Ok(())
        })
    }

    fn is_free(&mut self, table: &'static Table, partition: Partition, near: &[TimeBounds]) -> Result<bool, LoadError> {
        let bounds = self.root.partition_by().bounds(partition);
        let is_near = near.iter().any(|near| overlap(*near, bounds));
        let is_waiting = self.waiting.iter().any(|part| part.touches(table, Some(partition)));
        Ok(!is_near && !is_waiting && self.tree.file(&self.root, table, Some(partition))?.is_none())
    }

    /// On as many threads as the engine may have.
    fn write_files(&mut self, whole: &[Whole], run_id: Option<&str>) -> Result<(), LoadError> {
        let workers = whole.len().min(usize::try_from(self.engine.threads()).unwrap_or(1));
        let (root, disk, identity) = (&self.root, &self.disk, &self.identity);
        // No part that there is holds any of it.
        let applied_part = self.next_number - 1;
        let notes = Notes { applied_part, identity, run_id };
        let (left, tree) = (Mutex::new(whole.iter()), Mutex::new(&mut self.tree));
        let work = |worker: usize| -> Result<(), LoadError> {
            loop {
                // What a thread that died leaves in these is whole: an iterator, and notes of files that are in place.
                let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((partition, fill)) = next else { return Ok(()) };
                let target = root.data_file(fill.table, Some(*partition));
                let fresh = root.scratch().join(format!("{}.{worker}.parquet", fill.table.name));
                disk.step("write", &fresh)?;
                let rows = table_file::write_whole(fill, &fresh, &notes)?;
                disk.sync_file(&fresh)?;
                target.parent().map_or(Ok(()), |folder| disk.create_folder(folder))?;
                disk.rename(&fresh, &target)?;
                let facts = FileFacts { applied_part, rows, missing: Vec::new() };
                tree.lock().unwrap_or_else(PoisonError::into_inner).note(fill.table, Some(*partition), Some(facts));
            }
        };
        let work = &work;
        thread::scope(|scope| {
            let threads: Vec<_> = (0..workers).map(|worker| scope.spawn(move || work(worker))).collect();
            let died = |_| Err(LoadError::Contract("a thread that writes files died".to_owned()));
            let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect();
            outcomes.into_iter().collect()
        })
    }
}

fn bounds_of(window: Window) -> TimeBounds {
    TimeBounds { start_us: window.start_ms.saturating_mul(1000), end_us: window.end_ms.saturating_mul(1000) }
}

fn bytes_of(fill: &Fill) -> usize {
    fill.rows.iter().map(RecordBatch::get_array_memory_size).sum()
}

/// The rows by the partition in which they belong; `None` for a table that is not cut.
fn by_partition(fill: Fill, by: PartitionBy) -> Result<Vec<(Option<Partition>, Fill)>, LoadError> {
    let table = fill.table;
    let Some(column) = &table.partition else { return Ok(vec![(None, fill)]) };
    let mut partitions: BTreeMap<Partition, Vec<RecordBatch>> = BTreeMap::new();
    for batch in fill.rows {
        let moments = column_of::<TimestampMicrosecondType>(&batch, column)?;
        let (Some(first), Some(last)) = (min(moments), max(moments)) else { continue };
        if by.of(first) == by.of(last) {
            partitions.entry(by.of(first)).or_default().push(batch);
            continue;
        }
        let mut places: BTreeMap<Partition, Vec<bool>> = BTreeMap::new();
        for (at, moment) in moments.values().iter().enumerate() {
            places.entry(by.of(*moment)).or_insert_with(|| vec![false; moments.len()])[at] = true;
        }
        for (partition, kept) in places {
            let rows = filter_record_batch(&batch, &BooleanArray::from(kept))
                .map_err(|error| LoadError::Contract(format!("{}: {error}", table.name)))?;
            partitions.entry(partition).or_default().push(rows);
        }
    }
    let within = |partition: Partition, held: TimeBounds| {
        let whole = by.bounds(partition);
        TimeBounds { start_us: held.start_us.max(whole.start_us), end_us: held.end_us.min(whole.end_us) }
    };
    let fill_of = |(partition, rows)| {
        let bounds = fill.bounds.map(|held| within(partition, held));
        (Some(partition), Fill { table, rows, bounds })
    };
    Ok(partitions.into_iter().map(fill_of).collect())
}
