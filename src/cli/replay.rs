//! `studysync replay`: tables from the archive, without a request.

use std::sync::Arc;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    model::{Stream, Window},
    pipeline::{Replay, ReplayProgress, ReplayReport, ReplayRequest},
};

use super::{
    CommandError, Context,
    bars::{self, Watch},
    flags::{PlaceFlags, StreamFlags, check_range, parse_moment},
    sync::stop_on_signal,
};

/// Rebuilds tables from the archive; sends nothing.
///
/// Without --from, --to or --stream each warehouse is rebuilt next to the old one, which it then replaces atomically.
/// Until then the old warehouse stays unchanged. The result equals the original in every table, history and ledger
/// included. A lost warehouse is restored. The replay is refused if the archive lacks pages of rows in the warehouse.
///
/// With a range, the windows that overlap it are rebuilt inside the warehouse, in one transaction. Surveys have no
/// windows: only a full replay rebuilds them.
///
/// Exit codes: 0 done; 1 failed or refused, the warehouse is as it was; 2 usage or configuration; 3 done, but the
/// archive proves less than the checkpoints counted, and the next sync pulls the rest; 5 another run holds the lease,
/// or a program the file; 130 interrupted, the warehouse is as it was.
#[derive(Args, Debug)]
pub(super) struct ReplayArgs {
    /// Start of the range: 2026-01-31, 2026-01, 7d, yesterday, RFC 3339 or epoch milliseconds [default: the beginning]
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    from: Option<i64>,

    /// End of the range, exclusive [default: the end]
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    /// Print one JSON object on stdout when the replay ends
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    streams: StreamFlags,
}

pub(super) async fn run(args: ReplayArgs, context: Context) -> Result<u8, CommandError> {
    let request = ReplayRequest { window: range_of(&args)? };
    let settings = args.place.given(&context).streams(&args.streams).settings()?;
    let stop = CancellationToken::new();
    let signals = tokio::spawn(stop_on_signal(stop.clone()));
    let progress = Arc::new(ReplayProgress::default());
    let bar = (!context.is_quiet).then(|| watch(&context, Arc::clone(&progress)));
    let worked = tokio::task::spawn_blocking(move || {
        Replay::open(settings, request).map(|replay| replay.execute(&stop, &progress))
    });
    let worked = worked.await;
    signals.abort();
    drop(bar);
    let (report, outcome) = worked
        .map_err(|error| CommandError::failed("a part of the program stopped", error.into()))?
        .map_err(CommandError::Pipeline)?;
    if args.json {
        context.printer.print_json(&report)?;
    }
    context.tell(&summary(&report));
    outcome.map_err(CommandError::Pipeline)?;
    Ok(report.header.exit_code)
}

/// The range that is asked for; `None` rebuilds everything.
fn range_of(args: &ReplayArgs) -> Result<Option<Window>, CommandError> {
    let is_whole = args.from.is_none() && args.to.is_none() && args.streams.streams.is_empty();
    if is_whole {
        return Ok(None);
    }
    if !args.streams.streams.is_empty() && args.streams.streams.iter().all(|stream| *stream == Stream::Surveys) {
        let why = "surveys are always read whole, so no range of them can be replayed; replay everything instead";
        return Err(CommandError::Usage(why.to_owned()));
    }
    check_range(args.from, args.to)?;
    Ok(Some(Window::new(args.from.unwrap_or(i64::MIN), args.to.unwrap_or(i64::MAX))))
}

/// Shows the progress until the returned guard is dropped.
fn watch(context: &Context, progress: Arc<ReplayProgress>) -> Watch {
    bars::watch_line(&context.bars, move || {
        let now = progress.snapshot();
        let percent = now.scans_done * 100 / now.scans.max(1);
        let (done, all, pages, records) = (now.scans_done, now.scans, now.pages_done, now.records_done);
        format!("{percent}%  {done}/{all} scans  {pages} pages  {records} records")
    })
}

fn summary(report: &ReplayReport) -> String {
    let done = &report.replayed;
    let mut text = format!(
        "replay {}: {} scans, {} pages, {} records in {:.1} s, no request\n",
        report.header.outcome.name().replace('_', " "),
        done.scans,
        done.pages,
        done.records,
        report.header.secs()
    );
    for warehouse in &done.warehouses {
        text.push_str(&format!("  {:<8} rebuilt: {}\n", warehouse.name, warehouse.location));
    }
    for range in &done.stretches {
        let rows: Vec<String> =
            range.rows.iter().map(|(name, rows)| format!("{rows} rows of all its tables in {name}")).collect();
        text.push_str(&format!("  {} [{}, {}) replaced: {}\n", range.stream, range.start, range.end, rows.join(", ")));
    }
    for note in &done.notes {
        text.push_str(&format!("  note: {note}\n"));
    }
    text
}
