//! Flags that several commands share, and the settings that follow from them.

use std::{path::PathBuf, time::Duration};

use clap::{Arg, ArgMatches, Args, FromArgMatches, value_parser};

use crate::{
    clock,
    config::{self, ArchiveChoice, Overrides, Settings},
    erase::{EraseError, EraseRequest},
    model::{self, DAY_MS, IdentifierKind, Shard, Stream, TimeZone, WarehouseKind, WarehousePaths, parse_duration},
    pipeline::{fetch_state, unknown_in_warehouse},
    report::ComparedTimes,
    schema,
};

use super::{CommandError, Context, printer::write_stderr};

/// The address of the service, and the paths of files. Every command takes all of these flags, so that all steps of a
/// job can have the same flags. The help of a command lists only the flags that the command reads.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct LocationArgs {
    /// Address of the service, without /v1/responses
    #[arg(long, value_name = "URL", help_heading = "Locations")]
    pub base_url: Option<String>,

    /// File that contains the key [default: the variable STUDYSYNC_API_KEY,
    /// or the file or variable in the configuration]
    #[arg(long, value_name = "PATH", help_heading = "Locations")]
    pub api_key_file: Option<PathBuf>,

    #[command(flatten)]
    pub warehouses: WarehouseArgs,

    /// Checkpoint file [default: studysync-state/checkpoints.sqlite]
    #[arg(long, value_name = "PATH", help_heading = "Locations")]
    pub state: Option<PathBuf>,

    /// Folder of the archived pages; s3://, gs:// or az://BUCKET/FOLDER; or 'none' for no archive [default: archive,
    /// next to the state file]
    #[arg(long, value_name = "PATH", value_parser = parse_archive, help_heading = "Locations")]
    pub archive: Option<ArchiveChoice>,
}

/// The paths of the warehouses: a flag for each kind.
#[derive(Clone, Debug, Default)]
pub(super) struct WarehouseArgs(pub WarehousePaths);

impl Args for WarehouseArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(WarehouseKind::ALL.map(|kind| {
            Arg::new(kind.name())
                .long(kind.name())
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help_heading("Locations")
                .help(kind.help())
        }))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for WarehouseArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let path_of = |kind: WarehouseKind| Some((kind, matches.get_one::<PathBuf>(kind.name())?.clone()));
        Ok(Self(WarehouseKind::ALL.into_iter().filter_map(path_of).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.extend(Self::from_arg_matches(matches)?.0);
        Ok(())
    }
}

/// The selected streams.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct StreamArgs {
    /// Only this stream: responses, surveys (or studies), themes or users; repeatable
    #[arg(long = "stream", value_name = "STREAM", help_heading = "Selection")]
    pub streams: Vec<Stream>,
}

/// The selected surveys.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct SurveyArgs {
    /// Only answers and themes of this survey; repeatable
    #[arg(long = "survey", visible_alias = "study", value_name = "ID", value_parser = parse_survey, help_heading = "Selection")]
    pub surveys: Vec<i64>,
}

/// The selected streams and surveys.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct SelectionArgs {
    #[command(flatten)]
    pub streams: StreamArgs,

    #[command(flatten)]
    pub surveys: SurveyArgs,
}

/// The time zone of days and weeks.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(super) struct TimeZoneArgs {
    /// Time zone of days and weeks, such as Europe/Berlin [default: report_time_zone of the configuration, else that of
    /// the DuckDB file, else UTC]
    #[arg(long, value_name = "ZONE")]
    pub time_zone: Option<TimeZone>,
}

/// A moment of the command line whose days are those of the report time zone.
#[derive(Clone, Debug)]
pub(super) struct LocalMoment(String);

impl LocalMoment {
    /// Returns epoch milliseconds.
    ///
    /// # Errors
    /// The moment is before 1970.
    pub fn ms(&self, settings: &Settings) -> Result<i64, CommandError> {
        let zone = settings.warehouse.report_time_zone.unwrap_or_default();
        zone.parse_moment(&self.0, clock::now_ms()).map_err(CommandError::Usage)
    }
}

/// Checks a moment of the command line.
pub(super) fn parse_local_moment(text: &str) -> Result<LocalMoment, String> {
    parse_moment(text).map(|_| LocalMoment(text.to_owned()))
}

/// The people that a command names.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct PeopleArgs {
    /// Your own id of a person; repeatable
    #[arg(long = "user-id", value_name = "ID", help_heading = "Who")]
    user_ids: Vec<String>,

    /// A mail address; repeatable
    #[arg(long = "email", value_name = "ADDRESS", help_heading = "Who")]
    emails: Vec<String>,

    /// A visitor's UUID, or the visitor's number in responses; repeatable
    #[arg(long = "visitor-id", value_name = "ID", help_heading = "Who")]
    visitor_ids: Vec<String>,
}

impl PeopleArgs {
    /// Adds the people to a request. Fails if an identifier is not usable.
    pub fn add_to(&self, request: &mut EraseRequest) -> Result<(), EraseError> {
        let named = (self.user_ids.iter().map(|id| (IdentifierKind::UserId, id)))
            .chain(self.emails.iter().map(|email| (IdentifierKind::Email, email)))
            .chain(self.visitor_ids.iter().map(|id| (IdentifierKind::VisitorUuid, id)));
        named.into_iter().try_for_each(|(kind, text)| request.add_person(kind, text))
    }
}

/// Limits of a run.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct LimitArgs {
    /// Concurrent requests [default: 4]
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub concurrency: Option<usize>,

    /// Stop early after this time, resumable: 90s, 30m, 3h30m
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Limits")]
    pub deadline: Option<Duration>,

    /// Stop early after this many requests, resumable
    #[arg(long, value_name = "N", help_heading = "Limits")]
    pub max_requests: Option<u64>,

    /// Send requests now, even if the service told an earlier run to wait (Retry-After)
    #[arg(long, help_heading = "Limits")]
    pub ignore_rate_limit: bool,
}

impl LocationArgs {
    /// Returns a builder for the settings of the command, with these flags and `--config`.
    pub fn settings(&self, context: &Context) -> SettingsBuilder {
        let is_announced = context.config.is_none() && !context.is_quiet && !context.progress.is_hidden();
        SettingsBuilder { overrides: self.overrides(context), is_announced }
    }

    /// Returns these flags and `--config`.
    pub fn overrides(&self, context: &Context) -> Overrides {
        Overrides {
            config: context.config.clone(),
            base_url: self.base_url.clone(),
            api_key_file: self.api_key_file.clone(),
            warehouses: self.warehouses.0.clone(),
            state: self.state.clone(),
            archive: self.archive.clone(),
            ..Overrides::default()
        }
    }
}

/// Collects the flags of a command that override settings.
pub(super) struct SettingsBuilder {
    overrides: Overrides,
    /// True if a terminal shows which configuration file was found.
    is_announced: bool,
}

impl SettingsBuilder {
    pub fn streams(mut self, args: &StreamArgs) -> SettingsBuilder {
        self.overrides.streams.clone_from(&args.streams);
        self
    }

    pub fn surveys(mut self, args: &SurveyArgs) -> SettingsBuilder {
        self.overrides.surveys.clone_from(&args.surveys);
        self
    }

    /// For a command that only reads a warehouse.
    pub fn only_reads(mut self) -> SettingsBuilder {
        self.overrides.only_reads = true;
        self
    }

    pub fn time_zone(mut self, args: &TimeZoneArgs) -> SettingsBuilder {
        self.overrides.time_zone = args.time_zone;
        self
    }

    pub fn selection(self, args: &SelectionArgs) -> SettingsBuilder {
        self.streams(&args.streams).surveys(&args.surveys)
    }

    pub fn shard(mut self, shard: Option<Shard>) -> SettingsBuilder {
        self.overrides.shard = shard;
        self
    }

    pub fn limits(self, args: &LimitArgs) -> SettingsBuilder {
        let LimitArgs { concurrency, deadline, max_requests, ignore_rate_limit } = *args;
        let overrides = Overrides { concurrency, deadline, max_requests, ignore_rate_limit, ..self.overrides };
        SettingsBuilder { overrides, ..self }
    }

    /// Returns the settings: the collected flags over environment, file and defaults. The views of this process are in
    /// their time zone.
    pub fn build(self) -> Result<Settings, CommandError> {
        require_folders(&self.overrides.warehouses)?;
        let only_reads = self.overrides.only_reads;
        let settings = config::resolve(self.overrides)?;
        // A command that cannot have the state of the last run says so itself, or does without it.
        if !only_reads && let Err(error) = fetch_state(&settings) {
            tracing::warn!(%error, "cannot fetch the state of the last run");
        }
        if let Some(zone) = settings.warehouse.report_time_zone {
            schema::set_report_time_zone(zone);
        }
        if let Some(path) = &settings.config {
            let file = path.display();
            match self.is_announced {
                true => write_stderr(&format!("configuration: {file}\n")),
                // A job that prints something sends mail; a run names the file in its first log line.
                false => tracing::debug!(%file, "configuration read"),
            }
        }
        Ok(settings)
    }
}

/// Writes the surveys of `--survey` that the warehouse does not know to stderr. Returns true if there is such a survey.
pub(super) fn warn_of_unknown_surveys(settings: &Settings) -> bool {
    let Some(unknown) = unknown_in_warehouse(&settings.warehouse, &settings.surveys) else { return false };
    write_stderr(&format!("{unknown} (in the warehouse; `sync --survey` asks the service)\n"));
    true
}

/// Fails if the folder of a warehouse that a flag names does not exist. A run could create the folder, but a path on
/// the command line is more often mistyped than new.
fn require_folders(warehouses: &WarehousePaths) -> Result<(), CommandError> {
    // The settings check addresses.
    for (kind, path) in warehouses.iter().filter(|(_, path)| !path.to_string_lossy().contains("://")) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| matches!(folder.try_exists(), Ok(false))) {
            let (flag, folder) = (kind.name(), folder.display());
            return Err(CommandError::Usage(format!(
                "--{flag}: there is no folder {folder}; correct the path, or create the folder: mkdir -p '{folder}'"
            )));
        }
    }
    Ok(())
}

/// Checks the range of `--from` and `--to`, epoch milliseconds.
///
/// # Errors
/// The range is empty, or starts in the future.
pub(super) fn check_range(from: Option<i64>, to: Option<i64>) -> Result<(), CommandError> {
    let problem = match (from, to) {
        (Some(from), Some(to)) if to <= from => "--to must be later than --from",
        // The range is compared with the service's clock, which may be ahead of this machine's clock.
        (Some(from), _) if clock::now_ms().saturating_add(DAY_MS) <= from => "--from is in the future",
        _ => return Ok(()),
    };
    Err(CommandError::Usage(problem.to_owned()))
}

/// Returns the two moments of `--since` and `--until` to compare. Without `--until` the later moment is now.
///
/// # Errors
/// `--since` is in the future, or `--until` is not later than `--since`.
pub(super) fn between(since_ms: i64, until_ms: Option<i64>) -> Result<ComparedTimes, CommandError> {
    let now_ms = clock::now_ms();
    let problem = match until_ms {
        // Scans are dated by the service's clock, which may be ahead of this machine's clock.
        _ if since_ms >= now_ms.saturating_add(DAY_MS) => "--since is in the future",
        Some(until_ms) if until_ms <= since_ms => "--until must be later than --since",
        Some(until_ms) => return Ok(ComparedTimes { since_ms, until_ms, now_ms: None }),
        None => return Ok(ComparedTimes::until_now(since_ms, now_ms)),
    };
    Err(CommandError::Usage(problem.to_owned()))
}

/// Parses a moment of the command line. Returns epoch milliseconds.
pub(super) fn parse_moment(text: &str) -> Result<i64, String> {
    model::parse_moment(text, clock::now_ms())
}

/// Parses the number of a survey.
fn parse_survey(text: &str) -> Result<i64, String> {
    let number = text.trim().parse().ok().filter(|id: &i64| *id >= 0);
    number.ok_or_else(|| {
        "expected the number of a survey, such as 4100; `studysync query \"SELECT id, name FROM surveys\"` lists them".to_owned()
    })
}

fn parse_archive(text: &str) -> Result<ArchiveChoice, String> {
    match text {
        "" => Err("name a folder, or 'none'".to_owned()),
        path => Ok(PathBuf::from(path).into()),
    }
}
