//! A part: one commit as a folder of files, durable but not yet visible to readers.
//!
//! The folder is written under another name, and its rename is the commit. [`super::old_part`] reads parts that earlier
//! program versions wrote.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    disk::Disk,
    layer::{Layer, LayerTables},
    old_part,
    root::Root,
};
use crate::load::LoadError;

/// The file name of the manifest of a part.
pub(super) const MANIFEST_FILE: &str = "part.json";
/// Suffix of the folder of a part that is being written or removed.
const UNFINISHED_SUFFIX: &str = ".tmp";
/// Largest number of characters of a label in the folder's name.
const LABEL_CHARS_MAX: usize = 64;
/// Version of the manifest. A manifest with a newer version is refused.
const FORMAT_VERSION: u32 = 2;

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

    /// Removes a part that has been published, with its files.
    pub(super) fn remove(&self, disk: &Disk) -> Result<(), LoadError> {
        // Renamed first, so that a partly removed folder does not look like a part.
        let renamed = unfinished_folder(&self.folder);
        disk.rename(&self.folder, &renamed)?;
        disk.remove_folder(&renamed)
    }
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

/// Reads the committed parts, oldest first, and removes the folders of unfinished parts.
pub(super) fn read_all(root: &Root, disk: &Disk) -> Result<Vec<Part>, LoadError> {
    let (finished, unfinished) = folders(root)?;
    unfinished.iter().try_for_each(|folder| disk.remove_folder(folder))?;
    read_parts(root, finished)
}

/// Reads the committed parts, oldest first, and removes nothing.
pub(super) fn read_finished(root: &Root) -> Result<Vec<Part>, LoadError> {
    let (finished, _) = folders(root)?;
    read_parts(root, finished)
}

/// Returns the folders of committed parts, and the folders of unfinished parts.
fn folders(root: &Root) -> Result<(Vec<PathBuf>, Vec<PathBuf>), LoadError> {
    let folder = root.parts();
    let failed = LoadError::io("read", &folder);
    let entries = match fs::read_dir(&folder) {
        // The folder can be missing only for a reader: a writer creates it.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), Vec::new())),
        entries => entries.map_err(failed)?,
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>().map_err(failed)?;
    Ok(paths.into_iter().partition(|path| !path.to_string_lossy().ends_with(UNFINISHED_SUFFIX)))
}

/// Reads the parts in these folders, and sorts them by number.
fn read_parts(root: &Root, folders: Vec<PathBuf>) -> Result<Vec<Part>, LoadError> {
    let mut parts = folders.into_iter().map(|folder| read(root, folder)).collect::<Result<Vec<_>, _>>()?;
    parts.sort_by_key(Part::number);
    Ok(parts)
}

/// Reads one part, also a part of an earlier program version. Fails with `Damaged` or `Newer` if its manifest cannot be
/// read.
fn read(root: &Root, folder: PathBuf) -> Result<Part, LoadError> {
    if let Some(old) = old_part::read(root, &folder)? {
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

/// Returns the size of the files in the folder, in bytes.
fn folder_bytes(folder: &Path) -> Result<u64, LoadError> {
    let failed = LoadError::io("read", folder);
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(failed)? {
        bytes += entry.and_then(|entry| entry.metadata()).map_err(failed)?.len();
    }
    Ok(bytes)
}
