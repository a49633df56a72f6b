//! The folder on this machine for files of a bucket, and the list of these files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::lock;
use crate::{bucket::ListedObject, files, load::LoadError};

/// Folder of the files that programs which read the tables must not see.
pub(super) const PRIVATE: &str = ".studysync";
/// Folder of the commits.
pub(super) const PARTS: &str = ".studysync/parts";
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

/// Returns the size of each object that the working copy has, by key. Empty if there is no copy, or while a process has
/// it open.
pub(super) fn sizes(folder: &Path) -> BTreeMap<String, u64> {
    let text = fs::read(folder.join(LIST)).unwrap_or_default();
    let objects = serde_json::from_slice::<WorkingCopy>(&text).map(|copy| copy.objects).unwrap_or_default();
    objects.into_iter().map(|object| (object.key, object.bytes)).collect()
}

pub(super) fn write_list(folder: &Path, address: &str, objects: Vec<ListedObject>) -> io::Result<()> {
    let copy = WorkingCopy { address: address.to_owned(), objects };
    fs::write(folder.join(LIST), serde_json::to_vec(&copy)?)
}

/// Removes the files of a working copy but those that are kept, and those that are for the copy itself. Links are
/// removed, and not followed. Folders of commits are removed too: an empty one would count as a commit.
pub(super) fn clear(folder: &Path, kept: &BTreeSet<PathBuf>) -> Result<(), LoadError> {
    let parts = folder.join(PARTS);
    match fs::remove_dir_all(&parts) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(LoadError::io("remove", &parts)(error)),
        _ => {}
    }
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

/// A file in the object of a commit.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PackedFile {
    name: String,
    bytes: u64,
}

/// Writes the files of a folder one after the other into one file.
pub(super) fn pack(folder: &Path, packed: &Path) -> Result<Vec<PackedFile>, LoadError> {
    let mut paths = files::files_below(folder)?;
    paths.sort();
    let mut target = File::create(packed).map_err(LoadError::io("create", packed))?;
    let mut files = Vec::new();
    for path in paths {
        let bytes = File::open(&path).and_then(|mut file| io::copy(&mut file, &mut target));
        let bytes = bytes.map_err(LoadError::io("copy", &path))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        files.push(PackedFile { name, bytes });
    }
    Ok(files)
}

/// Makes the folder with the packed files.
pub(super) fn unpack(packed: &Path, packed_files: &[PackedFile], folder: &Path) -> Result<(), LoadError> {
    let failed = LoadError::io("unpack", packed);
    let new = files::with_suffix(folder, ".new");
    files::create_folders(&new).map_err(LoadError::io("create", &new))?;
    let mut source = File::open(packed).map_err(failed)?;
    for PackedFile { name, bytes } in packed_files {
        // A name with a slash would leave the folder.
        let path = new.join(Path::new(name).file_name().unwrap_or_default());
        let mut file = File::create(&path).map_err(LoadError::io("create", &path))?;
        io::copy(&mut io::Read::take(&mut source, *bytes), &mut file).map_err(failed)?;
    }
    files::move_folder(&new, folder).map_err(LoadError::io("replace", folder))
}
