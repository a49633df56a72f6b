//! `studysync sandbox`: runs the sandbox service until Ctrl-C, SIGTERM or SIGHUP. `crates/sandbox/README.md` documents
//! it.

use std::{io, net::SocketAddr};

use chrono::DateTime;
use clap::{Args, ValueEnum};
use studysync_sandbox::{EndMark, Faults, Order, RateLimit, Rough, Sandbox, Settings, Ties};

use super::{CommandError, Context, printer::write_stderr, signals::next_signal};
use crate::{clock, model::format_ms};

/// Runs a stand-in for the service with generated data.
///
/// Every command can use it with `--base-url http://127.0.0.1:8787` and the key `sandbox-key`. When the sandbox is
/// ready, it prints one line to stdout: `listening on http://ADDRESS`. Control calls (clock, changes, faults, request
/// log, the true rows) are under `/_sandbox/`.
///
/// The sandbox keeps nothing on disk. A restart has the same answers only with the same end of the history: without
/// --now and --history-end, a line on stderr has the flag for the next start.
///
/// Exit codes: 0 stopped by Ctrl-C, SIGTERM or SIGHUP; 1 the address is in use; 2 a setting is invalid.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  studysync sandbox --responses 10000
  studysync sandbox --data rough --listen 127.0.0.1:8080
  studysync sandbox --faults '{\"server_error\":{\"when\":{\"every\":10}}}'")]
pub(super) struct SandboxArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8787")]
    pub listen: SocketAddr,

    /// Exact number of responses to generate
    #[arg(long, value_name = "N", default_value_t = Settings::default().responses)]
    pub responses: u64,

    /// Days of history
    #[arg(long, value_name = "N", default_value_t = Settings::default().days)]
    pub days: u32,

    /// Surveys to generate
    #[arg(long, alias = "studies", value_name = "N", default_value_t = Settings::default().surveys)]
    pub surveys: u32,

    /// Seed of the data; the same settings give the same rows
    #[arg(long, value_name = "N", default_value_t = Settings::default().seed)]
    pub seed: u64,

    /// The service's clock at the start: RFC 3339 or epoch milliseconds [default: this machine's time]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub now: Option<i64>,

    /// End of the generated history: RFC 3339 or epoch milliseconds [default: the clock at the start]
    #[arg(long, value_name = "TIME", value_parser = parse_moment)]
    pub history_end: Option<i64>,

    /// Stop the service's clock; control calls can still set it
    #[arg(long)]
    pub frozen_clock: bool,

    /// The key that is accepted
    #[arg(long, value_name = "KEY", default_value_t = Settings::default().api_key)]
    pub api_key: String,

    /// Stop when standard input ends, so that the sandbox does not outlive the program that started it
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,

    /// Kind of data
    #[arg(long, value_enum, default_value = "smooth")]
    pub data: DataArg,

    /// Order of lists [default: newest-first; shuffled for rough data]
    #[arg(long, value_enum)]
    pub order: Option<OrderArg>,

    /// Treatment of rows that share a millisecond at a page boundary
    #[arg(long, value_enum, default_value = "kept")]
    pub ties: TiesArg,

    /// Responses that share each millisecond; 0 keeps the generated times
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub ties_per_ms: u32,

    /// Form of the cursor of the last page
    #[arg(long, value_enum, default_value = "null")]
    pub end_style: EndStyleArg,

    /// Requests per second that are answered; others get a 429; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    pub rate_limit: f64,

    /// Burst of requests that --rate-limit allows
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub burst: u32,

    /// Delay of each response, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 0)]
    pub latency_ms: u64,

    /// Compress responses for clients that accept gzip
    #[arg(long)]
    pub gzip: bool,

    /// Serve the recordings of recorded answers
    #[arg(long)]
    pub media: bool,

    /// Share of responses with unusual values, 0.0 to 1.0
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub hostile_share: f64,

    /// Bytes of text that each response carries in addition
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub text_bytes: u32,

    /// Faults as JSON; they win over the flags above. Example: '{"server_error":{"when":{"every":10}}}'
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub faults: String,
}

/// Kind of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum DataArg {
    /// Evenly distributed
    Smooth,
    /// Sessions at boundaries of hours and days, equal milliseconds, sessions over days, records that are rejected,
    /// duplicate keys, snapshots that differ within a session, longer texts
    Rough,
}

/// Order of lists.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum OrderArg {
    /// The newest row first
    NewestFirst,
    /// The oldest row first
    OldestFirst,
    /// A fixed order that is not by time
    Shuffled,
}

/// Treatment of rows that share a millisecond at a page boundary.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum TiesArg {
    /// Each row is sent once
    Kept,
    /// The rows are sent again
    Repeated,
    /// The rows are never sent
    Lost,
}

/// Form of the cursor of the last page.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum EndStyleArg {
    /// `cursor` is null
    Null,
    /// There is no `cursor`
    Missing,
    /// `cursor` is an empty text
    Empty,
}

/// Runs the sandbox until Ctrl-C, SIGTERM or SIGHUP.
pub(super) async fn run(args: SandboxArgs, context: Context) -> Result<u8, CommandError> {
    let now_ms = args.now.unwrap_or_else(clock::now_ms);
    let settings = settings(&args, now_ms).map_err(CommandError::sandbox)?;
    let since_end_ms = now_ms.saturating_sub(settings.now_ms).unsigned_abs();
    let running = Sandbox::start(settings, args.listen).await.map_err(CommandError::sandbox)?;
    running.control().advance_clock(since_end_ms);
    if args.now.is_none() && args.history_end.is_none() {
        let end = format_ms(now_ms);
        write_stderr(&format!("the same answers after a restart: studysync sandbox ... --history-end {end}\n"));
    }
    context.printer.print(&format!("listening on {}", running.base_url()))?;
    tokio::select! {
        signal = next_signal() => signal.map_err(CommandError::sandbox)?,
        () = stdin_ended(), if args.until_stdin_ends => {}
    }
    running.shutdown().await;
    Ok(0)
}

/// Returns the settings of the sandbox, with the end of the history as its time. The JSON of --faults is merged over
/// the other flags.
fn settings(args: &SandboxArgs, now_ms: i64) -> io::Result<Settings> {
    let invalid = |problem: String| io::Error::new(io::ErrorKind::InvalidInput, problem);
    let history_end_ms = args.history_end.unwrap_or(now_ms);
    if history_end_ms > now_ms {
        return Err(invalid(format!("--history-end is after the clock at the start, {}", format_ms(now_ms))));
    }
    let mut faults = Faults {
        seed: args.seed,
        order: match args.order {
            None if args.data == DataArg::Rough => Order::Shuffled,
            None | Some(OrderArg::NewestFirst) => Order::NewestFirst,
            Some(OrderArg::OldestFirst) => Order::OldestFirst,
            Some(OrderArg::Shuffled) => Order::Shuffled,
        },
        ties: match args.ties {
            TiesArg::Kept => Ties::Kept,
            TiesArg::Repeated => Ties::Repeated,
            TiesArg::Lost => Ties::Lost,
        },
        end_mark: match args.end_style {
            EndStyleArg::Null => EndMark::Null,
            EndStyleArg::Missing => EndMark::Missing,
            EndStyleArg::Empty => EndMark::Empty,
        },
        gzip: args.gzip,
        rate_limit: RateLimit { per_second: args.rate_limit, burst: args.burst, ..RateLimit::default() },
        ..Faults::default()
    };
    faults.latency.ms = args.latency_ms;
    faults.media.is_served = args.media;
    let patch =
        serde_json::from_str(&args.faults).map_err(|error| invalid(format!("--faults is not JSON: {error}")))?;
    let faults = faults.merged(patch).map_err(|error| invalid(format!("--faults: {error}")))?;
    Ok(Settings {
        seed: args.seed,
        now_ms: history_end_ms,
        frozen_clock: args.frozen_clock,
        responses: args.responses,
        days: args.days,
        surveys: args.surveys,
        hostile_share: args.hostile_share,
        ties_per_ms: args.ties_per_ms,
        rough: (args.data == DataArg::Rough).then(Rough::default),
        text_bytes: args.text_bytes,
        api_key: args.api_key.clone(),
        faults,
        ..Settings::default()
    })
}

/// Returns when standard input ends or cannot be read.
async fn stdin_ended() {
    let ended = tokio_util::sync::CancellationToken::new();
    let cancel = ended.clone();
    std::thread::spawn(move || {
        io::copy(&mut io::stdin(), &mut io::sink()).ok();
        cancel.cancel();
    });
    ended.cancelled().await;
}

fn parse_moment(text: &str) -> Result<i64, String> {
    if let Ok(at_ms) = text.parse() {
        return Ok(at_ms);
    }
    let moment = DateTime::parse_from_rfc3339(text);
    moment
        .map(|moment| moment.timestamp_millis())
        .map_err(|_| "write 2026-01-31T08:00:00Z or epoch milliseconds".into())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    const NOW_MS: i64 = 1_769_847_330_123;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        sandbox: SandboxArgs,
    }

    fn parsed(flags: &[&str]) -> io::Result<Settings> {
        let args = Program::try_parse_from([&["x"], flags].concat()).map_err(io::Error::other)?.sandbox;
        settings(&args, args.now.unwrap_or(NOW_MS))
    }

    #[test]
    fn flags_become_settings_and_json_wins() {
        let made = parsed(&["--now", "2026-01-31T08:15:30.123Z", "--order", "shuffled", "--latency-ms", "5"]).unwrap();
        assert_eq!((made.now_ms, made.faults.order), (1_769_847_330_123, Order::Shuffled));
        assert_eq!(made.faults.latency.ms, 5);
        let made = parsed(&["--latency-ms", "5", "--faults", r#"{"latency":{"ms":7}}"#]).unwrap();
        assert_eq!(made.faults.latency.ms, 7);
        assert!(parsed(&["--faults", r#"{"latencies":1}"#]).unwrap_err().to_string().contains("latencies"));
        assert!(parsed(&["--now", "yesterday"]).is_err());
        let made = parsed(&["--data", "rough"]).unwrap();
        assert_eq!((made.rough, made.faults.order), (Some(Rough::default()), Order::Shuffled));
        let made = parsed(&["--data", "rough", "--order", "oldest-first"]).unwrap();
        assert_eq!(made.faults.order, Order::OldestFirst);
        assert_eq!(parsed(&[]).unwrap().rough, None);
        assert_eq!(parsed(&["--history-end", "1769800000000"]).unwrap().now_ms, 1_769_800_000_000);
        let after = parsed(&["--history-end", "1769900000000"]).unwrap_err().to_string();
        assert_eq!(after, "--history-end is after the clock at the start, 2026-01-31T08:15:30.123Z");
    }
}
