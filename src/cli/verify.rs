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
    flags::{EffortFlags, PlaceFlags, StreamFlags, SurveyFlags, check_range, parse_moment},
    sync::stop_on_signal,
};

/// Rows that are named of each kind of difference of a window.
const KEYS_DEFAULT: usize = 5;
/// No window has more rows; the engine takes no larger limit.
const ALL_KEYS: usize = 1 << 60;
/// Windows that are shown one by one; `--json` has all of them.
const WINDOWS_SHOWN: usize = 20;

/// Compares a range with the service, row by row; writes nothing.
///
/// Reports rows that are missing (only at the service), extra (only here) and stale (different content, with the
/// columns that differ), and the parts of the range that were never read. Rows that changed at the service since a
/// window was last read differ too: the report shows when it was last read, and the next `sync` that scans the window
/// fetches them. `replay` repairs damage that was done here.
///
/// Exit codes: 0 all read and equal; 1 failed; 2 usage or configuration; 3 something differs or was never read; 4 key
/// refused; 5 another run holds the lease, or a program the file; 6 stopped early at a deadline, a budget or a rate
/// limit, continue with --from; 130 interrupted.
#[derive(Args, Debug)]
pub(super) struct VerifyArgs {
    /// Start of the range: 2026-01-31, 2026-01, 7d, yesterday, RFC 3339 or epoch milliseconds
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    from: i64,

    /// End of the range, exclusive [default: where the coverage ends]
    #[arg(long, value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    /// Print one JSON object on stdout when the command ends
    #[arg(long)]
    json: bool,

    /// Rows to name of each kind of difference of a window, by key; `left_out` counts the others
    #[arg(long, value_name = "N", default_value_t = KEYS_DEFAULT, conflicts_with = "all_keys")]
    keys: usize,

    /// Name every row that differs
    #[arg(long)]
    all_keys: bool,

    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    streams: StreamFlags,

    #[command(flatten)]
    surveys: SurveyFlags,

    #[command(flatten)]
    effort: EffortFlags,
}

pub(super) async fn run(args: VerifyArgs, context: Context) -> Result<u8, CommandError> {
    check_range(Some(args.from), args.to)?;
    let settings =
        args.place.given(&context).streams(&args.streams).surveys(&args.surveys).effort(&args.effort).settings()?;
    if settings.streams.is_empty() {
        return Err(CommandError::Usage(
            "verify does not look at people: name responses, surveys or themes".to_owned(),
        ));
    }
    let is_unknown = args.surveys.tell_unknown(&settings);
    let request = VerifyRequest {
        from_ms: args.from,
        to_ms: args.to,
        keys_max: if args.all_keys { ALL_KEYS } else { args.keys },
    };
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
    match args.json {
        true => context.printer.print_json(&report)?,
        false => context.printer.print(&describe(&report))?,
    }
    outcome.map_err(CommandError::Pipeline)?;
    // What nobody knows is equal everywhere.
    Ok(if is_unknown && report.header.exit_code == 0 { 3 } else { report.header.exit_code })
}

fn describe(report: &VerifyReport) -> String {
    let mut text = String::new();
    for window in report.windows.iter().filter(|window| !window.is_equal()).take(WINDOWS_SHOWN) {
        let survey = window.survey_id.map(|id| format!(" of survey {id}")).unwrap_or_default();
        let range = &window.range;
        text.push_str(&format!(
            "{}{survey} {} .. {}   last read {}, {} records at the service\n",
            window.stream, range.start, range.end, window.last_read, window.service_rows
        ));
        for (name, found) in window.warehouses.iter().filter(|(_, found)| !found.is_equal()) {
            text.push_str(&format!("  {name} has {} that stand\n", found.rows));
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
    let mut text = format!("    {kind:<8}  {}\n", difference.rows);
    for example in &difference.examples {
        let columns = match example.columns.as_slice() {
            [] => String::new(),
            columns => format!("   {}", columns.join(", ")),
        };
        text.push_str(&format!("              {}{columns}\n", example.key));
    }
    if difference.left_out > 0 {
        text.push_str(&format!("              and {} more (--all-keys names them all)\n", difference.left_out));
    }
    text
}

fn verdict(report: &VerifyReport) -> String {
    let totals = &report.totals;
    let mut text = format!(
        "{} windows compared, {} records at the service, {} requests in {:.1} s\n",
        totals.windows,
        totals.service_rows,
        report.requests.total,
        report.header.secs()
    );
    for (name, sums) in &totals.warehouses {
        let verdict = match (sums.missing, sums.extra, sums.stale) {
            (0, 0, 0) => "equal".to_owned(),
            (missing, extra, stale) => format!("{missing} missing, {extra} extra, {stale} stale"),
        };
        text.push_str(&format!("  {name:<8} {} that stand: {verdict}\n", sums.rows));
    }
    if let Some(reason) = &report.stopped_because {
        text.push_str(&format!("ended early: {reason}\n"));
    }
    if let Some(from) = &report.resume_from {
        text.push_str(&format!("not looked at from {from} on: go on with --from {from}\n"));
    }
    text
}
