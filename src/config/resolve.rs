//! File, environment and command line become settings: the command line wins over the file, the file over the defaults.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{
    model::{DriftPolicy, FlagSet, Stream, SurveyStatus},
    plan::RescanRules,
    redact::ApiKey,
};

use super::{
    MetricsSettings, NotifySettings, ServeSettings,
    environment::{Variables, config_from_environment},
    error::{ConfigError, value},
    file::{CONFIG_FILE_NAME, ConfigFile},
    limits, paths,
    places::{folder_of_pages, real, real_state},
    recordings::{self, RecordingsSettings},
    secret::{SecretSource, WrittenSource, secret},
    streams,
    tilde::expanded,
};

/// The address in the file that `init` writes: nobody's, so it is refused until somebody puts another in its place.
pub(super) const EXAMPLE_URL: &str = "https://api.example.com";
pub(super) const API_KEY_ENV: &str = "STUDYSYNC_API_KEY";
pub(super) const ENVIRONMENT: &str = "default";
pub(super) const TIMEOUT_SECS: u64 = 60;
pub(super) const IN_FLIGHT_MAX: usize = 4;
pub(super) const PATIENCE_SECS: u64 = 3600;
pub(super) const SETTLE_SECS: u64 = 600;
/// Where a first sync begins when nothing says otherwise: so many days back.
pub const FIRST_SYNC_DAYS: i64 = 30;
pub(super) const MEMORY_LIMIT_MB: u64 = 576;
/// The least that a run with one warehouse works with, in MiB.
pub(super) const MEMORY_LIMIT_MB_MIN: u64 = 256;
/// What the program itself takes while a query runs.
const QUERY_PROGRAM_BYTES: u64 = 64 << 20;
pub(super) const LOCK_WAIT_SECS: u64 = 60;
pub(super) const STATE_PATH: &str = "studysync-state/checkpoints.sqlite";
/// How long rows that the service no longer returns are kept, where they are to go.
pub(super) const GRACE_DAYS: u32 = 30;
pub(super) const ARCHIVE_FOLDER: &str = "archive";
const SPOOL_FOLDER: &str = "spool";
/// A person is asked for again after this time.
pub(super) const REFRESH_AFTER: &str = "30d";
/// A person whom the service did not know is asked for again after this time.
pub(super) const ASK_AGAIN_AFTER: &str = "7d";

/// What the command line may say instead of the file.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub config: Option<PathBuf>,
    pub base_url: Option<String>,
    pub api_key_file: Option<PathBuf>,
    pub duckdb: Option<PathBuf>,
    pub parquet: Option<PathBuf>,
    pub state: Option<PathBuf>,
    pub archive: Option<ArchiveChoice>,
    pub streams: Vec<Stream>,
    pub surveys: Vec<i64>,
    pub concurrency: Option<usize>,
    pub deadline: Option<Duration>,
    pub max_requests: Option<u64>,
    pub ignore_rate_limit: bool,
}

/// `--archive PATH|none`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveChoice {
    /// Pages stay there.
    Folder(PathBuf),
    /// Pages go once they are committed.
    Nothing,
}

/// Everything a command may need, resolved. Secrets are read only by [`Settings::api_key`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The file that was read, if one was.
    pub config: Option<PathBuf>,
    pub service: ServiceSettings,
    pub throttle: ThrottleSettings,
    /// The enabled lists, in the order in which they are synced.
    pub streams: Vec<StreamSettings>,
    /// The stream of users, which is no list.
    pub users: UsersSettings,
    /// What becomes of what the contracts do not know; for streams that are not enabled too, since `replay` builds all.
    pub drift: DriftPolicy,
    /// The streams that the command line names; empty where it names none. Nothing else is read then.
    pub named_streams: Vec<Stream>,
    /// Restricts every stream that knows such a filter to these surveys; empty for all.
    pub surveys: Vec<i64>,
    pub warehouse: WarehouseSettings,
    pub state_path: PathBuf,
    pub archive: ArchiveChoice,
    /// Where the pages of scans under way are.
    pub archive_root: PathBuf,
    /// The name of the state file, as it was given: whose the pages are.
    pub archive_owner: String,
    /// How long archived pages stay, in days; `None` keeps them for ever.
    pub archive_keep_days: Option<u32>,
    /// After so many days sessions that the service no longer returns are erased here as well;
    /// `None` keeps them, marked.
    pub erase_vanished_after_days: Option<u32>,
    /// The run ends early, resumable, after this time.
    pub deadline: Option<Duration>,
    /// The run ends early, resumable, after so many requests.
    pub max_requests: Option<u64>,
    pub recordings: RecordingsSettings,
    pub serve: ServeSettings,
    pub metrics: MetricsSettings,
    pub notify: NotifySettings,
}

/// `[service]`.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// Without a slash at its end; `None` until something needs it ([`Settings::base_url`]).
    pub base_url: Option<String>,
    /// A label: a key belongs to one environment of the service, and so does a warehouse (promise P10).
    pub environment: String,
    /// Where the key comes from.
    pub api_key_source: SecretSource,
    pub timeout: Duration,
    /// How the key stands in the `Authorization` header.
    pub auth: AuthChoice,
}

/// How the key stands in the `Authorization` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthChoice {
    /// As the service documents it: `Bearer KEY`, and for users `API-Key KEY`.
    #[default]
    Documented,
    /// `Bearer KEY` everywhere.
    Bearer,
    /// `API-Key KEY` everywhere.
    ApiKey,
}

/// `[throttle]`.
#[derive(Clone, Debug)]
pub struct ThrottleSettings {
    /// Requests under way at once; also the windows pulled at once.
    pub in_flight_max: usize,
    /// A cap on the learned rate.
    pub requests_per_sec_max: Option<f64>,
    /// The longest wait that is sat out; a longer one ends the run, resumable.
    pub patience: Duration,
    /// Whether to send although the service told an earlier run to wait.
    pub ignores_told_wait: bool,
}

/// `[streams.NAME]`.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    pub stream: Stream,
    pub flags: FlagSet,
    /// Rows asked for in one call.
    pub page_rows: u32,
    /// Answers younger than this are left for the next run.
    pub settle: Duration,
    pub rescan: RescanRules,
    /// Where a first sync begins, epoch milliseconds; `None`: some days back.
    pub since_ms: Option<i64>,
    /// The states of surveys that are asked for; empty: all of them, and all that other streams have.
    pub statuses: Vec<SurveyStatus>,
}

/// `[streams.users]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsersSettings {
    /// Off unless asked for: it is one request a person.
    pub is_enabled: bool,
    /// A person is asked for again after this time.
    pub refresh_after: Duration,
    /// A person whom the service did not know is asked for again after this time.
    pub ask_again_after: Duration,
}

/// `[warehouse]`.
#[derive(Clone, Debug)]
pub struct WarehouseSettings {
    pub duckdb: Option<PathBuf>,
    pub parquet: Option<PathBuf>,
    /// Whether Parquet is cut by day instead of by month.
    pub parquet_by_day: bool,
    /// What the process may use, within a quarter. What an engine has more of, it spills to disk.
    pub memory_limit_bytes: u64,
    /// How long a run waits for a warehouse that another process has open.
    pub lock_wait: Duration,
    /// Where a copy of the DuckDB file goes at the end of each run that changed it, for readers.
    pub publish: Option<PathBuf>,
    /// Whether the DuckDB file has an index of words for `search_answers`.
    pub full_text_search: bool,
    /// Where DuckDB keeps its extensions, if not in its usual folder.
    pub extension_directory: Option<PathBuf>,
}

impl WarehouseSettings {
    /// The warehouses that are named, as `state` remembers them.
    pub fn names(&self) -> Vec<&'static str> {
        let named = [("duckdb", self.duckdb.is_some()), ("parquet", self.parquet.is_some())];
        named.into_iter().filter(|(_, is_named)| *is_named).map(|(name, _)| name).collect()
    }
}

impl Settings {
    /// The service's address, or an error that says where to set it.
    pub fn base_url(&self) -> Result<&str, ConfigError> {
        match self.service.base_url.as_deref() {
            None | Some("") => Err(ConfigError::NoService { file: CONFIG_FILE_NAME }),
            Some(EXAMPLE_URL) => Err(ConfigError::ExampleService { file: CONFIG_FILE_NAME }),
            Some(base_url) => Ok(base_url),
        }
    }

    /// What `--stream` and `--survey` left of the lists; `None` if they left all.
    pub fn narrowed_to(&self) -> Option<String> {
        let streams: BTreeSet<&str> = self.named_streams.iter().map(|stream| stream.name()).collect();
        let surveys: BTreeSet<i64> = self.surveys.iter().copied().collect();
        let streams = streams.into_iter().map(|stream| format!("--stream {stream}"));
        let surveys = surveys.into_iter().map(|survey| format!("--survey {survey}"));
        let flags: Vec<String> = streams.chain(surveys).collect();
        (!flags.is_empty()).then(|| flags.join(" "))
    }

    /// An error unless at least one warehouse is named.
    pub fn require_warehouse(&self) -> Result<(), ConfigError> {
        match (&self.warehouse.duckdb, &self.warehouse.parquet) {
            (None, None) => Err(ConfigError::NoWarehouse { file: CONFIG_FILE_NAME }),
            _ => Ok(()),
        }
    }

    /// The folder beside the state file with all that is kept of erasures: who is kept out, and the receipts.
    pub fn erasures_folder(&self) -> PathBuf {
        let mut name = self.state_path.as_os_str().to_owned();
        name.push(".erasures");
        PathBuf::from(name)
    }

    /// Reads the key, or runs the command that prints it.
    pub fn api_key(&self) -> Result<ApiKey, ConfigError> {
        let missing = |variable: &str| ConfigError::NoKey { variable: variable.to_owned() };
        secret(&self.service.api_key_source, "[service] api_key_command", missing)
    }
}

/// Reads the configuration file (the one that is named, or `studysync.toml` if it is there) and resolves it with the
/// environment and the command line. Paths in the file are relative to the file.
pub fn resolve(overrides: Overrides) -> Result<Settings, ConfigError> {
    let variables = Variables::of_this_process()?;
    let config = overrides.config.clone().or_else(config_from_environment).or_else(|| {
        let default = PathBuf::from(CONFIG_FILE_NAME);
        // One that cannot be reached is no missing one: reading it says why.
        default.try_exists().unwrap_or(true).then_some(default)
    });
    let config = config.map(expanded).transpose().map_err(|problem| value("--config", problem))?;
    let file = config.as_deref().map(ConfigFile::read).transpose()?.unwrap_or_default();
    resolve_with(file, variables, config, overrides)
}

/// Resolves a file that was read, with these variables of the environment.
pub(super) fn resolve_with(
    file: ConfigFile,
    variables: Variables,
    config: Option<PathBuf>,
    overrides: Overrides,
) -> Result<Settings, ConfigError> {
    let (file, set) = file.with(&variables)?;
    resolve_file(file, config, overrides).map_err(|error| match error {
        // Where the value came from.
        ConfigError::Value { place, problem } => match set.iter().find(|key| key.place() == place) {
            Some(key) => value(key.variable(), problem),
            None => value(place, problem),
        },
        error => error,
    })
}

pub(super) fn resolve_file(
    mut file: ConfigFile,
    config: Option<PathBuf>,
    mut overrides: Overrides,
) -> Result<Settings, ConfigError> {
    paths::expand(&mut file, &mut overrides)?;
    limits::check(&file)?;
    let mut tables = streams::by_their_names(std::mem::take(&mut file.streams))?;
    let folder = config.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
    let beside = |path: PathBuf| if path.is_absolute() { path } else { folder.join(path) };
    let api_key_source = WrittenSource {
        table: "service",
        name: "api_key",
        // The command line names a file, and wins over a command as well.
        command: file.service.api_key_command.filter(|_| overrides.api_key_file.is_none()),
        file: overrides.api_key_file.or(file.service.api_key_file.map(beside)),
        variable: file.service.api_key_env,
        default_variable: API_KEY_ENV,
    };
    let service = ServiceSettings {
        base_url: overrides.base_url.or(file.service.base_url).map(|url| url.trim().trim_end_matches('/').to_owned()),
        environment: file.service.environment.unwrap_or_else(|| ENVIRONMENT.to_owned()),
        api_key_source: api_key_source.resolve()?,
        timeout: Duration::from_secs(file.service.timeout_secs.unwrap_or(TIMEOUT_SECS)),
        auth: match file.service.auth.as_deref() {
            None | Some("documented") => AuthChoice::Documented,
            Some("bearer") => AuthChoice::Bearer,
            Some("api-key") => AuthChoice::ApiKey,
            Some(other) => {
                let problem = format!("'{other}' is neither 'documented' nor 'bearer' nor 'api-key'");
                return Err(value("[service] auth", problem));
            }
        },
    };
    let throttle = ThrottleSettings {
        in_flight_max: overrides.concurrency.or(file.throttle.in_flight_max).unwrap_or(IN_FLIGHT_MAX),
        requests_per_sec_max: file.throttle.requests_per_sec_max,
        patience: Duration::from_secs(file.throttle.patience_secs.unwrap_or(PATIENCE_SECS)),
        ignores_told_wait: overrides.ignore_rate_limit,
    };
    if !(1..=64).contains(&throttle.in_flight_max) {
        return Err(value(
            "in_flight_max (--concurrency)",
            format!("{} is not between 1 and 64", throttle.in_flight_max),
        ));
    }
    if throttle.requests_per_sec_max.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return Err(value("[throttle] requests_per_sec_max", "must be more than 0".to_owned()));
    }
    let state_path = overrides.state.or(file.state.path.map(beside)).unwrap_or_else(|| beside(STATE_PATH.into()));
    let archive = overrides.archive.unwrap_or_else(|| match file.archive.path {
        Some(path) if path.as_os_str() == "none" => ArchiveChoice::Nothing,
        Some(path) => ArchiveChoice::Folder(beside(path)),
        None => ArchiveChoice::Folder(folder_of_pages(&state_path, ARCHIVE_FOLDER)),
    });
    let archive_root = match &archive {
        ArchiveChoice::Folder(path) => path.clone(),
        ArchiveChoice::Nothing => folder_of_pages(&state_path, SPOOL_FOLDER),
    };
    let archive_owner = state_path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let recordings_path = file.recordings.path.clone().map(&beside);
    let (state_path, archive_root) = (real_state(state_path)?, real(archive_root)?);
    let memory_limit_mb = file.warehouse.memory_limit_mb.unwrap_or(MEMORY_LIMIT_MB);
    let warehouse = WarehouseSettings {
        duckdb: overrides.duckdb.or(file.warehouse.duckdb.map(&beside)).map(real).transpose()?,
        parquet: overrides.parquet.or(file.warehouse.parquet.map(&beside)).map(real).transpose()?,
        parquet_by_day: match file.warehouse.parquet_partition.as_deref() {
            None | Some("month") => false,
            Some("day") => true,
            Some(other) => {
                let problem = format!("'{other}' is neither 'month' nor 'day'");
                return Err(value("[warehouse] parquet_partition", problem));
            }
        },
        memory_limit_bytes: memory_limit_mb.saturating_mul(1024 * 1024),
        lock_wait: Duration::from_secs(file.warehouse.lock_wait_secs.unwrap_or(LOCK_WAIT_SECS)),
        publish: file.warehouse.publish.map(&beside).map(real).transpose()?,
        full_text_search: file.warehouse.full_text_search.unwrap_or(false),
        extension_directory: file.warehouse.extension_directory.map(&beside),
    };
    check_publish(&warehouse)?;
    let recordings_path = recordings_path.unwrap_or_else(|| match &warehouse.parquet {
        Some(parquet) => parquet.join(recordings::FOLDER),
        None => folder_of_pages(&state_path, recordings::FOLDER),
    });
    let recordings = recordings::resolve(&file.recordings, real(recordings_path)?)?;
    let parquet = warehouse.parquet.as_deref();
    recordings::check_place(&recordings.path, &state_path, &archive_root, parquet)?;
    check_search(&warehouse)?;
    let has_filter = |stream: &Stream| stream.has_survey_filter();
    if !overrides.surveys.is_empty() && !overrides.streams.is_empty() && !overrides.streams.iter().any(has_filter) {
        return Err(value("--survey", "only responses and themes can be narrowed to a survey".to_owned()));
    }
    check_memory_limit(&warehouse, memory_limit_mb)?;
    let drift = streams::drift_policy(&tables)?;
    let erase_vanished_after_days = match file.erase.on_vanish.as_deref() {
        None | Some("keep") => None,
        Some("erase") => Some(file.erase.grace_days.unwrap_or(GRACE_DAYS)),
        Some(other) => return Err(value("[erase] on_vanish", format!("'{other}' is neither 'keep' nor 'erase'"))),
    };
    let users = streams::users_settings(tables.remove(&Stream::Users).unwrap_or_default(), &overrides.streams)?;
    Ok(Settings {
        streams: streams::enabled(tables, &overrides.streams)?,
        users,
        drift,
        config,
        service,
        throttle,
        named_streams: overrides.streams,
        surveys: without_repeats(overrides.surveys),
        warehouse,
        state_path,
        archive,
        archive_root,
        archive_owner,
        archive_keep_days: file.archive.keep_days,
        erase_vanished_after_days,
        recordings,
        serve: super::serve::resolve(file.serve, &beside)?,
        metrics: MetricsSettings { textfile: file.metrics.textfile.map(&beside) },
        notify: super::notify::resolve(file.notify, &beside)?,
        deadline: overrides.deadline,
        max_requests: overrides.max_requests,
    })
}

impl WarehouseSettings {
    /// What the engine of a query may use, when the program itself has what it needs.
    pub fn query_memory_bytes(&self) -> u64 {
        self.memory_limit_bytes.saturating_sub(QUERY_PROGRAM_BYTES)
    }
}

/// Two warehouses share the limit.
fn check_memory_limit(warehouse: &WarehouseSettings, memory_limit_mb: u64) -> Result<(), ConfigError> {
    let has_both = warehouse.duckdb.is_some() && warehouse.parquet.is_some();
    let least_mb = if has_both { 2 * MEMORY_LIMIT_MB_MIN } else { MEMORY_LIMIT_MB_MIN };
    if memory_limit_mb >= least_mb {
        return Ok(());
    }
    let problem =
        format!("{memory_limit_mb} is less than {least_mb}: each warehouse needs at least {MEMORY_LIMIT_MB_MIN}");
    Err(value("[warehouse] memory_limit_mb", problem))
}

/// A copy needs an original, and a place of its own.
fn check_publish(warehouse: &WarehouseSettings) -> Result<(), ConfigError> {
    let Some(copy) = &warehouse.publish else { return Ok(()) };
    let place = "[warehouse] publish";
    let Some(original) = &warehouse.duckdb else {
        return Err(value(place, "it is a copy of the DuckDB file, and no [warehouse] duckdb is set".to_owned()));
    };
    if std::path::absolute(copy).ok() == std::path::absolute(original).ok() {
        return Err(value(place, format!("'{}' is the warehouse itself", copy.display())));
    }
    Ok(())
}

/// Only a DuckDB file has an index of words.
fn check_search(warehouse: &WarehouseSettings) -> Result<(), ConfigError> {
    if !warehouse.full_text_search || warehouse.duckdb.is_some() {
        return Ok(());
    }
    let problem = "it is an index in the DuckDB file, and no [warehouse] duckdb is set".to_owned();
    Err(value("[warehouse] full_text_search", problem))
}

fn without_repeats(mut surveys: Vec<i64>) -> Vec<i64> {
    surveys.sort_unstable();
    surveys.dedup();
    surveys
}
