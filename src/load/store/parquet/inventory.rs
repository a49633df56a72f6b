//! Reads and writes the list of the files that exist after a publish. The list shows that a file was lost. Without the
//! list, a lost file would look like a partition without rows. Its windows count as complete, so they would not be
//! scanned again.

use std::{collections::HashSet, fs, io, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    disk::Disk,
    part::Part,
    root::{INVENTORY, Root},
    tree::Tree,
};
use crate::{load::LoadError, schema::table};

/// The content of `files.json`: the last published part, and the files after its publish.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Inventory {
    /// The number of the last published part; 0 before the first publish.
    published_part: u64,
    /// Paths relative to the root, sorted.
    files: Vec<String>,
}

fn below_root(root: &Root, path: &Path) -> String {
    path.strip_prefix(root.path()).unwrap_or(path).to_string_lossy().into_owned()
}

impl Inventory {
    fn of(root: &Root, tree: &Tree, published_part: u64) -> Inventory {
        let mut files: Vec<String> = tree.paths(root).iter().map(|path| below_root(root, path)).collect();
        files.sort();
        Inventory { published_part, files }
    }
}

/// Writes the list of files, as the last step of a publish before the parts are removed.
pub(super) fn write(root: &Root, disk: &Disk, tree: &Tree, published_part: u64) -> Result<(), LoadError> {
    let path = root.inventory();
    let text = serde_json::to_vec(&Inventory::of(root, tree, published_part))
        .map_err(|error| LoadError::io("write", &path)(error.into()))?;
    disk.replace(&path, &text)
}

/// Returns the number of the last published part and the sorted list of files below `root`; `None` if there is no list.
pub(super) fn listed(root: &Path) -> Option<(u64, Vec<String>)> {
    let text = fs::read(root.join(INVENTORY)).ok()?;
    let Inventory { published_part, files } = serde_json::from_slice(&text).ok()?;
    Some((published_part, files))
}

/// Returns an error that names the first file of the list that is missing. Checks nothing if the list is missing,
/// unreadable, or of another publish (the writer was killed before it wrote the list).
///
/// A file from which a waiting part removes rows may be missing: an interrupted publish may have removed its last row,
/// and so the file.
pub(super) fn check(root: &Root, tree: &Tree, published_part: u64, waiting: &[Part]) -> Result<(), LoadError> {
    let path = root.inventory();
    let text = match fs::read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        text => text.map_err(LoadError::io("read", &path))?,
    };
    let Ok(listed) = serde_json::from_slice::<Inventory>(&text) else { return Ok(()) };
    if listed.published_part != published_part {
        return Ok(());
    }
    let existing = Inventory::of(root, tree, published_part).files;
    let may_be_gone = files_with_removals(root, waiting);
    let is_missing = |file: &&String| existing.binary_search(file).is_err() && !may_be_gone.contains(*file);
    match listed.files.iter().find(is_missing) {
        None => Ok(()),
        Some(file) => Err(LoadError::Damaged { path: root.place(), why: format!("{file} is missing") }),
    }
}

/// Returns the files of partitions from which waiting parts remove rows, as paths relative to the root.
fn files_with_removals(root: &Root, waiting: &[Part]) -> HashSet<String> {
    let changes = waiting.iter().flat_map(|part| &part.layers).flat_map(|layer| &layer.tables);
    let mut files = HashSet::new();
    for (name, changes) in changes {
        let (Some(table), Some(removed)) = (table(name), &changes.removed) else { continue };
        let of_partition = |partition| below_root(root, &root.data_file(table, Some(partition)));
        files.extend(removed.partitions.iter().copied().map(of_partition));
    }
    files
}
