//! Settings become stages: the client, the archive and the warehouses of a run.

use std::{path::Path, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    archive::{Archive, ArchiveSettings},
    config::{ArchiveChoice, AuthChoice, Settings, WarehouseSettings},
    load::{
        Destination, DuckDbDestination, EngineOptions, Identity, LoadError, LockPatience, ParquetDestination,
        ParquetOptions, PartitionBy, Reader, ReaderLimits, StartedEngine,
    },
    person::{Suppression, SuppressionList},
    source::{AuthForm, SourceError, SourceSettings, checked_address},
};

use super::{PipelineError, Surroundings};

/// The client's settings; the deadline counts from now.
pub fn source_settings(settings: &Settings) -> Result<SourceSettings, PipelineError> {
    let base_url = settings.base_url().map_err(PipelineError::Config)?;
    let key = settings.api_key().map_err(PipelineError::Config)?;
    let mut source = SourceSettings::new(base_url, key).map_err(PipelineError::Source)?;
    (source.auth, source.user_auth) = match settings.service.auth {
        AuthChoice::Documented => (AuthForm::Bearer, AuthForm::ApiKey),
        AuthChoice::Bearer => (AuthForm::Bearer, AuthForm::Bearer),
        AuthChoice::ApiKey => (AuthForm::ApiKey, AuthForm::ApiKey),
    };
    source.timeout = settings.service.timeout;
    source.in_flight_max = settings.throttle.in_flight_max;
    source.requests_per_sec_max = settings.throttle.requests_per_sec_max;
    source.patience = settings.throttle.patience;
    source.requests_max = settings.max_requests;
    source.deadline = settings.deadline.map(|deadline| tokio::time::Instant::now() + deadline);
    Ok(source)
}

/// The address as the client knows it: what state, archive and warehouses are marked with (promise P10).
pub fn identity(settings: &Settings) -> Result<Identity, PipelineError> {
    let base_url = settings.base_url().map_err(PipelineError::Config)?;
    let base_url = checked_address(base_url).map_err(|error| PipelineError::Source(SourceError::from(error)))?;
    Ok(Identity { base_url, environment: settings.service.environment.clone() })
}

/// The archive of the settings.
pub fn archive(settings: &Settings, identity: &Identity) -> Result<Archive, PipelineError> {
    let archive = ArchiveSettings {
        root: settings.archive_root.clone(),
        keeps_pages: settings.archive != ArchiveChoice::Nothing,
        keep_days: settings.archive_keep_days,
        base_url: identity.base_url.clone(),
        environment: identity.environment.clone(),
        state: settings.archive_owner.clone(),
    };
    Archive::open(archive).map_err(PipelineError::Archive)
}

/// Who is kept out of what is pulled and replayed.
pub(super) fn suppression(settings: &Settings) -> Result<Suppression, PipelineError> {
    let list = SuppressionList::read(&settings.erasures_folder()).map_err(PipelineError::Person)?;
    Ok(list.suppression())
}

/// How long a run waits for a warehouse that another process has open: never past its deadline, nor after it was cancelled.
pub fn lock_patience(settings: &Settings, stop: &CancellationToken) -> LockPatience {
    let wait = settings.warehouse.lock_wait;
    LockPatience { wait: settings.deadline.map_or(wait, |deadline| wait.min(deadline)), stop: stop.clone() }
}

/// Opens every warehouse that the settings name.
pub fn open_destinations(settings: &Settings, identity: &Identity) -> Result<Vec<Box<dyn Destination>>, PipelineError> {
    open_watched(settings, identity, &LockPatience::default(), &Surroundings::default(), None)
}

/// The same in other surroundings than this machine's; waits for those that other processes have open, and blocks the thread.
/// `started`: what [`start_engine`] gave, if it was asked before.
pub fn open_watched(
    settings: &Settings,
    identity: &Identity,
    patience: &LockPatience,
    surroundings: &Surroundings,
    started: Option<StartedEngine>,
) -> Result<Vec<Box<dyn Destination>>, PipelineError> {
    settings.require_warehouse().map_err(PipelineError::Config)?;
    let (memory_limit_bytes, threads) = engine_limits(settings, surroundings);
    let steps = || surroundings.steps.clone();
    let mut destinations: Vec<Box<dyn Destination>> = Vec::new();
    let engine = started.map_or_else(|| start_engine(settings, surroundings), |engine| Ok(Some(engine)))?;
    if let Some((path, engine)) = settings.warehouse.duckdb.as_ref().zip(engine) {
        let opened = DuckDbDestination::open_watched(path, identity, engine, patience.clone(), steps());
        let opened = opened.map_err(failed("duckdb"))?;
        destinations.push(Box::new(opened.with_copy(settings.warehouse.publish.clone())));
    }
    if let Some(root) = &settings.warehouse.parquet {
        let partition_by = if settings.warehouse.parquet_by_day { PartitionBy::Day } else { PartitionBy::Month };
        let options = ParquetOptions { partition_by, memory_limit_bytes, threads };
        let opened = ParquetDestination::open_watched(root, identity, &options, patience, &steps());
        let opened = opened.map_err(failed("parquet"))?;
        destinations.push(Box::new(opened));
    }
    if surroundings.last_warehouse_first {
        destinations.reverse();
    }
    Ok(destinations)
}

/// What each engine may use: memory in bytes, and threads.
pub(super) fn engine_limits(settings: &Settings, surroundings: &Surroundings) -> (u64, u32) {
    // Two engines share what the settings allow.
    let share = if settings.warehouse.duckdb.is_some() && settings.warehouse.parquet.is_some() { 2 } else { 1 };
    (settings.warehouse.memory_limit_bytes / share, surroundings.engine_threads.unwrap_or_else(engine_threads))
}

/// Threads of an engine, where nothing else is said.
pub(super) fn engine_threads() -> u32 {
    std::thread::available_parallelism().map_or(1, |threads| threads.get().min(64) as u32)
}

/// An engine for a DuckDB file, which spills beside it.
pub(super) fn engine_for(path: &Path, (memory_limit_bytes, threads): (u64, u32)) -> EngineOptions {
    let mut spill = path.as_os_str().to_owned();
    spill.push(".spill");
    EngineOptions { memory_limit_bytes, threads, temp_directory: spill.into() }
}

/// The engine of the DuckDB file, if there is to be one. Touches no file: whoever may not yet open the warehouse can start it.
pub(super) fn start_engine(
    settings: &Settings,
    surroundings: &Surroundings,
) -> Result<Option<StartedEngine>, PipelineError> {
    let Some(path) = &settings.warehouse.duckdb else { return Ok(None) };
    let options = engine_for(path, engine_limits(settings, surroundings));
    StartedEngine::start(options).map(Some).map_err(failed("duckdb"))
}

/// A reader of one warehouse, which nobody may have open for writing, and that warehouse's name: with both, of the DuckDB file, since
/// both hold the same. `time` is what a statement may take.
pub(super) fn open_reader(
    warehouse: &WarehouseSettings,
    time: Duration,
) -> Result<(&'static str, Reader), PipelineError> {
    let limits = ReaderLimits { memory_bytes: warehouse.memory_limit_bytes, statement_time: time };
    let (name, parquet) = match warehouse.duckdb {
        Some(_) => ("duckdb", None),
        None => ("parquet", warehouse.parquet.as_deref()),
    };
    let reader = Reader::open_limited(warehouse.duckdb.as_deref(), parquet, limits).map_err(failed(name))?;
    Ok((name, reader))
}

/// For `map_err`: which warehouse an error is from.
pub(super) fn failed(destination: &'static str) -> impl FnOnce(LoadError) -> PipelineError {
    move |source| PipelineError::Load { destination, source }
}
