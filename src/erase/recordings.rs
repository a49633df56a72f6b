//! The recordings of people: files in folders of their sessions.

use super::{EraseError, verify::Place};
use crate::{
    config::Settings,
    model::{Failpoints, Identifier, IdentifierKind},
    pipeline::recordings_folders,
    recordings::{Held, Recordings},
    state::State,
};

/// The folders where recordings may be: those where runs put any, and that of the settings.
///
/// # Errors
/// If one where a run put some is not there: on a disk that is not mounted, recordings would outlive the erasure.
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
    let own = &settings.recordings.path;
    if !paths.iter().any(|path| path.canonicalize().ok() == own.canonicalize().ok()) {
        paths.push(own.clone());
    }
    Ok(paths.iter().map(|path| Recordings::at(path, failpoints.clone())).collect())
}

/// What is held of the sessions among these.
pub(super) fn held(folders: &[Recordings], people: &[Identifier]) -> Result<Held, EraseError> {
    let mut all = Held::default();
    for recordings in folders {
        let held = recordings.held(people)?;
        all.sessions += held.sessions;
        all.files += held.files;
        all.bytes += held.bytes;
    }
    Ok(all)
}

/// Removes all that is held of them. Returns how many recordings that were.
pub(super) fn remove(folders: &[Recordings], people: &[Identifier]) -> Result<u64, EraseError> {
    let mut removed = 0;
    for recordings in folders {
        removed += recordings.remove(people)?;
    }
    Ok(removed)
}

/// What is left of them; `None` where there never were recordings.
pub(super) fn search(folders: &[Recordings], people: &[Identifier]) -> Result<Option<Place>, EraseError> {
    if !folders.iter().any(Recordings::is_there) {
        return Ok(None);
    }
    let left = held(folders, people)?;
    let sessions = people.iter().filter(|one| one.kind == IdentifierKind::Session).count() as u64;
    Ok(Some(Place { searched: sessions, bytes: left.bytes, left: left.sessions.max(left.files), ..Place::default() }))
}
