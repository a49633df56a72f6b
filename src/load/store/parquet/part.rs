//! A part: one commit as a folder of files, durable but not yet visible to readers.
//!
//! The folder is written under another name, and its rename is the commit. A part has layers: changes of a transaction
//! as files in the folder, at most one change for each table. The removals of a layer apply to the rows of older layers
//! and of the partition's file. They do not apply to the rows that the layer itself or a later layer adds.
//!
//! A part of an earlier program version is read as a part with one layer. It has, for each table, a file of removed
//! keys and a file with rows of several partitions. The rows of a partition that had no rows before the commit are in a
//! separate file.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{disk::Disk, partition::Partition, root::Root, tree::read_footer};
use crate::{
    load::{LoadError, store::TimeRange},
    schema::Table,
};

/// The file name of the manifest of a part.
pub(super) const MANIFEST_FILE: &str = "part.json";
/// Suffix of the folder of a part that is being written or removed.
const UNFINISHED_SUFFIX: &str = ".tmp";
/// Largest number of characters of a label in the folder's name.
const LABEL_CHARS_MAX: usize = 64;
/// Version of the manifest. A manifest with a newer version is refused.
const FORMAT_VERSION: u32 = 2;

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

/// The manifest of a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format_version: u32,
    /// Larger than the number of every earlier part.
    pub(super) number: u64,
    /// The program run that wrote the part; `None` if its rows name no run.
    pub(super) run_id: Option<String>,
    /// The layers, oldest first.
    pub(super) layers: Vec<LayerTables>,
}

impl Manifest {
    /// Creates a manifest of the present version.
    pub(super) fn new(number: u64, run_id: Option<String>, layers: Vec<LayerTables>) -> Self {
        Self { format_version: FORMAT_VERSION, number, run_id, layers }
    }
}

/// A committed part that waits for publish.
#[derive(Clone, Debug)]
pub(super) struct Part {
    number: u64,
    /// The program run that wrote the part; `None` if its rows name no run.
    pub(super) run_id: Option<String>,
    /// The folder of the part.
    folder: PathBuf,
    /// Size of the part's files, in bytes.
    pub(super) bytes: u64,
    /// The layers of the part, oldest first.
    pub(super) layers: Vec<Layer>,
}

impl Part {
    /// Creates a part from its manifest and folder. The sizes of the part's files are read from the folder.
    pub(super) fn new(manifest: Manifest, folder: PathBuf) -> Result<Self, LoadError> {
        let Manifest { number, run_id, layers, .. } = manifest;
        let layer = |tables| Layer { part: number, folder: folder.clone(), tables };
        let layers = layers.into_iter().map(layer).collect();
        Ok(Self { number, run_id, bytes: folder_bytes(&folder)?, folder, layers })
    }

    /// Returns the number of the part, which is larger than the number of every earlier part.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of keys of removed rows in all layers.
    pub(super) fn removed_keys(&self) -> u64 {
        let changes = self.layers.iter().flat_map(|layer| layer.tables.values());
        changes.filter_map(|changes| changes.removed.as_ref()).map(|removed| removed.rows).sum()
    }

    /// Removes a part that has been published, with its files on this machine.
    fn remove(&self, disk: &Disk) -> Result<(), LoadError> {
        // Renamed first, so that a partly removed folder does not look like a part.
        let renamed = unfinished_folder(&self.folder);
        disk.rename(&self.folder, &renamed)?;
        disk.remove_folder(&renamed)
    }
}

/// Removes parts that have been published, with their files.
pub(super) fn remove_all(parts: &[Part], disk: &Disk) -> Result<(), LoadError> {
    let numbers: Vec<u64> = parts.iter().map(Part::number).collect();
    match &disk.remote {
        Some(remote) if !parts.is_empty() => remote.remove_commits(&numbers)?,
        _ => {}
    }
    parts.iter().try_for_each(|part| part.remove(disk))
}

/// Returns the path of the folder in which a part with this number is written.
pub(super) fn new_folder(root: &Root, number: u64) -> PathBuf {
    unfinished_folder(&root.parts().join(format!("{number:012}")))
}

/// Returns the path of the folder of a committed part. The label is for people who look at the folder. Of the label,
/// the folder's name contains at most [`LABEL_CHARS_MAX`] ASCII letters, digits and `-`.
pub(super) fn finished_folder(root: &Root, number: u64, label: &str) -> PathBuf {
    let label = label.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(LABEL_CHARS_MAX);
    root.parts().join(format!("{number:012}-{}", label.collect::<String>()))
}

/// Returns the path of the folder while the part is written or removed.
fn unfinished_folder(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(UNFINISHED_SUFFIX);
    PathBuf::from(name)
}

/// Reads the committed parts, oldest first, and removes the folders of unfinished parts. `published` is the number of
/// the last published part.
pub(super) fn read_all(root: &Root, disk: &Disk, published: u64) -> Result<Vec<Part>, LoadError> {
    fetch(root, published)?;
    let (finished, unfinished) = folders(root)?;
    unfinished.iter().try_for_each(|folder| disk.remove_folder(folder))?;
    read_parts(root, finished)
}

/// Reads the committed parts, oldest first, and removes nothing.
pub(super) fn read_finished(root: &Root, published: u64) -> Result<Vec<Part>, LoadError> {
    fetch(root, published)?;
    let (finished, _) = folders(root)?;
    read_parts(root, finished)
}

/// Brings the waiting parts of a bucket into the folder of parts.
fn fetch(root: &Root, published: u64) -> Result<(), LoadError> {
    root.remote().map_or(Ok(()), |remote| remote.fetch_commits(published))
}

/// Returns the folders of committed parts, and the folders of unfinished parts.
fn folders(root: &Root) -> Result<(Vec<PathBuf>, Vec<PathBuf>), LoadError> {
    let folder = root.parts();
    let failed = LoadError::io("read", &folder);
    let entries = match fs::read_dir(&folder) {
        // The folder can be missing only for a reader: a writer creates it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        entries => entries.map_err(failed)?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, io::Error>>().map_err(failed)?;
    Ok(paths.into_iter().partition(|path| !path.to_string_lossy().ends_with(UNFINISHED_SUFFIX)))
}

fn read_parts(root: &Root, folders: Vec<PathBuf>) -> Result<Vec<Part>, LoadError> {
    let mut parts = folders.into_iter().map(|folder| read(root, folder)).collect::<Result<Vec<_>, _>>()?;
    parts.sort_by_key(Part::number);
    Ok(parts)
}

/// Reads one part, also a part of an earlier program version. Fails with `Damaged` or `Newer` if its manifest cannot be
/// read.
fn read(root: &Root, folder: PathBuf) -> Result<Part, LoadError> {
    if let Some(old) = read_old(root, &folder)? {
        return Part::new(Manifest::new(old.number, old.run_id, vec![old.tables]), folder);
    }
    let path = folder.join(MANIFEST_FILE);
    let text = fs::read(&path).map_err(LoadError::io("read", &path))?;
    let damaged = |why: String| LoadError::Damaged { path: path.clone(), why: format!("it cannot be read: {why}") };
    // The version is read first: a newer manifest may have other fields.
    let version: serde_json::Value = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    let version = version.get("format_version").and_then(serde_json::Value::as_u64);
    if let Some(version) = version.filter(|version| *version > u64::from(FORMAT_VERSION)) {
        return Err(LoadError::Newer { path, found: format!("format {version}") });
    }
    let manifest: Manifest = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    Part::new(manifest, folder)
}

fn folder_bytes(folder: &Path) -> Result<u64, LoadError> {
    let failed = LoadError::io("read", folder);
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(failed)?.len();
    }
    Ok(bytes)
}

/// The file name of the manifest of a part of an earlier version.
const OLD_MANIFEST_FILE: &str = "ledger.json";

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
struct OldPart {
    number: u64,
    run_id: Option<String>,
    tables: LayerTables,
}

/// Reads the part in the folder. Returns `None` if the folder has no manifest of an earlier version.
fn read_old(root: &Root, folder: &Path) -> Result<Option<OldPart>, LoadError> {
    let path = folder.join(OLD_MANIFEST_FILE);
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
