//! `studysync serve`: the receiver of webhooks and the schedule, until a signal.

use std::net::SocketAddr;

use clap::Args;
use tokio_util::sync::CancellationToken;

use crate::{pipeline::System, serve::Server};

use super::{
    CommandError, Context,
    flags::{EffortFlags, PlaceFlags, StreamFlags, SurveyFlags},
    sync::stop_on_signal,
};

/// Receives webhooks and runs `sync` on a schedule.
///
/// It runs until Ctrl-C or SIGTERM.
///
/// A delivery is on disk before the response 200, is in the table webhook_events within a minute, and starts a scan of
/// what it tells about. `[serve]` in the configuration says where to listen, when to run and where the webhooks' secret
/// is (the environment variable STUDYSYNC_WEBHOOK_SECRET unless set otherwise). It speaks plain HTTP: put a TLS proxy
/// in front of it that forwards the webhook's path only. When it is ready it prints one line to stdout: `listening on
/// http://ADDRESS`.
///
/// GET /healthz is red (503) when somebody has to act: nights fail, a stream has too large a lag, deliveries cannot be
/// stored; its JSON names the reasons. /readyz is red while deliveries cannot be stored, the only failure that a
/// restart may mend. /metrics is for Prometheus.
///
/// / is a status page for people, /api/status the same as JSON. On another address than loopback it needs a token of 16
/// characters or more (the environment variable STUDYSYNC_STATUS_TOKEN unless set otherwise),
/// or status_page = "off" under `[serve]`.
///
/// A run that was missed or killed is caught up once. While another process holds the lease (a backfill by hand),
/// deliveries wait in the inbox and the run waits for the next time of the schedule. A failed run is retried, not
/// before the service's Retry-After. The next time of the schedule always starts a run.
///
/// Exit codes: 0 stopped by a signal; 1 failed: the inbox cannot be used or the address is taken; 2 usage or
/// configuration; 5 another `serve` is at work with the same state file.
#[derive(Args, Debug)]
pub(super) struct ServeArgs {
    /// Address to listen on; port 0 takes a free one [default: 127.0.0.1:8788]
    #[arg(long, value_name = "ADDRESS", help_heading = "Locations")]
    listen: Option<SocketAddr>,

    #[command(flatten)]
    place: PlaceFlags,

    #[command(flatten)]
    streams: StreamFlags,

    #[command(flatten)]
    surveys: SurveyFlags,

    #[command(flatten)]
    effort: EffortFlags,
}

pub(super) async fn run(args: ServeArgs, context: Context) -> Result<u8, CommandError> {
    let mut settings =
        args.place.given(&context).streams(&args.streams).surveys(&args.surveys).effort(&args.effort).settings()?;
    settings.serve.listen = args.listen.unwrap_or(settings.serve.listen);
    // First of all: as process 1 of a container the kernel drops a signal that nobody handles yet.
    let stop = CancellationToken::new();
    let signals = tokio::spawn(stop_on_signal(stop.clone()));
    let server = Server::bind(settings, System::default()).await.map_err(CommandError::Serve)?;
    let address = server.address().map_err(|source| CommandError::failed("the address cannot be told", source))?;
    context.printer.print(&format!("listening on http://{address}"))?;
    let outcome = server.run(stop).await;
    signals.abort();
    outcome.map_err(CommandError::Serve)?;
    Ok(0)
}
