//! `studysync health`: requests `/healthz` or `/readyz` of a running `serve`, for container engines and monitors
//! without curl.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use clap::{Args, ValueEnum};
use serde_json::Value;

use crate::model::format_duration;

use super::{CommandError, Context, flags::LocationArgs, http::request, printer::outcome_words, terminal::wrapped};

/// Time limit for connecting, and for each read and each write.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Requests the health of a running `serve`, and prints the response.
///
/// Sends GET /healthz to the address of `serve` in the configuration, or to --listen; with --ready GET /readyz.
/// The response is one line of JSON. A terminal shows it as text: health and reasons, lags, last and next run.
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

    /// Form of the response [default: text on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    format: Option<HealthFormat>,

    #[command(flatten)]
    locations: LocationArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HealthFormat {
    Text,
    Json,
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
        .map_err(|source| CommandError::NoServe { address, source })?;
    match response.status {
        Some(200) => context.printer.print(&shown(args, &context, response.body)).map(|()| 0),
        Some(503) => {
            context.printer.print(&shown(args, &context, response.body))?;
            Err(CommandError::Refused("serve is not healthy".to_owned()))
        }
        _ => Err(CommandError::Refused(format!("the server at {address} is not studysync serve: it has no {path}"))),
    }
}

/// Returns the response in the wanted form. A response that is no JSON object is returned as it is.
fn shown(args: &HealthArgs, context: &Context, body: String) -> String {
    let default = if context.printer.is_terminal() { HealthFormat::Text } else { HealthFormat::Json };
    match (args.format.unwrap_or(default), serde_json::from_str::<Value>(&body)) {
        (HealthFormat::Text, Ok(health)) if health.is_object() => describe(&health),
        _ => body,
    }
}

/// Returns the health as text. Members that the response does not have are left out: `/readyz` has only a status.
fn describe(health: &Value) -> String {
    let text_of = |name: &str| health[name].as_str().map(str::to_owned);
    let line = |label: &str, text: Option<String>| {
        let text = text.map(|text| text.replace(|letter: char| letter.is_control(), " "));
        text.map(|text| wrapped(&format!("{label:<9} {text}"), "", "          ")).unwrap_or_default()
    };
    let reasons = health["reasons"].as_array().map_or(&[][..], Vec::as_slice);
    // The status of a bad health repeats the first failing reason.
    let is_reason =
        |status: &String| reasons.iter().any(|reason| reason["text"].as_str() == status.strip_prefix("error: "));
    let status = text_of("status").map(|status| if is_reason(&status) { "FAILING".to_owned() } else { status });
    let mut text = line("health", status);
    for reason in reasons {
        let kind = if reason["is_failing"] == true { "failing" } else { "note" };
        text.push_str(&line(kind, reason["text"].as_str().map(str::to_owned)));
        text.push_str(&line("", reason["hint"].as_str().map(|hint| format!("hint: {hint}"))));
    }
    let lags = health["lag_secs"].as_object().map(|lags| {
        let lag = |secs: &Value| secs.as_u64().map_or("nothing is complete".to_owned(), format_duration);
        lags.iter().map(|(stream, secs)| format!("{stream} {}", lag(secs))).collect::<Vec<_>>().join("; ")
    });
    text.push_str(&line("lag", lags));
    text.push_str(&line("running", text_of("running")));
    let last_run = &health["last_run"];
    let last_run = last_run["command"].as_str().zip(last_run["outcome"].as_str()).map(|(command, outcome)| {
        let ended = last_run["finished_at"].as_str().map(|at| format!(", ended {at}")).unwrap_or_default();
        format!("{command}: {}{ended}", outcome_words(outcome))
    });
    text.push_str(&line("last run", last_run));
    text.push_str(&line("succeeded", text_of("last_success_at")));
    text.push_str(&line("next run", text_of("next_run_at")));
    let waiting = health["waiting_deliveries"].as_u64().filter(|count| *count > 0);
    text + &line("waiting", waiting.map(|count| format!("{count} webhook deliveries, not in the warehouses yet")))
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
