//! `studysync serve`: receives webhooks and runs `sync` by a schedule, until a signal.

use std::net::SocketAddr;

use clap::Args;

use crate::{pipeline::System, serve::Server};

use super::{
    CommandError, Context,
    flags::{LimitArgs, LocationArgs, SelectionArgs},
    report,
    signals::SignalHandler,
};

/// Receives webhooks and runs `sync` on a schedule.
///
/// It runs until Ctrl-C or SIGTERM. SIGHUP ends a `serve` that was started in a terminal; without a terminal, `serve`
/// goes on. SIGUSR1 and SIGUSR2 change nothing.
///
/// Each delivery is stored on disk before the response 200. It is in the table webhook_events within a minute, and
/// starts a scan of the data that it reports. `[serve]` in the configuration sets the address, the schedule and the
/// source of the webhooks' secret (default: the environment variable STUDYSYNC_WEBHOOK_SECRET). `serve` speaks plain
/// HTTP: put a TLS proxy in front of it that forwards only the path of webhooks. When it is ready, it prints one line
/// to stdout: `listening on http://ADDRESS`.
///
/// GET /healthz is red (503) when someone must act: nightly runs fail, the lag of a stream is too large, or deliveries
/// cannot be stored. Its JSON names the reasons. /readyz is red while deliveries cannot be stored, the only failure
/// that a restart may repair. /metrics is for Prometheus.
///
/// The status page is at /, and as JSON at /api/status. On an address other than loopback it needs a token of 16
/// characters or more (default: the environment variable STUDYSYNC_STATUS_TOKEN),
/// or status_page = "off" under `[serve]`.
///
/// At its start `serve` requests one row, to test the key: a refused key makes /healthz red at once. The log has the
/// address of the status page, the start and the end of each run, and refused deliveries, at most one line a minute for
/// each reason.
///
/// After missed or killed runs, one run starts at once. While another process holds the lease (for example a manual
/// backfill), deliveries wait in the inbox, and a due run waits for the next time of the schedule. A failed run is
/// retried, but not before the service's Retry-After. The next time of the schedule always starts a run.
///
/// `report` under `[serve]` names a file that `serve` replaces with the page of `studysync report`, by
/// `report_schedule`. A notification names the file.
///
/// Exit codes: 0 stopped by a signal; 1 failed: the inbox cannot be used or the address is in use; 2 usage or
/// configuration; 5 another `serve` uses the same state file.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync serve
  studysync serve --config /etc/studysync/studysync.toml")]
pub(super) struct ServeArgs {
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8788]
    #[arg(long, value_name = "ADDRESS", help_heading = "Locations")]
    listen: Option<SocketAddr>,

    #[command(flatten)]
    locations: LocationArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    limits: LimitArgs,
}

/// Starts `serve`, prints its address, and runs it until a signal.
pub(super) async fn run(args: ServeArgs, context: Context) -> Result<u8, CommandError> {
    let mut settings = args.locations.settings(&context).selection(&args.selection).limits(&args.limits).build()?;
    settings.serve.listen = args.listen.unwrap_or(settings.serve.listen);
    let webhooks = settings.serve.webhook.clone().unwrap_or_else(|| "off".to_owned());
    let schedule = settings.serve.schedule.clone().unwrap_or_else(|| "off".to_owned());
    let report = report::scheduled(&settings)?;
    // Before anything else: in a container, the kernel drops signals for process 1 that have no handler.
    let signals = SignalHandler::for_service();
    let mut server = Server::bind(settings, System::default(), &signals.token()).await?;
    if let Some(write) = report {
        server = server.with_report(write)?;
    }
    let address = server.address().map_err(CommandError::failed("the address is unknown"))?;
    context.printer.print(&format!("listening on http://{address}"))?;
    let status_page = if server.has_status_page() { format!("http://{address}/") } else { "off".to_owned() };
    tracing::info!(status_page, webhooks, schedule, "serve is ready");
    server.run(signals.token()).await?;
    Ok(0)
}
