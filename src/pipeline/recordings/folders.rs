//! Stores the folders to which any run has written recordings. An erasure searches all of these folders, also those
//! that the settings no longer name.

use std::path::{Path, PathBuf};

use crate::{
    config::RecordingsSettings,
    files,
    state::{State, StateError},
};

/// Name of the behaviour that stores the folders.
const FOLDERS: &str = "recordings_folders";

/// Stores the folder of the settings, before a run writes a file to it.
pub(super) fn remember_folder(state: &State, settings: &RecordingsSettings, now_ms: i64) -> Result<(), StateError> {
    let mut folders = stored_folders(state)?;
    let folder = relative_to_installation(&settings.path, state.path());
    if !folders.contains(&folder) {
        folders.push(folder);
        state.remember_behaviour(FOLDERS, &folders, now_ms)?;
    }
    Ok(())
}

/// Returns the absolute paths of the folders to which any run has written recordings.
pub fn recordings_folders(state: &State) -> Result<Vec<PathBuf>, StateError> {
    let installation = installation_folder(state.path());
    // `join` leaves an absolute path as it is.
    Ok(stored_folders(state)?.into_iter().map(|folder| installation.join(folder)).collect())
}

/// Returns the stored paths, some relative to the installation.
fn stored_folders(state: &State) -> Result<Vec<PathBuf>, StateError> {
    Ok(state.behaviour::<Vec<PathBuf>>(FOLDERS)?.map(|(folders, _)| folders).unwrap_or_default())
}

/// Returns the folder of the installation: the parent of the state file's folder. Paths inside this folder are stored
/// as relative paths, so that a copy of an installation has its own recordings.
fn installation_folder(state: &Path) -> PathBuf {
    let state = absolute(state);
    files::folder_of(files::folder_of(&state)).to_owned()
}

/// Returns a folder relative to the installation, or its absolute path if it is elsewhere.
fn relative_to_installation(folder: &Path, state: &Path) -> PathBuf {
    let folder = absolute(folder);
    folder.strip_prefix(installation_folder(state)).map(Path::to_owned).unwrap_or(folder)
}

/// Returns the absolute path, with symbolic links resolved if possible.
fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    files::real_path(&path).unwrap_or(path)
}
