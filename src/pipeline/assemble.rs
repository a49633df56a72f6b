//! Creates the stages of a run from the settings: the client, the archive and the warehouses.

use std::{path::PathBuf, time::Duration};

use tokio_util::sync::CancellationToken;

use crate::{
    archive::{Archive, ArchiveSettings},
    clock::Clock,
    config::{
        ArchiveChoice, AuthChoice, ConfigError, NetworkVariables, Settings, WarehouseSettings, network_variables,
    },
    load::{
        AnalystCopy, CopyContent, ErasureRecord, FullTextSearch, Identity, LoadError, LockPatience, Opening,
        PartitionBy, Place, PseudonymKey, Pseudonyms, Reader, ReaderCopy, ReaderLimits, StartedEngine, Warehouse,
        WarehouseOptions, clear_built_file,
    },
    model::{Failpoints, Location, Rng, Shard, WarehouseKind, WarehouseLocations},
    person::{Suppression, SuppressionError, SuppressionList},
    source::{AuthForm, KeyReader, Proxies, SourceError, SourceSettings, Transport, checked_address},
};

use super::{
    error::{PipelineError, chain},
    memory::Memory,
};

/// The inputs of a run from outside. Cheap to clone. The default is this machine; the simulator (`tests/simulation`)
/// replaces all of them.
#[derive(Clone, Debug, Default)]
pub struct System {
    /// This machine's clock.
    pub clock: Clock,
    /// The random numbers for ids and jitter.
    pub rng: Rng,
    /// Sends requests to the service.
    pub transport: Transport,
    /// The failpoints at which a test can stop the run.
    pub failpoints: Failpoints,
    /// Number of threads of DuckDB's engine. `None` for one thread per processor.
    pub engine_threads: Option<u32>,
    /// True to use the warehouses in reverse order. The order only matters in a runtime with one thread.
    pub last_warehouse_first: bool,
}

/// Returns the settings of the client that sends the requests. The deadline counts from now.
pub fn source_settings(settings: &Settings) -> Result<SourceSettings, PipelineError> {
    let base_url = settings.base_url()?;
    let key = settings.api_key()?;
    let mut source = SourceSettings::new(base_url, key)?;
    (source.auth, source.user_auth) = match settings.service.auth {
        AuthChoice::Documented => (AuthForm::Bearer, AuthForm::ApiKey),
        AuthChoice::Bearer => (AuthForm::Bearer, AuthForm::Bearer),
        AuthChoice::ApiKey => (AuthForm::ApiKey, AuthForm::ApiKey),
    };
    source.key_reader = key_reader(settings);
    source.proxies = proxies()?;
    source.timeout = settings.service.timeout;
    source.in_flight_max = settings.throttle.in_flight_max;
    source.page_bytes_max = Memory::of(&settings.warehouse).bodies;
    source.requests_per_sec_max = settings.throttle.requests_per_sec_max;
    source.workers = settings.shard.map_or(1, Shard::count);
    source.patience = settings.throttle.patience;
    source.requests_max = settings.max_requests;
    source.deadline = settings.deadline.map(|deadline| tokio::time::Instant::now() + deadline);
    Ok(source)
}

/// Returns what reads the key once more if the service refuses it. Returns `None` for an environment variable, which
/// cannot change during a run.
fn key_reader(settings: &Settings) -> Option<KeyReader> {
    if settings.service.api_key_source.variable().is_some() {
        return None;
    }
    let settings = settings.clone();
    Some(KeyReader::new(move || {
        let read = settings.api_key();
        read.inspect_err(|error| tracing::warn!(why = chain(error), "cannot read the key once more")).ok()
    }))
}

/// Returns the proxies that the environment names.
///
/// # Errors
/// `UnusableProxy` if a variable has no usable address: requests must not go directly instead.
pub fn proxies() -> Result<Proxies, PipelineError> {
    let NetworkVariables { https_proxy, http_proxy, no_proxy, .. } = network_variables();
    let proxies = Proxies::new(https_proxy.as_ref(), http_proxy.as_ref(), &no_proxy);
    Ok(proxies.map_err(SourceError::from)?)
}

/// Returns the service and environment to which state, archive and warehouses are bound (promise P10).
pub fn identity(settings: &Settings) -> Result<Identity, PipelineError> {
    let base_url = settings.base_url()?;
    let base_url = checked_address(base_url).map_err(SourceError::from)?;
    Ok(Identity { base_url, environment: settings.service.environment.clone() })
}

/// Opens the archive of the settings.
pub fn archive(settings: &Settings, identity: &Identity) -> Result<Archive, PipelineError> {
    let archive = ArchiveSettings {
        location: settings.archive_location.clone(),
        keeps_pages: settings.archive != ArchiveChoice::Nothing,
        keep_days: settings.archive_keep_days,
        base_url: identity.base_url.clone(),
        environment: identity.environment.clone(),
        state_file_name: settings.archive_owner.clone(),
    };
    Ok(Archive::open(archive)?)
}

/// Returns true if pages are kept and there is an archive, or if it cannot be found out: opening it then says why.
pub fn has_archive(settings: &Settings) -> bool {
    settings.archive != ArchiveChoice::Nothing && Archive::exists(&settings.archive_location).unwrap_or(true)
}

/// Reads the list of suppressed people: erased people whose records are removed from every page.
pub(super) fn suppression(settings: &Settings) -> Result<Suppression, PipelineError> {
    let list = SuppressionList::read(&settings.erasures_folder())?;
    Ok(Suppression::new(list))
}

/// The least time for which one of several workers waits for the warehouse.
const WORKERS_WAIT: Duration = Duration::from_secs(600);

/// Returns how long a run waits for a warehouse that another process has open: at most until the run's deadline or
/// stop.
pub(super) fn lock_patience(settings: &Settings, stop: &CancellationToken) -> LockPatience {
    // Another worker has a bucket for the time of a commit.
    let wait = match settings.shard {
        Some(_) => settings.warehouse.lock_wait.max(WORKERS_WAIT),
        None => settings.warehouse.lock_wait,
    };
    LockPatience { wait: settings.deadline.map_or(wait, |deadline| wait.min(deadline)), stop: stop.clone() }
}

/// Returns the locations of the warehouses of the settings. They are not for writing copies without personal data:
/// [`places_to_write`] reads the key of those.
pub fn places(settings: &WarehouseSettings) -> Vec<Place> {
    let partition_by = if settings.parquet_by_day { PartitionBy::Day } else { PartitionBy::Month };
    let content = if settings.publish.analysts.is_some() { CopyContent::NotRead } else { CopyContent::Complete };
    let place = |(kind, location): (&WarehouseKind, &Location)| {
        let copy = settings.publish.paths.get(kind);
        let copy = copy.map(|path| ReaderCopy { path: path.clone(), content: content.clone() });
        let (search, is_shared) = (full_text_search(settings), settings.is_shared);
        let options = WarehouseOptions { copy, search, partition_by, is_shared };
        Place { kind: *kind, location: location.clone(), options }
    };
    settings.locations.iter().map(place).collect()
}

/// Returns the locations of the warehouses of the settings, to open them for writing.
///
/// # Errors
/// The key of pseudonyms cannot be read, or `without` has an unknown name.
fn places_to_write(settings: &WarehouseSettings) -> Result<Vec<Place>, PipelineError> {
    let mut places = places(settings);
    if let Some(rules) = analyst_copy(settings)? {
        for copy in places.iter_mut().filter_map(|place| place.options.copy.as_mut()) {
            copy.content = CopyContent::Analysts(rules.clone());
        }
    }
    Ok(places)
}

/// Returns the rules of copies without personal data; `None` if the settings have no such copy.
///
/// # Errors
/// The key of pseudonyms cannot be read, or `without` has an unknown name.
pub fn analyst_copy(settings: &WarehouseSettings) -> Result<Option<AnalystCopy>, PipelineError> {
    let Some(analysts) = &settings.publish.analysts else { return Ok(None) };
    let pseudonyms = match analysts.has_pseudonyms {
        true => Pseudonyms::Keyed(Box::new(PseudonymKey::new(analysts.key()?.expose()))),
        false => Pseudonyms::Off,
    };
    let invalid = |problem| ConfigError::Invalid { setting: "[warehouse] publish: without".to_owned(), problem };
    Ok(Some(AnalystCopy::new(&analysts.without, pseudonyms).map_err(invalid)?))
}

/// Returns the warehouses that exist.
pub fn existing_warehouses(settings: &WarehouseSettings) -> WarehouseLocations {
    places(settings).into_iter().filter(Place::exists).map(|place| (place.kind, place.location)).collect()
}

/// Returns the folders in which a run creates files of the warehouses and of the copy for readers. Some may be missing.
pub fn warehouse_folders(settings: &WarehouseSettings) -> Vec<PathBuf> {
    places(settings).iter().flat_map(Place::folders).collect()
}

/// Removes the files that a killed replay left, and undoes an interrupted replacement of a warehouse. The caller holds
/// the lease.
pub fn clear_leftovers(settings: &Settings) -> Result<(), PipelineError> {
    places(&settings.warehouse).iter().try_for_each(|place| place.clear_leftovers().map_err(failed(place.name())))?;
    Ok(clear_built_file(&settings.state_path)?)
}

/// Returns the settings of the full text search in the DuckDB file.
pub fn full_text_search(settings: &WarehouseSettings) -> FullTextSearch {
    FullTextSearch { is_on: settings.full_text_search, extension_directory: settings.extension_directory.clone() }
}

/// Returns the options to open warehouses without waiting for locks.
pub(super) fn opening(settings: &Settings, identity: &Identity, system: &System) -> Opening {
    let shares = Memory::of(&settings.warehouse);
    Opening {
        identity: identity.clone(),
        memory_limit_bytes: shares.store,
        buffer_bytes_max: shares.waiting,
        threads: threads(system),
        patience: LockPatience::default(),
        failpoints: system.failpoints.clone(),
    }
}

/// Opens every warehouse of the settings. Fails if another process has one open, or if the suppression list is lost.
pub fn open_warehouses(settings: &Settings, identity: &Identity) -> Result<Vec<Warehouse>, PipelineError> {
    let mut warehouses = open_all(settings, &opening(settings, identity, &System::default()), None)?;
    require_list(settings, &mut warehouses).map(|()| warehouses)
}

/// Opens every warehouse of the settings. `started` is the engine of [`start_engine`], if it was started before.
pub(super) fn open_all(
    settings: &Settings,
    opening: &Opening,
    mut started: Option<StartedEngine>,
) -> Result<Vec<Warehouse>, PipelineError> {
    settings.require_warehouse()?;
    let open = |place: Place| place.open(opening, started.take()).map_err(failed(place.name()));
    places_to_write(&settings.warehouse)?.into_iter().map(open).collect()
}

/// Fails if the suppression list is lost, because erased people would be stored again: the list is missing, and a
/// warehouse has the receipt of an erasure whose people are suppressed.
pub(super) fn require_list(settings: &Settings, warehouses: &mut [Warehouse]) -> Result<(), PipelineError> {
    let list = SuppressionList::path_in(&settings.erasures_folder());
    // Most installations have no list, because they never erased anybody.
    if list.try_exists().unwrap_or(true) {
        return Ok(());
    }
    for warehouse in warehouses {
        let erasures = warehouse.erasures().map_err(failed(warehouse.name()))?;
        if let Some(ErasureRecord { erasure_id, .. }) = erasures.into_iter().find(ErasureRecord::is_suppressed) {
            return Err(PipelineError::Person(SuppressionError::ListLost { list, erasure_id }));
        }
    }
    Ok(())
}

/// Returns the number of threads of DuckDB's engine: by default one for each processor, at most 64.
fn threads(system: &System) -> u32 {
    let processors = || std::thread::available_parallelism().map_or(1, |threads| threads.get().min(64) as u32);
    system.engine_threads.unwrap_or_else(processors)
}

/// Starts the engine of the first warehouse, if it has one. Opens no file, so that no lock is needed.
pub(super) fn start_engine(settings: &Settings, system: &System) -> Result<Option<StartedEngine>, PipelineError> {
    let Some(place) = places(&settings.warehouse).into_iter().next() else { return Ok(None) };
    let store_bytes = Memory::of(&settings.warehouse).store;
    place.start_engine(store_bytes, threads(system)).map_err(failed(place.name()))
}

/// Opens the first warehouse for reading, and also returns its name. No process may have the warehouse open for
/// writing. `time` is the time limit of a statement.
pub(super) fn open_reader(
    warehouse: &WarehouseSettings,
    time: Duration,
) -> Result<(&'static str, Reader), PipelineError> {
    let limits = ReaderLimits { statement_time: time, ..Memory::of(warehouse).reader_limits() };
    let first: WarehouseLocations = warehouse.locations.clone().into_iter().take(1).collect();
    let name = first.keys().next().map_or("warehouse", |kind| kind.name());
    Ok((name, Reader::open_limited(&first, limits).map_err(failed(name))?))
}

/// Wraps an error of the pipeline, because a warehouse reads pages through the pipeline. [`failed`] unwraps it.
impl From<PipelineError> for LoadError {
    fn from(error: PipelineError) -> Self {
        LoadError::Pages(Box::new(error))
    }
}

/// Returns a function for `map_err` that adds the name of the warehouse to an error. An error of the pipeline that a
/// warehouse only passed on is returned as it is.
pub(super) fn failed(destination: &'static str) -> impl FnOnce(LoadError) -> PipelineError {
    move |source| match source {
        // An error of the pipeline itself, wrapped by the conversion above.
        LoadError::Pages(source) => match source.downcast::<PipelineError>() {
            Ok(error) => *error,
            Err(source) => PipelineError::Load { destination, source: LoadError::Pages(source) },
        },
        source => PipelineError::Load { destination, source },
    }
}
