//! The folders where recordings were ever put: an erasure looks in each of them, whatever the settings say by then.

use std::path::{Path, PathBuf};

use crate::{
    config::RecordingsSettings,
    files,
    state::{State, StateError},
};

/// The name under which the checkpoints have them.
const FOLDERS: &str = "recordings_folders";

/// Notes the folder of the settings, before anything is put there.
pub(super) fn remember_folder(state: &State, settings: &RecordingsSettings, now_ms: i64) -> Result<(), StateError> {
    let mut folders = noted(state)?;
    let folder = written(&settings.path, state.path());
    if !folders.contains(&folder) {
        folders.push(folder);
        state.remember_behaviour(FOLDERS, &folders, now_ms)?;
    }
    Ok(())
}

/// The folders where runs put recordings.
pub fn recordings_folders(state: &State) -> Result<Vec<PathBuf>, StateError> {
    let place = place_of(state.path());
    // One that was written whole stays as it is.
    Ok(noted(state)?.into_iter().map(|folder| place.join(folder)).collect())
}

fn noted(state: &State) -> Result<Vec<PathBuf>, StateError> {
    Ok(state.behaviour::<Vec<PathBuf>>(FOLDERS)?.map(|(folders, _)| folders).unwrap_or_default())
}

/// The folder that holds all of an installation: above that of the state file. A copy of it has its own recordings.
fn place_of(state: &Path) -> PathBuf {
    let state = absolute(state);
    files::folder_of(files::folder_of(&state)).to_owned()
}

/// As it is noted: from the place of the state file on, if it is there.
fn written(folder: &Path, state: &Path) -> PathBuf {
    let folder = absolute(folder);
    folder.strip_prefix(place_of(state)).map(Path::to_owned).unwrap_or(folder)
}

fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    files::real_path(&path).unwrap_or(path)
}
