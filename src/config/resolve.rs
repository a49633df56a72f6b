//! Merges the file, the environment and the command line into settings. The command line wins over the environment, the
//! environment over the file, and the file over the defaults.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::model::{Stream, WarehouseKind, WarehousePaths};

use super::{
    ArchiveChoice, AuthChoice, MetricsSettings, Overrides, RecordingsSettings, ServiceSettings, Settings,
    ThrottleSettings, WarehouseSettings,
    defaults::{
        API_KEY_ENV, ARCHIVE_FOLDER, CONFIG_FILE_NAME, ENVIRONMENT, GRACE_DAYS, IN_FLIGHT_MAX, LOCK_WAIT_SECS,
        MEMORY_LIMIT_MB, MEMORY_LIMIT_MB_MIN, PATIENCE_SECS, STATE_PATH, TIMEOUT_SECS,
    },
    error::{ConfigError, invalid},
    file::{ConfigFile, EraseTable, ServiceTable, ThrottleTable, WarehouseTable},
    limits,
    locations::{default_page_folder, resolve_links, resolve_state_links},
    notify, paths, recordings,
    secret::SecretKeys,
    serve,
    setting_variables::{SettingVariables, config_file},
    streams,
    tilde::expand_tilde,
};

const SPOOL_FOLDER: &str = "spool";
const IN_FLIGHT_LIMIT: usize = 64;

/// Reads the configuration file and merges it with the environment and the command line.
///
/// The file is the one that `--config` or `STUDYSYNC_CONFIG` names, else `studysync.toml` if it exists. Paths in the
/// file are relative to the file.
///
/// # Errors
/// A file that cannot be read or parsed, or an invalid value.
pub fn resolve(overrides: Overrides) -> Result<Settings, ConfigError> {
    let variables = SettingVariables::of_this_process()?;
    let config = overrides.config.clone().or_else(config_file).or_else(|| {
        let default = PathBuf::from(CONFIG_FILE_NAME);
        // An inaccessible file counts as existing: reading it reports the cause.
        default.try_exists().unwrap_or(true).then_some(default)
    });
    let config = config.map(expand_tilde).transpose().map_err(|problem| invalid("--config", problem))?;
    let file = config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
    resolve_with(file, &variables, config, overrides)
}

/// Merges a parsed file with environment variables and the command line. `config` is the path of the file; `None` if
/// there is no file.
pub(super) fn resolve_with(
    file: ConfigFile,
    variables: &SettingVariables,
    config: Option<PathBuf>,
    overrides: Overrides,
) -> Result<Settings, ConfigError> {
    let (file, set) = file.with_variables(variables)?;
    resolve_file(file, config, overrides).map_err(|error| match error {
        // If the value came from a variable, the error names the variable and not the key.
        ConfigError::Invalid { setting, problem } => match set.iter().find(|key| key.label() == setting) {
            Some(key) => invalid(key.variable(), problem),
            None => invalid(setting, problem),
        },
        error => error,
    })
}

/// Merges a parsed file with the command line, and checks all values. `config` is the path of the file; `None` if there
/// is no file.
pub(super) fn resolve_file(
    mut file: ConfigFile,
    config: Option<PathBuf>,
    mut overrides: Overrides,
) -> Result<Settings, ConfigError> {
    paths::expand_all(&mut file, &mut overrides)?;
    limits::check(&file)?;
    let mut tables = streams::by_stream(std::mem::take(&mut file.streams))?;
    let folder = config.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
    let from_folder = |path: PathBuf| folder.join(path);
    let service = service(file.service, &mut overrides, from_folder)?;
    let throttle = throttle(&file.throttle, &overrides)?;
    let state_path =
        overrides.state.take().or(file.state.path.map(from_folder)).unwrap_or_else(|| from_folder(STATE_PATH.into()));
    let archive = overrides.archive.take().unwrap_or_else(|| match file.archive.path {
        Some(path) if path.as_os_str() == "none" => ArchiveChoice::Nothing,
        Some(path) => ArchiveChoice::Folder(from_folder(path)),
        None => ArchiveChoice::Folder(default_page_folder(&state_path, ARCHIVE_FOLDER)),
    });
    let archive_root = match &archive {
        ArchiveChoice::Folder(path) => path.clone(),
        ArchiveChoice::Nothing => default_page_folder(&state_path, SPOOL_FOLDER),
    };
    let archive_owner = state_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let (state_path, archive_root) = (resolve_state_links(state_path)?, resolve_links(archive_root)?);
    let warehouse = warehouse(file.warehouse, &mut overrides, from_folder)?;
    let parquet = warehouse.paths.get(&WarehouseKind::Parquet);
    let recordings_path = file.recordings.path.clone().map(from_folder).unwrap_or_else(|| match parquet {
        Some(parquet) => parquet.join(recordings::FOLDER),
        None => default_page_folder(&state_path, recordings::FOLDER),
    });
    let recordings: RecordingsSettings = recordings::resolve(&file.recordings, resolve_links(recordings_path)?)?;
    recordings::check_folder(&recordings.path, &state_path, &archive_root, parquet)?;
    check_surveys(&overrides)?;
    let drift = streams::drift_policy(&tables)?;
    let users = streams::users_settings(tables.remove(&Stream::Users).unwrap_or_default(), &overrides.streams)?;
    Ok(Settings {
        streams: streams::enabled(tables, &overrides.streams)?,
        users,
        drift,
        config,
        service,
        throttle,
        named_streams: overrides.streams,
        surveys: sorted_without_duplicates(overrides.surveys),
        warehouse,
        state_path,
        archive,
        archive_root,
        archive_owner,
        archive_keep_days: file.archive.keep_days,
        erase_vanished_after_days: erase_vanished_after_days(&file.erase)?,
        recordings,
        serve: serve::resolve(file.serve, from_folder)?,
        metrics: MetricsSettings { textfile: file.metrics.textfile.map(from_folder) },
        notify: notify::resolve(file.notify, from_folder)?,
        deadline: overrides.deadline,
        max_requests: overrides.max_requests,
    })
}

/// Merges `[service]` with the command line. `from_folder` resolves a path of the file, which is relative to the folder
/// of the file.
fn service(
    table: ServiceTable,
    overrides: &mut Overrides,
    from_folder: impl Fn(PathBuf) -> PathBuf,
) -> Result<ServiceSettings, ConfigError> {
    let api_key_keys = SecretKeys {
        table: "service",
        name: "api_key",
        // `--api-key-file` wins over a command in the file as well.
        command: table.api_key_command.filter(|_| overrides.api_key_file.is_none()),
        file: overrides.api_key_file.take().or(table.api_key_file.map(from_folder)),
        variable: table.api_key_env,
        default_variable: API_KEY_ENV,
    };
    let base_url = overrides.base_url.take().or(table.base_url);
    Ok(ServiceSettings {
        base_url: base_url.map(|url| url.trim().trim_end_matches('/').to_owned()),
        environment: table.environment.unwrap_or_else(|| ENVIRONMENT.to_owned()),
        api_key_source: api_key_keys.resolve()?,
        timeout: Duration::from_secs(table.timeout_secs.unwrap_or(TIMEOUT_SECS)),
        auth: match table.auth.as_deref() {
            None | Some("documented") => AuthChoice::Documented,
            Some("bearer") => AuthChoice::Bearer,
            Some("api-key") => AuthChoice::ApiKey,
            Some(other) => {
                let problem = format!("'{other}' is neither 'documented' nor 'bearer' nor 'api-key'");
                return Err(invalid("[service] auth", problem));
            }
        },
    })
}

/// Merges `[throttle]` with the command line. Fails if a number is outside its range.
fn throttle(table: &ThrottleTable, overrides: &Overrides) -> Result<ThrottleSettings, ConfigError> {
    let in_flight_max = overrides.concurrency.or(table.in_flight_max).unwrap_or(IN_FLIGHT_MAX);
    if !(1..=IN_FLIGHT_LIMIT).contains(&in_flight_max) {
        let problem = format!("{in_flight_max} is not between 1 and {IN_FLIGHT_LIMIT}");
        let is_flag = overrides.concurrency.is_some();
        return Err(invalid(if is_flag { "--concurrency" } else { "[throttle] in_flight_max" }, problem));
    }
    if table.requests_per_sec_max.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(invalid("[throttle] requests_per_sec_max", "must be a finite number that is more than 0"));
    }
    Ok(ThrottleSettings {
        in_flight_max,
        requests_per_sec_max: table.requests_per_sec_max,
        patience: Duration::from_secs(table.patience_secs.unwrap_or(PATIENCE_SECS)),
        ignores_stored_retry_after: overrides.ignore_rate_limit,
    })
}

/// Merges `[warehouse]` with the command line, and checks the result. `from_folder` resolves a path of the file, which
/// is relative to the folder of the file.
fn warehouse(
    mut table: WarehouseTable,
    overrides: &mut Overrides,
    from_folder: impl Fn(PathBuf) -> PathBuf,
) -> Result<WarehouseSettings, ConfigError> {
    let memory_limit_mb = table.memory_limit_mb.unwrap_or(MEMORY_LIMIT_MB);
    let mut paths = WarehousePaths::new();
    for kind in WarehouseKind::ALL {
        let path = table.path_of(kind).take().map(&from_folder);
        if let Some(path) = overrides.warehouses.remove(&kind).or(path) {
            paths.insert(kind, resolve_links(path)?);
        }
    }
    let warehouse = WarehouseSettings {
        paths,
        parquet_by_day: match table.parquet_partition.as_deref() {
            None | Some("month") => false,
            Some("day") => true,
            Some(other) => {
                let problem = format!("'{other}' is neither 'month' nor 'day'");
                return Err(invalid("[warehouse] parquet_partition", problem));
            }
        },
        memory_limit_bytes: memory_limit_mb.saturating_mul(1024 * 1024),
        lock_wait: Duration::from_secs(table.lock_wait_secs.unwrap_or(LOCK_WAIT_SECS)),
        publish: table.publish.map(&from_folder).map(resolve_links).transpose()?,
        full_text_search: table.full_text_search.unwrap_or(false),
        extension_directory: table.extension_directory.map(&from_folder),
    };
    check_publish(&warehouse)?;
    if warehouse.full_text_search && !warehouse.paths.contains_key(&WarehouseKind::DuckDb) {
        let problem = "it is an index in the DuckDB file, and no [warehouse] duckdb is set";
        return Err(invalid("[warehouse] full_text_search", problem));
    }
    check_memory_limit(&warehouse, memory_limit_mb)?;
    Ok(warehouse)
}

/// Checks that the memory limit is enough for the configured warehouses, which share the memory.
fn check_memory_limit(warehouse: &WarehouseSettings, memory_limit_mb: u64) -> Result<(), ConfigError> {
    let least_mb = MEMORY_LIMIT_MB_MIN * warehouse.paths.len().max(1) as u64;
    if memory_limit_mb >= least_mb {
        return Ok(());
    }
    let problem =
        format!("{memory_limit_mb} is less than {least_mb}: each warehouse needs at least {MEMORY_LIMIT_MB_MIN}");
    Err(invalid("[warehouse] memory_limit_mb", problem))
}

/// Checks that the copy for readers has an original, and is not the original itself.
fn check_publish(warehouse: &WarehouseSettings) -> Result<(), ConfigError> {
    let Some(copy) = &warehouse.publish else { return Ok(()) };
    let setting = "[warehouse] publish";
    let Some(original) = warehouse.paths.get(&WarehouseKind::DuckDb) else {
        return Err(invalid(setting, "it is a copy of the DuckDB file, and no [warehouse] duckdb is set"));
    };
    if std::path::absolute(copy).ok() == std::path::absolute(original).ok() {
        return Err(invalid(setting, format!("'{}' is the warehouse itself", copy.display())));
    }
    Ok(())
}

/// Refuses `--survey` if `--stream` is given too and none of its streams has a survey filter.
fn check_surveys(overrides: &Overrides) -> Result<(), ConfigError> {
    let has_filter = |stream: &Stream| stream.has_survey_filter();
    if !overrides.surveys.is_empty() && !overrides.streams.is_empty() && !overrides.streams.iter().any(has_filter) {
        return Err(invalid("--survey", "only responses and themes can be restricted to a survey"));
    }
    Ok(())
}

/// Returns the days after which vanished sessions are erased; `None` keeps them.
fn erase_vanished_after_days(table: &EraseTable) -> Result<Option<u32>, ConfigError> {
    match table.on_vanish.as_deref() {
        None | Some("keep") => Ok(None),
        Some("erase") => Ok(Some(table.grace_days.unwrap_or(GRACE_DAYS))),
        Some(other) => Err(invalid("[erase] on_vanish", format!("'{other}' is neither 'keep' nor 'erase'"))),
    }
}

fn sorted_without_duplicates(mut surveys: Vec<i64>) -> Vec<i64> {
    surveys.sort_unstable();
    surveys.dedup();
    surveys
}
