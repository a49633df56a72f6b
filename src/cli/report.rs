//! `studysync report`: writes an HTML page about the warehouse.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::{
    clock,
    config::Settings,
    files::Access,
    report::{self, DAYS_DEFAULT, DAYS_MAX, ReportError, ReportSettings},
    state::{State, StateError},
};

use super::{
    CommandError, Context,
    flags::{LocalMoment, LocationArgs, SurveyArgs, TimeZoneArgs, between, parse_local_moment},
    printer::write_to,
    warehouse::open_for_surveys,
};

/// Writes an HTML page: answers, NPS, surveys, coverage.
///
/// The page shows answers per day, NPS, surveys and their questions, themes, coverage, and the time that runs took.
///
/// The page needs no network and no script, and has the numbers of its charts in tables. The command reads the DuckDB
/// file if one is configured, else the Parquet files, and changes nothing. While a run writes the DuckDB file, it reads
/// the copy of `publish` under `[warehouse]`, or waits up to `lock_wait_secs`. Coverage comes from the checkpoints, or
/// from the ledger in the warehouse if there are none. With --survey the page shows only these surveys.
///
/// Exit codes: 0 written; 1 the warehouse cannot be read; 2 usage or configuration; 5 a run has locked the warehouse.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync report --out report.html
  studysync report --since 7d --out week.html")]
pub(super) struct ReportArgs {
    /// File to write; it is replaced atomically. A new file gets the mode of your umask, an existing file keeps its
    /// mode [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Days in the daily chart and in the maps of days
    #[arg(long, value_name = "N", default_value_t = DAYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    days: u32,

    /// Also show what changed since this moment: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y, yesterday or RFC 3339
    #[arg(long, value_name = "DATE", value_parser = parse_local_moment)]
    since: Option<LocalMoment>,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    surveys: SurveyArgs,

    #[command(flatten)]
    time_zone: TimeZoneArgs,
}

/// Makes the page and writes it to a file or to standard output. Fails if standard output is a terminal.
pub(super) fn run(args: &ReportArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.locations.settings(&context).surveys(&args.surveys).time_zone(&args.time_zone).build()?;
    settings.require_warehouse()?;
    if args.out.is_none() && context.printer.is_terminal() {
        let what = "the page is not for a terminal: name a file with --out report.html, or redirect the output";
        return Err(CommandError::Usage(what.to_owned()));
    }
    let mut reader = open_for_surveys(&settings, "report")?;
    let state = checkpoints(&settings)?;
    let report_settings = ReportSettings {
        warehouse: file_name(settings.warehouse.paths.values().next().map(PathBuf::as_path)),
        made_ms: clock::now_ms(),
        days: args.days,
        surveys: settings.surveys.clone(),
        changes: args.since.as_ref().map(|since| between(since.ms(&settings)?, None)).transpose()?,
    };
    let page = report::make(&mut reader, state.as_ref(), &report_settings).map_err(|error| match error {
        ReportError::Load(source) => CommandError::Load(source),
        ReportError::State(source) => source.into(),
        error @ ReportError::Draw(_) => CommandError::Refused(error.to_string()),
    })?;
    drop(reader);
    write_to(args.out.as_deref(), Access::Usual, &context.printer, |out| Ok(out.write_all(page.as_bytes())?))?;
    Ok(0)
}

/// Opens the checkpoints. Returns `None` if they are missing or damaged, so that the report uses the ledger.
fn checkpoints(settings: &Settings) -> Result<Option<State>, CommandError> {
    match State::open_read_only(&settings.state_path) {
        Ok(state) => Ok(state),
        Err(StateError::Damaged { .. }) => {
            tracing::warn!(path = %settings.state_path.display(), "reading the ledger instead of damaged checkpoints");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Returns the file name of a path, or an empty text. The page does not show the folder of the warehouse.
fn file_name(path: Option<&Path>) -> String {
    let name = path.and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}
