//! Reads waiting parts that earlier program versions wrote, as parts with one layer.
//!
//! A part of an earlier version has, for each table, a file of removed keys and a file with rows of several partitions.
//! The rows of a partition that had no rows before the commit are in a separate file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use serde::Deserialize;

use super::{
    layer::{LayerTables, RowsFile, TableLayer},
    partition::Partition,
    root::Root,
    tree::read_footer,
};
use crate::load::{LoadError, store::TimeRange};

/// The file name of the manifest of a part of an earlier version.
const MANIFEST_FILE: &str = "ledger.json";

/// The fields of the manifest that are still read.
#[derive(Debug, Deserialize)]
struct OldManifest {
    /// The number of the part.
    number: u64,
    /// The scans of the commit, the newest last.
    scans: Vec<serde_json::Value>,
    tables: BTreeMap<String, OldChanges>,
}

/// The changes of a table: the extents of the files of added rows and of removed keys.
#[derive(Debug, Deserialize)]
struct OldChanges {
    /// The file with added rows, also of several partitions; `None` if there is none.
    upserts: Option<OldExtent>,
    /// The file with the keys of removed rows; `None` if there is none.
    deletes: Option<OldExtent>,
    /// The partitions that had no rows before the commit. The rows of each are in a separate file.
    #[serde(default)]
    whole: BTreeSet<Partition>,
}

/// The extent of a file: number, time range and partitions of its rows.
#[derive(Debug, Deserialize)]
struct OldExtent {
    rows: u64,
    /// Half-open range of the partition column, in epoch microseconds; `None` for a table without partitions.
    bounds_us: Option<[i64; 2]>,
    partitions: BTreeSet<Partition>,
}

impl OldExtent {
    /// Converts the extent to the present version's description of the file with this name.
    fn file(self, name: String) -> RowsFile {
        let bounds = self.bounds_us.map(|[start_us, end_us]| TimeRange { start_us, end_us });
        RowsFile::new(name, self.rows, bounds, self.partitions)
    }
}

/// The content of a part of an earlier version.
pub(super) struct OldPart {
    pub(super) number: u64,
    pub(super) run_id: Option<String>,
    pub(super) tables: LayerTables,
}

/// Reads the part in the folder. Returns `None` if the folder has no manifest of an earlier version.
pub(super) fn read(root: &Root, folder: &Path) -> Result<Option<OldPart>, LoadError> {
    let path = folder.join(MANIFEST_FILE);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(LoadError::io("read", &path))?,
    };
    let manifest: OldManifest = serde_json::from_slice(&text)
        .map_err(|error| LoadError::Damaged { path, why: format!("it cannot be read: {error}") })?;
    let mut tables = LayerTables::new();
    for (name, changes) in manifest.tables {
        tables.insert(name.clone(), table_layer(root, folder, &name, changes)?);
    }
    let run_id = manifest.scans.last().and_then(|applied| applied.pointer("/scan/run_id")?.as_str());
    Ok(Some(OldPart { number: manifest.number, run_id: run_id.map(str::to_owned), tables }))
}

/// Converts the changes of one table to the present version.
fn table_layer(root: &Root, folder: &Path, table: &str, changes: OldChanges) -> Result<TableLayer, LoadError> {
    let removed = changes.deletes.map(|extent| extent.file(format!("{table}.delete.parquet")));
    let mut added: Vec<_> =
        changes.upserts.into_iter().map(|extent| extent.file(format!("{table}.upsert.parquet"))).collect();
    for partition in changes.whole {
        let name = format!("{table}.{}.parquet", partition.first_day);
        let path = folder.join(&name);
        // An interrupted publish may have moved the file into the table, so a missing file counts as empty here. The
        // store checks later that it was moved and not lost.
        let rows = if path.is_file() { read_footer(root, &path)?.rows } else { 0 };
        let bounds = root.partition_by().bounds(partition);
        added.push(RowsFile::new(name, rows, Some(bounds), [partition].into()));
    }
    Ok(TableLayer { removed, added })
}
