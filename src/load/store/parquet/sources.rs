//! The files of a partition: its own file, and files of layers, oldest first.

use std::path::PathBuf;

use super::{layer::Layer, partition::Partition};
use crate::{load::store::TimeRange, schema::Table};

/// Order of the partition's own file: before every layer.
pub(super) const FILE_ORDER: usize = 0;

/// True if a file also has rows of other partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    OnePartition,
    /// A file of rows in a part of an earlier version.
    SeveralPartitions,
}

/// A file with rows of the partition.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Position among the layers, from 1; [`FILE_ORDER`] for the partition's own file.
    pub(super) order: usize,
    pub(super) path: PathBuf,
    pub(super) content: Content,
}

/// A file with keys of removed rows.
#[derive(Clone, Debug)]
pub(super) struct Removal {
    /// Position of its layer. The keys apply to sources of a lower order.
    pub(super) order: usize,
    pub(super) path: PathBuf,
    pub(super) keys: u64,
}

/// The files of one partition, or of a table without partitions.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    /// Oldest first.
    pub(super) rows: Vec<Source>,
    /// Oldest first.
    pub(super) removals: Vec<Removal>,
}

impl Sources {
    /// The files that can hold rows of the partition within the range. `layers` are newer than `file`, oldest first.
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
