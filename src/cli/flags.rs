//! Flags that several commands share.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    config::{self, ArchiveChoice, Overrides, Settings},
    model::{Stream, parse_date, parse_length},
};

use super::{CommandError, Context};

/// Where things are, and how much of them.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct SharedFlags {
    /// Address of the service: what stands before /v1/responses
    #[arg(long, value_name = "URL", help_heading = "Where")]
    pub base_url: Option<String>,

    /// File that holds the key [default: the environment variable STUDYSYNC_API_KEY]
    #[arg(long, value_name = "PATH", help_heading = "Where")]
    pub api_key_file: Option<PathBuf>,

    /// DuckDB file to keep
    #[arg(long, value_name = "PATH", help_heading = "Where")]
    pub duckdb: Option<PathBuf>,

    /// Folder of Parquet files to keep
    #[arg(long, value_name = "PATH", help_heading = "Where")]
    pub parquet: Option<PathBuf>,

    /// File of the checkpoints [default: studysync-state/checkpoints.sqlite]
    #[arg(long, value_name = "PATH", help_heading = "Where")]
    pub state: Option<PathBuf>,

    /// Folder of the exact pages, or 'none' to keep none [default: archive, beside the state file]
    #[arg(long, value_name = "PATH", value_parser = parse_archive, help_heading = "Where")]
    pub archive: Option<ArchiveChoice>,

    /// Only this stream: responses, surveys (or studies), themes or users; may be given again
    #[arg(long = "stream", value_name = "STREAM", help_heading = "What")]
    pub streams: Vec<Stream>,

    /// Only answers and themes of this survey; may be given again
    #[arg(long = "survey", visible_alias = "study", value_name = "ID", help_heading = "What")]
    pub surveys: Vec<i64>,
}

/// How hard and how long to work.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct EffortFlags {
    /// Requests under way at once [default: 4]
    #[arg(long, value_name = "N", help_heading = "How")]
    pub concurrency: Option<usize>,

    /// End early after this time, resumable: 90s, 30m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse_length, help_heading = "How")]
    pub deadline: Option<Duration>,

    /// End early after so many requests, resumable
    #[arg(long, value_name = "N", help_heading = "How")]
    pub max_requests: Option<u64>,

    /// Send at once although the service told an earlier run to wait (Retry-After)
    #[arg(long, help_heading = "How")]
    pub ignore_rate_limit: bool,
}

impl SharedFlags {
    /// The settings of a command.
    pub fn settings(&self, effort: &EffortFlags, context: &Context) -> Result<Settings, CommandError> {
        let overrides = Overrides {
            config: context.config.clone(),
            base_url: self.base_url.clone(),
            api_key_file: self.api_key_file.clone(),
            duckdb: self.duckdb.clone(),
            parquet: self.parquet.clone(),
            state: self.state.clone(),
            archive: self.archive.clone(),
            streams: self.streams.clone(),
            surveys: self.surveys.clone(),
            concurrency: effort.concurrency,
            deadline: effort.deadline,
            max_requests: effort.max_requests,
            ignore_rate_limit: effort.ignore_rate_limit,
        };
        config::resolve(overrides).map_err(CommandError::Config)
    }
}

/// A moment on the command line, in epoch milliseconds.
pub(super) fn parse_moment(text: &str) -> Result<i64, String> {
    parse_date(text)
}

fn parse_archive(text: &str) -> Result<ArchiveChoice, String> {
    match text {
        "" => Err("name a folder, or 'none'".to_owned()),
        "none" => Ok(ArchiveChoice::Nothing),
        path => Ok(ArchiveChoice::Folder(PathBuf::from(path))),
    }
}
