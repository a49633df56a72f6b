//! The service has moved, or its environment has another label: state, warehouses, archive and inbox are told so (promise P10). No row
//! changes and nothing is asked. The state file comes last, so that the same command goes on after a kill.

use std::path::Path;

use crate::{
    archive::{Archive, ArchiveSettings},
    clock,
    config::{ArchiveChoice, Settings},
    load::{DuckDbDestination, Identity, LoadError, ParquetDestination, ParquetOptions, PartitionBy},
    model::{RunId, Steps, is_same_service},
    state::{Inbox, State, StateError},
};

use super::{
    PipelineError, Surroundings,
    assemble::{engine_for, engine_limits, failed, identity},
};

/// Binds everything that the settings name to their service and environment. Returns a sentence for each thing that was bound to `from`.
///
/// # Errors
/// If something belongs to neither; nothing before it in the order of the warehouse, the archive and the state is undone.
pub fn rebind(settings: &Settings, from: &Identity) -> Result<Vec<String>, PipelineError> {
    let to = identity(settings)?;
    let mut told = Vec::new();
    let state = state_of_either(settings, from, &to)?;
    let now_ms = clock::now_ms();
    let lease = state.as_ref().map(|(state, _)| state.take_lease(&RunId::new(now_ms), "rebind", now_ms));
    let _lease = lease.transpose().map_err(PipelineError::State)?;
    if let Some(path) = settings.warehouse.duckdb.as_deref().filter(|path| path.exists()) {
        rebind_duckdb(settings, path, from, &to, &mut told).map_err(failed("duckdb"))?;
    }
    if let Some(path) = settings.warehouse.parquet.as_deref().filter(|path| path.exists()) {
        rebind_parquet(settings, path, from, &to, &mut told).map_err(failed("parquet"))?;
    }
    let archive = ArchiveSettings {
        root: settings.archive_root.clone(),
        keeps_pages: settings.archive != ArchiveChoice::Nothing,
        keep_days: None,
        base_url: to.base_url.clone(),
        environment: to.environment.clone(),
        state: settings.archive_owner.clone(),
    };
    let files = Archive::rebind(archive, &from.base_url, &from.environment).map_err(PipelineError::Archive)?;
    if files > 0 {
        told.push(format!("{files} files of pages in {}", settings.archive_root.display()));
    }
    if Inbox::path_of(&settings.state_path).exists() {
        rebind_inbox(&settings.state_path, from, &to, &mut told).map_err(PipelineError::State)?;
    }
    if let Some((state, true)) = state {
        state.bind(&to.base_url, &to.environment).map_err(PipelineError::State)?;
        told.push(format!("the state file {}", settings.state_path.display()));
    }
    Ok(told)
}

/// The state file, and whether it is bound to `from`; `None` if there is none.
fn state_of_either(
    settings: &Settings,
    from: &Identity,
    to: &Identity,
) -> Result<Option<(State, bool)>, PipelineError> {
    let path = &settings.state_path;
    if !path.exists() {
        return Ok(None);
    }
    let open = |identity: &Identity| State::open(path, &identity.base_url, &identity.environment);
    match open(to) {
        Err(StateError::OtherService { .. }) => open(from).map(|state| Some((state, true))),
        opened => opened.map(|state| Some((state, false))),
    }
    .map_err(PipelineError::State)
}

/// What is bound to `from`, opened; `None` if it is bound to `to` already.
fn bound_to<T>(
    from: &Identity,
    to: &Identity,
    open: impl Fn(&Identity) -> Result<T, LoadError>,
) -> Result<Option<T>, LoadError> {
    match open(to) {
        Err(LoadError::OtherIdentity { .. }) => open(from).map(Some),
        opened => opened.map(|_| None),
    }
}

fn rebind_duckdb(
    settings: &Settings,
    path: &Path,
    from: &Identity,
    to: &Identity,
    told: &mut Vec<String>,
) -> Result<(), LoadError> {
    let options = engine_for(path, engine_limits(settings, &Surroundings::default()));
    let opened = bound_to(from, to, |identity| DuckDbDestination::open(path, identity, &options))?;
    if let Some(opened) = opened {
        opened.with_copy(settings.warehouse.publish.clone()).rebind(to)?;
        told.push(format!("the DuckDB file {}", path.display()));
    }
    Ok(())
}

fn rebind_parquet(
    settings: &Settings,
    path: &Path,
    from: &Identity,
    to: &Identity,
    told: &mut Vec<String>,
) -> Result<(), LoadError> {
    let partition_by = if settings.warehouse.parquet_by_day { PartitionBy::Day } else { PartitionBy::Month };
    let (memory_limit_bytes, threads) = engine_limits(settings, &Surroundings::default());
    let options = ParquetOptions { partition_by, memory_limit_bytes, threads };
    let opened = bound_to(from, to, |identity| {
        ParquetDestination::open_watched(path, identity, &options, &Default::default(), &Steps::default())
    })?;
    if let Some(mut opened) = opened {
        opened.rebind(to)?;
        told.push(format!("the Parquet files in {}", path.display()));
    }
    Ok(())
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
