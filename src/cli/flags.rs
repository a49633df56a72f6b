//! Flags that several commands share.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use crate::{
    config::{self, ArchiveChoice, Overrides, Settings},
    model::{Stream, parse_date},
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

    /// Only this stream: responses, surveys or themes; may be given again
    #[arg(long = "stream", value_name = "STREAM", help_heading = "What")]
    pub streams: Vec<Stream>,

    /// Only answers and themes of this survey; may be given again
    #[arg(long = "survey", value_name = "ID", help_heading = "What")]
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

/// A length of time on the command line.
pub(super) fn parse_length(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a length of time: write 90s, 30m or 2h");
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_secs = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u32 = digits.parse().map_err(|_| wrong())?;
    match u64::from(number) * unit_secs {
        0 => Err(format!("'{text}' leaves no time at all")),
        secs => Ok(Duration::from_secs(secs)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_read_with_their_unit() {
        assert_eq!(parse_length("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_length("2h"), Ok(Duration::from_secs(7200)));
        for wrong in ["", "h", "2", "-1h", "1.5h", "2 h", "2w", "0s", "99999999999h"] {
            assert!(parse_length(wrong).is_err(), "{wrong}");
        }
    }
}
