//! `studysync health`: requests `/healthz` or `/readyz` of a running `serve`, for container engines and monitors
//! without curl.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use clap::Args;

use super::{CommandError, Context, flags::LocationArgs, http::request};

/// Time limit for connecting, and for each read and each write.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests the health of a running `serve`, and prints the response.
///
/// Sends GET /healthz to the address of `serve` in the configuration, or to --listen; with --ready GET /readyz.
/// The response is one line of JSON.
///
/// Exit codes: 0 serve is healthy, or with --ready can store deliveries; 1 it is not, or does not answer;
/// 2 usage or configuration.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync health
  studysync health --ready --listen 127.0.0.1:8788")]
pub(super) struct HealthArgs {
    /// Address that `serve` listens on [default: 127.0.0.1:8788]
    #[arg(long, value_name = "ADDRESS", help_heading = "Locations")]
    listen: Option<SocketAddr>,

    /// Request only whether deliveries can be stored; if not, a restart may help
    #[arg(long)]
    ready: bool,

    #[command(flatten)]
    locations: LocationArgs,
}

/// Requests the health of `serve` and prints the response. Any status other than 200 is an error.
pub(super) fn run(args: &HealthArgs, context: Context) -> Result<u8, CommandError> {
    let listen = match args.listen {
        Some(listen) => listen,
        None => args.locations.settings(&context).build()?.serve.listen,
    };
    if listen.port() == 0 {
        return Err(CommandError::Usage(
            "port 0 is not the address of a server: name the port of `serve` with --listen".to_owned(),
        ));
    }
    let address = reachable(listen);
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let response = request(address, &format!("GET {path}"), "", TIMEOUT)
        .map_err(CommandError::failed(format!("no answer from {address}")))?;
    match response.status {
        Some(200) => context.printer.print(&response.body).map(|()| 0),
        Some(503) => {
            context.printer.print(&response.body)?;
            Err(CommandError::Refused("serve is not healthy".to_owned()))
        }
        _ => Err(CommandError::Refused(format!("the server at {address} is not studysync serve: it has no {path}"))),
    }
}

/// Returns the address to connect to: the loopback address for a server that listens on all addresses.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}
