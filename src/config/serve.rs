//! `[serve]`: the receiver of webhooks, the schedule and the status page.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use chrono::{DateTime, Utc};
use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};

use crate::{
    model::{TimeZone, parse_duration},
    redact::ApiKey,
};

use super::{
    declare::{DAY_SECS, example, table},
    error::{ConfigError, invalid},
    secret::{SecretKeys, SecretSource, read_secret},
};

const LISTEN: &str = "127.0.0.1:8788";
/// The value that switches off a setting which otherwise takes a path, a schedule or a length of time.
const OFF: &str = "off";
const REPORT_SCHEDULE: &str = "0 6 * * *";
const WEBHOOK_PATH: &str = "/webhook";
const STATUS_TOKEN_ENV: &str = "STUDYSYNC_STATUS_TOKEN";
/// A shorter token could be guessed.
const STATUS_TOKEN_BYTES_MIN: usize = 16;
const JITTER_SECS_MAX: u64 = 6 * 3600;
/// Paths that `serve` uses itself.
const RESERVED_PATHS: [&str; 9] =
    ["/", "/healthz", "/readyz", "/metrics", "/events", "/login", "/api/status", "/status.css", "/status.js"];

table! {
    ServeTable {
        "`studysync serve` receives webhooks of the service and runs `sync` by a schedule. It speaks plain HTTP: put a TLS proxy in front of it."
        "The address to listen on."
        listen: String = LISTEN.into();
        r#"The path that receives webhooks, or "off"."#
        webhook: String = WEBHOOK_PATH.into();
        "The environment variable with the bearer secret of webhooks."
        token_env: String = "STUDYSYNC_WEBHOOK_SECRET".into();
        "A file that contains only the secret, instead of the variable."
        token_file: Option<PathBuf> => example("/run/secrets/studysync-webhook");
        "A command line for /bin/sh that prints the secret, instead of the variable."
        token_command: Option<String> => example("vault kv get -field=webhook secret/studysync");
        "The `environmentId` of the webhooks to accept; without it, the one of the first webhook. Webhooks of other environments are stored as"
        "other_environment and change nothing."
        environment_id: Option<String> => example("12345");
        r#"When `sync` runs: minute, hour, day of month, month, day of week; or "off". After missed runs, one run starts at once."#
        schedule: String = "0 2 * * *".into();
        "The time zone of the schedule. Without it: report_time_zone of [warehouse], or UTC."
        timezone: Option<String> => example("Europe/Berlin");
        "The largest random delay of a scheduled run, so that not all clients send requests at the full hour."
        jitter_secs: u64 = 60;
        "A webhook starts a scan of the data that it reports, after this time to collect further webhooks. 0 starts no scan."
        wake_secs: u64 = 60, in 0..=DAY_SECS;
        "Time to collect webhooks before they are written to the warehouses together."
        flush_secs: u64 = 30, in 0..=DAY_SECS;
        "A file that `serve` replaces with the page of `studysync report`. Whoever can read the file sees answers."
        report: Option<PathBuf> => example("report.html");
        "When the report is written; the forms are those of schedule. A time that passes while `serve` is stopped is left out."
        report_schedule: String = REPORT_SCHEDULE.into();
        "The flags of `studysync report`, without --out and locations."
        report_flags: Option<Vec<String>> => example(["--from", "30d", "--by", "browser"]);
        r#"The lag of a stream above which /healthz is red, after the first complete night; or "off". Without it: two hours more than the longest"#
        "time between two scheduled runs."
        max_lag: Option<String> => example("26h");
        r#"The status page at /: "on" or "off". On an address other than loopback it needs a token."#
        status_page: String = "on".into();
        "The environment variable with the token of the status page: 16 characters or more."
        status_token_env: String = STATUS_TOKEN_ENV.into();
        "A file that contains only the token of the status page, instead of the variable."
        status_token_file: Option<PathBuf> => example("/run/secrets/studysync-status");
        "A command line for /bin/sh that prints the token of the status page, instead of the variable."
        status_token_command: Option<String> => example("vault kv get -field=status secret/studysync");
    }
}

/// `[serve]`.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// True if the file or a variable sets something of `[serve]`.
    pub is_configured: bool,
    /// The address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The path that receives webhooks; `None` receives no webhooks.
    pub webhook: Option<String>,
    /// The source of the webhooks' secret.
    pub token_source: SecretSource,
    /// The service's id of the environment whose webhooks are accepted; `None` takes the environment of the first
    /// webhook.
    pub environment_id: Option<String>,
    /// The cron expression of `sync`; `None` runs nothing by schedule.
    pub schedule: Option<String>,
    /// The time zone of the schedule.
    pub timezone: String,
    /// The largest random delay of a scheduled run.
    pub jitter: Duration,
    /// Time to collect further webhooks before a webhook starts a scan. With zero, webhooks start no scan.
    pub wake: Duration,
    /// Time to collect further deliveries before they are written to the warehouses.
    pub flush: Duration,
    /// The report to write; `None` writes none.
    pub report: Option<ScheduledReport>,
    /// The lag of a stream above which `/healthz` reports a failure.
    pub max_lag: MaxLag,
    /// True if the status page is served.
    pub has_status_page: bool,
    /// The source of the status page's token.
    pub status_token_source: SecretSource,
}

/// `[serve] report`, `report_schedule` and `report_flags`.
#[derive(Clone, Debug)]
pub struct ScheduledReport {
    /// The file to replace.
    pub path: PathBuf,
    /// A cron expression.
    pub schedule: String,
    /// Flags of `studysync report`.
    pub flags: Vec<String>,
}

/// `[serve] max_lag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxLag {
    /// Two hours more than the longest time between two scheduled runs; 26 hours without a schedule.
    BySchedule,
    Fixed(Duration),
    /// No limit.
    Off,
}

impl ServeSettings {
    /// Returns the largest allowed lag of a stream; `None` means no limit. `by_schedule` is the limit if none is
    /// configured.
    pub fn max_lag(&self, by_schedule: Duration) -> Option<Duration> {
        match self.max_lag {
            MaxLag::BySchedule => Some(by_schedule),
            MaxLag::Fixed(max_lag) => Some(max_lag),
            MaxLag::Off => None,
        }
    }

    /// Reads the token of the status page; `None` if no token is configured.
    ///
    /// # Errors
    /// The configured source has no token, or the token is too short.
    pub fn status_token(&self) -> Result<Option<ApiKey>, ConfigError> {
        let missing = |variable: &str| ConfigError::NoStatusToken { variable: variable.to_owned() };
        match read_secret(&self.status_token_source, "[serve] status_token_command", missing) {
            Ok(token) if token.expose().len() < STATUS_TOKEN_BYTES_MIN => {
                let problem =
                    format!("the token has fewer than {STATUS_TOKEN_BYTES_MIN} characters: it could be guessed");
                Err(invalid(token.origin(), problem))
            }
            Ok(token) => Ok(Some(token)),
            Err(ConfigError::NoStatusToken { .. } | ConfigError::EmptyKey { .. })
                if self.has_default_status_token() =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns true if the configuration names no source of the status page's token.
    fn has_default_status_token(&self) -> bool {
        self.status_token_source == SecretSource::Variable(STATUS_TOKEN_ENV.to_owned())
    }

    /// Reads the secret of webhooks.
    ///
    /// # Errors
    /// The secret is not set, or its source cannot be read.
    pub fn token(&self) -> Result<ApiKey, ConfigError> {
        let missing = |variable: &str| ConfigError::NoWebhookSecret { variable: variable.to_owned() };
        read_secret(&self.token_source, "[serve] token_command", missing)
    }
}

/// Returns the settings of `[serve]`. The schedule is in `report_time_zone` unless it has a zone of its own.
pub(super) fn resolve(table: ServeTable, report_time_zone: Option<TimeZone>) -> Result<ServeSettings, ConfigError> {
    check_times(&table)?;
    let listen = table.listen.parse().map_err(|_| {
        invalid("[serve] listen", format!("'{}' is not an address with a port, such as {LISTEN}", table.listen))
    })?;
    if table.jitter_secs > JITTER_SECS_MAX {
        let problem = format!("{} is more than {JITTER_SECS_MAX}", table.jitter_secs);
        return Err(invalid("[serve] jitter_secs", problem));
    }
    let token_source = SecretKeys {
        table: "serve",
        name: "token",
        file: table.token_file,
        command: table.token_command,
        variable: table.token_env,
        noun: "the secret",
    };
    let status_token_source = SecretKeys {
        table: "serve",
        name: "status_token",
        file: table.status_token_file,
        command: table.status_token_command,
        variable: table.status_token_env,
        noun: "the token",
    };
    let has_status_page = match table.status_page.as_str() {
        "on" => true,
        OFF => false,
        other => return Err(invalid("[serve] status_page", format!("'{other}' is neither 'on' nor 'off'"))),
    };
    Ok(ServeSettings {
        is_configured: false,
        listen,
        webhook: webhook_path(table.webhook)?,
        token_source: token_source.resolve()?,
        environment_id: table.environment_id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()),
        report: table.report.map(|path| ScheduledReport {
            path,
            schedule: table.report_schedule,
            flags: table.report_flags.unwrap_or_default(),
        }),
        schedule: (table.schedule != OFF).then_some(table.schedule),
        timezone: table.timezone.unwrap_or_else(|| report_time_zone.unwrap_or_default().name().to_owned()),
        jitter: Duration::from_secs(table.jitter_secs),
        wake: Duration::from_secs(table.wake_secs),
        flush: Duration::from_secs(table.flush_secs.max(1)),
        has_status_page,
        status_token_source: status_token_source.resolve()?,
        max_lag: match table.max_lag.as_deref() {
            None => MaxLag::BySchedule,
            Some(OFF) => MaxLag::Off,
            Some(text) => MaxLag::Fixed(parse_duration(text).map_err(|problem| invalid("[serve] max_lag", problem))?),
        },
    })
}

/// Parses a cron expression of five fields (`0 2 * * *`, also `@daily`). The error says what is wrong.
pub fn parse_cron(expression: &str) -> Result<Cron, String> {
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    let cron = parser.parse(expression).map_err(|error| error.to_string())?;
    // Rejects an expression that is never due, such as 30 February.
    match cron.find_next_occurrence(&DateTime::<Utc>::UNIX_EPOCH, false) {
        Ok(_) => Ok(cron),
        Err(_) => Err("no such day ever comes".to_owned()),
    }
}

/// Checks the schedules and the time zone of the table.
fn check_times(table: &ServeTable) -> Result<(), ConfigError> {
    let check = |setting: &str, expression: &str| {
        parse_cron(expression).map(drop).map_err(|why| bad_schedule(setting, expression, &why))
    };
    if table.schedule != OFF {
        check("[serve] schedule", &table.schedule)?;
    }
    if table.report.is_some() {
        check("[serve] report_schedule", &table.report_schedule)?;
    }
    match &table.timezone {
        Some(zone) => zone.parse::<TimeZone>().map(drop).map_err(|problem| invalid("[serve] timezone", problem)),
        None => Ok(()),
    }
}

fn bad_schedule(setting: &str, expression: &str, why: &str) -> ConfigError {
    invalid(setting, format!("'{expression}' is not a time of five fields, such as '0 2 * * *': {why}"))
}

/// Returns the path that receives webhooks; `None` if webhooks are off.
///
/// # Errors
/// The text is no path, or `serve` uses the path itself.
fn webhook_path(path: String) -> Result<Option<String>, ConfigError> {
    if path == OFF {
        return Ok(None);
    }
    if !path.starts_with('/') || path.contains(['?', '#', '{', '}', '*']) {
        let problem = format!("'{path}' is not a path such as {WEBHOOK_PATH}, nor '{OFF}'");
        return Err(invalid("[serve] webhook", problem));
    }
    if let Some(problem) = path_problem(&path) {
        return Err(invalid("[serve] webhook", format!("'{path}' {problem}")));
    }
    if RESERVED_PATHS.contains(&path.as_str()) {
        let problem = format!("serve uses '{path}' itself: set another path, such as {WEBHOOK_PATH}");
        return Err(invalid("[serve] webhook", problem));
    }
    Ok(Some(path))
}

/// Returns why no request can have this path; `None` if one can. Clients send a path as it stands in the address, so a
/// path that a client would send in another form would never match.
fn path_problem(path: &str) -> Option<String> {
    if path.split('/').any(|segment| matches!(segment, "." | "..")) {
        return Some("has a part . or .., which clients remove before they send a path".to_owned());
    }
    let is_escape = |rest: &[u8]| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit);
    let mut escapes = path.match_indices('%');
    if escapes.any(|(at, _)| !is_escape(&path.as_bytes()[at + 1..])) {
        return Some("has a % without two hexadecimal digits: write the sign % as %25".to_owned());
    }
    let is_usual = |letter: char| letter.is_ascii_alphanumeric() || "/-._~!$&'()+,;=:@%".contains(letter);
    path.chars().find(|letter| !is_usual(*letter)).map(|letter| {
        let mut bytes = [0; 4];
        let escaped: String = letter.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect();
        format!("has the character {letter:?}, which clients send as {escaped}: write that")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_path_can_be_requested_or_is_refused() {
        let path = |path: &str| webhook_path(path.to_owned()).map_err(|error| error.to_string());
        for usual in ["/webhook", "/:id", "/a/:id/b", "/a%20b", "/w%C3%A9b", "/a.b/~c@d,e;f=(g)!", "/metrics/"] {
            assert_eq!(path(usual).unwrap().as_deref(), Some(usual));
        }
        for (refused, why) in [
            ("/w\u{e9}b", "%C3%A9"),
            ("/a b", "%20"),
            ("/a\"b", "%22"),
            ("/a\\b", "%5C"),
            ("/a\nb", "%0A"),
            ("/50%", "%25"),
            ("/a%2", "%25"),
            ("/a/../b", ". or .."),
            ("/./a", ". or .."),
            ("/{id}", "is not a path"),
            ("/*all", "is not a path"),
            ("webhook", "is not a path"),
            ("/metrics", "itself"),
        ] {
            let problem = path(refused).unwrap_err();
            assert!(problem.contains(why), "{refused}: {problem}");
        }
    }
}
