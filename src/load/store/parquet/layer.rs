//! A layer: changes of a transaction as files in the folder of a part, at most one change for each table.
//!
//! The removals of a layer apply to the rows of older layers and of the partition's file. They do not apply to the rows
//! that the layer itself or a later layer adds.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use super::partition::Partition;
use crate::{load::store::TimeRange, schema::Table};

/// A file of rows or of keys in the folder of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RowsFile {
    /// Name in the folder of the part.
    pub(super) name: String,
    /// Number of rows or keys in the file.
    pub(super) rows: u64,
    /// Half-open range of the partition column, in epoch microseconds; `None` for a table without partitions, or if
    /// unknown.
    bounds_us: Option<[i64; 2]>,
    /// The partitions that the rows belong to; empty for a table without partitions.
    pub(super) partitions: BTreeSet<Partition>,
}

impl RowsFile {
    /// Describes a file with these rows or keys.
    pub(super) fn new(name: String, rows: u64, bounds: Option<TimeRange>, partitions: BTreeSet<Partition>) -> Self {
        let bounds_us = bounds.map(|bounds| [bounds.start_us, bounds.end_us]);
        Self { name, rows, bounds_us, partitions }
    }

    /// Returns the range of the partition column over the rows. Returns `None` for a table without partitions, or if
    /// the range is unknown.
    pub(super) fn bounds(&self) -> Option<TimeRange> {
        self.bounds_us.map(|[start_us, end_us]| TimeRange { start_us, end_us })
    }

    /// Returns true if the file may have rows of the partition within the range. If `partition` is `None`, any
    /// partition counts; if `range` is `None`, any time counts. A file of unknown range may have rows at any time.
    pub(super) fn may_contain(&self, partition: Option<Partition>, range: Option<TimeRange>) -> bool {
        let is_of_partition = partition.is_none_or(|partition| self.partitions.contains(&partition));
        is_of_partition && self.bounds().zip(range).is_none_or(|(bounds, range)| bounds.overlaps(range))
    }

    /// Returns the partitions of the rows. For a table without partitions, the list has one entry: `None`.
    fn partition_keys(&self) -> Vec<Option<Partition>> {
        if self.partitions.is_empty() { vec![None] } else { self.partitions.iter().copied().map(Some).collect() }
    }
}

/// The changes of a layer in one table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TableLayer {
    /// The file with the keys of removed rows, in the columns of [`crate::load::store::removal_columns`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) removed: Option<RowsFile>,
    /// The files with added rows, one for each partition. Parts of earlier program versions have rows of several
    /// partitions in one file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) added: Vec<RowsFile>,
}

impl TableLayer {
    /// Returns the partitions in which rows are removed or added.
    pub(super) fn partitions(&self) -> BTreeSet<Option<Partition>> {
        self.removed.iter().chain(&self.added).flat_map(RowsFile::partition_keys).collect()
    }
}

/// The changes of a layer by table, as in the manifest of a part.
pub(super) type LayerTables = BTreeMap<String, TableLayer>;

/// One layer of a part.
#[derive(Clone, Debug)]
pub(super) struct Layer {
    /// Number of the part.
    pub(super) part: u64,
    /// Folder of the part.
    pub(super) folder: PathBuf,
    /// The changes by table.
    pub(super) tables: LayerTables,
}

impl Layer {
    /// Returns the changes of the layer in one table, or `None` if the layer does not change the table.
    pub(super) fn table(&self, table: &Table) -> Option<&TableLayer> {
        self.tables.get(&table.name)
    }

    /// Returns the path of a file of the layer.
    pub(super) fn path(&self, file: &RowsFile) -> PathBuf {
        self.folder.join(&file.name)
    }
}
