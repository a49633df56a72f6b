//! Partitions of which all rows come together, as in a backfill or a replay: their files are written at once, from rows in memory, as a
//! piece of the part that commits them. Publish only puts them in their places, where nothing else has come to them meanwhile.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::{filter_record_batch, max, min},
    datatypes::TimestampMicrosecondType,
};

use super::{
    LoadError, ParquetDestination, PartitionBy, Table,
    disk::Disk,
    known_table,
    partition::Partition,
    table_file::{self, Notes},
    tree::FileFacts,
    workers::{share_out, workers},
};
use crate::{
    load::{Fill, TimeBounds, diff::bounds_of, pending::Waiting, stage::column_of},
    model::{Stream, Window},
};

/// Bytes of rows that wait for their partitions to be complete, at most.
const BYTES_MAX: u64 = 160 << 20;
/// Their share of the engine's memory, at most: one so many-th.
const MEMORY_SHARE: u64 = 4;
/// A part is to bring at least so many-th of what may wait.
const WORTH_A_PART: usize = 2;

/// All rows of a partition that has none yet.
pub(super) struct Whole {
    pub(super) partition: Partition,
    pub(super) fill: Fill,
}

/// Bytes of rows that may wait, with so much memory for the engine.
pub(super) fn pending_bytes_max(memory_limit_bytes: u64) -> usize {
    usize::try_from(BYTES_MAX.min(memory_limit_bytes / MEMORY_SHARE)).unwrap_or(usize::MAX)
}

impl ParquetDestination {
    /// Commits the scans of whose partitions no more is coming, if they are worth a part; and all, if they take too much memory.
    pub(super) fn commit_if_large(&mut self, coming: &[(Stream, Window)]) -> Result<(), LoadError> {
        let by = self.root.partition_by();
        let coming: Vec<_> =
            coming.iter().map(|(stream, window)| (*stream, partitions_of(bounds_of(*window), by))).collect();
        let is_open = |waiting: &Waiting| {
            let stream = waiting.applied.scan.scope.stream;
            let of_stream = || coming.iter().filter(|coming| coming.0 == stream).map(|coming| coming.1);
            let partitions = waiting.bounds.map(|bounds| partitions_of(bounds, by));
            partitions.is_some_and(|(first, last)| of_stream().any(|coming| coming.0 <= last && first <= coming.1))
        };
        // A kill must not leave what leans on a scan without it: the first ones, in the order in which they were applied. Unless
        // nothing has to survive a kill. What is open is put aside.
        let (keeps_order, mut is_behind_open) = (!self.is_built_anew, false);
        let open = self.pending.take_out(|waiting| {
            let is_open = is_open(waiting);
            is_behind_open |= is_open;
            is_open || (keeps_order && is_behind_open)
        });
        let is_full = self.pending.bytes() + open.bytes() >= self.pending_bytes_max;
        let is_worth_it = self.pending.bytes() >= self.pending_bytes_max / WORTH_A_PART;
        let committed = if is_full || is_worth_it { self.commit_pending() } else { Ok(()) };
        self.pending.append(open);
        committed?;
        if self.pending.bytes() >= self.pending_bytes_max { self.commit_pending() } else { Ok(()) }
    }

    /// Takes the rows of partitions that have none yet out of these.
    pub(super) fn take_whole(&mut self, fills: Vec<Fill>) -> Result<(Vec<Whole>, Vec<Fill>), LoadError> {
        let (mut whole, mut rest): (Vec<Whole>, Vec<Fill>) = (Vec::new(), Vec::new());
        for fill in fills {
            let mut left: Option<Fill> = None;
            for (partition, fill) in by_partition(fill, self.root.partition_by())? {
                match (partition, &mut left) {
                    (Some(partition), _) if self.is_free(fill.table, partition)? => {
                        whole.push(Whole { partition, fill })
                    }
                    (_, Some(left)) => left.append(fill),
                    (_, None) => left = Some(fill),
                }
            }
            rest.extend(left);
        }
        // The largest first: they are to end at the same time.
        whole.sort_by_key(|whole| std::cmp::Reverse(whole.fill.bytes()));
        Ok((whole, rest))
    }

    /// An error where a part lacks the file of a partition that has not been put in its place either.
    pub(super) fn require_whole_files(&mut self) -> Result<(), LoadError> {
        for part in &self.waiting {
            for (name, changes) in &part.manifest.tables {
                let table = known_table(name)?;
                for partition in changes.whole.iter().copied().map(Some) {
                    let in_place = self.tree.file(&self.root, table, partition)?;
                    let is_in_place = in_place.is_some_and(|file| file.facts.applied_part >= part.number());
                    if !is_in_place && part.whole_file(table, partition).is_none() {
                        let why = format!("a commit that waits for publish has lost its file of {name}");
                        return Err(LoadError::Damaged { path: self.root.path().to_owned(), why });
                    }
                }
            }
        }
        Ok(())
    }

    fn is_free(&mut self, table: &'static Table, partition: Partition) -> Result<bool, LoadError> {
        let is_waiting = self.waiting.iter().any(|part| part.touches(table, Some(partition)));
        Ok(!is_waiting && self.tree.file(&self.root, table, Some(partition))?.is_none())
    }
}

/// Writes files, durably but for their folder, on as many threads as the engine may have.
pub(super) fn write_files(
    threads: u32,
    disk: &Disk,
    whole: &[Whole],
    path: impl Fn(&Whole) -> PathBuf + Sync,
    notes: &Notes<'_>,
) -> Result<HashMap<(String, Partition), FileFacts>, LoadError> {
    let written = Mutex::new(HashMap::new());
    share_out(whole, vec![(); workers(threads, whole)], |(), next| {
        let (path, table) = (path(next), next.fill.table);
        disk.step("write", &path)?;
        let rows = table_file::write_whole(&next.fill, &path, notes)?;
        disk.sync_file(&path)?;
        let facts = FileFacts { applied_part: notes.applied_part, rows, missing: Vec::new() };
        // What a thread that died leaves in it is whole: facts of files that are written.
        let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
        written.insert((table.name.clone(), next.partition), facts);
        Ok(())
    })?;
    Ok(written.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The first and the last partition of a stretch.
fn partitions_of(bounds: TimeBounds, by: PartitionBy) -> (Partition, Partition) {
    (by.of(bounds.start_us), by.of(bounds.end_us.saturating_sub(1)))
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
