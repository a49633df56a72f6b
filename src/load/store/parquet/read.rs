//! Reads rows of a table from the files of partitions, and from layers that are not merged into these files yet. These
//! are the layers of waiting parts (committed, not published) and of the open transaction. Opens only files that can
//! have rows within the range.

use std::{collections::BTreeSet, path::Path, sync::Arc};

use super::{
    part::Layer,
    partition::Partition,
    partition_cache::{CacheRequest, CachedRows, PartitionCache},
    removed_keys::RemovedKeys,
    root::Root,
    rows_reader::{Pick, PickedRows, RowsReader, pick_keys, pick_partition, pick_within, read_picked},
    sources::{Content, FILE_ORDER, Source, Sources},
    tree::Tree,
};
use crate::{
    load::{
        LoadError,
        store::{Filter, KeySet, Take, TimeRange, read_schema, removal_columns},
    },
    schema::Table,
};

/// The state of a store that a read needs.
pub(super) struct TableRead<'a> {
    pub(super) root: &'a Root,
    pub(super) tree: &'a mut Tree,
    pub(super) cache: &'a mut PartitionCache,
    /// The layers that are not merged into the files of partitions, oldest first.
    pub(super) layers: Vec<&'a Layer>,
    /// Largest number of removed keys in memory.
    pub(super) removed_keys_max: usize,
}

/// A read of one partition, with the parameters of the table's read.
struct PartitionRead<'a> {
    table: &'static Table,
    partition: Option<Partition>,
    /// The wanted times within the partition; `None` if all rows of the partition are wanted.
    range: Option<TimeRange>,
    columns: &'a [&'a str],
    filter: &'a Filter<'a>,
    /// True for the partition that contains most of the read's range. Reads of further windows in this partition are
    /// likely to follow, so its rows are cached.
    is_main: bool,
}

impl TableRead<'_> {
    /// Calls `take` with batches of `columns` of the rows that match the filter. An empty key set reads nothing.
    pub(super) fn read(
        &mut self,
        table: &'static Table,
        columns: &[&str],
        filter: &Filter<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        read_schema(table, columns)?;
        if filter.keys.is_some_and(KeySet::is_empty) {
            return Ok(());
        }
        let range = filter.range.filter(|_| table.partition.is_some());
        let partition_by = self.root.partition_by();
        let partitions = self.partitions(table, range);
        // Length of the overlap of the read's range and the partition.
        let overlap = |partition: Option<Partition>| {
            let (range, bounds) = (range?, partition_by.bounds(partition?));
            intersection(range, bounds).map(|common| common.end_us.saturating_sub(common.start_us))
        };
        let main_partition = partitions.iter().copied().max_by_key(|partition| overlap(*partition)).flatten();
        for partition in partitions {
            // `None` if the range covers the complete partition, so that its rows need not be tested.
            let range = range.zip(partition).and_then(|(range, partition)| {
                let bounds = partition_by.bounds(partition);
                intersection(range, bounds).filter(|common| *common != bounds)
            });
            let is_main = partition == main_partition;
            self.read_partition(&PartitionRead { table, partition, range, columns, filter, is_main }, take)?;
        }
        Ok(())
    }

    /// Returns the partitions that can have rows within the range. For a table without partitions, the only entry is
    /// `None`; there is no entry if neither a file nor a layer has rows.
    fn partitions(&self, table: &'static Table, range: Option<TimeRange>) -> BTreeSet<Option<Partition>> {
        let partition_by = self.root.partition_by();
        let mut partitions: BTreeSet<_> = self.tree.partitions_within(self.root, table, range).collect();
        let layers = self.layers.iter().filter_map(|layer| layer.table(table));
        let added = layers.flat_map(|changes| &changes.added).filter(|file| file.may_contain(None, range));
        for file in added {
            let is_within =
                |partition: &&Partition| range.is_none_or(|range| partition_by.bounds(**partition).overlaps(range));
            partitions.extend(file.partitions.iter().filter(is_within).copied().map(Some));
            partitions.extend(file.partitions.is_empty().then_some(None));
        }
        partitions
    }

    /// Reads the rows of one partition: from its file (or the cache) and from the layers, without the rows that later
    /// layers remove.
    fn read_partition(&mut self, read: &PartitionRead<'_>, take: &mut Take<'_>) -> Result<(), LoadError> {
        let file = self.tree.file(self.root, read.table, read.partition)?;
        let file = file.map(|file| file.path);
        let sources = Sources::find(read.table, read.partition, read.range, file, &self.layers);
        let partition_by = self.root.partition_by();
        let range = read.range.or(read.partition.map(|partition| partition_by.bounds(partition)));
        let mut removed = RemovedKeys::new(read.table, range, &sources.removals, self.removed_keys_max)?;
        for source in &sources.rows {
            let cached = if source.order == FILE_ORDER { self.cached_rows(read, &source.path)? } else { None };
            match cached {
                Some(cached) => {
                    let pick = read.pick(cached.as_ref(), cached.all(), read.range)?;
                    let pick = removed.exclude(cached.as_ref(), pick, source.order)?;
                    if cached.has(read.columns) {
                        read.hand_over(cached.as_ref(), &pick, take)?;
                    } else if pick.count() > 0 {
                        read.hand_over(&RowsReader::open(&source.path)?, &cached.in_file(&pick), take)?;
                    }
                }
                None => self.read_source(read, source, &mut removed, take)?,
            }
        }
        Ok(())
    }

    /// Reads the rows of one source from its file, without the cache and without the rows that later layers remove.
    fn read_source(
        &self,
        read: &PartitionRead<'_>,
        source: &Source,
        removed: &mut RemovedKeys<'_>,
        take: &mut Take<'_>,
    ) -> Result<(), LoadError> {
        let reader = RowsReader::open(&source.path)?;
        let table = read.table;
        let mut pick = read.range.map_or_else(|| reader.all(), |range| reader.may_be_within(table, range));
        if let (Content::SeveralPartitions, Some(partition)) = (source.content, read.partition) {
            pick = pick_partition(table, &reader, &pick, self.root.partition_by(), partition)?;
        }
        // Rows need not be tested if the statistics show that all of them are within the range.
        let is_within = |range: &TimeRange| reader.bounds(table).is_some_and(|bounds| range.with(bounds) == *range);
        let range = read.range.filter(|range| !is_within(range));
        let pick = read.pick(&reader, pick, range)?;
        let pick = removed.exclude(&reader, pick, source.order)?;
        read.hand_over(&reader, &pick, take)
    }

    /// Returns the cached rows of the partition's file, if the cache has the rows of the read. For a read without keys
    /// of the main partition, reads missing rows into the cache. Returns `None` for a read of the complete partition,
    /// which is not cached.
    fn cached_rows(&mut self, read: &PartitionRead<'_>, path: &Path) -> Result<Option<Arc<CachedRows>>, LoadError> {
        let (Some(partition), Some(range)) = (read.partition, read.range) else { return Ok(None) };
        let (table, columns) = (read.table, read.columns);
        let Some(keys) = read.filter.keys else {
            let request = CacheRequest { table, partition, range, columns };
            return match self.cache.find(request) {
                None if read.is_main => self.cache.insert(&RowsReader::open(path)?, request),
                found => Ok(found),
            };
        };
        // A read by keys often follows a read of the same window, so the cache may have the key columns. No new rows
        // are cached.
        let needed = [keys.columns(), &removal_columns(table)].concat();
        Ok(self.cache.find(CacheRequest { table, partition, range, columns: &needed }))
    }
}

impl PartitionRead<'_> {
    /// Reduces a pick to the rows that the read wants: rows within `range` that have one of the filter's keys. No
    /// range, or a filter without keys, excludes no row.
    fn pick(&self, rows: &dyn PickedRows, pick: Pick, range: Option<TimeRange>) -> Result<Pick, LoadError> {
        let pick = match range {
            Some(range) => pick_within(self.table, rows, &pick, range)?,
            None => pick,
        };
        match self.filter.keys {
            Some(keys) => pick_keys(self.table, rows, &pick, keys),
            None => Ok(pick),
        }
    }

    /// Passes the picked rows to `take`, with the columns of the read.
    fn hand_over(&self, rows: &dyn PickedRows, pick: &Pick, take: &mut Take<'_>) -> Result<(), LoadError> {
        let schema = read_schema(self.table, self.columns)?;
        read_picked(rows, pick, &schema).try_for_each(|batch| take(batch?))
    }
}

/// Returns the range that is within both ranges, or `None` if they do not overlap.
fn intersection(one: TimeRange, other: TimeRange) -> Option<TimeRange> {
    let common = TimeRange { start_us: one.start_us.max(other.start_us), end_us: one.end_us.min(other.end_us) };
    (common.start_us < common.end_us).then_some(common)
}
