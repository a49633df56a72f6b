//! `studysync sync` and `studysync backfill`: one run of the pipeline, from the signal handlers to the summary.

use std::sync::Arc;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    clock,
    config::Settings,
    erase::erase_vanished,
    model::{Window, format_ms},
    notify::{EndedRun, after_run},
    pipeline::{
        OPEN_END_MS, Outcome, PeopleAsk, Progress, Reached, RecordingsReport, Request, Run, RunMoments, RunReport,
        drift_lines,
    },
    sync_status::HealthRules,
};

use super::{
    CommandError, Context, bars,
    flags::{EffortFlags, Given, PlaceFlags, StreamFlags, SurveyFlags, check_range, parse_moment},
};

/// Pulls new data and re-scans closed windows: the nightly job.
///
/// A first sync begins 30 days back (`since` in the configuration changes this), or where a backfill began. `backfill`
/// pulls older answers. A sync also pulls every later range that was never proven complete.
/// The next run resumes a run that was stopped or killed.
///
/// Fields and values that this version does not know are stored and reported. [streams.NAME.drift] in the configuration
/// chooses another policy: evolve, freeze, discard_row, discard_value.
///
/// Exit codes: 0 done; 1 failed, completely or in some windows or lists (also if a frozen stream met drift), committed
/// data stays; 2 usage or configuration; 3 done, but something needs attention (rejects, withheld deletions,
/// collisions, rows that a page boundary may hide, a clock that is days off); 4 key refused; 5 another run holds the
/// lease; 6 stopped early at a deadline, a budget or a rate limit, resumable; 130 interrupted, resumable.
#[derive(Args, Debug)]
pub(super) struct SyncArgs {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    streams: StreamFlags,

    #[command(flatten)]
    surveys: SurveyFlags,
}

/// Pulls history between two moments, resumable.
///
/// Pulls everything created in that range that is not in the warehouse yet.
///
/// Windows are pulled concurrently. A backfill that was killed resumes when the same command runs again. It sends
/// nothing when the range is covered.
///
/// Exit codes: 0 done; 1 failed, completely or in some windows or lists (also if a frozen stream met drift), committed
/// data stays; 2 usage or configuration; 3 done, but something needs attention (rejects, withheld deletions,
/// collisions, rows that a page boundary may hide, a clock that is days off); 4 key refused; 5 another run holds the
/// lease; 6 stopped early at a deadline, a budget or a rate limit, resumable; 130 interrupted, resumable.
#[derive(Args, Debug)]
pub(super) struct BackfillArgs {
    /// Start of the range: 2026-01-31, 2026-01, 7d, yesterday, RFC 3339 or epoch milliseconds
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    from: i64,

    /// End of the range, exclusive [default: now]
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    streams: StreamFlags,

    #[command(flatten)]
    surveys: SurveyFlags,
}

#[derive(Args, Debug)]
pub(super) struct RunFlags {
    /// Mark rows as vanished if the service no longer returns them, however many they are
    #[arg(long)]
    pub accept_vanished: bool,

    /// Print one JSON object on stdout when the run ends
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub place: PlaceFlags,

    #[command(flatten)]
    pub effort: EffortFlags,
}

pub(super) async fn sync(args: SyncArgs, context: Context) -> Result<u8, CommandError> {
    let accept_vanished = args.run.accept_vanished;
    let request = Request { command: "sync", backfill: None, accept_vanished, people: PeopleAsk::AfterLists };
    let given = args.run.given(&context).streams(&args.streams).surveys(&args.surveys);
    run_request(request, given.settings()?, args.run.json, context).await
}

/// Reports where a first sync begins: a sync does not pull older answers.
fn tell_first_start(since_ms: i64, context: &Context) {
    let since = format_ms(since_ms);
    tracing::info!(since, "starting the first sync");
    // The log line says it where there is no terminal.
    if !context.bars.is_hidden() {
        context.tell(&format!(
            "first sync: answers from {since} on; older ones come with `studysync backfill --from DATE`\n"
        ));
    }
}

pub(super) async fn backfill(args: BackfillArgs, context: Context) -> Result<u8, CommandError> {
    check_range(Some(args.from), args.to)?;
    let backfill = Some(Window::new(args.from, args.to.unwrap_or(OPEN_END_MS)));
    let accept_vanished = args.run.accept_vanished;
    let request = Request { command: "backfill", backfill, accept_vanished, people: PeopleAsk::AfterLists };
    let given = args.run.given(&context).streams(&args.streams).surveys(&args.surveys);
    run_request(request, given.settings()?, args.run.json, context).await
}

impl RunFlags {
    pub fn given(&self, context: &Context) -> Given {
        self.place.given(context).effort(&self.effort)
    }
}

/// One run, from the signal handlers to the summary.
pub(super) async fn run_request(
    request: Request,
    settings: Settings,
    is_json: bool,
    context: Context,
) -> Result<u8, CommandError> {
    let (stop, command, started_ms) = (CancellationToken::new(), request.command, clock::now_ms());
    let signals = tokio::spawn(stop_on_signal(stop.clone()));
    let progress = Arc::new(Progress::default());
    let outcome = match Run::open(settings.clone(), request, stop.clone(), Arc::clone(&progress)).await {
        Ok(run) => {
            run.first_sync_since().into_iter().for_each(|since_ms| tell_first_start(since_ms, &context));
            let _watch = (!context.is_quiet).then(|| bars::watch(&context.bars, progress, run.source().clone()));
            Ok(run.execute().await)
        }
        Err(error) => Err(error),
    };
    let erased = match &outcome {
        // Only after a night that knows all that it was to know.
        Ok((report, Ok(()))) if report.header.outcome == Outcome::Done => erase_vanished(settings.clone(), stop).await,
        _ => Ok(None),
    };
    signals.abort();
    let shown = outcome.as_ref().map_or(Ok(()), |(report, _)| show(report, is_json, &context));
    let error = outcome.as_ref().map_or_else(Some, |(_, outcome)| outcome.as_ref().err());
    let moments = RunMoments { started_ms, finished_ms: clock::now_ms() };
    let (ended, rules) = (EndedRun::new(&settings, command, moments, error), HealthRules::for_one_shot(&settings));
    // A signal leaves what is not delivered yet to the next run.
    tokio::select! {
        () = after_run(&settings, &ended, rules) => {}
        _ = next_signal() => {}
    }
    shown?;
    let (report, outcome) = outcome.map_err(CommandError::Pipeline)?;
    outcome.map_err(CommandError::Pipeline)?;
    match erased.map_err(CommandError::Erase)? {
        None => Ok(report.header.exit_code),
        Some((receipt, path)) => {
            let (sessions, path) = (receipt.people, path.display());
            tracing::info!("{sessions} sessions that the service no longer returns were erased: {path}");
            Ok(report.header.exit_code.max(receipt.exit_code))
        }
    }
}

/// The run's JSON and its summary.
fn show(report: &RunReport, is_json: bool, context: &Context) -> Result<(), CommandError> {
    if is_json {
        context.printer.print_json(report)?;
    }
    context.tell(&summary(report));
    Ok(())
}

/// The first signal asks the run to end in order; a second one ends the program at once, which is safe as well.
pub(super) async fn stop_on_signal(stop: CancellationToken) {
    if next_signal().await.is_err() {
        return;
    }
    tracing::warn!(
        "stopping: the commit under way is finished, the rest waits for the next run (once more ends at once)"
    );
    stop.cancel();
    if next_signal().await.is_ok() {
        std::process::exit(130);
    }
}

async fn next_signal() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        outcome = tokio::signal::ctrl_c() => outcome,
        _ = terminate.recv() => Ok(()),
    }
}

fn recordings_line(recordings: RecordingsReport) -> String {
    let RecordingsReport { fetched, bytes, missing, waiting } = recordings;
    let fates = [(fetched, "fetched"), (missing, "not to be had"), (waiting, "wait for the next run")];
    let mut fates: Vec<String> =
        fates.iter().filter(|(count, _)| *count > 0).map(|(count, fate)| format!("{count} {fate}")).collect();
    if bytes > 0 {
        fates.push(format!("{:.1} MB", bytes as f64 / 1e6));
    }
    format!("  recordings {}\n", if fates.is_empty() { "nothing to do".to_owned() } else { fates.join(", ") })
}

/// What people want to know when a run has ended.
fn summary(report: &RunReport) -> String {
    let mut text = format!(
        "{} {}: {} requests in {:.1} s\n",
        report.header.command,
        report.header.outcome.name().replace('_', " "),
        report.requests.total,
        report.header.secs()
    );
    let refusals = report.requests.by_status.get(&429).copied().unwrap_or_default();
    if refusals > 0 {
        let waited_ms = report.header.time_ms.told_to_wait + report.header.time_ms.chose_to_wait;
        text.push_str(&format!("  rate limit: {refusals} refusals, waited {:.1} s\n", waited_ms as f64 / 1000.0));
    }
    for (name, stream) in &report.streams {
        let counts = &stream.counts;
        let fates = [
            (counts.rows_read, "read"),
            (counts.inserted, "new"),
            (counts.updated, "changed"),
            (counts.soft_deleted, "of them deleted"),
            (counts.vanished, "vanished"),
            (counts.unchanged, "unchanged"),
            (counts.withheld, "WITHHELD"),
            (counts.rejected, "REJECTED"),
            (counts.collisions, "COLLISIONS"),
        ];
        let fates: Vec<String> =
            fates.iter().filter(|(count, _)| *count > 0).map(|(count, fate)| format!("{count} {fate}")).collect();
        let scans = if *name == "users" { "batches" } else { "windows" };
        let come_to = match (stream.reached, fates.is_empty()) {
            (Reached::None, _) => "not reached".to_owned(),
            (Reached::All, true) => format!("{} {scans}: nothing to do", stream.windows),
            (Reached::All, false) => format!("{} {scans}: {}", stream.windows, fates.join(", ")),
            (Reached::Part, true) => format!("{} {scans}; the rest was not reached", stream.windows),
            (Reached::Part, false) => {
                format!("{} {scans}: {}; the rest was not reached", stream.windows, fates.join(", "))
            }
        };
        text.push_str(&format!("  {name:<10} {come_to}\n"));
    }
    text.push_str(&report.recordings.map(recordings_line).unwrap_or_default());
    for line in drift_lines(&report.drift, report.drift_unlisted) {
        text.push_str(&format!("  drift: {line}\n"));
    }
    for failure in &report.failures {
        text.push_str(&format!("  FAILED {} {}: {}\n", failure.stream, failure.window, failure.error));
    }
    for note in &report.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    for look in report.looks.iter().filter(|look| !report.notes.contains(look)) {
        text.push_str(&format!("  needs a look: {look}\n"));
    }
    if let Some(reason) = &report.stopped_because {
        text.push_str(&format!("  ended early: {reason}. Run the same command again to go on\n"));
    }
    text
}
