//! `[notify]`: who is told when runs fail, need a look, or work again.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;

use crate::{model::parse_duration, redact::ApiKey};

use super::{
    error::{ConfigError, value},
    secret::{SecretSource, secret},
};

const AGAIN_AFTER: &str = "23h";
const TIMEOUT_SECS: u64 = 10;
pub(super) const TIMEOUT_SECS_MAX: u64 = 300;
const ATTEMPTS: u32 = 3;
const ATTEMPTS_MAX: u32 = 10;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct NotifyTable {
    pub command: Option<Vec<String>>,
    pub url: Option<String>,
    pub url_file: Option<PathBuf>,
    pub url_env: Option<String>,
    pub on: Option<Vec<String>>,
    pub again_after: Option<String>,
    pub timeout_secs: Option<u64>,
    pub attempts: Option<u32>,
}

/// What somebody can be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyEvent {
    /// A run failed.
    Failed,
    /// A run is done, and something needs a look.
    NeedsALook,
    /// A run succeeded after others failed.
    Recovered,
    /// Somebody tries out whether notifications arrive.
    Test,
}

impl NotifyEvent {
    /// The events that `on` can name.
    pub const CHOICES: [NotifyEvent; 3] = [NotifyEvent::Failed, NotifyEvent::NeedsALook, NotifyEvent::Recovered];

    /// The name in the configuration, in `STUDYSYNC_EVENT` and in the body of a webhook.
    pub fn name(self) -> &'static str {
        match self {
            NotifyEvent::Failed => "failed",
            NotifyEvent::NeedsALook => "needs_a_look",
            NotifyEvent::Recovered => "recovered",
            NotifyEvent::Test => "test",
        }
    }
}

/// `[notify]`.
#[derive(Clone, Debug)]
pub struct NotifySettings {
    /// The command and its arguments; empty: none is run.
    pub command: Vec<String>,
    /// Which events are told.
    pub on: Vec<NotifyEvent>,
    /// A failure that stays is told again after this time.
    pub again_after: Duration,
    /// What one attempt may take.
    pub timeout: Duration,
    /// Attempts at the end of a run; what is not delivered then is left to the next run.
    pub attempts: u32,
    address: Address,
}

/// Where the address of the webhook is. It is a secret: whoever knows it can post.
#[derive(Clone, Debug)]
enum Address {
    Nowhere,
    Here(ApiKey),
    File(PathBuf),
    Variable(String),
}

impl NotifySettings {
    /// Whether anybody is told at all.
    pub fn is_on(&self) -> bool {
        !self.command.is_empty() || self.has_webhook()
    }

    /// Whether a webhook is named.
    pub fn has_webhook(&self) -> bool {
        !matches!(self.address, Address::Nowhere)
    }

    /// The variable that holds the address of the webhook, if one does.
    pub fn url_variable(&self) -> Option<&str> {
        match &self.address {
            Address::Variable(variable) => Some(variable),
            _ => None,
        }
    }

    /// The address of the webhook; `None` if none is named.
    pub fn url(&self) -> Result<Option<ApiKey>, ConfigError> {
        let missing =
            |_: &str| value("[notify] url_env", "the environment variable that it names is not set".to_owned());
        let url = match &self.address {
            Address::Nowhere => return Ok(None),
            Address::Here(url) => url.clone(),
            Address::File(path) => secret(&SecretSource::File(path.clone()), "", missing)?,
            Address::Variable(variable) => secret(&SecretSource::Variable(variable.clone()), "", missing)?,
        };
        if !is_address(url.expose()) {
            // The address itself is not shown.
            return Err(value("[notify] url", "it does not begin with https:// or http:// and a host".to_owned()));
        }
        Ok(Some(url))
    }
}

fn is_address(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#']))
}

pub(super) fn resolve(table: NotifyTable, beside: &impl Fn(PathBuf) -> PathBuf) -> Result<NotifySettings, ConfigError> {
    let command = table.command.unwrap_or_default();
    if command.first().is_some_and(|program| program.trim().is_empty()) {
        return Err(value("[notify] command", "the first of its texts is the program, and it is empty".to_owned()));
    }
    let address = match (table.url, table.url_file, table.url_env) {
        (None, None, None) => Address::Nowhere,
        (Some(url), None, None) if is_address(url.trim()) => {
            Address::Here(ApiKey::new(url.trim(), "the configuration file"))
        }
        (Some(_), None, None) => {
            return Err(value("[notify] url", "it does not begin with https:// or http:// and a host".to_owned()));
        }
        (None, Some(path), None) => Address::File(beside(path)),
        (None, None, Some(variable)) => Address::Variable(variable),
        _ => return Err(value("[notify]", "only one of url, url_file and url_env can be set".to_owned())),
    };
    let attempts = table.attempts.unwrap_or(ATTEMPTS);
    if !(1..=ATTEMPTS_MAX).contains(&attempts) {
        return Err(value("[notify] attempts", format!("{attempts} is not between 1 and {ATTEMPTS_MAX}")));
    }
    let again_after = table.again_after.unwrap_or_else(|| AGAIN_AFTER.to_owned());
    Ok(NotifySettings {
        command,
        on: events(table.on)?,
        again_after: parse_duration(&again_after).map_err(|problem| value("[notify] again_after", problem))?,
        timeout: Duration::from_secs(table.timeout_secs.unwrap_or(TIMEOUT_SECS)),
        attempts,
        address,
    })
}

fn events(names: Option<Vec<String>>) -> Result<Vec<NotifyEvent>, ConfigError> {
    let Some(names) = names else { return Ok(NotifyEvent::CHOICES.to_vec()) };
    if names.is_empty() {
        return Err(value(
            "[notify] on",
            "it names no event: leave command and url out where nobody is to be told".to_owned(),
        ));
    }
    let event = |name: &String| {
        let known = NotifyEvent::CHOICES.into_iter().find(|event| event.name() == name);
        let problem = || format!("'{name}' is neither 'failed' nor 'needs_a_look' nor 'recovered'");
        known.ok_or_else(|| value("[notify] on", problem()))
    };
    names.iter().map(event).collect()
}

/// The passage of the file that `init` writes.
pub(super) fn template() -> String {
    format!(
        r#"[notify]
# Who is told when a run fails, needs a look, or works again after failures. `studysync check --notify` sends a message to try it.
# A program with its arguments. It gets the run's JSON on its standard input, and STUDYSYNC_EVENT, STUDYSYNC_OUTCOME, STUDYSYNC_EXIT_CODE and
# STUDYSYNC_SUMMARY in its environment.
# command = ["/usr/local/bin/tell", "studysync"]
# A webhook: POST of JSON with `text`, as Slack, Mattermost and Teams read it, and `event`, `health` and `run`.
# url = "https://hooks.example.com/services/..."
# A file that holds the address of the webhook and nothing else, in place of url: whoever knows the address can post.
# url_file = "/run/secrets/studysync-notify"
# The environment variable that holds the address, in place of url.
# url_env = "NOTIFY_URL"
# Which events are told.
# on = ["failed", "needs_a_look", "recovered"]
# A failure that stays is told again after this time, and what needs a look only when it is something else.
# again_after = "{AGAIN_AFTER}"
# What an attempt may take, and how many there are at the end of a run. What is not delivered then is tried again by the next run.
# timeout_secs = {TIMEOUT_SECS}
# attempts = {ATTEMPTS}
"#
    )
}
