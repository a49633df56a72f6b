//! The recordings of people: files in folders of their sessions.

use std::path::PathBuf;

use super::{EraseError, verify::Place};
use crate::{
    config::Settings,
    model::{Identifier, IdentifierKind, Steps},
    pipeline::RECORDINGS_FOLDER,
    recordings::{Held, Recordings},
    state::State,
};

/// The folders where recordings may be: that of the settings, and that of the last run that fetched any.
pub(super) fn folders(settings: &Settings, state: &State, steps: &Steps) -> Result<Vec<Recordings>, EraseError> {
    let mut paths = vec![settings.recordings.path.clone()];
    let used = state.service_trait::<String>(RECORDINGS_FOLDER)?.map(|(path, _)| PathBuf::from(path));
    paths.extend(used.filter(|used| *used != settings.recordings.path));
    Ok(paths.iter().map(|path| Recordings::at(path, steps.clone())).collect())
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
