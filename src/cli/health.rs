//! `studysync health`: asks a running `serve` for `/healthz`, or `/readyz`.
//! For container engines and monitors on a machine without curl.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

use clap::Args;

use super::{CommandError, Context, flags::PlaceFlags};

/// Longest wait for the connection, and for each part of the answer.
const WAIT_MAX: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Asks the `serve` of this machine for its health, and prints the answer.
///
/// Sends GET /healthz to the address of `serve` in the configuration, or to --listen; with --ready GET /readyz.
/// The answer is one line of JSON.
///
/// Exit codes: 0 serve is well, or with --ready can store deliveries; 1 it is not, or does not answer;
/// 2 usage or configuration.
#[derive(Args, Debug)]
pub(super) struct HealthArgs {
    /// Address that `serve` listens on [default: 127.0.0.1:8788]
    #[arg(long, value_name = "ADDRESS", help_heading = "Locations")]
    listen: Option<SocketAddr>,

    /// Ask only whether deliveries can be stored: a restart can repair that
    #[arg(long)]
    ready: bool,

    #[command(flatten)]
    place: PlaceFlags,
}

pub(super) fn run(args: &HealthArgs, context: Context) -> Result<u8, CommandError> {
    let listen = match args.listen {
        Some(listen) => listen,
        None => args.place.given(&context).settings()?.serve.listen,
    };
    if listen.port() == 0 {
        return Err(CommandError::Usage(
            "port 0 is no address to ask: name the port of `serve` with --listen".to_owned(),
        ));
    }
    let address = reachable(listen);
    let path = if args.ready { "/readyz" } else { "/healthz" };
    let answer =
        ask(address, path).map_err(|source| CommandError::failed(format!("no answer from {address}"), source))?;
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body.trim());
    match answer.split_whitespace().nth(1) {
        Some("200") => context.printer.print(body).map(|()| 0),
        Some("503") => {
            context.printer.print(body)?;
            Err(CommandError::Refused("serve is not well".to_owned()))
        }
        _ => Err(CommandError::Refused(format!("{address} is no studysync serve: it has no {path}"))),
    }
}

/// The address to connect to. A server that listens on every address of the machine is asked on the loopback address.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Sends one request and reads the whole answer. A client library would bring TLS and a runtime for these few lines.
fn ask(address: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, WAIT_MAX)?;
    stream.set_read_timeout(Some(WAIT_MAX))?;
    stream.set_write_timeout(Some(WAIT_MAX))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer)?;
    Ok(answer)
}
