//! `[serve]`: the receiver of webhooks and the schedule.
//! Whether the cron expression and the zone can be read is told by `serve`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Deserialize;

use crate::{
    model::{Stream, parse_duration},
    plan::RescanRules,
    redact::ApiKey,
};

use super::{
    Settings,
    error::{ConfigError, value},
    secret::{SecretSource, WrittenSource, secret},
};

/// What `webhook` and `schedule` say where there is to be none.
pub const WEBHOOK_OFF: &str = "off";
const LISTEN: &str = "127.0.0.1:8788";
const WEBHOOK_PATH: &str = "/webhook";
const TOKEN_ENV: &str = "STUDYSYNC_WEBHOOK_SECRET";
const STATUS_TOKEN_ENV: &str = "STUDYSYNC_STATUS_TOKEN";
/// A shorter token of the status page could be guessed.
const STATUS_TOKEN_BYTES_MIN: usize = 16;
const STATUS_PAGE_ON: &str = "on";
const SCHEDULE: &str = "0 2 * * *";
const TIMEZONE: &str = "UTC";
const JITTER_SECS: u64 = 60;
const JITTER_SECS_MAX: u64 = 6 * 3600;
const WAKE_SECS: u64 = 60;
const FLUSH_SECS: u64 = 30;
/// Paths of `serve` itself.
const TAKEN_PATHS: [&str; 9] =
    ["/", "/healthz", "/readyz", "/metrics", "/events", "/login", "/api/status", "/status.css", "/status.js"];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServeTable {
    pub listen: Option<String>,
    pub webhook: Option<String>,
    pub token_env: Option<String>,
    pub token_file: Option<PathBuf>,
    pub token_command: Option<String>,
    pub environment_id: Option<String>,
    pub schedule: Option<String>,
    pub timezone: Option<String>,
    pub jitter_secs: Option<u64>,
    pub wake_secs: Option<u64>,
    pub flush_secs: Option<u64>,
    pub max_lag: Option<String>,
    pub status_page: Option<String>,
    pub status_token_env: Option<String>,
    pub status_token_file: Option<PathBuf>,
    pub status_token_command: Option<String>,
}

/// `[serve]`.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The path of the receiver; `None`: there is no receiver.
    pub webhook: Option<String>,
    /// Where the secret of webhooks comes from.
    pub token_source: SecretSource,
    /// The environment whose webhooks count, as the service calls it; `None`: that of the first that comes.
    pub environment_id: Option<String>,
    /// The cron expression; `None`: nothing runs by the clock.
    pub schedule: Option<String>,
    /// The zone whose clock the expression means.
    pub timezone: String,
    /// A run begins up to so much later than its moment.
    pub jitter: Duration,
    /// How long a hint of a webhook waits for others before it wakes a scan; zero: it wakes none.
    pub wake: Duration,
    /// How long a delivery waits for others before they go to the warehouses together.
    pub flush: Duration,
    /// How far a stream may be behind before `/healthz` says so.
    pub max_lag: MaxLag,
    /// Whether there is a status page.
    pub has_status_page: bool,
    /// Where the token of the status page comes from.
    pub status_token_source: SecretSource,
}

/// `[serve] max_lag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaxLag {
    /// Two hours more than the longest time between two moments of the schedule.
    BySchedule,
    /// So far.
    Fixed(Duration),
    /// However far.
    Off,
}

impl Settings {
    /// The same for a run that looks for what is new in these streams alone:
    /// closed windows are left to the nightly run.
    #[must_use]
    pub fn trailing(&self, streams: &[Stream]) -> Settings {
        let mut settings = self.clone();
        settings.streams.retain(|stream| streams.contains(&stream.stream));
        for stream in settings.streams.iter_mut().filter(|stream| stream.stream.is_windowed()) {
            stream.rescan = RescanRules::never();
        }
        // No webhook tells of a change that asking for people would bring.
        settings.users.is_enabled = false;
        settings
    }
}

impl ServeSettings {
    /// How far a stream may be behind; `None`: however far. `by_schedule`: where the configuration says nothing.
    pub fn max_lag(&self, by_schedule: Duration) -> Option<Duration> {
        match self.max_lag {
            MaxLag::BySchedule => Some(by_schedule),
            MaxLag::Fixed(max_lag) => Some(max_lag),
            MaxLag::Off => None,
        }
    }

    /// Reads the token of the status page; `None` if none is set.
    ///
    /// # Errors
    /// A source that is named and has no token, or a token that could be guessed.
    pub fn status_token(&self) -> Result<Option<ApiKey>, ConfigError> {
        let missing = |variable: &str| ConfigError::NoStatusToken { variable: variable.to_owned() };
        match secret(&self.status_token_source, "[serve] status_token_command", missing) {
            Ok(token) if token.expose().len() < STATUS_TOKEN_BYTES_MIN => {
                let problem =
                    format!("the token has fewer than {STATUS_TOKEN_BYTES_MIN} characters: it could be guessed");
                Err(value(token.origin(), problem))
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

    /// Whether the configuration names no source of the status page's token.
    fn has_default_status_token(&self) -> bool {
        self.status_token_source == SecretSource::Variable(STATUS_TOKEN_ENV.to_owned())
    }

    /// Reads the secret of webhooks.
    pub fn token(&self) -> Result<ApiKey, ConfigError> {
        let missing = |variable: &str| ConfigError::NoWebhookSecret { variable: variable.to_owned() };
        secret(&self.token_source, "[serve] token_command", missing)
    }
}

pub(super) fn resolve(table: ServeTable, beside: &impl Fn(PathBuf) -> PathBuf) -> Result<ServeSettings, ConfigError> {
    let listen = table.listen.as_deref().unwrap_or(LISTEN);
    let listen = listen
        .parse()
        .map_err(|_| value("[serve] listen", format!("'{listen}' is not an address with a port, such as {LISTEN}")))?;
    let webhook = table.webhook.unwrap_or_else(|| WEBHOOK_PATH.to_owned());
    if webhook != WEBHOOK_OFF && (!webhook.starts_with('/') || webhook.contains(['?', '#', '{', '}', '*'])) {
        let problem = format!("'{webhook}' is not a path such as {WEBHOOK_PATH}, nor '{WEBHOOK_OFF}'");
        return Err(value("[serve] webhook", problem));
    }
    if TAKEN_PATHS.contains(&webhook.as_str()) {
        return Err(value("[serve] webhook", format!("'{webhook}' is a path of serve itself; take {WEBHOOK_PATH}")));
    }
    let jitter_secs = table.jitter_secs.unwrap_or(JITTER_SECS);
    if jitter_secs > JITTER_SECS_MAX {
        return Err(value("[serve] jitter_secs", format!("{jitter_secs} is more than {JITTER_SECS_MAX}")));
    }
    let schedule = table.schedule.unwrap_or_else(|| SCHEDULE.to_owned());
    let token_source = WrittenSource {
        table: "serve",
        name: "token",
        file: table.token_file.map(beside),
        command: table.token_command,
        variable: table.token_env,
        default_variable: TOKEN_ENV,
    };
    let status_token_source = WrittenSource {
        table: "serve",
        name: "status_token",
        file: table.status_token_file.map(beside),
        command: table.status_token_command,
        variable: table.status_token_env,
        default_variable: STATUS_TOKEN_ENV,
    };
    let has_status_page = match table.status_page.as_deref() {
        None | Some(STATUS_PAGE_ON) => true,
        Some(WEBHOOK_OFF) => false,
        Some(other) => return Err(value("[serve] status_page", format!("'{other}' is neither 'on' nor 'off'"))),
    };
    Ok(ServeSettings {
        listen,
        webhook: (webhook != WEBHOOK_OFF).then_some(webhook),
        token_source: token_source.resolve()?,
        environment_id: table.environment_id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()),
        schedule: (schedule != WEBHOOK_OFF).then_some(schedule),
        timezone: table.timezone.unwrap_or_else(|| TIMEZONE.to_owned()),
        jitter: Duration::from_secs(jitter_secs),
        wake: Duration::from_secs(table.wake_secs.unwrap_or(WAKE_SECS)),
        flush: Duration::from_secs(table.flush_secs.unwrap_or(FLUSH_SECS).max(1)),
        has_status_page,
        status_token_source: status_token_source.resolve()?,
        max_lag: match table.max_lag.as_deref() {
            None => MaxLag::BySchedule,
            Some(WEBHOOK_OFF) => MaxLag::Off,
            Some(text) => MaxLag::Fixed(parse_duration(text).map_err(|problem| value("[serve] max_lag", problem))?),
        },
    })
}

/// The passage of the file that `init` writes.
pub(super) fn template() -> String {
    format!(
        r#"[serve]
# `studysync serve` receives the service's webhooks and runs `sync` by a schedule. It speaks plain HTTP: put a proxy with TLS before it.
# listen = "{LISTEN}"
# The path that the service posts to, or "off".
# webhook = "{WEBHOOK_PATH}"
# The environment variable that holds the webhooks' bearer secret.
# token_env = "{TOKEN_ENV}"
# A file that holds the secret and nothing else, in place of the variable.
# token_file = "/run/secrets/studysync-webhook"
# A command that prints the secret, run by /bin/sh, in place of the variable.
# token_command = "vault kv get -field=webhook secret/studysync"
# The `environmentId` of the webhooks that count; without it, that of the first that comes. Others are stored as other_environment,
# and change nothing.
# environment_id = "12345"
# When `sync` runs: minute, hour, day of month, month, day of week; or "off". A run that was missed is caught up once.
# schedule = "{SCHEDULE}"
# The zone whose clock the schedule means.
# timezone = "{TIMEZONE}"
# A run begins up to so much later, so that not all the world asks at the full hour.
# jitter_secs = {JITTER_SECS}
# A webhook wakes a scan of what it tells about, with others that come within this time; 0 wakes none.
# wake_secs = {WAKE_SECS}
# Deliveries go to the warehouses together, so often at most.
# flush_secs = {FLUSH_SECS}
# /healthz is red once a stream is further behind than this, after the first complete night; or "off". Without it: two hours more than the
# longest time between two moments of the schedule.
# max_lag = "26h"
# A page for people at /, or "off". On another address than loopback it needs a token.
# status_page = "{STATUS_PAGE_ON}"
# The environment variable that holds the token of the status page: 16 characters or more.
# status_token_env = "{STATUS_TOKEN_ENV}"
# A file that holds the token of the status page and nothing else, in place of the variable.
# status_token_file = "/run/secrets/studysync-status"
# A command that prints the token of the status page, run by /bin/sh, in place of the variable.
# status_token_command = "vault kv get -field=status secret/studysync"
"#
    )
}
