//! `rebind`: binds the state file, warehouses, archive and inbox to another address or environment label of the same
//! service (promise P10). Changes no row and sends no request. The state file is bound last, so that the command can be
//! repeated after a kill.

use std::path::Path;

use crate::{
    archive::{Archive, ArchiveSettings},
    config::{ArchiveChoice, Settings},
    load::{Identity, Place},
    model::is_same_service,
    state::{Inbox, StateError},
};

use super::{
    assemble::{System, failed, identity, opening, places},
    error::PipelineError,
    session::Session,
};

/// Binds the warehouses, archive, inbox and state file of the settings to the service and environment of the settings.
/// Returns the names of those that were bound to `from` before.
///
/// # Errors
/// If one of them is bound neither to `from` nor to the settings' service. Those that were bound before the error stay
/// bound; the order is warehouses, archive, inbox, state file.
pub fn rebind(settings: &Settings, from: &Identity) -> Result<Vec<String>, PipelineError> {
    let to = identity(settings)?;
    let mut rebound = Vec::new();
    let session = session_of_either(settings, from, &to)?;
    let opening = opening(settings, &to, &System::default());
    for place in places(&settings.warehouse).into_iter().filter(Place::exists) {
        if place.rebind(from, &opening).map_err(failed(place.name()))? {
            rebound.push(format!("{} {}", place.kind.noun(), place.location));
        }
    }
    let archive = ArchiveSettings {
        location: settings.archive_location.clone(),
        keeps_pages: settings.archive != ArchiveChoice::Nothing,
        keep_days: None,
        base_url: to.base_url.clone(),
        environment: to.environment.clone(),
        state_file_name: settings.archive_owner.clone(),
    };
    let files = Archive::rebind(archive, &from.base_url, &from.environment)?;
    if files > 0 {
        rebound.push(format!("{files} files of pages in {}", settings.archive_location));
    }
    if Inbox::path_of(&settings.state_path).exists() {
        rebind_inbox(&settings.state_path, from, &to, &mut rebound)?;
    }
    if let Some(session) = session.filter(|session| !is_same_identity(&session.identity, &to)) {
        session.state().bind(&to.base_url, &to.environment)?;
        rebound.push(format!("the state file {}", settings.state_path.display()));
    }
    Ok(rebound)
}

/// Opens a session with the identity to which the state file is bound, `from` or `to`. Returns `None` if there is no
/// state file.
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

/// Binds the inbox to `to`, and adds its name to `rebound` if it was bound to `from`. Fails while `serve` runs.
fn rebind_inbox(state: &Path, from: &Identity, to: &Identity, rebound: &mut Vec<String>) -> Result<(), StateError> {
    // The lock keeps `serve` from running, which would store deliveries of the old service.
    let Some(_lock) = Inbox::lock(state)? else {
        return Err(StateError::Leased { path: Inbox::path_of(state), holder: None });
    };
    let open = |identity: &Identity| Inbox::open(state, &identity.base_url, &identity.environment);
    match open(to) {
        Err(StateError::OtherService { .. }) => open(from)?.bind(&to.base_url, &to.environment)?,
        opened => return opened.map(drop),
    }
    rebound.push(format!("the inbox {}", Inbox::path_of(state).display()));
    Ok(())
}

/// Returns true if two identities name the same service and environment.
pub fn is_same_identity(left: &Identity, right: &Identity) -> bool {
    is_same_service(&left.base_url, &right.base_url) && left.environment == right.environment
}
