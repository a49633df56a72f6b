//! Tests whether a file or folder could be created.

use std::{
    fs::OpenOptions,
    path::{Path, PathBuf},
};

use super::super::CommandError;

/// Returns the nearest existing folder: the path itself or a folder above it. A relative path begins in the working
/// folder. `None` if no folder exists.
pub(super) fn existing_folder(path: &Path) -> Option<PathBuf> {
    let above = path.ancestors().map(|path| if path == Path::new("") { Path::new(".") } else { path });
    above.into_iter().find(|path| path.is_dir()).map(Path::to_owned)
}

/// Checks that a file or folder could be created at this path. To find out, creates a file in the nearest existing
/// folder above the path, and removes the file.
pub(super) fn check_can_create(path: &Path) -> Result<(), CommandError> {
    let mut folders =
        path.ancestors().skip(1).map(|folder| if folder == Path::new("") { Path::new(".") } else { folder });
    let folder = folders.find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let trial = folder.join(format!(".studysync-check-{}", std::process::id()));
    let created =
        OpenOptions::new().write(true).create_new(true).open(&trial).and_then(|_| std::fs::remove_file(&trial));
    created.map_err(|source| {
        CommandError::failed(format!("cannot create {} in {}", path.display(), folder.display()), source)
    })
}
