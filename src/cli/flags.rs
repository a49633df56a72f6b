//! Flags that several commands share. Every command takes the location flags;
//! the other flags belong to the commands that read them.

use std::{io::Write as _, path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    clock,
    config::{self, ArchiveChoice, Overrides, Settings},
    model::{self, DAY_MS, Stream, parse_duration},
    pipeline::unknown_in_warehouse,
    report::Between,
};

use super::{CommandError, Context};

/// Locations of files and of the service. Every command takes all of them, so that one set serves a whole job. Its help
/// lists the flags that the command reads.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct PlaceFlags {
    /// Address of the service, without /v1/responses
    #[arg(long, value_name = "URL", help_heading = "Locations")]
    pub base_url: Option<String>,

    /// File that contains the key [default: the variable STUDYSYNC_API_KEY,
    /// or the file or variable in the configuration]
    #[arg(long, value_name = "PATH", help_heading = "Locations")]
    pub api_key_file: Option<PathBuf>,

    /// DuckDB file of the warehouse
    #[arg(long, value_name = "PATH", help_heading = "Locations")]
    pub duckdb: Option<PathBuf>,

    /// Folder of the Parquet warehouse
    #[arg(long, value_name = "PATH", help_heading = "Locations")]
    pub parquet: Option<PathBuf>,

    /// Checkpoint file [default: studysync-state/checkpoints.sqlite]
    #[arg(long, value_name = "PATH", help_heading = "Locations")]
    pub state: Option<PathBuf>,

    /// Folder of the archived pages, or 'none' for no archive [default: archive, next to the state file]
    #[arg(long, value_name = "PATH", value_parser = parse_archive, help_heading = "Locations")]
    pub archive: Option<ArchiveChoice>,
}

/// The selected streams.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct StreamFlags {
    /// Only this stream: responses, surveys (or studies), themes or users; repeatable
    #[arg(long = "stream", value_name = "STREAM", help_heading = "Selection")]
    pub streams: Vec<Stream>,
}

/// The selected surveys.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct SurveyFlags {
    /// Only answers and themes of this survey; repeatable
    #[arg(long = "survey", visible_alias = "study", value_name = "ID", help_heading = "Selection")]
    pub surveys: Vec<i64>,
}

/// Limits of a run.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct EffortFlags {
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

impl PlaceFlags {
    /// Starts the overrides of the command line with the location flags.
    pub fn given(&self, context: &Context) -> Given {
        Given(Overrides {
            config: context.config.clone(),
            base_url: self.base_url.clone(),
            api_key_file: self.api_key_file.clone(),
            duckdb: self.duckdb.clone(),
            parquet: self.parquet.clone(),
            state: self.state.clone(),
            archive: self.archive.clone(),
            ..Overrides::default()
        })
    }
}

/// Settings that the command line overrides.
pub(super) struct Given(Overrides);

impl Given {
    pub fn streams(self, flags: &StreamFlags) -> Given {
        Given(Overrides { streams: flags.streams.clone(), ..self.0 })
    }

    pub fn surveys(self, flags: &SurveyFlags) -> Given {
        Given(Overrides { surveys: flags.surveys.clone(), ..self.0 })
    }

    pub fn effort(self, flags: &EffortFlags) -> Given {
        let EffortFlags { concurrency, deadline, max_requests, ignore_rate_limit } = *flags;
        Given(Overrides { concurrency, deadline, max_requests, ignore_rate_limit, ..self.0 })
    }

    /// The settings of the command.
    pub fn settings(self) -> Result<Settings, CommandError> {
        config::resolve(self.0).map_err(CommandError::Config)
    }
}

impl SurveyFlags {
    /// Prints the selected surveys that the warehouse does not know on stderr. Returns true if there are any.
    pub fn tell_unknown(&self, settings: &Settings) -> bool {
        let Some(unknown) = unknown_in_warehouse(&settings.warehouse, &settings.surveys) else { return false };
        let text = format!("{unknown} (in the warehouse; `sync --survey` asks the service)\n");
        // When stderr is gone, the exit code has to say it.
        std::io::stderr().write_all(text.as_bytes()).ok();
        true
    }
}

/// Refuses an empty range and a range in the future.
pub(super) fn check_range(from: Option<i64>, to: Option<i64>) -> Result<(), CommandError> {
    let wrong = match (from, to) {
        (Some(from), Some(to)) if to <= from => "--to must lie after --from",
        // The service's clock, which says what is past, may be ahead of this machine's.
        (Some(from), _) if clock::now_ms().saturating_add(DAY_MS) <= from => "--from lies in the future",
        _ => return Ok(()),
    };
    Err(CommandError::Usage(wrong.to_owned()))
}

/// Returns the range to compare. The range ends now if no end is named.
pub(super) fn between(since_ms: i64, until_ms: Option<i64>) -> Result<Between, CommandError> {
    let now_ms = clock::now_ms();
    let wrong = match until_ms {
        // The service's clock, by which scans are dated, may be ahead of this machine's.
        _ if since_ms >= now_ms.saturating_add(DAY_MS) => "--since lies in the future",
        Some(until_ms) if until_ms <= since_ms => "--until must lie after --since",
        Some(until_ms) => return Ok(Between { since_ms, until_ms, now_ms: None }),
        None => return Ok(Between::until_now(since_ms, now_ms)),
    };
    Err(CommandError::Usage(wrong.to_owned()))
}

/// Reads a moment on the command line, in epoch milliseconds.
pub(super) fn parse_moment(text: &str) -> Result<i64, String> {
    model::parse_moment(text, clock::now_ms())
}

fn parse_archive(text: &str) -> Result<ArchiveChoice, String> {
    match text {
        "" => Err("name a folder, or 'none'".to_owned()),
        "none" => Ok(ArchiveChoice::Nothing),
        path => Ok(ArchiveChoice::Folder(PathBuf::from(path))),
    }
}
