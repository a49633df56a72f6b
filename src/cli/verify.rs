//! `studysync verify`: pulls windows again and compares them with each warehouse.

use std::sync::Arc;

use clap::Args;

use crate::{
    load::Difference,
    pipeline::{Progress, Verify, VerifyReport, VerifyRequest, until_stopped},
};

use super::{
    CommandError, Context,
    flags::{LimitArgs, LocationArgs, SelectionArgs, check_range, parse_moment, warn_of_unknown_surveys},
    printer::{counted, failure_lines, scope_name},
    progress,
    signals::SignalHandler,
};

/// Keys that are listed by default for each window and kind of difference.
const KEYS_DEFAULT: usize = 5;
/// The limit of keys with --all-keys: more rows than any window has. DuckDB accepts no larger limit.
const ALL_KEYS: usize = 1 << 60;
/// Maximum windows with differences that the text lists; `--json` prints all.
const WINDOWS_SHOWN: usize = 20;

/// Compares a range with the service, row by row; writes nothing.
///
/// Pulls the range again and reports rows that are missing (only at the service), extra (only here) or stale (different
/// content, with the columns that differ), and the parts of the range that were never read. Rows that changed at the
/// service after the last scan of their window differ too. The report shows the date of that scan, and the next scan of
/// the window stores the changes. `replay` rebuilds a damaged warehouse from the archive.
///
/// Exit codes: 0 all read and equal; 1 failed; 2 usage or configuration; 3 something differs or was never read; 4 key
/// refused; 5 another run holds the lease, or another program the file; 6 stopped early at a deadline, a budget or a
/// rate limit, continue with --from; 130 interrupted.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync verify --from 2026-03 --to 2026-04
  studysync verify --from 7d --all-keys")]
pub(super) struct VerifyArgs {
    /// Start of the range: 2026-01-31, 2026-01, 2026, 7d, 6mo, 3y, yesterday or RFC 3339
    #[arg(long, alias = "since", value_name = "DATE", value_parser = parse_moment)]
    from: i64,

    /// End of the range, exclusive [default: the end of the coverage]
    #[arg(long, alias = "until", value_name = "DATE", value_parser = parse_moment)]
    to: Option<i64>,

    /// Print one JSON object on stdout when the command ends
    #[arg(long)]
    json: bool,

    /// Keys to list for each window and kind of difference; `left_out` counts the others
    #[arg(long, value_name = "N", default_value_t = KEYS_DEFAULT, conflicts_with = "all_keys")]
    keys: usize,

    /// List the key of every row that differs
    #[arg(long)]
    all_keys: bool,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

/// Compares the range with the service, prints the report, and returns the exit code.
pub(super) async fn run(args: VerifyArgs, context: Context) -> Result<u8, CommandError> {
    check_range(Some(args.from), args.to)?;
    let settings = args.locations.settings(&context).selection(&args.selection).limits(&args.limits).build()?;
    if settings.streams.is_empty() {
        let problem = "verify does not compare users: name responses, surveys or themes";
        return Err(CommandError::Usage(problem.to_owned()));
    }
    let has_unknown_survey = warn_of_unknown_surveys(&settings);
    let request = VerifyRequest {
        from_ms: args.from,
        to_ms: args.to,
        keys_max: if args.all_keys { ALL_KEYS } else { args.keys },
    };
    let (signals, progress) = (SignalHandler::start(), Arc::new(Progress::default()));
    let (stop, shown) = (signals.token(), Arc::clone(&progress));
    let verify = until_stopped(&signals.token(), move || Verify::open(settings, request, stop, shown)).await??;
    let progress_line = progress::show_run(&context, progress, verify.source());
    let (report, outcome) = verify.execute().await;
    drop(progress_line);
    drop(signals);
    let reported = context.printer.print_value(args.json, &report, describe);
    outcome?;
    reported?;
    // A survey that neither side knows has no rows on either side, and would look equal.
    Ok(if has_unknown_survey && report.header.exit_code == 0 { 3 } else { report.header.exit_code })
}

/// Returns the report as text: windows that differ, ranges that were never read, failures, notes and totals.
fn describe(report: &VerifyReport) -> String {
    let mut text = String::new();
    for window in report.windows.iter().filter(|window| !window.is_equal()).take(WINDOWS_SHOWN) {
        let (scope, range) = (scope_name(window.stream, window.survey_id), &window.range);
        text.push_str(&format!(
            "{scope} {} .. {}   last read {}, {} at the service\n",
            range.start,
            range.end,
            window.last_read,
            counted(window.service_rows, "record")
        ));
        for (name, differences) in window.warehouses.iter().filter(|(_, differences)| !differences.is_equal()) {
            text.push_str(&format!("  {name} has {}\n", counted(differences.rows, "current record")));
            let kinds =
                [("missing", &differences.missing), ("extra", &differences.extra), ("stale", &differences.stale)];
            for (kind, difference) in kinds {
                text.push_str(&describe_kind(kind, difference));
            }
            if !differences.columns.is_empty() {
                let columns = differences.columns.iter().map(|(column, rows)| format!("{column} ({rows})"));
                text.push_str(&format!("    stale in  {}\n", columns.collect::<Vec<_>>().join(", ")));
            }
        }
        text.push('\n');
    }
    let more = report.totals.windows_differing.saturating_sub(WINDOWS_SHOWN as u64);
    if more > 0 {
        text.push_str(&format!("... and {} with differences; --json has them all\n\n", counted(more, "more window")));
    }
    for gap in &report.never_read {
        let scope = scope_name(gap.stream, gap.survey_id);
        text.push_str(&format!("never read: {scope} {} .. {}\n", gap.range.start, gap.range.end));
    }
    text.push_str(&failure_lines(&report.failures));
    for note in &report.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text.push_str(&describe_totals(report));
    text
}

/// Returns the rows of one kind of difference as text, with examples; empty if there are none.
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
        text.push_str(&format!("              and {} more (--all-keys lists all)\n", difference.left_out));
    }
    text
}

fn describe_totals(report: &VerifyReport) -> String {
    let totals = &report.totals;
    let mut text = format!(
        "{} compared, {} at the service, {} in {:.1} s\n",
        counted(totals.windows, "window"),
        counted(totals.service_rows, "record"),
        counted(report.requests.total, "request"),
        report.header.secs()
    );
    for (name, sums) in &totals.warehouses {
        let result = match (sums.missing, sums.extra, sums.stale) {
            (0, 0, 0) => "equal".to_owned(),
            (missing, extra, stale) => format!("{missing} missing, {extra} extra, {stale} stale"),
        };
        text.push_str(&format!("  {name:<8} {}: {result}\n", counted(sums.rows, "current record")));
    }
    if let Some(reason) = &report.stopped_because {
        text.push_str(&format!("stopped early: {reason}\n"));
    }
    for failed in &report.not_compared {
        let (scope, range) = (scope_name(failed.stream, failed.survey_id), &failed.range);
        text.push_str(&format!("not compared: {scope} {} .. {} (failed)\n", range.start, range.end));
    }
    if let Some(from) = &report.resume_from {
        text.push_str(&format!("the rest was not compared: continue with --from {from}\n"));
    }
    text
}
