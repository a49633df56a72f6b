//! Finds the files from which a partition is read: the partition's file and the files of layers, oldest first.

use std::path::PathBuf;

use super::{part::Layer, partition::Partition};
use crate::{load::store::TimeRange, schema::Table};

/// Order of the partition's file, which is older than every layer.
pub(super) const FILE_ORDER: usize = 0;

/// Whether a file has rows of one partition only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// All rows are of one partition.
    OnePartition,
    /// The rows are of several partitions, as in parts of earlier program versions.
    SeveralPartitions,
}

/// A file that may have rows of the partition: the partition's own file, or a file of a layer.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Position of the file's layer among the layers, from 1; [`FILE_ORDER`] for the partition's own file. A larger
    /// number is newer.
    pub(super) order: usize,
    pub(super) path: PathBuf,
    pub(super) content: Content,
}

/// A file of a layer with the keys of rows that the layer removes.
#[derive(Clone, Debug)]
pub(super) struct Removal {
    /// Position of the file's layer, as in [`Source::order`]. The keys remove rows of sources with a smaller order.
    pub(super) order: usize,
    pub(super) path: PathBuf,
    /// Number of keys in the file.
    pub(super) keys: u64,
}

/// The files of one partition, or of a table without partitions.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    /// The files with rows, oldest first.
    pub(super) rows: Vec<Source>,
    /// The files with keys of removed rows, oldest first.
    pub(super) removals: Vec<Removal>,
}

impl Sources {
    /// Finds the files that may have rows of the partition within the range. Also finds the files of layers that may
    /// have keys of such rows to remove. `file` is the partition's own file, or `None` if there is none. `layers` are
    /// newer than the file, oldest first.
    pub(super) fn find(
        table: &Table,
        partition: Option<Partition>,
        range: Option<TimeRange>,
        file: Option<PathBuf>,
        layers: &[&Layer],
    ) -> Self {
        let file = file.map(|path| Source { order: FILE_ORDER, path, content: Content::OnePartition });
        let mut sources = Self { rows: file.into_iter().collect(), removals: Vec::new() };
        for (index, layer) in layers.iter().enumerate() {
            let Some(changes) = layer.table(table) else { continue };
            // Layers come after the partition's own file, so the first layer has the order 1.
            let order = FILE_ORDER + 1 + index;
            for removed in changes.removed.iter().filter(|file| file.may_contain(partition, range)) {
                sources.removals.push(Removal { order, path: layer.path(removed), keys: removed.rows });
            }
            for added in changes.added.iter().filter(|file| file.may_contain(partition, range)) {
                let is_shared = added.partitions.len() > 1;
                let content = if is_shared { Content::SeveralPartitions } else { Content::OnePartition };
                sources.rows.push(Source { order, path: layer.path(added), content });
            }
        }
        sources
    }
}
