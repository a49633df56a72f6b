//! `studysync sync` and `studysync backfill`: run the pipeline, and show its progress and result.

use std::sync::Arc;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    config::Settings,
    erase::{attention_for, erase_vanished, log_erased},
    model::{Shard, Window, format_ms},
    notify::{EndedRun, after_run},
    pipeline::{
        FailedStart, OPEN_END_MS, Outcome, PeopleSelection, PipelineError, Progress, Reached, RecordingsReport,
        Request, Run, RunReport, RunTimes, System, drift_lines,
    },
    sync_status::HealthRules,
};

use super::{
    CommandError, Context,
    flags::{LimitArgs, LocationArgs, SelectionArgs, SettingsBuilder, check_range, parse_moment},
    plan::{self, PlanArgs, RunSelection},
    printer::{LINES_MAX, counted, failure_lines, nonzero_counts, outcome_words, shortened_list, stopped_line},
    progress,
    signals::{SignalHandler, next_signal},
};

/// Pulls new data and re-scans closed windows: the nightly job.
///
/// The first sync starts 30 days back (`since` in the configuration changes this), or at the start of a backfill.
/// `backfill` pulls older answers. A sync also pulls every later range that was never proven complete.
/// The next run resumes a run that was stopped or killed.
///
/// Fields and values that this version does not know are stored and reported. [streams.NAME.drift] in the configuration
/// sets another policy: evolve, freeze, discard_row, discard_value.
///
/// Exit codes: 0 done; 1 failed, completely or in some windows or lists (also if a frozen stream met drift), committed
/// data stays; 2 usage or configuration; 3 done, but something needs attention (rejects, withheld deletions,
/// collisions, rows that a page boundary may hide, a clock that is days off); 4 key refused; 5 another run holds the
/// lease; 6 stopped early at a deadline, a budget or a rate limit, resumable; 130 interrupted, resumable.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync sync
  studysync sync --deadline 3h30m --json >> runs.ndjson")]
pub(super) struct SyncArgs {
    /// Show what the run would request, as `plan` does; sends nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    selection: SelectionArgs,
}

/// Pulls history between two moments, resumable.
///
/// Pulls every row that was created in the range and is not in the warehouse yet.
///
/// Windows are pulled concurrently. After an interruption, the same command resumes. If the range is covered, it sends
/// no request.
///
/// Exit codes: 0 done; 1 failed, completely or in some windows or lists (also if a frozen stream met drift), committed
/// data stays; 2 usage or configuration; 3 done, but something needs attention (rejects, withheld deletions,
/// collisions, rows that a page boundary may hide, a clock that is days off); 4 key refused; 5 another run holds the
/// lease; 6 stopped early at a deadline, a budget or a rate limit, resumable; 130 interrupted, resumable.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync backfill --from 2024-01-01
  studysync backfill --from 2026-03 --to 2026-04 --stream responses")]
pub(super) struct BackfillArgs {
    /// Start of the range: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y, yesterday or RFC 3339
    #[arg(long, alias = "since", value_name = "DATE", value_parser = parse_moment)]
    from: i64,

    /// End of the range, exclusive [default: now]
    #[arg(long, alias = "until", value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    /// Share of one of N workers: 2/8 is the second of eight. Each has its own state file; all have one warehouse
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,

    /// Show what the run would request, as `plan --from` does; sends nothing
    #[arg(long)]
    dry_run: bool,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    selection: SelectionArgs,
}

/// Flags of the commands that run the pipeline.
#[derive(Args, Debug)]
pub(super) struct RunArgs {
    /// Mark all rows as vanished that the service no longer returns, even if they are very many
    #[arg(long)]
    accept_vanished: bool,

    /// Print one JSON object on stdout when the run ends
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

pub(super) async fn sync(args: SyncArgs, context: Context) -> Result<u8, CommandError> {
    if args.dry_run {
        return plan::run(&args.run.plan(None, None, args.selection), context);
    }
    let request = args.run.request("sync", None, PeopleSelection::AfterLists);
    let settings = args.run.settings(&context).selection(&args.selection).build()?;
    run_request(request, settings, args.run.json, context).await
}

pub(super) async fn backfill(args: BackfillArgs, context: Context) -> Result<u8, CommandError> {
    if args.dry_run {
        let mut planned = args.run.plan(Some(args.from), args.to, args.selection);
        planned.shard = args.shard;
        return plan::run(&planned, context);
    }
    check_range(Some(args.from), args.to)?;
    let range = Window::new(args.from, args.to.unwrap_or(OPEN_END_MS));
    let request = args.run.request("backfill", Some(range), PeopleSelection::AfterLists);
    let settings = args.run.settings(&context).selection(&args.selection).shard(args.shard).build()?;
    plan::warn_of_small_disks(&settings, range);
    run_request(request, settings, args.run.json, context).await
}

/// `users pull`: runs the pipeline for users only.
pub(super) async fn pull_users(args: RunArgs, people: PeopleSelection, context: Context) -> Result<u8, CommandError> {
    let request = args.request("users pull", None, people);
    run_request(request, args.settings(&context).build()?, args.json, context).await
}

impl RunArgs {
    fn settings(&self, context: &Context) -> SettingsBuilder {
        self.locations.settings(context).limits(&self.limits)
    }

    /// Returns the arguments of `plan` for this run.
    fn plan(self, from: Option<i64>, to: Option<i64>, selection: SelectionArgs) -> PlanArgs {
        PlanArgs::of_run(from, to, RunSelection { json: self.json, locations: self.locations, selection })
    }

    fn request(&self, command: &'static str, backfill: Option<Window>, people: PeopleSelection) -> Request {
        Request { command, backfill, accept_vanished: self.accept_vanished, people }
    }
}

/// Runs a command of the pipeline: handles signals, executes the run, erases vanished sessions, prints the summary, and
/// notifies. Returns the exit code.
async fn run_request(
    request: Request,
    settings: Settings,
    is_json: bool,
    context: Context,
) -> Result<u8, CommandError> {
    let (signals, command, started_ms) = (SignalHandler::start(), request.command, clock::now_ms());
    let outcome = open_and_execute(request, &settings, signals.token(), &context).await;
    let erased = match &outcome {
        // Vanished sessions are erased only after a run without failures and findings. Any other run may be wrong about
        // what has vanished.
        Ok((report, Ok(()))) if report.header.outcome == Outcome::Done => {
            erase_vanished(settings.clone(), signals.token(), System::default()).await
        }
        _ => Ok(None),
    };
    drop(signals);
    let (reported, error) = match &outcome {
        Ok((report, outcome)) => (context.report(is_json, report, summary), outcome.as_ref().err()),
        Err(failed) => (context.print_json(is_json, &failed.report), Some(&failed.error)),
    };
    let times = RunTimes { started_ms, finished_ms: clock::now_ms() };
    let ended = EndedRun::new(&settings, command, times, error).with_attention(attention_for(&erased));
    let rules = HealthRules::for_one_shot(&settings);
    // After a signal, the next run sends the notifications that are not delivered yet.
    tokio::select! {
        () = after_run(&settings, &ended, rules) => {}
        _ = next_signal() => {}
    }
    let (report, outcome) = outcome?;
    outcome?;
    // After the outcome: the error of the run matters more than an output that cannot be written.
    reported?;
    match erased.map_err(CommandError::Erase)? {
        None => Ok(report.header.exit_code),
        Some((receipt, path)) => {
            log_erased(&receipt, &path);
            Ok(report.header.exit_code.max(receipt.exit_code))
        }
    }
}

/// Executes the run and shows its progress. Returns the report of the run and its outcome.
///
/// # Errors
/// If the run could not begin.
async fn open_and_execute(
    request: Request,
    settings: &Settings,
    stop: CancellationToken,
    context: &Context,
) -> Result<(RunReport, Result<(), PipelineError>), FailedStart> {
    if let Some(file) = &settings.config {
        tracing::info!(file = %file.display(), "configuration read");
    }
    let progress = Arc::new(Progress::default());
    let run = Run::open(settings.clone(), request, stop, Arc::clone(&progress)).await?;
    if let Some(since_ms) = run.first_sync_since() {
        report_first_sync(since_ms, context);
    }
    let _line = progress::show_run(context, progress, run.source());
    Ok(run.execute().await)
}

/// Reports the start of a first sync, which does not pull older answers.
fn report_first_sync(since_ms: i64, context: &Context) {
    let since = format_ms(since_ms);
    tracing::info!(since, "starting the first sync");
    // Without a terminal, the log line reports the start.
    if !context.progress.is_hidden() {
        context.message(&format!(
            "first sync: answers from {since} on; `studysync backfill --from DATE` pulls older ones\n"
        ));
    }
}

fn recordings_line(recordings: RecordingsReport) -> String {
    let RecordingsReport { fetched, bytes, missing, waiting } = recordings;
    let counts = nonzero_counts(&[(fetched, "fetched"), (missing, "unavailable"), (waiting, "left to the next run")]);
    let megabytes = (bytes > 0).then(|| format!("{:.1} MB", bytes as f64 / 1e6));
    let parts: Vec<String> = counts.into_iter().chain(megabytes).collect();
    format!("  recordings {}\n", if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") })
}

fn refusals_line(report: &RunReport) -> String {
    let refusals = report.requests.by_status.get(&429).copied().unwrap_or_default();
    if refusals == 0 {
        return String::new();
    }
    let waited_ms = report.header.time_ms.told_to_wait + report.header.time_ms.chose_to_wait;
    let waited_secs = waited_ms as f64 / 1000.0;
    format!("  rate limit: {}, waited {waited_secs:.1} s\n", counted(refusals, "refusal"))
}

fn summary(report: &RunReport) -> String {
    let mut text = format!(
        "{} {}: {} in {:.1} s\n",
        report.header.command,
        outcome_words(report.header.outcome.name()),
        counted(report.requests.total, "request"),
        report.header.secs()
    );
    text.push_str(&refusals_line(report));
    for (name, stream) in &report.streams {
        let counts = &stream.counts;
        let counts = nonzero_counts(&[
            (counts.rows_read, "read"),
            (counts.inserted, "new"),
            (counts.updated, "changed"),
            (counts.filled_in, "filled in"),
            (counts.soft_deleted, "of them deleted"),
            (counts.vanished, "vanished"),
            (counts.unchanged, "unchanged"),
            (counts.withheld, "WITHHELD"),
            (counts.rejected, "REJECTED"),
            (counts.collisions, if counts.collisions == 1 { "COLLISION" } else { "COLLISIONS" }),
        ]);
        let scans = match (*name, stream.windows) {
            ("users", 1) => "1 batch".to_owned(),
            ("users", batches) => format!("{batches} batches"),
            (_, windows) => counted(windows, "window"),
        };
        let result = match (stream.reached, counts) {
            (Reached::None, _) => "not reached".to_owned(),
            (Reached::All, None) => format!("{scans}: nothing to do"),
            (Reached::All, Some(counts)) => format!("{scans}: {counts}"),
            (Reached::Part, None) => format!("{scans}; the rest was not reached"),
            (Reached::Part, Some(counts)) => format!("{scans}: {counts}; the rest was not reached"),
        };
        text.push_str(&format!("  {name:<10} {result}\n"));
    }
    text.push_str(&report.recordings.map(recordings_line).unwrap_or_default());
    for line in drift_lines(&report.drift, report.drift_unlisted, LINES_MAX) {
        text.push_str(&format!("  drift: {line}\n"));
    }
    text.push_str(&failure_lines(&report.failures));
    let notes = report.notes.iter().map(|note| format!("  note: {note}\n"));
    text.push_str(&shortened_list(notes.collect(), "note"));
    let looks = report.looks.iter().filter(|problem| !report.notes.contains(problem));
    text.push_str(&shortened_list(looks.map(|problem| format!("  needs a look: {problem}\n")).collect(), "finding"));
    text.push_str(&stopped_line(report.stopped_because.as_ref()));
    text
}
