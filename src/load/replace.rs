//! Replaces a warehouse by the rebuilt one, atomically if the operating system can, and removes files that a killed
//! replay left. The path has the complete old warehouse or the complete new one, except for a moment on systems that
//! cannot exchange two folders.
//!
//! ```text
//! warehouse.duckdb.replay   the file being built, with .wal and .spill; then renamed over warehouse.duckdb
//! parquet.replay            the folder being built; exchanged with the old one, which is removed afterwards
//! parquet.replaced          the old folder, for a moment, on systems that cannot exchange two folders
//! bucket.rebuilt            a complete folder, whose files are being written to the bucket
//! bucket.reader             files of the bucket that readers have fetched; more readers have folders with numbers
//! bucket.compared           files of the bucket that `verify` has fetched
//! checkpoints.sqlite.replay the file of a range being built
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    files::{self, FileError},
    schema,
};

/// Suffix of the path at which a new warehouse is built.
const BUILD: &str = ".replay";
/// Suffix of a complete folder while its files replace those in a bucket.
const FOR_BUCKET: &str = ".rebuilt";
/// Suffix of the folder of this machine for the files of a bucket that readers need.
const READER: &str = ".reader";
/// Suffix of the folder of this machine for the files of a bucket that are compared with the service.
const COMPARED: &str = ".compared";
/// Suffix of the path of an old folder while it is replaced.
const REPLACED: &str = ".replaced";

/// Returns the path without links and without a slash at its end.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.components().collect())
}

/// Returns the path without links, with a suffix.
fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    files::with_suffix(&real(path), suffix)
}

/// Returns the path at which the new warehouse for `path` is built.
pub fn build_path(path: &Path) -> PathBuf {
    suffixed(path, BUILD)
}

/// Returns the path of a complete folder whose files replace those in the bucket. `path` is the working copy.
pub(super) fn path_for_bucket(path: &Path) -> PathBuf {
    suffixed(path, FOR_BUCKET)
}

/// Returns the folder of files that readers have fetched from a bucket. `path` is the working copy.
pub(super) fn reader_folder(path: &Path) -> PathBuf {
    files::with_suffix(path, READER)
}

/// Returns the folder of files that `verify` has fetched from a bucket. `path` is the working copy.
pub(super) fn compared_folder(path: &Path) -> PathBuf {
    files::with_suffix(path, COMPARED)
}

/// Moves the rebuilt folder to [`path_for_bucket`]: its files will be written to the bucket, also after a kill.
pub(super) fn keep_for_bucket(path: &Path) -> Result<(), FileError> {
    rename(&build_path(path), &path_for_bucket(path))
}

/// Removes what a killed replay left at [`build_path`] of a file. The caller holds the lease.
pub fn clear_built_file(path: &Path) -> Result<(), FileError> {
    let built = build_path(path);
    remove(&built)?;
    remove(&files::with_suffix(&built, ".wal"))?;
    remove(&files::with_suffix(&built, ".spill"))
}

/// Removes what a killed replay left beside a folder, and restores a folder that a killed replacement has moved away.
/// The caller holds the lease.
pub(super) fn clear_folder(root: &Path) -> Result<(), FileError> {
    let replaced = suffixed(root, REPLACED);
    if replaced.exists() && !root.exists() {
        rename(&replaced, &real(root))?;
    }
    remove(&replaced)?;
    remove(&build_path(root))
}

/// Replaces the file at `path` by the rebuilt file at [`build_path`]. Fails if one of both files has a log.
pub(super) fn replace_file(path: &Path) -> Result<(), FileError> {
    for file in [real(path), build_path(path)] {
        let log = files::with_suffix(&file, ".wal");
        if log.exists() {
            // DuckDB would replay this log into the other file.
            let source = io::Error::other("its log has commits that the file lacks");
            return Err(FileError::of("replace", &file)(source));
        }
    }
    files::replace(&build_path(path), &real(path)).map_err(FileError::of("replace", path))
}

/// Replaces the folder at `path` by the rebuilt folder at [`build_path`], with the access rights of the old folder and
/// the files of other programs in it. If there is no old folder, only renames the new one.
pub(super) fn replace_folder(path: &Path) -> Result<(), FileError> {
    let (old, new) = (real(path), build_path(path));
    if !old.exists() {
        return rename(&new, &old);
    }
    files::keep_access_below(&old, &new).map_err(FileError::of("replace", path))?;
    link_foreign_files(&old, &new)?;
    if exchange(&old, &new)? {
        sync_parent(&old)?;
        return remove(&new);
    }
    let replaced = suffixed(&old, REPLACED);
    rename(&old, &replaced)?;
    rename(&new, &old)?;
    remove(&replaced)
}

/// Links the files of other programs in the old folder into the new folder. A name that the new folder has is skipped.
fn link_foreign_files(old: &Path, new: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(old).map_err(FileError::of("keep", old))? {
        let entry = entry.map_err(FileError::of("keep", old))?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_ours = name.to_str().is_some_and(|name| schema::table(name).is_some());
        let target = new.join(&name);
        if !is_ours && target.symlink_metadata().is_err() {
            link(&path, &target).map_err(FileError::of("keep", &path))?;
        }
    }
    Ok(())
}

/// Creates `to` as a hard link to a file, a copy of a symbolic link, or a folder with links to all files below `from`.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    let kind = from.symlink_metadata()?.file_type();
    if kind.is_symlink() {
        return std::os::unix::fs::symlink(fs::read_link(from)?, to);
    }
    if !kind.is_dir() {
        return fs::hard_link(from, to);
    }
    fs::create_dir(to)?;
    fs::set_permissions(to, from.metadata()?.permissions())?;
    fs::read_dir(from)?.try_for_each(|entry| entry.and_then(|entry| link(&entry.path(), &to.join(entry.file_name()))))
}

/// Exchanges two folders atomically. Returns false if the operating system or the file system cannot exchange folders.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn exchange(left: &Path, right: &Path) -> Result<bool, FileError> {
    use rustix::{
        fs::{CWD, RenameFlags, renameat_with},
        io::Errno,
    };
    match renameat_with(CWD, left, CWD, right, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP) => Ok(false),
        Err(errno) => Err(FileError::of("replace", left)(errno)),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn exchange(_left: &Path, _right: &Path) -> Result<bool, FileError> {
    Ok(false)
}

fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::rename(from, to).map_err(FileError::of("replace", to))?;
    sync_parent(to)
}

/// Makes a new name durable by a sync of its folder.
fn sync_parent(path: &Path) -> Result<(), FileError> {
    let parent = files::folder_of(path);
    files::sync_folder(parent).map_err(FileError::of("sync", parent))
}

/// Removes a file, or a folder with everything in it. Does nothing if the path does not exist.
pub(super) fn remove(path: &Path) -> Result<(), FileError> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        // `NotADirectory` means that a parent folder is a file. The code that creates the folder reports it.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        outcome => outcome.map_err(FileError::of("remove", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(path: &Path, text: &str) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("data"), text).unwrap();
    }

    #[test]
    fn p2_a_replay_killed_between_two_renames_is_undone() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("parquet");
        folder_with(&build_path(&root), "new");
        // Killed after the old folder was renamed, before the new one was.
        folder_with(&suffixed(&root, REPLACED), "old");
        let file = folder.path().join("w.duckdb");
        fs::write(&file, "old").unwrap();
        for leftover in ["w.duckdb.replay", "w.duckdb.replay.wal"] {
            fs::write(folder.path().join(leftover), "half").unwrap();
        }
        let clear = || clear_folder(&root).and_then(|()| clear_built_file(&file)).unwrap();
        clear();
        assert_eq!(fs::read_to_string(root.join("data")).unwrap(), "old");
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        clear();
    }

    #[test]
    fn a_folder_replaces_another_one_or_a_missing_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("parquet");
        for text in ["first", "second"] {
            folder_with(&build_path(&root), text);
            replace_folder(&root).unwrap();
            assert_eq!(fs::read_to_string(root.join("data")).unwrap(), text);
            assert!(!build_path(&root).exists() && !suffixed(&root, REPLACED).exists());
        }
    }

    #[test]
    fn files_of_other_programs_are_in_the_new_folder() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("parquet");
        for (folder, text) in [("responses", "ours"), ("responses_by_team/2026", "theirs"), (".studysync", "ours")] {
            folder_with(&root.join(folder), text);
            if text == "ours" {
                folder_with(&build_path(&root).join(folder), "new");
            }
        }
        std::os::unix::fs::symlink("responses_by_team", root.join("latest")).unwrap();
        replace_folder(&root).unwrap();
        let read = |name: &str| fs::read_to_string(root.join(name).join("data")).unwrap();
        assert_eq!(["responses", ".studysync", "latest/2026"].map(read), ["new", "new", "theirs"]);
    }

    #[test]
    fn a_file_does_not_replace_one_that_has_a_log() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.duckdb");
        fs::write(&path, "old").unwrap();
        fs::write(build_path(&path), "new").unwrap();
        let log = folder.path().join("w.duckdb.wal");
        fs::write(&log, "log").unwrap();
        assert!(replace_file(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        fs::remove_file(log).unwrap();
        replace_file(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
