//! `studysync replay`: rebuilds tables from the archive, without requests.

use std::sync::Arc;

use clap::Args;

use crate::{
    model::{Stream, Window, format_elapsed},
    pipeline::{Replay, ReplayProgress, ReplayReport, ReplayRequest, until_stopped},
};

use super::{
    CommandError, Context,
    flags::{LocationArgs, StreamArgs, check_range, parse_moment},
    printer::{counted, outcome_words},
    progress,
    signals::SignalHandler,
};

/// Rebuilds tables from the archive; sends nothing.
///
/// Without --from, --to or --stream, the command rebuilds each warehouse next to the old one, and then replaces the old
/// one atomically. The result equals the original in every table, including history and ledger; of fetched recordings
/// only `_run_id` and `_synced_at` are those of the scan. A lost warehouse is restored in the same way, without webhook
/// events and receipts of erasures, which no archive has. The replay is refused if the archive lacks pages of rows in
/// the warehouse, or has no scan at all.
///
/// With a range, the windows that overlap the range are rebuilt inside the warehouse, in one transaction. Surveys have
/// no windows: only a full replay rebuilds them.
///
/// Exit codes: 0 done; 1 failed or refused, the warehouse is unchanged; 2 usage or configuration; 3 done, but the
/// archive proves fewer windows than the checkpoints had, and the next sync pulls the others; 5 another run holds the
/// lease, or another program the file; 130 interrupted, the warehouse is unchanged.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync replay
  studysync replay --from 2026-03 --to 2026-04")]
pub(super) struct ReplayArgs {
    /// Start of the range: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y, yesterday or RFC 3339 [default: the beginning]
    #[arg(long, alias = "since", value_name = "DATE", value_parser = parse_moment)]
    from: Option<i64>,

    /// End of the range, exclusive [default: the end]
    #[arg(long, alias = "until", value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    /// Print one JSON object on stdout when the replay ends
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    streams: StreamArgs,
}

/// Rebuilds the tables, shows the progress, and prints the summary. Returns the exit code.
pub(super) async fn run(args: ReplayArgs, context: Context) -> Result<u8, CommandError> {
    let request = ReplayRequest { window: range_of(&args)? };
    let settings = args.locations.settings(&context).streams(&args.streams).build()?;
    let signals = SignalHandler::start();
    let (stop, replay_progress) = (signals.token(), Arc::new(ReplayProgress::default()));
    let shown = Arc::clone(&replay_progress);
    let started = std::time::Instant::now();
    let progress_line = progress::show_text(&context, move || progress_text(&shown, started.elapsed().as_secs()));
    let replay = until_stopped(&stop, move || Replay::open(settings, request)).await??;
    let token = stop.clone();
    let replayed = tokio::task::spawn_blocking(move || replay.execute(&token, &replay_progress)).await;
    drop(signals);
    drop(progress_line);
    let (report, outcome) = replayed.map_err(CommandError::panicked)?;
    let reported = context.report(args.json, &report, summary);
    outcome?;
    reported?;
    Ok(report.header.exit_code)
}

/// Returns the range to rebuild; `None` rebuilds everything. A missing bound is the earliest or latest possible time.
fn range_of(args: &ReplayArgs) -> Result<Option<Window>, CommandError> {
    let is_full = args.from.is_none() && args.to.is_none() && args.streams.streams.is_empty();
    if is_full {
        return Ok(None);
    }
    if !args.streams.streams.is_empty() && args.streams.streams.iter().all(|stream| *stream == Stream::Surveys) {
        let why = "surveys have no windows, so no range of them can be replayed: replay everything instead";
        return Err(CommandError::Usage(why.to_owned()));
    }
    check_range(args.from, args.to)?;
    Ok(Some(Window::new(args.from.unwrap_or(i64::MIN), args.to.unwrap_or(i64::MAX))))
}

fn progress_text(progress: &ReplayProgress, elapsed_secs: u64) -> String {
    let now = progress.snapshot();
    let percent = now.scans_done * 100 / now.scans.max(1);
    let (done, all, pages, records) = (now.scans_done, now.scans, now.pages_done, now.records_done);
    let elapsed = format_elapsed(elapsed_secs);
    let phase = match now.phase {
        Some(phase) => format!("  {phase}"),
        None if now.scans > 0 && done == all => "  completing the tables".to_owned(),
        None => String::new(),
    };
    format!(
        "{elapsed}  {percent}%  {done}/{all} scans  {}  {}{phase}",
        counted(pages, "page"),
        counted(records, "record")
    )
}

fn summary(report: &ReplayReport) -> String {
    let done = &report.replayed;
    let mut text = format!(
        "replay {}: {}, {}, {} in {:.1} s, no requests\n",
        outcome_words(report.header.outcome.name()),
        counted(done.scans, "scan"),
        counted(done.pages, "page"),
        counted(done.records, "record"),
        report.header.secs()
    );
    for warehouse in &done.warehouses {
        text.push_str(&format!("  {:<8} rebuilt: {}\n", warehouse.name, warehouse.location));
    }
    for range in &done.stretches {
        let rows: Vec<String> = range
            .rows
            .iter()
            .map(|(name, rows)| format!("{} of all its tables in {name}", counted(*rows, "row")))
            .collect();
        text.push_str(&format!("  {} [{}, {}) replaced: {}\n", range.stream, range.start, range.end, rows.join(", ")));
    }
    for note in &done.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    text
}
