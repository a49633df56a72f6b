//! Tests whether files can be created in folders.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
};

use crate::pipeline::{FileAccess, refusal_hint};

use super::finding::Finding;

/// Returns the nearest existing folder: the path itself or a folder above it. A relative path begins in the working
/// folder. `None` if no folder exists.
pub(super) fn existing_folder(path: &Path) -> Option<PathBuf> {
    with_ancestors(path).find(|path| path.is_dir()).map(Path::to_owned)
}

/// Returns the path itself and the folders above it. A relative path ends with the working folder.
fn with_ancestors(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().map(|path| if path == Path::new("") { Path::new(".") } else { path })
}

/// Returns the passed check `found` if a file can be created in each of these folders, else the failure of the first
/// folder that refuses. A run creates a missing folder, so the nearest existing folder above it is tried. To find out,
/// creates a file, and removes the file.
pub(super) fn folders(what: &'static str, folders: &[PathBuf], found: String) -> Finding {
    folders.iter().find_map(|folder| refusal(what, folder)).unwrap_or_else(|| Finding::ok(what, found))
}

/// Returns the failed check if no file can be created in this folder.
fn refusal(what: &'static str, folder: &Path) -> Option<Finding> {
    let folder = with_ancestors(folder).find(|path| path.exists()).unwrap_or(Path::new("."));
    let trial = folder.join(format!(".studysync-check-{}", std::process::id()));
    let created = OpenOptions::new().write(true).create_new(true).open(&trial);
    let error = created.and_then(|_| std::fs::remove_file(&trial)).err()?;
    let found = format!("cannot create a file in {}: {error}", folder.display());
    let what_to_do = refusal_hint(folder, &error, FileAccess::Write).map(str::to_owned);
    Some(Finding { what, is_well: false, found, what_to_do, exit_code: 1 })
}
