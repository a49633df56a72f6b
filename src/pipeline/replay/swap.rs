//! A warehouse that was built beside takes the place of the old one, in one step where the system can; and what a
//! killed replay left is removed. At any instant the old warehouse or the new one is there, whole.
//!
//! ```text
//! warehouse.duckdb.replay   the file being built, with .wal and .spill; then renamed over warehouse.duckdb
//! parquet.replay            the folder being built; exchanged with the old one, which is removed afterwards
//! parquet.replaced          the old folder, for a moment, on systems that cannot exchange two folders
//! checkpoints.sqlite.replay the file of a range being built
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::super::PipelineError;
use crate::{config::Settings, files, schema};

const BESIDE: &str = ".replay";
const REPLACED: &str = ".replaced";

/// The path as the system knows it, without links and without a slash at its end.
fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.components().collect())
}

fn suffixed(path: &Path, suffix: &str) -> PathBuf {
    files::with_suffix(&real(path), suffix)
}

/// Where the warehouse of this path is built.
pub(super) fn beside(path: &Path) -> PathBuf {
    suffixed(path, BESIDE)
}

/// Removes what a killed replay left, and puts a folder back that was on its way out. The caller holds the lease.
pub fn clear_leftovers(settings: &Settings) -> Result<(), PipelineError> {
    for path in settings.warehouse.duckdb.iter().chain([&settings.state_path]) {
        let beside = beside(path);
        remove(&beside)?;
        remove(&files::with_suffix(&beside, ".wal"))?;
        remove(&files::with_suffix(&beside, ".spill"))?;
    }
    if let Some(root) = &settings.warehouse.parquet {
        let replaced = suffixed(root, REPLACED);
        if replaced.exists() && !root.exists() {
            rename(&replaced, &real(root))?;
        }
        remove(&replaced)?;
        remove(&beside(root))?;
    }
    Ok(())
}

/// Puts the file that was built beside `path` in its place.
pub(super) fn swap_file(path: &Path) -> Result<(), PipelineError> {
    for file in [real(path), beside(path)] {
        let log = files::with_suffix(&file, ".wal");
        if log.exists() {
            // It would be taken for the log of the file that comes into this place.
            let source = io::Error::other("its commit log is not folded in");
            return Err(PipelineError::Swap { action: "replace", path: file, source });
        }
    }
    let failed = |source| PipelineError::Swap { action: "replace", path: path.to_owned(), source };
    files::replace(&beside(path), &real(path)).map_err(failed)
}

/// Puts the folder that was built beside `path` in its place.
pub(super) fn swap_folder(path: &Path) -> Result<(), PipelineError> {
    let (old, new) = (real(path), beside(path));
    if !old.exists() {
        return rename(&new, &old);
    }
    files::keep_access_below(&old, &new).map_err(|source| PipelineError::Swap {
        action: "replace",
        path: path.to_owned(),
        source,
    })?;
    keep_others(&old, &new)?;
    if exchange(&old, &new)? {
        sync_parent(&old)?;
        return remove(&new);
    }
    let replaced = suffixed(&old, REPLACED);
    rename(&old, &replaced)?;
    rename(&new, &old)?;
    remove(&replaced)
}

/// Gives what others keep in the old folder, beside our tables, a second name in the new one.
fn keep_others(old: &Path, new: &Path) -> Result<(), PipelineError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| PipelineError::Swap { action: "keep", path, source }
    };
    for entry in fs::read_dir(old).map_err(failed(old))? {
        let entry = entry.map_err(failed(old))?;
        let (name, path) = (entry.file_name(), entry.path());
        let is_ours = name.to_str().is_some_and(|name| schema::table(name).is_some());
        let kept = new.join(&name);
        if !is_ours && kept.symlink_metadata().is_err() {
            link(&path, &kept).map_err(failed(&path))?;
        }
    }
    Ok(())
}

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

/// Exchanges two folders in one step; `false` where the system or the file system cannot.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn exchange(left: &Path, right: &Path) -> Result<bool, PipelineError> {
    use rustix::{
        fs::{CWD, RenameFlags, renameat_with},
        io::Errno,
    };
    match renameat_with(CWD, left, CWD, right, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::NOSYS | Errno::INVAL | Errno::NOTSUP) => Ok(false),
        Err(errno) => Err(PipelineError::Swap { action: "replace", path: left.to_owned(), source: errno.into() }),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn exchange(_left: &Path, _right: &Path) -> Result<bool, PipelineError> {
    Ok(false)
}

fn rename(from: &Path, to: &Path) -> Result<(), PipelineError> {
    let failed = |source| PipelineError::Swap { action: "replace", path: to.to_owned(), source };
    fs::rename(from, to).map_err(failed)?;
    sync_parent(to)
}

/// A new name is durable only once its folder is.
fn sync_parent(path: &Path) -> Result<(), PipelineError> {
    let parent = files::folder_of(path);
    files::sync_folder(parent).map_err(|source| PipelineError::Swap { action: "sync", path: parent.to_owned(), source })
}

fn remove(path: &Path) -> Result<(), PipelineError> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        // Below a file there is nothing either; whoever makes the folder says so.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(()),
        outcome => outcome.map_err(|source| PipelineError::Swap { action: "remove", path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(path: &Path, text: &str) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("data"), text).unwrap();
    }

    fn settings(root: &Path) -> Settings {
        let overrides = crate::config::Overrides {
            duckdb: Some(root.join("w.duckdb")),
            parquet: Some(root.join("parquet")),
            state: Some(root.join("state.sqlite")),
            ..Default::default()
        };
        crate::config::resolve(overrides).unwrap()
    }

    #[test]
    fn p2_a_replay_killed_between_two_renames_is_undone() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("parquet");
        folder_with(&beside(&root), "new");
        // Just renamed away, and the new one not yet in its place.
        folder_with(&suffixed(&root, REPLACED), "old");
        fs::write(place.path().join("w.duckdb"), "old").unwrap();
        for left in ["w.duckdb.replay", "w.duckdb.replay.wal", "state.sqlite.replay"] {
            fs::write(place.path().join(left), "half").unwrap();
        }
        clear_leftovers(&settings(place.path())).unwrap();
        assert_eq!(fs::read_to_string(root.join("data")).unwrap(), "old");
        let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        clear_leftovers(&settings(place.path())).unwrap();
    }

    #[test]
    fn a_folder_takes_the_place_of_another_or_of_none() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("parquet");
        for text in ["first", "second"] {
            folder_with(&beside(&root), text);
            swap_folder(&root).unwrap();
            assert_eq!(fs::read_to_string(root.join("data")).unwrap(), text);
            assert!(!beside(&root).exists() && !suffixed(&root, REPLACED).exists());
        }
    }

    #[test]
    fn what_others_keep_in_the_old_folder_is_in_the_new_one() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("parquet");
        for (folder, text) in [("responses", "ours"), ("responses_by_team/2026", "theirs"), (".studysync", "ours")] {
            folder_with(&root.join(folder), text);
            if text == "ours" {
                folder_with(&beside(&root).join(folder), "new");
            }
        }
        std::os::unix::fs::symlink("responses_by_team", root.join("latest")).unwrap();
        swap_folder(&root).unwrap();
        let read = |name: &str| fs::read_to_string(root.join(name).join("data")).unwrap();
        assert_eq!(["responses", ".studysync", "latest/2026"].map(read), ["new", "new", "theirs"]);
    }

    #[test]
    fn a_file_is_not_put_under_the_log_of_another() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("w.duckdb");
        fs::write(&path, "old").unwrap();
        fs::write(beside(&path), "new").unwrap();
        let log = place.path().join("w.duckdb.wal");
        fs::write(&log, "log").unwrap();
        assert!(swap_file(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        fs::remove_file(log).unwrap();
        swap_file(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
}
