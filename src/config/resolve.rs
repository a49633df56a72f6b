//! Merges the file, the environment and the command line into settings. The command line wins over the environment, the
//! environment over the file, and the file over the defaults.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use crate::model::{
    BucketAddress, CatalogAddress, CatalogPlace, LakeCatalog, Location, Stream, WarehouseKind, WarehouseLocations,
};

use super::{
    catalogs,
    declare::Setting,
    error::{ConfigError, invalid},
    find::{SYSTEM_FILE, find_config, named_config},
    notify,
    paths::{ARCHIVE_FOLDER, ArchiveChoice, default_page_folder, expand_tilde, resolve_links, resolve_state_links},
    publish, recordings,
    secret::SecretKeys,
    serve,
    setting_variables::SettingVariables,
    settings::{
        AuthChoice, MetricsSettings, Overrides, ServiceSettings, Settings, ThrottleSettings, WarehouseSettings,
    },
    streams,
    tables::{ConfigFile, EraseTable, MEMORY_LIMIT_MB_MIN, ServiceTable, ThrottleTable, WarehouseTable},
};

const SPOOL_FOLDER: &str = "spool";
const IN_FLIGHT_LIMIT: usize = 64;

/// Reads the configuration file and merges it with the environment and the command line.
///
/// The file is the one that `--config` or `STUDYSYNC_CONFIG` names, else `studysync.toml` in the working folder, else
/// `/etc/studysync/studysync.toml`. Paths in the file are relative to the file.
///
/// # Errors
/// A file that cannot be read or parsed, or an invalid value.
pub fn resolve(overrides: Overrides) -> Result<Settings, ConfigError> {
    let (file, variables, config) = read_file(&overrides)?;
    resolve_with(file, &variables, config, overrides)
}

/// Reads the variables and the configuration file. Returns the path of the file, too; `None` if there is none.
pub(super) fn read_file(overrides: &Overrides) -> Result<(ConfigFile, SettingVariables, Option<PathBuf>), ConfigError> {
    let variables = SettingVariables::of_this_process()?;
    let config = find_config(overrides.config.clone())?;
    match config.as_deref().map(ConfigFile::read).transpose() {
        // Nobody named the file of the system, and an analyst may not be allowed to read it.
        Err(error) if overrides.suffice() && is_system_file(config.as_deref()) && !is_named(overrides) => {
            let error: &(dyn std::error::Error + 'static) = &error;
            tracing::warn!(error, "the configuration is not used: it cannot be read, and the flags name the places");
            Ok((ConfigFile::default(), variables, None))
        }
        file => Ok((file?.unwrap_or_default(), variables, config)),
    }
}

fn is_system_file(config: Option<&Path>) -> bool {
    config == Some(Path::new(SYSTEM_FILE))
}

/// Returns true if a flag or a variable names the configuration file.
fn is_named(overrides: &Overrides) -> bool {
    named_config(overrides.config.clone()).is_ok_and(|named| named.is_some())
}

/// Merges a parsed file with environment variables and the command line. `config` is the path of the file; `None` if
/// there is no file.
pub(super) fn resolve_with(
    file: ConfigFile,
    variables: &SettingVariables,
    config: Option<PathBuf>,
    overrides: Overrides,
) -> Result<Settings, ConfigError> {
    let lines = file.lines.clone();
    let (file, set) = file.with_variables(variables)?;
    let has_serve = lines.of_label("[serve]").is_some() || set.iter().any(|key| key.table == "serve");
    let resolved = resolve_file(file, config.clone(), overrides).map(|mut settings| {
        settings.serve.is_configured = has_serve;
        settings.leave_to_first_worker();
        settings
    });
    resolved.map_err(|error| match error {
        // An error names the place of the value: the variable, or the file and the line.
        ConfigError::Invalid { setting, problem } => match (set.iter().find(|key| key.label() == setting), config) {
            (Some(key), _) => invalid(key.variable(), problem),
            (None, Some(path)) => match lines.of_label(&setting) {
                Some(line) => ConfigError::Parse { path, message: format!("line {line}: {setting}: {problem}") },
                None => invalid(setting, problem),
            },
            (None, None) => invalid(setting, problem),
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
    let folder = config.as_deref().and_then(Path::parent).unwrap_or(Path::new("")).to_owned();
    resolve_paths(&mut file, &folder, &mut overrides)?;
    check_ranges(&mut file)?;
    let mut tables = streams::by_stream(std::mem::take(&mut file.streams))?;
    let service = service(file.service, &mut overrides)?;
    let throttle = throttle(&file.throttle, &overrides)?;
    let state_path = overrides.state.take().unwrap_or(file.state.path);
    let (archive_setting, archive) = archive_choice(file.archive.path, &mut overrides, &state_path)?;
    let archive_location = archive_location(&archive, archive_setting, &state_path)?;
    let archive_owner = state_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let state_path = resolve_state_links(state_path)?;
    let warehouse = warehouse(file.warehouse, &mut overrides, &state_path)?;
    check_archive_is_apart(&archive_location, archive_setting, &warehouse.locations)?;
    let serve = serve::resolve(file.serve, warehouse.report_time_zone)?;
    let is_here = |(kind, location): &(&WarehouseKind, &Location)| kind.is_folder() && location.bucket.is_none();
    let parquet = warehouse.locations.iter().find(is_here).map(|(_, location)| &location.path);
    let recordings_path = file.recordings.path.clone().unwrap_or_else(|| match parquet {
        Some(parquet) => parquet.join(recordings::FOLDER),
        None => default_page_folder(&state_path, recordings::FOLDER),
    });
    let recordings = recordings::resolve(&file.recordings, resolve_links(recordings_path)?)?;
    recordings::check_folder(&recordings.path, &state_path, &archive_location.path, parquet)?;
    check_surveys(&overrides)?;
    let drift = streams::drift_policy(&tables)?;
    let erase_vanished_after_days = erase_vanished_after_days(&file.erase)?;
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
        shard: overrides.shard,
        warehouse,
        state_path,
        archive,
        archive_location,
        archive_owner,
        archive_keep_days: file.archive.keep_days,
        erase_vanished_after_days,
        recordings,
        serve,
        metrics: MetricsSettings { textfile: file.metrics.textfile },
        notify: notify::resolve(file.notify, &folder)?,
        deadline: overrides.deadline,
        max_requests: overrides.max_requests,
    })
}

/// The settings whose value may be an address of a bucket. For DuckDB the address has an error of its own.
const MAY_BE_IN_A_BUCKET: [&str; 6] =
    ["[warehouse] duckdb", "--duckdb", "[warehouse] parquet", "--parquet", "[archive] path", "--archive"];
/// The settings whose value is an address with paths in it.
const DUCKLAKES: [&str; 2] = ["[warehouse] ducklake", "--ducklake"];
/// The settings whose value is an address without a path.
const ADDRESSES: [&str; 2] = ["--postgres", "--iceberg"];

/// Replaces `~` by the home folder in every path of the file and of the command line. A path of the file is relative to
/// `folder`, which has the file.
pub(super) fn resolve_paths(
    file: &mut ConfigFile,
    folder: &Path,
    overrides: &mut Overrides,
) -> Result<(), ConfigError> {
    let of_file = file
        .settings()
        .flat_map(|Setting { key, value, .. }| value.paths().into_iter().map(move |path| (key.label(), path, folder)));
    let flags = [
        ("--api-key-file", overrides.api_key_file.as_mut()),
        ("--state", overrides.state.as_mut()),
        ("--archive", overrides.archive.as_mut().and_then(ArchiveChoice::folder_mut)),
    ];
    let warehouses = overrides.warehouses.iter_mut().map(|(kind, path)| (format!("--{}", kind.name()), path));
    let flags = flags.into_iter().filter_map(|(flag, path)| Some((flag.to_owned(), path?)));
    let of_flags = warehouses.chain(flags).map(|(flag, path)| (flag, path, Path::new("")));
    // Joined with an empty folder, a path of the command line stays as it is.
    for (setting, path, folder) in of_file.chain(of_flags) {
        let (name, text) = (setting.as_str(), path.to_string_lossy());
        let is_address = MAY_BE_IN_A_BUCKET.contains(&name) && BucketAddress::is_address(&text);
        if is_address || ADDRESSES.contains(&name) {
            continue;
        }
        let resolve = |path: PathBuf| expand_tilde(path).map(|path| folder.join(path));
        let resolved = match DUCKLAKES.contains(&name) {
            true => CatalogAddress::resolve_ducklake(&text, |path| resolve(path.into())).map(PathBuf::from),
            false => resolve(path.clone()),
        };
        *path = resolved.map_err(|problem| invalid(setting, problem))?;
    }
    Ok(())
}

fn check_ranges(file: &mut ConfigFile) -> Result<(), ConfigError> {
    for Setting { key, value, .. } in file.settings() {
        let (Some(number), Some(range)) = (value.number(), &key.range) else { continue };
        if !range.contains(&number) {
            return Err(invalid(key.label(), format!("{number} is not between {} and {}", range.start(), range.end())));
        }
    }
    Ok(())
}

/// Paths that requests add to the address of the service.
const LIST_PATHS: [&str; 5] = ["/v1/responses", "/v1/surveys", "/v1/studies", "/v1/themes", "/v2/users"];

/// Merges `[service]` with the command line.
fn service(table: ServiceTable, overrides: &mut Overrides) -> Result<ServiceSettings, ConfigError> {
    let api_key_keys = SecretKeys {
        table: "service",
        name: "api_key",
        // `--api-key-file` wins over a command in the file as well.
        command: table.api_key_command.filter(|_| overrides.api_key_file.is_none()),
        file: overrides.api_key_file.take().or(table.api_key_file),
        variable: table.api_key_env,
        noun: "the key",
    };
    let setting = if overrides.base_url.is_some() { "--base-url" } else { "[service] base_url" };
    let base_url = overrides.base_url.take().or(table.base_url);
    let base_url = base_url.map(|url| url.trim().trim_end_matches('/').to_owned());
    let list_path = |url: &String| LIST_PATHS.into_iter().find(|path| url.ends_with(path));
    if let Some(path) = base_url.as_ref().and_then(list_path) {
        return Err(invalid(setting, format!("leave out {path} at its end: every request adds the path of its list")));
    }
    Ok(ServiceSettings {
        base_url,
        environment: table.environment,
        api_key_source: api_key_keys.resolve()?,
        timeout: Duration::from_secs(table.timeout_secs),
        auth: match table.auth.as_str() {
            "documented" => AuthChoice::Documented,
            "bearer" => AuthChoice::Bearer,
            "api-key" => AuthChoice::ApiKey,
            other => {
                let problem = format!("'{other}' is neither 'documented' nor 'bearer' nor 'api-key'");
                return Err(invalid("[service] auth", problem));
            }
        },
    })
}

/// Merges `[throttle]` with the command line. Fails if a number is outside its range.
fn throttle(table: &ThrottleTable, overrides: &Overrides) -> Result<ThrottleSettings, ConfigError> {
    let in_flight_max = overrides.concurrency.unwrap_or(table.in_flight_max);
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
        patience: Duration::from_secs(table.patience_secs),
        ignores_stored_retry_after: overrides.ignore_rate_limit,
    })
}

/// Merges `[warehouse]` with the command line, and checks the result.
fn warehouse(
    mut table: WarehouseTable,
    overrides: &mut Overrides,
    state_path: &Path,
) -> Result<WarehouseSettings, ConfigError> {
    let mut locations = WarehouseLocations::new();
    for kind in WarehouseKind::ALL {
        let of_flag = overrides.warehouses.remove(&kind).map(|path| (format!("--{}", kind.name()), path));
        let of_file = table.take_place(kind).map(|path| (format!("[warehouse] {}", kind.name()), path));
        let Some((setting, path)) = of_flag.or(of_file) else { continue };
        let location = match catalogs::address(kind, &path.to_string_lossy()) {
            Some(address) => {
                let address = address.map_err(|problem| invalid(setting, problem))?;
                catalog_location(kind, address, state_path, table.extension_directory.clone())
            }
            None => location(kind, path, state_path, setting),
        };
        locations.insert(kind, location?);
    }
    let publish_key = SecretKeys {
        table: "warehouse",
        name: "publish_key",
        file: table.publish_key_file,
        command: table.publish_key_command,
        variable: table.publish_key_env,
        noun: "the key",
    };
    let warehouse = WarehouseSettings {
        publish: publish::resolve(table.publish, publish_key, &locations)?,
        locations,
        parquet_by_day: match table.parquet_partition.as_str() {
            "month" => false,
            "day" => true,
            other => {
                let problem = format!("'{other}' is neither 'month' nor 'day'");
                return Err(invalid("[warehouse] parquet_partition", problem));
            }
        },
        memory_limit_bytes: table.memory_limit_mb.saturating_mul(1024 * 1024),
        lock_wait: Duration::from_secs(table.lock_wait_secs),
        full_text_search: table.full_text_search,
        report_time_zone: match (overrides.time_zone, table.report_time_zone.as_deref()) {
            (None, Some(name)) => {
                Some(name.trim().parse().map_err(|problem: String| invalid("[warehouse] report_time_zone", problem))?)
            }
            (of_flag, _) => of_flag,
        },
        extension_directory: table.extension_directory,
        is_shared: overrides.shard.is_some(),
    };
    if warehouse.full_text_search && !warehouse.locations.contains_key(&WarehouseKind::DuckDb) {
        let problem = "it is an index in the DuckDB file, and no [warehouse] duckdb is set";
        return Err(invalid("[warehouse] full_text_search", problem));
    }
    check_memory_limit(&warehouse, table.memory_limit_mb)?;
    Ok(warehouse)
}

/// Returns the location of a warehouse. For one in a bucket, the folder of this machine belongs to the state file.
fn location(kind: WarehouseKind, path: PathBuf, state_path: &Path, setting: String) -> Result<Location, ConfigError> {
    let text = path.to_string_lossy();
    if !BucketAddress::is_address(&text) {
        return resolve_links(path).map(Location::from);
    }
    let bucket = text.parse().and_then(|bucket| match kind.is_folder() {
        true => Ok(bucket),
        false => Err(format!("a {} file cannot be in a bucket; a Parquet warehouse can", kind.name())),
    });
    let bucket = bucket.map_err(|problem| invalid(setting, problem))?;
    Ok(Location::in_bucket(bucket, default_page_folder(state_path, kind.name())))
}

/// Returns the location of a warehouse in a catalog. Only a DuckLake with a catalog file has a path of its own.
fn catalog_location(
    kind: WarehouseKind,
    mut address: CatalogAddress,
    state_path: &Path,
    extension_directory: Option<PathBuf>,
) -> Result<Location, ConfigError> {
    if let CatalogAddress::DuckLake { data, .. } = &mut address
        && !data.contains("://")
    {
        // A DuckLake stores this path.
        let folder = resolve_links(PathBuf::from(&*data))?;
        *data = std::path::absolute(&folder).unwrap_or(folder).to_string_lossy().into_owned();
    }
    let path = match &mut address {
        CatalogAddress::DuckLake { catalog: LakeCatalog::File(path), .. } => {
            *path = resolve_links(std::mem::take(path))?;
            path.clone()
        }
        _ => resolve_links(default_page_folder(state_path, kind.name()))?,
    };
    let keys = catalogs::keys(&address)?;
    Ok(Location::in_catalog(CatalogPlace { address, keys, extension_directory }, path))
}

/// Returns the location of the archive. Without pages on this machine, its folder has the spools of the state file.
fn archive_location(archive: &ArchiveChoice, setting: &str, state_path: &Path) -> Result<Location, ConfigError> {
    let spool_folder = || resolve_links(default_page_folder(state_path, SPOOL_FOLDER));
    match archive {
        ArchiveChoice::Nothing => spool_folder().map(Location::from),
        ArchiveChoice::Folder(path) if BucketAddress::is_address(&path.to_string_lossy()) => {
            let address = path.to_string_lossy().parse().map_err(|problem: String| invalid(setting, problem))?;
            Ok(Location::in_bucket(address, spool_folder()?))
        }
        ArchiveChoice::Folder(path) => resolve_links(path.clone()).map(Location::from),
    }
}

/// Returns the setting that names the archive, and its value. Refuses a folder that the file names for a worker: each
/// worker would remove the unfinished pages of others.
fn archive_choice(
    of_file: Option<ArchiveChoice>,
    overrides: &mut Overrides,
    state_path: &Path,
) -> Result<(&'static str, ArchiveChoice), ConfigError> {
    const OF_FILE: &str = "[archive] path";
    match (overrides.archive.take(), of_file) {
        (Some(choice), _) => Ok(("--archive", choice)),
        (None, None) => Ok((OF_FILE, ArchiveChoice::Folder(default_page_folder(state_path, ARCHIVE_FOLDER)))),
        (None, Some(ArchiveChoice::Folder(path)))
            if overrides.shard.is_some() && !BucketAddress::is_address(&path.to_string_lossy()) =>
        {
            let problem = "with --shard, each worker needs a folder of its own: name it by --archive, name a folder of a bucket here, \
                 or leave the key out, for a folder beside the state file of each worker";
            Err(invalid(OF_FILE, problem))
        }
        (None, Some(choice)) => Ok((OF_FILE, choice)),
    }
}

/// Refuses an archive and a warehouse of which one is in the folder of the other. Each lists its folder, and a replay
/// removes old objects of the folders of tables.
fn check_archive_is_apart(
    archive: &Location,
    setting: &str,
    warehouses: &WarehouseLocations,
) -> Result<(), ConfigError> {
    let Some(address) = &archive.bucket else { return Ok(()) };
    match warehouses.values().filter_map(|location| location.bucket.as_ref()).find(|other| other.overlaps(address)) {
        Some(other) => {
            let problem = format!(
                "{address} and the warehouse {other} are in one another: name two folders of the bucket, such as \
                 s3://bucket/archive and s3://bucket/warehouse"
            );
            Err(invalid(setting, problem))
        }
        None => Ok(()),
    }
}

fn check_memory_limit(warehouse: &WarehouseSettings, memory_limit_mb: u64) -> Result<(), ConfigError> {
    let least_mb = MEMORY_LIMIT_MB_MIN * warehouse.locations.len().max(1) as u64;
    if memory_limit_mb >= least_mb {
        return Ok(());
    }
    let problem =
        format!("{memory_limit_mb} is less than {least_mb}: each warehouse needs at least {MEMORY_LIMIT_MB_MIN}");
    Err(invalid("[warehouse] memory_limit_mb", problem))
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
    match table.on_vanish.as_str() {
        "keep" => Ok(None),
        "erase" => Ok(Some(table.grace_days)),
        other => Err(invalid("[erase] on_vanish", format!("'{other}' is neither 'keep' nor 'erase'"))),
    }
}

fn sorted_without_duplicates(mut surveys: Vec<i64>) -> Vec<i64> {
    surveys.sort_unstable();
    surveys.dedup();
    surveys
}
