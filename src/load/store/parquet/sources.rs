//! Where the rows of a partition are: its file, and the files of layers that removes_after it, oldest first.

use std::path::PathBuf;

use super::{layer::Layer, partition::Partition};
use crate::{load::store::TimeRange, schema::Table};

/// Order of the file of a partition: before every layer.
pub(super) const FILE_ORDER: usize = 0;

/// Whether a file has rows of other partitions too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    OnePartition,
    /// A file of rows in a part that an earlier version wrote.
    SeveralPartitions,
}

/// A file with rows of the partition.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Place among the layers, from 1; [`FILE_ORDER`] for the file of the partition.
    pub(super) order: usize,
    pub(super) path: PathBuf,
    pub(super) content: Content,
}

/// A file with keys of removed rows.
#[derive(Clone, Debug)]
pub(super) struct Removal {
    /// Place of its layer. The keys apply to sources of a lower order.
    pub(super) order: usize,
    pub(super) path: PathBuf,
    pub(super) keys: u64,
}

/// What makes up one partition, or a table without partitions.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    /// Oldest first.
    pub(super) rows: Vec<Source>,
    /// Oldest first.
    pub(super) removals: Vec<Removal>,
}

impl Sources {
    /// Those that can hold rows of the partition within the range. The layers are those behind the file, oldest first.
    pub(super) fn of(
        table: &Table,
        partition: Option<Partition>,
        range: Option<TimeRange>,
        file: Option<PathBuf>,
        layers: &[&Layer],
    ) -> Self {
        let file = file.map(|path| Source { order: FILE_ORDER, path, content: Content::OnePartition });
        let mut sources = Self { rows: file.into_iter().collect(), removals: Vec::new() };
        for (at, layer) in layers.iter().enumerate() {
            let Some(changes) = layer.table(table) else { continue };
            let order = FILE_ORDER + 1 + at;
            for removed in changes.removed.iter().filter(|file| file.may_hold(partition, range)) {
                sources.removals.push(Removal { order, path: layer.path(removed), keys: removed.rows });
            }
            for added in changes.added.iter().filter(|file| file.may_hold(partition, range)) {
                let is_shared = added.partitions.len() > 1;
                let content = if is_shared { Content::SeveralPartitions } else { Content::OnePartition };
                sources.rows.push(Source { order, path: layer.path(added), content });
            }
        }
        sources
    }
}
