//! `studysync report`: one HTML file about the warehouse.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::{
    clock,
    config::Settings,
    files::Access,
    load::{Reader, ReaderLimits},
    pipeline::unknown_surveys,
    report::{self, DAYS_DEFAULT, DAYS_MAX, ReportError, ReportSettings},
    state::{State, StateError},
};

use super::{
    CommandError, Context,
    flags::{PlaceFlags, SurveyFlags, between, parse_moment},
    output::write_to,
};

/// Writes one HTML page: answers, NPS, surveys, completeness.
///
/// Answers per day, NPS, surveys and their questions, themes, coverage, and where the time went.
///
/// The page needs no network and no script, and lists the numbers of its charts in tables. The command reads the DuckDB
/// file if one is named, else the Parquet files, and changes nothing. Coverage comes from the checkpoints, or from the
/// ledger in the warehouse if there are none. With --survey the page shows these surveys alone.
///
/// Exit codes: 0 written; 1 the warehouse cannot be read; 2 usage or configuration; 5 a run has the warehouse open.
#[derive(Args, Debug)]
pub(super) struct ReportArgs {
    /// Write to this file, which is replaced atomically. A new file has the mode that your umask gives it; an existing
    /// file keeps its mode [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Days that the daily chart and the maps of days show
    #[arg(long, value_name = "N", default_value_t = DAYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    days: u32,

    /// Also show what changed since this moment: 2026-01-31, 2026-01, 7d, yesterday, RFC 3339 or epoch milliseconds
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    since: Option<i64>,

    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    surveys: SurveyFlags,
}

pub(super) fn run(args: &ReportArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.place.given(&context).surveys(&args.surveys).settings()?;
    settings.require_warehouse().map_err(CommandError::Config)?;
    if args.out.is_none() && context.printer.is_terminal() {
        let what = "a page is not for a terminal: name a file with --out report.html, or redirect the output";
        return Err(CommandError::Usage(what.to_owned()));
    }
    let (duckdb, parquet) = (settings.warehouse.duckdb.as_deref(), settings.warehouse.parquet.as_deref());
    let limits = ReaderLimits { memory_bytes: settings.warehouse.query_memory_bytes(), ..ReaderLimits::default() };
    let mut reader = Reader::open_limited(duckdb, parquet, limits).map_err(CommandError::Load)?;
    if !settings.surveys.is_empty()
        && let Some(unknown) = unknown_surveys(&mut reader, &settings.surveys).map_err(CommandError::Load)?
    {
        return Err(CommandError::Usage(format!("there is nothing to report: {unknown}")));
    }
    let state = checkpoints(&settings)?;
    let of = ReportSettings {
        warehouse: name_of(duckdb.or(parquet)),
        made_ms: clock::now_ms(),
        days: args.days,
        surveys: settings.surveys.clone(),
        changes: args.since.map(|since_ms| between(since_ms, None)).transpose()?,
    };
    let page = report::make(&mut reader, state.as_ref(), &of).map_err(|error| match error {
        ReportError::Load(source) => CommandError::Load(source),
        ReportError::State(source) => CommandError::State(source),
        drawing @ ReportError::Draw(_) => CommandError::Refused(drawing.to_string()),
    })?;
    drop(reader);
    write_to(args.out.as_deref(), Access::Usual, &context.printer, |out| Ok(out.write_all(page.as_bytes())?))?;
    Ok(0)
}

/// The checkpoints, if they are to be read: the ledger in the warehouse does without them.
fn checkpoints(settings: &Settings) -> Result<Option<State>, CommandError> {
    match State::open_read_only(&settings.state_path) {
        Ok(state) => Ok(state),
        Err(StateError::Damaged { .. }) => {
            tracing::warn!(path = %settings.state_path.display(), "reading the ledger instead of damaged checkpoints");
            Ok(None)
        }
        Err(error) => Err(CommandError::State(error)),
    }
}

/// The last part of a path: the page says which warehouse, not where on whose machine it lies.
fn name_of(path: Option<&Path>) -> String {
    let name = path.and_then(Path::file_name).unwrap_or_default();
    name.to_string_lossy().into_owned()
}
