//! `[serve]`: the receiver of webhooks and the schedule. Whether the cron expression and the zone can be read is told by `serve`.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use serde::Deserialize;

use crate::{model::Stream, plan::RescanRules, redact::ApiKey};

use super::{
    Settings,
    error::{ConfigError, value},
    secret::secret,
};

/// What `webhook` and `schedule` say where there is to be none.
pub const WEBHOOK_OFF: &str = "off";
const LISTEN: &str = "127.0.0.1:8788";
const WEBHOOK_PATH: &str = "/webhook";
const TOKEN_ENV: &str = "STUDYSYNC_WEBHOOK_SECRET";
const SCHEDULE: &str = "0 2 * * *";
const TIMEZONE: &str = "UTC";
const JITTER_SECS: u64 = 60;
const JITTER_SECS_MAX: u64 = 6 * 3600;
const WAKE_SECS: u64 = 60;
const FLUSH_SECS: u64 = 30;
/// Paths of `serve` itself.
const TAKEN_PATHS: [&str; 3] = ["/", "/healthz", "/metrics"];

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ServeTable {
    pub listen: Option<String>,
    pub webhook: Option<String>,
    pub token_env: Option<String>,
    pub token_file: Option<PathBuf>,
    pub environment_id: Option<String>,
    pub schedule: Option<String>,
    pub timezone: Option<String>,
    pub jitter_secs: Option<u64>,
    pub wake_secs: Option<u64>,
    pub flush_secs: Option<u64>,
}

/// `[serve]`.
#[derive(Clone, Debug)]
pub struct ServeSettings {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The path of the receiver; `None`: there is no receiver.
    pub webhook: Option<String>,
    pub token_env: String,
    pub token_file: Option<PathBuf>,
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
}

impl Settings {
    /// The same for a run that looks for what is new in these streams alone: closed windows are left to the nightly run.
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
    /// The secret of webhooks, from its file or from the environment.
    pub fn token(&self) -> Result<ApiKey, ConfigError> {
        let missing = || ConfigError::NoWebhookSecret { variable: self.token_env.clone() };
        secret(self.token_file.as_deref(), &self.token_env, missing)
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
    Ok(ServeSettings {
        listen,
        webhook: (webhook != WEBHOOK_OFF).then_some(webhook),
        token_env: table.token_env.unwrap_or_else(|| TOKEN_ENV.to_owned()),
        token_file: table.token_file.map(beside),
        environment_id: table.environment_id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty()),
        schedule: (schedule != WEBHOOK_OFF).then_some(schedule),
        timezone: table.timezone.unwrap_or_else(|| TIMEZONE.to_owned()),
        jitter: Duration::from_secs(jitter_secs),
        wake: Duration::from_secs(table.wake_secs.unwrap_or(WAKE_SECS)),
        flush: Duration::from_secs(table.flush_secs.unwrap_or(FLUSH_SECS).max(1)),
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
"#
    )
}
