//! The settings of a command, after file, environment and command line were merged.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use crate::{
    files,
    model::{
        DriftPolicy, FlagSet, Location, Shard, Stream, SurveyStatus, TimeZone, WarehouseLocations, WarehousePaths,
        host_and_port,
    },
    plan::RescanRules,
    redact::ApiKey,
};

use super::{
    error::ConfigError,
    find::{CONFIG_FILE_NAME, SYSTEM_FILE},
    notify::NotifySettings,
    paths::ArchiveChoice,
    publish::PublishSettings,
    recordings::RecordingsSettings,
    secret::{SecretSource, read_secret},
    serve::ServeSettings,
};

/// Days of history that the first sync reads if the configuration sets no start.
pub const FIRST_SYNC_DAYS: i64 = 30;
/// The address in the file that `init` writes. The program refuses it until the user replaces it.
pub(super) const EXAMPLE_URL: &str = "https://api.example.com";

/// Values of the command line, which win over the file and the environment. `None`, an empty list and `false` override
/// nothing.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub config: Option<PathBuf>,
    pub base_url: Option<String>,
    pub api_key_file: Option<PathBuf>,
    pub warehouses: WarehousePaths,
    pub state: Option<PathBuf>,
    pub archive: Option<ArchiveChoice>,
    pub time_zone: Option<TimeZone>,
    pub streams: Vec<Stream>,
    pub surveys: Vec<i64>,
    /// The share of this worker in a backfill.
    pub shard: Option<Shard>,
    pub concurrency: Option<usize>,
    pub deadline: Option<Duration>,
    pub max_requests: Option<u64>,
    pub ignore_rate_limit: bool,
    /// True for a command that only reads a warehouse.
    pub only_reads: bool,
}

impl Overrides {
    /// Returns true if the command needs no configuration file: its warehouse is named, and the service and the
    /// checkpoints too if it does more than read.
    pub(super) fn suffice(&self) -> bool {
        !self.warehouses.is_empty() && (self.only_reads || (self.base_url.is_some() && self.state.is_some()))
    }
}

/// All settings of a command. A secret is read only when a method returns it ([`Settings::api_key`]).
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration file; `None` if there is none.
    pub config: Option<PathBuf>,
    pub service: ServiceSettings,
    pub throttle: ThrottleSettings,
    /// The enabled lists, in the order in which a run reads them.
    pub streams: Vec<StreamSettings>,
    /// The stream of users, which is not a list.
    pub users: UsersSettings,
    /// The drift policy of every stream. `replay` needs it for disabled streams too.
    pub drift: DriftPolicy,
    /// The streams of `--stream`; only these are read. Empty reads every enabled stream.
    pub named_streams: Vec<Stream>,
    /// The surveys of `--survey`, to which streams with a survey filter are restricted. Empty reads all surveys.
    pub surveys: Vec<i64>,
    /// The share of this worker in a backfill; `None` for all of it.
    pub shard: Option<Shard>,
    pub warehouse: WarehouseSettings,
    pub state_path: PathBuf,
    pub archive: ArchiveChoice,
    /// Where the archive is. Its folder of this machine has the pages of unfinished scans.
    pub archive_location: Location,
    /// The file name of the state file before links were resolved. The archive folder stores this name as its owner.
    pub archive_owner: String,
    /// Days that archived pages are kept; `None` keeps them for ever.
    pub archive_keep_days: Option<u32>,
    /// Days after which vanished sessions are erased; `None` keeps their rows, marked as vanished.
    pub erase_vanished_after_days: Option<u32>,
    /// Time after which a run stops early and can be resumed; `None` for no limit.
    pub deadline: Option<Duration>,
    /// Number of requests after which a run stops early and can be resumed; `None` for no limit.
    pub max_requests: Option<u64>,
    pub recordings: RecordingsSettings,
    pub serve: ServeSettings,
    pub metrics: MetricsSettings,
    pub notify: NotifySettings,
}

/// `[service]`.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The address without a slash at its end. [`Settings::base_url`] returns an error if it is `None`.
    pub base_url: Option<String>,
    /// The label of the environment. A key belongs to one environment of the service, and so does a warehouse (promise
    /// P10).
    pub environment: String,
    pub api_key_source: SecretSource,
    /// Time limit of one request.
    pub timeout: Duration,
    pub auth: AuthChoice,
}

impl ServiceSettings {
    /// Returns the host of the service, with the port if the address has one; empty without an address.
    pub fn host(&self) -> String {
        self.base_url.as_deref().map(|url| host_and_port(url).to_ascii_lowercase()).unwrap_or_default()
    }
}

/// The form of the `Authorization` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthChoice {
    /// The documented form: `Bearer KEY`, and for users `API-Key KEY`.
    #[default]
    Documented,
    /// `Bearer KEY` in every request.
    Bearer,
    /// `API-Key KEY` in every request.
    ApiKey,
}

/// `[throttle]`.
#[derive(Clone, Debug)]
pub struct ThrottleSettings {
    /// Maximum concurrent requests, and maximum windows that are pulled concurrently.
    pub in_flight_max: usize,
    /// Maximum request rate, also if a higher rate was learned; `None` for no maximum.
    pub requests_per_sec_max: Option<f64>,
    /// The longest `Retry-After` that a run waits for. A longer one stops the run early, and a later run resumes.
    pub patience: Duration,
    /// True if requests are sent before the `Retry-After` of an earlier run is over.
    pub ignores_stored_retry_after: bool,
}

/// `[metrics]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// The file for node_exporter's textfile collector; `None` writes no file.
    pub textfile: Option<PathBuf>,
}

/// `[streams.NAME]`.
#[derive(Clone, Debug)]
pub struct StreamSettings {
    pub stream: Stream,
    pub flags: FlagSet,
    /// Rows per page.
    pub page_rows: u32,
    /// Rows younger than this are not read yet; a later run reads them.
    pub settle: Duration,
    pub rescan: RescanRules,
    /// Start of the first sync, epoch milliseconds; `None` starts
    /// [`FIRST_SYNC_DAYS`] days back.
    pub since_ms: Option<i64>,
    /// The states of surveys to request. Empty requests all states; streams other than surveys always have it empty.
    pub statuses: Vec<SurveyStatus>,
}

/// `[streams.users]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsersSettings {
    /// Off by default: the stream takes one request per person.
    pub is_enabled: bool,
    /// Age at which a stored user is read again.
    pub refresh_after: Duration,
    /// Time after which a user that the service did not know is requested again.
    pub ask_again_after: Duration,
}

/// `[warehouse]`.
#[derive(Clone, Debug)]
pub struct WarehouseSettings {
    /// The configured warehouses.
    pub locations: WarehouseLocations,
    /// True if Parquet is partitioned by day, false if by month.
    pub parquet_by_day: bool,
    /// Memory limit of the process; the real use may be up to a quarter more. An engine whose share is used up spills
    /// to disk.
    pub memory_limit_bytes: u64,
    /// How long a run waits for a warehouse that another process has locked.
    pub lock_wait: Duration,
    /// The copies for readers, brought up to date at the end of each run that changed a warehouse.
    pub publish: PublishSettings,
    /// True if the DuckDB file has a full-text index for `search_answers`.
    pub full_text_search: bool,
    /// The time zone of days in views and reports; `None` if none is configured: UTC, or that of an existing file that
    /// is only read.
    pub report_time_zone: Option<TimeZone>,
    /// DuckDB's folder of extensions; `None` is DuckDB's default.
    pub extension_directory: Option<PathBuf>,
    /// True if several workers write the warehouses.
    pub is_shared: bool,
}

impl WarehouseSettings {
    /// Returns the names of the configured warehouses, as the state file stores them.
    pub fn names(&self) -> Vec<&'static str> {
        self.locations.keys().map(|kind| kind.name()).collect()
    }
}

impl Settings {
    /// Returns the address of the service.
    ///
    /// # Errors
    /// No address is set, or the address is the example of the template.
    pub fn base_url(&self) -> Result<&str, ConfigError> {
        match self.service.base_url.as_deref() {
            None | Some("") => {
                self.require_configuration()?;
                Err(ConfigError::NoService { file: self.file_to_edit() })
            }
            Some(EXAMPLE_URL) => Err(ConfigError::ExampleService { file: self.file_to_edit() }),
            Some(base_url) => Ok(base_url),
        }
    }

    /// Returns the `--stream` and `--survey` flags that restrict the run, as text; `None` if there are none.
    pub fn narrowed_to(&self) -> Option<String> {
        let streams: BTreeSet<&str> = self.named_streams.iter().map(|stream| stream.name()).collect();
        let surveys: BTreeSet<i64> = self.surveys.iter().copied().collect();
        let streams = streams.into_iter().map(|stream| format!("--stream {stream}"));
        let surveys = surveys.into_iter().map(|survey| format!("--survey {survey}"));
        let shard = self.shard.map(|shard| format!("--shard {shard}"));
        let flags: Vec<String> = streams.chain(surveys).chain(shard).collect();
        (!flags.is_empty()).then(|| flags.join(" "))
    }

    /// Leaves the lists without windows to the first of several workers. Users and recordings are due by the rows of
    /// all workers: the next `sync` reads them.
    pub(super) fn leave_to_first_worker(&mut self) {
        let Some(shard) = self.shard else { return };
        self.streams.retain(|stream| shard.is_first() || stream.stream.is_windowed());
        (self.users.is_enabled, self.recordings.is_enabled) = (false, false);
    }

    /// Fails unless at least one warehouse is configured.
    pub fn require_warehouse(&self) -> Result<(), ConfigError> {
        if self.warehouse.locations.is_empty() {
            self.require_configuration()?;
            return Err(ConfigError::NoWarehouse { file: self.file_to_edit() });
        }
        Ok(())
    }

    /// Fails if nothing is configured: no file, and no service or warehouse by flag or variable. The working folder is
    /// then probably the wrong one.
    pub fn require_configuration(&self) -> Result<(), ConfigError> {
        let is_configured =
            self.config.is_some() || self.service.base_url.is_some() || !self.warehouse.locations.is_empty();
        match is_configured {
            true => Ok(()),
            false => Err(ConfigError::NoConfiguration { folder_file: CONFIG_FILE_NAME, system_file: SYSTEM_FILE }),
        }
    }

    /// Returns the configuration file; without one, the file that `studysync init` writes.
    fn file_to_edit(&self) -> PathBuf {
        self.config.clone().unwrap_or_else(|| CONFIG_FILE_NAME.into())
    }

    /// Returns the folder next to the state file with the suppression list and the receipts of erasures.
    pub fn erasures_folder(&self) -> PathBuf {
        files::with_suffix(&self.state_path, ".erasures")
    }

    /// Reads the key from its file or variable, or runs the command that prints it.
    pub fn api_key(&self) -> Result<ApiKey, ConfigError> {
        let missing = |variable: &str| ConfigError::NoKey { variable: variable.to_owned() };
        read_secret(&self.service.api_key_source, "[service] api_key_command", missing)
    }

    /// Returns the settings of a run that reads only new rows of these streams. The run makes no re-scans of complete
    /// windows; it still reads a stream without windows completely. It reads no users, because no webhook reports a
    /// change of a user. The nightly run does both.
    #[must_use]
    pub fn trailing(&self, streams: &[Stream]) -> Settings {
        let mut settings = self.clone();
        settings.streams.retain(|stream| streams.contains(&stream.stream));
        for stream in settings.streams.iter_mut().filter(|stream| stream.stream.is_windowed()) {
            stream.rescan = RescanRules::never();
        }
        settings.users.is_enabled = false;
        settings
    }
}
