//! Counts, removes and searches the recordings of people, which are files in a folder per session.

use super::{EraseError, verify::LocationResult};
use crate::{
    config::Settings,
    model::{Failpoints, Identifier, IdentifierKind},
    pipeline::recordings_folders,
    recordings::{Recordings, StoredRecordings},
    state::State,
};

/// Returns all folders that may contain recordings: the folders of earlier runs and the configured folder.
///
/// # Errors
/// If a folder of an earlier run is missing, because recordings on an unmounted disk would survive the erasure.
pub(super) fn folders(
    settings: &Settings,
    state: &State,
    failpoints: &Failpoints,
) -> Result<Vec<Recordings>, EraseError> {
    let mut paths = recordings_folders(state)?;
    if let Some(path) = paths.iter().find(|path| !path.is_dir()) {
        return Err(EraseError::Names(format!(
            "recordings were put into {}, which is not there: mount it, or make an empty folder there if they are gone for good",
            path.display()
        )));
    }
    let configured = &settings.recordings.path;
    if !paths.iter().any(|path| path.canonicalize().ok() == configured.canonicalize().ok()) {
        paths.push(configured.clone());
    }
    Ok(paths.iter().map(|path| Recordings::at(path, failpoints.clone())).collect())
}

/// Counts the stored recordings of the people's sessions.
pub(super) fn count(folders: &[Recordings], people: &[Identifier]) -> Result<StoredRecordings, EraseError> {
    let mut all = StoredRecordings::default();
    for recordings in folders {
        let stored = recordings.count(people)?;
        all.sessions += stored.sessions;
        all.files += stored.files;
        all.bytes += stored.bytes;
    }
    Ok(all)
}

/// Removes all recordings of the people. Returns the number of removed recordings and partial downloads.
pub(super) fn remove(folders: &[Recordings], people: &[Identifier]) -> Result<u64, EraseError> {
    let mut removed = 0;
    for recordings in folders {
        removed += recordings.remove(people)?;
    }
    Ok(removed)
}

/// Counts the recordings of the people that still exist. Returns `None` if no folder of recordings exists.
pub(super) fn search(folders: &[Recordings], people: &[Identifier]) -> Result<Option<LocationResult>, EraseError> {
    if !folders.iter().any(Recordings::is_there) {
        return Ok(None);
    }
    let remaining = count(folders, people)?;
    let sessions = people.iter().filter(|one| one.kind == IdentifierKind::Session).count() as u64;
    Ok(Some(LocationResult {
        searched: sessions,
        bytes: remaining.bytes,
        left: remaining.sessions.max(remaining.files),
        ..LocationResult::default()
    }))
}
