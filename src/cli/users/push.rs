//! `studysync users push`: sends users from a file or a query to the service.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::{
    pipeline::{InputFormat, Push, PushFormat, PushInput, PushReport, PushRequest, push_dry, until_stopped},
    text::Encoding,
};

use super::super::{
    CommandError, Context,
    flags::{LimitArgs, LocationArgs},
    printer::{counted, nonzero_counts, outcome_words, stopped_line},
    progress,
    signals::SignalHandler,
};

/// The results file of a query or of standard input.
const RESULTS: &str = "users-push.results.csv";

/// Sends users to the service, one request each: their e-mail address, attributes and historical events.
///
/// The columns of a table, or the members of one JSON object per line, are: userId (required), email, attributes.NAME
/// for each attribute (or attributes, an object), events (a list of {"event": NAME, "timestamp": EPOCH_MS}). In CSV,
/// events are JSON text, an empty cell sends nothing, and an attribute is a text unless its column has a type:
/// attributes.seats:integer, attributes.is_admin:boolean, attributes.score:number, attributes.tags:json. A user has at
/// most 100 attributes. The service accepts texts, integers, true and false; whether it accepts fractions, lists and
/// objects is not documented. An invalid row is set aside with its line and the reason. Times of events can also be RFC
/// 3339. Null sends nothing, and deletes no attribute.
///
/// CSV files of spreadsheets are accepted: cells separated by commas, semicolons, tabs or bars, UTF-8 or UTF-16 (other
/// encodings with --encoding), empty columns and rows, 5.0 in a column of integers, blanks around ids. An unclosed
/// quote invalidates only its own row. An id that a spreadsheet has changed (1002.0, 1.2E+15) is set aside.
///
/// The result of every row is written to the results file, and stored by the row's content in the state file: the
/// intent before the request, the result after. A restarted push resumes. A row with a known result is never sent
/// again, even if another file has the same row. Rows of one user are sent in order, one at a time.
///
/// The result of a row is unknown if the push was killed during its request, or if the response was not conclusive
/// (unknown_sends in the results). Its attributes are sent again, which is idempotent. Its events are sent again only
/// with --resend-events, since the service would count them twice.
///
/// Exit codes: 0 all rows are accepted; 1 failed, known results stay stored; 2 usage, configuration, or columns that
/// are not those of users; 3 done, but something needs attention (rows set aside, refused or with an unknown result,
/// events with an unknown result); 4 key refused; 5 another run holds the lease; 6 stopped early at a deadline, a
/// budget or a rate limit, resumable; 130 interrupted, resumable.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync users push users.csv --dry-run
  studysync users push users.csv")]
pub(super) struct PushArgs {
    /// CSV, NDJSON or Parquet; '-' reads standard input
    #[arg(value_name = "FILE", required_unless_present = "query", conflicts_with = "query")]
    file: Option<PathBuf>,

    /// Send the rows of a SELECT over the warehouse: SELECT external_user_id AS "userId", ... AS "attributes.plan"
    #[arg(long, value_name = "SQL")]
    query: Option<String>,

    /// Format of FILE [default: by the extension of its name; ndjson for '-']
    #[arg(long, value_enum)]
    format: Option<FormatArg>,

    /// Encoding of a text without a byte order mark, for example windows-1252 for Excel's plain 'CSV' [default: utf-8]
    #[arg(long, value_name = "NAME", value_parser = parse_encoding)]
    encoding: Option<Encoding>,

    /// File for the result of each row, as CSV [default: FILE.results.csv, else users-push.results.csv]. If this push
    /// ends early, the file of an earlier push is kept as FILE.1, FILE.2 and so on
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,

    /// Read, check and look up every row, and report what would be sent; send nothing
    #[arg(long)]
    dry_run: bool,

    /// Send events with an unknown result again: the service may then count them twice
    #[arg(long)]
    resend_events: bool,

    /// Send rows with a known result again (refused rows, or rows that later content replaced); without their events
    /// unless --resend-events
    #[arg(long)]
    again: bool,

    /// Print one JSON object on stdout when the push ends
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FormatArg {
    Csv,
    Ndjson,
    Parquet,
}

fn parse_encoding(name: &str) -> Result<Encoding, String> {
    Encoding::named(name).ok_or_else(|| {
        format!("there is no encoding '{name}'; known encodings are utf-8, utf-16le, windows-1252 and others")
    })
}

impl From<FormatArg> for PushFormat {
    fn from(format: FormatArg) -> Self {
        match format {
            FormatArg::Csv => PushFormat::Csv,
            FormatArg::Ndjson => PushFormat::Ndjson,
            FormatArg::Parquet => PushFormat::Parquet,
        }
    }
}

/// Pushes the users, or only checks them with --dry-run. Prints the summary and returns the exit code.
pub(super) async fn run(args: PushArgs, context: Context) -> Result<u8, CommandError> {
    let settings = args.locations.settings(&context).limits(&args.limits).build()?;
    let request = PushRequest {
        input: input_of(&args)?,
        results: results_of(&args),
        is_dry_run: args.dry_run,
        resends_events: args.resend_events,
        sends_again: args.again,
    };
    if matches!(request.input, PushInput::Query(_)) {
        settings.require_warehouse()?;
    }
    let (report, outcome) = match args.dry_run {
        true => (push_dry(&settings, &request)?, Ok(())),
        false => {
            let signals = SignalHandler::start();
            let stop = signals.token();
            let push = until_stopped(&signals.token(), move || Push::open(settings, request, stop)).await??;
            let _line = progress::show_text(&context, progress_text(&push));
            push.execute().await
        }
    };
    let reported = context.report(args.json, &report, summary);
    outcome?;
    reported?;
    Ok(report.header.exit_code)
}

/// Returns the input that the arguments name: a query, standard input or a file. Fails if there is none, or if its
/// format is unknown or does not fit.
fn input_of(args: &PushArgs) -> Result<PushInput, CommandError> {
    let format = args.format.map(PushFormat::from);
    let usage = |problem: String| Err(CommandError::Usage(problem));
    let input_format = |format| InputFormat { format, encoding: args.encoding };
    match (&args.query, &args.file) {
        (Some(_), _) if format.is_some() => usage("--format is the format of a file, and there is no file".to_owned()),
        (Some(sql), _) => Ok(PushInput::Query(sql.clone())),
        (None, Some(file)) if file == Path::new("-") => match format.unwrap_or(PushFormat::Ndjson) {
            PushFormat::Parquet => usage("Parquet cannot be read from standard input: name a file".to_owned()),
            format => Ok(PushInput::Stdin(input_format(format))),
        },
        (None, Some(file)) => match format.or(PushFormat::of(file)) {
            Some(format) => Ok(PushInput::File(file.clone(), input_format(format))),
            None => usage(format!(
                "the format of {} is unknown: name it .csv, .ndjson, .jsonl or .parquet, or add --format",
                file.display()
            )),
        },
        (None, None) => usage("name a file, '-' or a --query".to_owned()),
    }
}

fn results_of(args: &PushArgs) -> PathBuf {
    if let Some(results) = &args.results {
        return results.clone();
    }
    match args.file.as_deref().filter(|file| *file != Path::new("-")) {
        None => PathBuf::from(RESULTS),
        Some(file) => {
            let mut name = file.as_os_str().to_owned();
            name.push(".results.csv");
            PathBuf::from(name)
        }
    }
}

fn progress_text(push: &Push) -> impl FnMut() -> String + Send + 'static {
    let (rows, source) = (push.watch(), push.source().clone());
    move || {
        let now = rows();
        let wait = source.current_wait().map(|waiting| {
            let left = waiting.until.saturating_duration_since(tokio::time::Instant::now());
            format!("  waiting {:.1} s", left.as_secs_f64())
        });
        let requests = source.request_stats().total;
        let (read, requests) = (counted(now.read, "row"), counted(requests, "request"));
        let text = format!("{read} read, {} accepted, {} known, {requests}", now.accepted, now.known);
        text + &wait.unwrap_or_default()
    }
}

fn summary(report: &PushReport) -> String {
    let rows = &report.rows;
    let counts = nonzero_counts(&[
        (rows.accepted, "accepted"),
        (rows.known, "known from an earlier push and not sent again"),
        (rows.would_send, "would be sent"),
        (rows.refused, "REFUSED by the service"),
        (rows.set_aside, "SET ASIDE"),
        (rows.unknown, "with an UNKNOWN result: run the same command again"),
        (rows.not_sent, "not sent"),
    ]);
    let mut text = format!(
        "users push{} {}: {} read, {} in {:.1} s\n  {}\n",
        if report.dry_run { " (dry run)" } else { "" },
        outcome_words(report.header.outcome.name()),
        counted(rows.read, "row"),
        counted(report.requests.total, "request"),
        report.header.secs(),
        counts.unwrap_or_else(|| "nothing to do".to_owned())
    );
    let notes = [
        (
            rows.sent_unknown,
            "rows were sent, and the result of a send is unknown; some may be sent twice (unknown_sends)",
        ),
        (rows.events_unknown, "rows have events with an unknown result; --resend-events sends the events again"),
        (
            rows.known_and_overtaken,
            "of the known rows were replaced by later content for the same user; --again sends them",
        ),
    ];
    for (count, note) in notes.iter().filter(|(count, _)| *count > 0) {
        text.push_str(&format!("  {count} {note}\n"));
    }
    text.push_str(&stopped_line(report.stopped_because.as_ref()));
    if !report.results.is_empty() {
        text.push_str(&format!("  result of each row: {}\n", report.results));
    }
    text
}
