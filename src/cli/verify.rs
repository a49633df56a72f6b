//! `studysync verify`: windows pulled once more and held against each warehouse.

use std::sync::Arc;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{
    load::Difference,
    pipeline::{Progress, Verify, VerifyReport, VerifyRequest},
};

use super::{
    CommandError, Context, bars,
    flags::{EffortFlags, SharedFlags, parse_moment},
    sync::stop_on_signal,
};

/// Windows that are shown one by one; `--json` has all of them.
const WINDOWS_SHOWN: usize = 20;

/// Pulls a range once more and holds it against each warehouse, row by row and column by column. Changes nothing.
///
/// Tells what is missing (at the service, not here), extra (here, not at the service) and stale (other content, with the columns
/// that differ), and which part of the range was never read. What changed at the service since a window was last read differs too:
/// the time of that reading is shown beside it, and the next `sync` that looks at the window fetches it. Damage that was done here
/// is mended by `replay`.
///
/// Exit codes: 0 all read and equal; 1 failed; 2 usage or configuration; 3 something differs or was never read; 4 key refused; 5
/// another run holds the lease, or a program the file; 6 stopped early at a deadline, a budget or a rate limit, go on with --from; 130
/// interrupted.
#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// First moment: 2026-01-31, RFC 3339 or epoch milliseconds
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    from: i64,

    /// First moment past the end [default: where the coverage ends]
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    /// One JSON object on stdout when it ends
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    shared: SharedFlags,

    #[command(flatten)]
    effort: EffortFlags,
}

pub(super) async fn run(args: VerifyArgs, context: Context) -> Result<u8, CommandError> {
    if args.to.is_some_and(|to| to <= args.from) {
        return Err(CommandError::Usage("--to must lie after --from".to_owned()));
    }
    let settings = args.shared.settings(&args.effort, &context)?;
    let request = VerifyRequest { from_ms: args.from, to_ms: args.to };
    let stop = CancellationToken::new();
    let signals = tokio::spawn(stop_on_signal(stop.clone()));
    let progress = Arc::new(Progress::default());
    let opened = Verify::open(settings, request, stop, Arc::clone(&progress));
    let outcome = match opened {
        Ok(verify) => {
            let _watch = (!context.is_quiet).then(|| bars::watch(&context.bars, progress, verify.source().clone()));
            Ok(verify.execute().await)
        }
        Err(error) => Err(error),
    };
    signals.abort();
    let (report, outcome) = outcome.map_err(CommandError::Pipeline)?;
    let text = if args.json {
        serde_json::to_string(&report).map_err(|error| CommandError::failed("cannot print the report", error.into()))?
    } else {
        describe(&report)
    };
    context.printer.print(&text)?;
    outcome.map_err(CommandError::Pipeline)?;
    Ok(report.exit_code)
}

fn describe(report: &VerifyReport) -> String {
    let mut text = String::new();
    for window in report.windows.iter().filter(|window| !window.is_equal()).take(WINDOWS_SHOWN) {
        let survey = window.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
        let range = &window.range;
        text.push_str(&format!(
            "{}{survey} {} .. {}   last read {}, {} rows at the service\n",
            window.stream, range.start, range.end, window.last_read, window.service_rows
        ));
        for (name, found) in window.warehouses.iter().filter(|(_, found)| !found.is_equal()) {
            text.push_str(&format!("  {name} has {} rows\n", found.rows));
            let kinds = [("missing", &found.missing), ("extra", &found.extra), ("stale", &found.stale)];
            for (kind, difference) in kinds {
                text.push_str(&describe_kind(kind, difference));
            }
            if !found.columns.is_empty() {
                let columns: Vec<String> =
                    found.columns.iter().map(|(column, rows)| format!("{column} ({rows})")).collect();
                text.push_str(&format!("    stale in  {}\n", columns.join(", ")));
            }
        }
        text.push('\n');
    }
    let more = report.totals.windows_differing.saturating_sub(WINDOWS_SHOWN as u64);
    if more > 0 {
        text.push_str(&format!("... and {more} more windows that differ; --json has them all\n\n"));
    }
    for never in &report.never_read {
        let survey = never.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
        text.push_str(&format!("never read: {}{survey} {} .. {}\n", never.stream, never.range.start, never.range.end));
    }
    for failure in &report.failures {
        text.push_str(&format!("FAILED {} {}: {}\n", failure.stream, failure.window, failure.error));
    }
    for note in &report.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text.push_str(&verdict(report));
    text
}

fn describe_kind(kind: &str, difference: &Difference) -> String {
    if difference.rows == 0 {
        return String::new();
    }
    let mut text = format!("    {kind:<8}  {} rows\n", difference.rows);
    for example in &difference.examples {
        let columns = match example.columns.as_slice() {
            [] => String::new(),
            columns => format!("   {}", columns.join(", ")),
        };
        text.push_str(&format!("              {}{columns}\n", example.key));
    }
    text
}

fn verdict(report: &VerifyReport) -> String {
    let totals = &report.totals;
    let mut text = format!(
        "{} windows compared, {} rows at the service, {} requests in {:.1} s\n",
        totals.windows,
        totals.service_rows,
        report.requests.total,
        report.time_ms.wall as f64 / 1000.0
    );
    for (name, sums) in &totals.warehouses {
        let verdict = match (sums.missing, sums.extra, sums.stale) {
            (0, 0, 0) => "equal".to_owned(),
            (missing, extra, stale) => format!("{missing} missing, {extra} extra, {stale} stale"),
        };
        text.push_str(&format!("  {name:<8} {} rows: {verdict}\n", sums.rows));
    }
    if let Some(reason) = &report.stopped_because {
        text.push_str(&format!("ended early: {reason}\n"));
    }
    if let Some(from) = &report.resume_from {
        text.push_str(&format!("not looked at from {from} on: go on with --from {from}\n"));
    }
    text
}
