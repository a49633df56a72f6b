//! The service has moved, or its environment has another label: state, warehouses, archive and inbox are told so
//! (promise P10). No row changes and nothing is asked.
//! The state file comes last, so that the same command goes on after a kill.

use std::path::Path;

use crate::{
    archive::{Archive, ArchiveSettings},
    config::{ArchiveChoice, Settings},
    load::Identity,
    model::is_same_service,
    state::{Inbox, StateError},
};

use super::{
    PipelineError, Session, System,
    assemble::{failed, identity, opening, places},
};

/// Binds everything that the settings name to their service and environment.
/// Returns a sentence for each thing that was bound to `from`.
///
/// # Errors
/// If something belongs to neither; nothing before it in the order of the warehouse,
/// the archive and the state is undone.
pub fn rebind(settings: &Settings, from: &Identity) -> Result<Vec<String>, PipelineError> {
    let to = identity(settings)?;
    let mut told = Vec::new();
    let session = session_of_either(settings, from, &to)?;
    let opening = opening(settings, &to, &System::default());
    for place in places(&settings.warehouse).into_iter().filter(|place| place.path().exists()) {
        if place.rebind(from, &opening).map_err(failed(place.name()))? {
            let what = if place.name() == "duckdb" { "the DuckDB file" } else { "the Parquet files in" };
            told.push(format!("{what} {}", place.path().display()));
        }
    }
    let archive = ArchiveSettings {
        root: settings.archive_root.clone(),
        keeps_pages: settings.archive != ArchiveChoice::Nothing,
        keep_days: None,
        base_url: to.base_url.clone(),
        environment: to.environment.clone(),
        state: settings.archive_owner.clone(),
    };
    let files = Archive::rebind(archive, &from.base_url, &from.environment)?;
    if files > 0 {
        told.push(format!("{files} files of pages in {}", settings.archive_root.display()));
    }
    if Inbox::path_of(&settings.state_path).exists() {
        rebind_inbox(&settings.state_path, from, &to, &mut told)?;
    }
    if let Some(session) = session.filter(|session| !is_same_identity(&session.identity, &to)) {
        session.state().bind(&to.base_url, &to.environment)?;
        told.push(format!("the state file {}", settings.state_path.display()));
    }
    Ok(told)
}

/// A session as the one that the state file is bound to; `None` if there is no such file.
fn session_of_either(settings: &Settings, from: &Identity, to: &Identity) -> Result<Option<Session>, StateError> {
    if !settings.state_path.exists() {
        return Ok(None);
    }
    let open = |identity: &Identity| Session::open(settings, identity, "rebind", &System::default());
    match open(to) {
        Err(StateError::OtherService { .. }) => open(from).map(Some),
        opened => opened.map(Some),
    }
}

fn rebind_inbox(state: &Path, from: &Identity, to: &Identity, told: &mut Vec<String>) -> Result<(), StateError> {
    // A `serve` that works on it takes deliveries of the old one.
    let Some(_lock) = Inbox::lock(state)? else {
        return Err(StateError::Leased { path: Inbox::path_of(state), holder: None });
    };
    let open = |identity: &Identity| Inbox::open(state, &identity.base_url, &identity.environment);
    match open(to) {
        Err(StateError::OtherService { .. }) => open(from)?.bind(&to.base_url, &to.environment)?,
        opened => return opened.map(drop),
    }
    told.push(format!("the inbox {}", Inbox::path_of(state).display()));
    Ok(())
}

/// Whether two identities are of one service and environment.
pub fn is_same_identity(left: &Identity, right: &Identity) -> bool {
    is_same_service(&left.base_url, &right.base_url) && left.environment == right.environment
}
