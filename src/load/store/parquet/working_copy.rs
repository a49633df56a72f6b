//! The folder on this machine for files of a bucket, and the list of these files.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::lock;
use crate::{bucket::ListedObject, files, load::LoadError};

/// Folder of the files that programs which read the tables must not see.
pub(super) const PRIVATE: &str = ".studysync";
/// The list of the working copy's files with their versions. It is empty while a process has the copy open, so that a
/// killed process leaves an empty one.
pub(super) const LIST: &str = ".studysync/working-copy.json";
/// Held by the process that has the working copy open.
pub(super) const LOCK: &str = ".studysync/lock";

/// The content of [`LIST`].
#[derive(Debug, Serialize, Deserialize)]
struct WorkingCopy {
    address: String,
    objects: Vec<ListedObject>,
}

/// Reads which objects the working copy has, and removes all other files. The caller has the lock of the folder.
///
/// # Errors
/// [`LoadError::NotOurs`] if the folder is no working copy.
pub(super) fn take_working_copy(folder: &Path, address: &str) -> Result<Vec<ListedObject>, LoadError> {
    let path = folder.join(LIST);
    let copy = match fs::read(&path) {
        Ok(text) => serde_json::from_slice::<WorkingCopy>(&text).ok(),
        Err(_) => {
            let mut entries = fs::read_dir(folder).map_err(LoadError::io("read", folder))?;
            if entries.any(|entry| entry.is_ok_and(|entry| entry.file_name() != PRIVATE)) {
                let why = format!("it holds other files, and is needed for files of {address}");
                return Err(LoadError::NotOurs { path: folder.to_owned(), why });
            }
            None
        }
    };
    write_list(folder, address, Vec::new()).map_err(LoadError::io("write", &path))?;
    let has_size =
        |object: &ListedObject| fs::metadata(folder.join(&object.key)).is_ok_and(|found| found.len() == object.bytes);
    let objects = copy.filter(|copy| copy.address == address).map(|copy| copy.objects).unwrap_or_default();
    let objects: Vec<ListedObject> = objects.into_iter().filter(has_size).collect();
    let kept: BTreeSet<PathBuf> = objects.iter().map(|object| folder.join(&object.key)).collect();
    clear(folder, &kept)?;
    Ok(objects)
}

pub(super) fn write_list(folder: &Path, address: &str, objects: Vec<ListedObject>) -> io::Result<()> {
    let copy = WorkingCopy { address: address.to_owned(), objects };
    fs::write(folder.join(LIST), serde_json::to_vec(&copy)?)
}

/// Removes the files of a working copy but those that are kept, and those that are for the copy itself. Links are
/// removed, and not followed.
pub(super) fn clear(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), LoadError> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let failed = LoadError::io("read", &folder);
        for entry in
            fs::read_dir(&folder).and_then(|entries| entries.collect::<io::Result<Vec<_>>>()).map_err(failed)?
        {
            let path = entry.path();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(path);
            } else if !kept.contains(&path) && !path.ends_with(LIST) && !path.ends_with(LOCK) {
                files::remove(&path).map_err(LoadError::io("remove", &path))?;
            }
        }
    }
    Ok(())
}

/// Removes the files of a working copy that no process has open. Does nothing if there is no folder.
///
/// # Errors
/// [`LoadError::Locked`] while a process has it open; [`LoadError::NotOurs`] if the folder is no working copy.
pub(super) fn clear_unlocked(folder: &Path) -> Result<(), LoadError> {
    if !folder.is_dir() {
        return Ok(());
    }
    let folder = fs::canonicalize(folder).map_err(LoadError::io("find", folder))?;
    if !folder.join(LIST).exists() {
        let why = "it holds other files, and is needed for files of a bucket".to_owned();
        return Err(LoadError::NotOurs { path: folder, why });
    }
    let _lock = lock::exclusive(&folder, &folder.join(LOCK))?;
    take_working_copy(&folder, "").map(drop)
}
