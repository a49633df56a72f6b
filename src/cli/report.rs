//! `studysync report`: writes an HTML page about the warehouse.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::{Args, FromArgMatches, parser::ValueSource};

use crate::{
    clock,
    config::Settings,
    files::Access,
    load::AnswerRange,
    pipeline::chain,
    report::{self, DAYS_DEFAULT, DAYS_MAX, Report, ReportError, ReportSettings, VERBATIMS_MAX},
    serve::WriteReport,
    state::{State, StateError},
};

use super::{
    CommandError, Context,
    flags::{LocalMoment, LocationArgs, SurveyArgs, TimeZoneArgs, between, check_range, parse_local_moment},
    printer::{Printer, write_stderr, write_to},
    terminal::styled_hint,
    warehouse::open_for_surveys,
};

/// Writes an HTML page: answers, NPS, surveys, coverage.
///
/// The page shows answers per day, NPS, surveys and their questions, themes, coverage, and the time that runs took.
///
/// The page needs no network and no script, and has the numbers of its charts in tables. The command reads the DuckDB
/// file if one is configured, else the Parquet files, and changes nothing. While a run writes the DuckDB file, it reads
/// the copy of `publish` under `[warehouse]`, or waits up to `lock_wait_secs`. Coverage comes from the checkpoints, or
/// from the ledger in the warehouse if there are none. With --survey the page shows only these surveys; without it,
/// those with most answers. With --from the figures of the period before stand next to those of the range; without
/// --to the range ends with the last moment that was read.
///
/// Exit codes: 0 written; 1 the warehouse cannot be read; 2 usage or configuration; 5 a run has locked the warehouse.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync report --out report.html
  studysync report --since 7d --out week.html
  studysync report --from 2026-01 --to 2026-04 --by browser --out quarter.html")]
pub(super) struct ReportArgs {
    /// File to write; it is replaced atomically. A new file gets the mode of your umask, an existing file keeps its
    /// mode [default: standard output]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Title of the page [default: the name of the warehouse]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,

    /// Only answers from this moment on, with the period before for comparison: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y,
    /// yesterday or RFC 3339
    #[arg(long, value_name = "DATE", value_parser = parse_local_moment, help_heading = "Selection")]
    from: Option<LocalMoment>,

    /// Only answers before this moment
    #[arg(long, value_name = "DATE", value_parser = parse_local_moment, help_heading = "Selection")]
    to: Option<LocalMoment>,

    /// Only answers and themes of this survey, repeatable; 'all' shows each survey, also those with few answers
    #[arg(long = "survey", visible_alias = "study", value_name = "ID|all", value_parser = parse_survey, help_heading = "Selection")]
    surveys: Vec<SurveyChoice>,

    /// Also show each question by segment: browser, os, language, url_path, triggering_event, attribute:NAME,
    /// user:NAME (as `users pull` read it), metadata:KEY
    #[arg(long, value_name = "SEGMENT", value_parser = parse_segment)]
    by: Option<String>,

    /// Also show this many of the newest answers to each open question. They may name persons
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=i64::from(VERBATIMS_MAX)))]
    verbatims: u32,

    /// Days in the daily chart and in the maps of days
    #[arg(long, value_name = "N", default_value_t = DAYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=i64::from(DAYS_MAX)))]
    days: u32,

    /// Also show what changed since this moment: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y, yesterday or RFC 3339
    #[arg(long, value_name = "DATE", value_parser = parse_local_moment)]
    since: Option<LocalMoment>,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    time_zone: TimeZoneArgs,
}

/// A value of `--survey`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SurveyChoice {
    All,
    Id(i64),
}

fn parse_survey(text: &str) -> Result<SurveyChoice, String> {
    match (text, text.parse()) {
        ("all", _) => Ok(SurveyChoice::All),
        (_, Ok(id)) => Ok(SurveyChoice::Id(id)),
        _ => Err("name the number of a survey, or 'all'".to_owned()),
    }
}

/// Checks the name of a segment, which is an argument of the macro `answer_segments`.
fn parse_segment(text: &str) -> Result<String, String> {
    let has_name = |prefix| text.strip_prefix(prefix).is_some_and(|name: &str| !name.is_empty());
    match text {
        "browser" | "os" | "language" | "url_path" | "triggering_event" => Ok(text.to_owned()),
        _ if ["attribute:", "user:", "metadata:"].into_iter().any(has_name) => Ok(text.to_owned()),
        _ => Err("name browser, os, language, url_path, triggering_event, attribute:NAME, user:NAME or metadata:KEY"
            .to_owned()),
    }
}

/// Makes the page and writes it to a file or to standard output. Fails if standard output is a terminal.
pub(super) fn run(args: &ReportArgs, context: Context) -> Result<u8, CommandError> {
    let (surveys, _) = args.surveys();
    let settings = args
        .locations
        .settings(&context)
        .only_reads()
        .surveys(&SurveyArgs { surveys })
        .time_zone(&args.time_zone)
        .build()?;
    settings.require_warehouse()?;
    if args.out.is_none() && context.printer.is_terminal() {
        let what = "the page is not for a terminal: name a file with --out report.html, or redirect the output";
        return Err(CommandError::Usage(what.to_owned()));
    }
    let Report { answers, unknown_segments, .. } = write(args, &settings, args.out.as_deref(), &context.printer)?;
    if let Some(path) = &args.out {
        context.message(&format!("wrote {}: {answers}\n", path.display()));
    }
    if let Some(hint) = unknown_segments {
        write_stderr(&format!("{} {hint}\n", styled_hint("hint:")));
    }
    Ok(0)
}

/// Returns what writes the report of `[serve] report`; `None` if none is configured.
///
/// # Errors
/// The flags are not those of a report.
pub(super) fn scheduled(settings: &Settings) -> Result<Option<WriteReport>, CommandError> {
    let Some(report) = settings.serve.report.clone() else { return Ok(None) };
    check_flags(settings)?;
    let settings = settings.clone();
    let write_report = move || -> Result<(), CommandError> {
        // A moment such as 7d is parsed for each report.
        let args = parse_flags(&report.flags)?;
        let settings = Settings { surveys: args.surveys().0, ..settings.clone() };
        let made = write(&args, &settings, Some(&report.path), &Printer::stdout())?;
        if let Some(why) = made.unknown_segments {
            tracing::warn!(why, "the report has no segments");
        }
        Ok(())
    };
    Ok(Some(Arc::new(move || write_report().map_err(|error| chain(&error)))))
}

/// Checks `[serve] report_flags`.
///
/// # Errors
/// `Usage`, which names the file, the key and what to do.
pub(super) fn check_flags(settings: &Settings) -> Result<(), CommandError> {
    let Some(report) = &settings.serve.report else { return Ok(()) };
    let file = settings.config.as_ref().map(|path| format!("{}: ", path.display())).unwrap_or_default();
    parse_flags(&report.flags).map(drop).map_err(|error| CommandError::Usage(format!("{file}{error}")))
}

/// Parses `[serve] report_flags`. Refuses flags that another key of the file replaces.
fn parse_flags(flags: &[String]) -> Result<ReportArgs, CommandError> {
    let refused = |problem: &str| CommandError::Usage(format!("[serve] report_flags: {problem}"));
    let command = ReportArgs::augment_args(clap::Command::new("report_flags").no_binary_name(true));
    let matches = command
        .try_get_matches_from(flags)
        .map_err(|error| refused(error.to_string().lines().next().unwrap_or_default().trim_start_matches("error: ")))?;
    let locations = LocationArgs::augment_args(clap::Command::new("locations"));
    let is_given = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    if let Some(flag) = locations.get_arguments().find(|flag| is_given(flag.get_id().as_str())) {
        let flag = flag.get_long().unwrap_or_default();
        return Err(refused(&format!(
            "serve reports on its own warehouse and ignores --{flag}: remove it, and set the place in its own key of this file"
        )));
    }
    let args = ReportArgs::from_arg_matches(&matches).map_err(|error| refused(&error.to_string()))?;
    match (&args.out, args.time_zone.time_zone) {
        (Some(_), _) => Err(refused("remove --out: report under [serve] names the file")),
        (_, Some(_)) => Err(refused("remove --time-zone: report_time_zone under [warehouse] is the time zone")),
        (None, None) => Ok(args),
    }
}

impl ReportArgs {
    /// Returns the numbers of the surveys, in order, and whether all surveys are shown.
    fn surveys(&self) -> (Vec<i64>, bool) {
        if self.surveys.contains(&SurveyChoice::All) {
            return (Vec::new(), true);
        }
        let id = |choice: &SurveyChoice| match choice {
            SurveyChoice::All => None,
            SurveyChoice::Id(id) => Some(*id),
        };
        let ids: BTreeSet<i64> = self.surveys.iter().filter_map(id).collect();
        (ids.into_iter().collect(), false)
    }
}

/// Makes the page and writes it to a file, or to standard output if there is none.
fn write(
    args: &ReportArgs,
    settings: &Settings,
    out: Option<&Path>,
    printer: &Printer,
) -> Result<Report, CommandError> {
    let moment_ms = |moment: &Option<LocalMoment>| moment.as_ref().map(|moment| moment.ms(settings)).transpose();
    let answers = AnswerRange { from_ms: moment_ms(&args.from)?, to_ms: moment_ms(&args.to)? };
    check_range(answers.from_ms, answers.to_ms)?;
    let mut reader = open_for_surveys(settings, "report")?;
    let state = checkpoints(settings)?;
    let report_settings = ReportSettings {
        warehouse: file_name(settings.warehouse.locations.values().next().map(|location| location.path.as_path())),
        title: args.title.clone(),
        made_ms: clock::now_ms(),
        days: args.days,
        answers,
        surveys: settings.surveys.clone(),
        shows_all_surveys: args.surveys().1,
        verbatims: args.verbatims,
        segment: args.by.clone(),
        changes: args.since.as_ref().map(|since| between(since.ms(settings)?, None)).transpose()?,
    };
    let made = report::make(&mut reader, state.as_ref(), &report_settings).map_err(|error| match error {
        ReportError::Load(source) => CommandError::Load(source),
        ReportError::State(source) => source.into(),
        error @ ReportError::Draw(_) => CommandError::Refused(error.to_string()),
    })?;
    drop(reader);
    write_to(out, Access::Usual, printer, |out| Ok(out.write_all(made.html.as_bytes())?))?;
    Ok(made)
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
