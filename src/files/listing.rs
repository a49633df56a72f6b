//! Finds files: the folder of a path, the files of a folder, and those that belong to a file.

use std::{
    collections::BTreeSet,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::error::FileError;

/// Returns the metadata of a file or folder; `None` if it does not exist.
pub fn metadata(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the file at `path`, and the files in the same folder whose names begin with this file's name and a dot:
/// logs, spill files and temporary files. Returns none if the folder does not exist.
pub fn files_beside(path: &Path) -> Result<Vec<PathBuf>, FileError> {
    let folder = folder_of(path);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut paths = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(paths),
        entries => entries.map_err(FileError::of("list", folder))?,
    };
    for entry in entries {
        let path = entry.map_err(FileError::of("list", folder))?.path();
        let other = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if other == name || other.strip_prefix(&name).is_some_and(|rest| rest.starts_with('.')) {
            paths.extend(files_below(&path)?);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns all files below a folder, with symbolic links followed. For a file, returns the file itself. Returns none if
/// `root` does not exist.
///
/// # Errors
/// If a link has no target, because the target cannot be searched.
pub fn files_below(root: &Path) -> Result<Vec<PathBuf>, FileError> {
    let (mut found, mut paths, mut folders) = (Vec::new(), vec![root.to_owned()], BTreeSet::new());
    while let Some(path) = paths.pop() {
        match metadata(&path).map_err(FileError::of("look at", &path))? {
            // Visits each folder once, because a link may lead to a parent folder.
            Some(folder) if folder.is_dir() && folders.insert((folder.dev(), folder.ino())) => {
                for entry in fs::read_dir(&path).map_err(FileError::of("list", &path))? {
                    paths.push(entry.map_err(FileError::of("list", &path))?.path());
                }
            }
            Some(file) if file.is_file() => found.push(path),
            Some(_) => {}
            None if path.is_symlink() => {
                let why = io::Error::new(io::ErrorKind::NotFound, "it is a link that leads nowhere");
                return Err(FileError::of("search", &path)(why));
            }
            None => {}
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the folder that contains a path; `.` for a bare file name.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
