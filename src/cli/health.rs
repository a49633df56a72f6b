//! `studysync health`: requests `/healthz` or `/readyz` of a running `serve`, for container engines and monitors
//! without curl.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use clap::Args;

use super::{CommandError, Context, flags::LocationArgs};

/// Time limit of the connection, and of each read and write.
const TIMEOUT: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Requests the health of a running `serve`, and prints the response.
///
/// Sends GET /healthz to the address of `serve` in the configuration, or to --listen; with --ready GET /readyz.
/// The response is one line of JSON.
///
/// Exit codes: 0 serve is healthy, or with --ready can store deliveries; 1 it is not, or does not answer;
/// 2 usage or configuration.
#[derive(Args, Debug)]
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
    let answer =
        get(address, path).map_err(|source| CommandError::failed(format!("no answer from {address}"), source))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body.trim());
    match answer.split_whitespace().nth(1) {
        Some("200") => context.printer.print(body).map(|()| 0),
        Some("503") => {
            context.printer.print(body)?;
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

/// Sends one request and reads the complete response. A client library would bring TLS and a runtime for these lines.
fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}
