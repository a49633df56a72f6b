//! `[notify]`: notifications about runs that fail, need attention, or succeed again.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Deserialize;

use crate::{
    model::{host_and_port, parse_duration},
    redact::ApiKey,
};

use super::{
    declare::{example, table},
    error::{ConfigError, invalid},
    paths::expand_tilde,
    secret::{SecretSource, read_secret, variable_name},
};

table! {
    NotifyTable {
        "Notifications: when a run fails, needs attention, or succeeds after failures, and when `serve` wrote a report. `studysync check --notify` sends a test message."
        "A program with its arguments; ~/ is your home, ./ and ../ begin at the folder of this file. It gets the run JSON on standard input, and the environment variables STUDYSYNC_EVENT, STUDYSYNC_OUTCOME,"
        "STUDYSYNC_EXIT_CODE and STUDYSYNC_SUMMARY."
        command: Option<Vec<String>> => example(["/usr/local/bin/tell", "studysync"]);
        "A webhook: a POST of JSON. A chat gets what it shows; another receiver gets `text`, `event`, `health` and `run`."
        url: Option<String> => example("https://hooks.example.com/services/...");
        "A file that contains only the URL of the webhook, instead of url. The URL is a secret: everyone who knows it can post."
        url_file: Option<PathBuf> => example("/run/secrets/studysync-notify");
        "The environment variable with the URL, instead of url."
        url_env: Option<String> => example("NOTIFY_URL");
        "The kind of receiver: slack, teams, google_chat, discord or generic. The default is guessed from the host of the URL."
        kind: Option<String> => example("generic");
        "The events that are reported."
        on: Vec<String> = NotifyEvent::CHOICES.map(|event| event.name().to_owned()).into();
        "Failed runs in a row before a failure is reported, for a scheduler that repeats a failed run. A refused key or a wrong configuration is reported at once."
        after_failures: u32 = 1, in 1..=100;
        "Time after which a continuing failure is reported again. A continuing need for attention is reported only once."
        again_after: String = "23h".into();
        "Time limit of an attempt."
        timeout_secs: u64 = 10, in 1..=300;
        "Attempts at the end of a run. The next run retries a notification that was not delivered."
        attempts: u32 = 3, in 1..=10;
    }
}

/// An event that a notification reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotifyEvent {
    /// A run failed.
    Failed,
    /// A run is done, and something needs attention.
    NeedsALook,
    /// A run succeeded after failed runs.
    Recovered,
    /// `serve` wrote the report of `[serve] report`.
    Report,
    /// A user tests whether notifications arrive.
    Test,
}

impl NotifyEvent {
    /// The events that `[notify] on` accepts.
    pub const CHOICES: [NotifyEvent; 4] =
        [NotifyEvent::Failed, NotifyEvent::NeedsALook, NotifyEvent::Recovered, NotifyEvent::Report];

    /// Returns the name in the configuration, in `STUDYSYNC_EVENT` and in the body of a webhook.
    pub fn name(self) -> &'static str {
        match self {
            NotifyEvent::Failed => "failed",
            NotifyEvent::NeedsALook => "needs_a_look",
            NotifyEvent::Recovered => "recovered",
            NotifyEvent::Report => "report",
            NotifyEvent::Test => "test",
        }
    }
}

/// The kind of program that receives the webhook, which decides the form of the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverKind {
    Slack,
    Teams,
    GoogleChat,
    Discord,
    /// A program of the user, or a chat that reads the member `text`.
    Generic,
}

impl ReceiverKind {
    /// Every kind, with its name in the configuration.
    pub const ALL: [(ReceiverKind, &str); 5] = [
        (ReceiverKind::Slack, "slack"),
        (ReceiverKind::Teams, "teams"),
        (ReceiverKind::GoogleChat, "google_chat"),
        (ReceiverKind::Discord, "discord"),
        (ReceiverKind::Generic, "generic"),
    ];

    /// Guesses the kind from the host in a URL. Discord accepts the form of Slack at addresses that end with `/slack`.
    pub fn of_url(url: &str) -> ReceiverKind {
        let host = host_and_port(url).split(':').next().unwrap_or_default();
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let path = url.split(['?', '#']).next().unwrap_or_default();
        let is_at =
            |domain: &str| host.strip_suffix(domain).is_some_and(|front| front.is_empty() || front.ends_with('.'));
        match () {
            () if ["hooks.slack.com", "hooks.slack-gov.com"].into_iter().any(is_at) => ReceiverKind::Slack,
            () if is_at("chat.googleapis.com") => ReceiverKind::GoogleChat,
            () if is_at("discord.com") || is_at("discordapp.com") => match path.trim_end_matches('/') {
                path if path.ends_with("/slack") => ReceiverKind::Slack,
                path if path.ends_with("/github") => ReceiverKind::Generic,
                _ => ReceiverKind::Discord,
            },
            () if TEAMS_DOMAINS.into_iter().any(is_at) => ReceiverKind::Teams,
            () => ReceiverKind::Generic,
        }
    }
}

/// The domains of workflows and connectors of Microsoft Teams.
const TEAMS_DOMAINS: [&str; 7] = [
    "api.powerplatform.com",
    "api.powerplatform.us",
    "logic.azure.com",
    "logic.azure.us",
    "webhook.office.com",
    "outlook.office.com",
    "outlook.office365.com",
];

/// `[notify]`.
#[derive(Clone, Debug)]
pub struct NotifySettings {
    /// The command and its arguments; empty runs no command.
    pub command: Vec<String>,
    /// The events that are reported.
    pub on: Vec<NotifyEvent>,
    /// Failed runs in a row before a failure is reported. A failure that no repetition ends is reported at once.
    pub after_failures: u32,
    /// Time after which a continuing failure is reported again.
    pub again_after: Duration,
    /// Time limit of one attempt.
    pub timeout: Duration,
    /// Maximum attempts to deliver a notification at the end of a run. The next run retries a notification that was not
    /// delivered.
    pub attempts: u32,
    /// The kind of the webhook's receiver; `None` guesses it from the URL.
    pub kind: Option<ReceiverKind>,
    webhook: WebhookUrl,
}

/// The source of the webhook's URL. The URL is a secret: everyone who knows it can post.
#[derive(Clone, Debug)]
enum WebhookUrl {
    None,
    Literal(ApiKey),
    File(PathBuf),
    Variable(String),
}

impl NotifySettings {
    /// Returns true if a command or a webhook is configured.
    pub fn is_enabled(&self) -> bool {
        !self.command.is_empty() || self.has_webhook()
    }

    /// Returns true if a webhook is configured.
    pub fn has_webhook(&self) -> bool {
        !matches!(self.webhook, WebhookUrl::None)
    }

    /// Returns the name of the variable with the URL of the webhook; `None` if the URL comes from another source.
    pub fn url_variable(&self) -> Option<&str> {
        match &self.webhook {
            WebhookUrl::Variable(variable) => Some(variable),
            _ => None,
        }
    }

    /// Reads the URL of the webhook; `None` if no webhook is configured.
    ///
    /// # Errors
    /// The file or variable cannot be read, or the URL is invalid.
    pub fn url(&self) -> Result<Option<ApiKey>, ConfigError> {
        let missing = |_: &str| invalid("[notify] url_env", "the environment variable that it names is not set");
        let url = match &self.webhook {
            WebhookUrl::None => return Ok(None),
            WebhookUrl::Literal(url) => url.clone(),
            WebhookUrl::File(path) => read_secret(&SecretSource::File(path.clone()), "", missing)?,
            WebhookUrl::Variable(variable) => read_secret(&SecretSource::Variable(variable.clone()), "", missing)?,
        };
        if !is_http_url(url.expose()) {
            return Err(invalid_url());
        }
        Ok(Some(url))
    }
}

/// Returns the error for a URL that does not begin with `https://` or `http://` and a host. The error does not contain
/// the URL, because the URL is a secret.
fn invalid_url() -> ConfigError {
    invalid("[notify] url", "it does not begin with https:// or http:// and a host")
}

fn is_http_url(url: &str) -> bool {
    let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', ':', '?', '#']))
}

/// Returns the settings of `[notify]`. `folder` has the configuration file. Fails if a value is invalid, or if more
/// than one source of the URL is set.
pub(super) fn resolve(table: NotifyTable, folder: &Path) -> Result<NotifySettings, ConfigError> {
    let command = table.command.unwrap_or_default();
    let command = command.into_iter().enumerate().map(|(at, text)| command_path(at == 0, text, folder));
    let command = command.collect::<Result<Vec<_>, _>>()?;
    if command.first().is_some_and(|program| program.trim().is_empty()) {
        return Err(invalid("[notify] command", "its first text is the program, and must not be empty"));
    }
    let webhook = match (table.url, table.url_file, table.url_env) {
        (None, None, None) => WebhookUrl::None,
        (Some(url), None, None) if is_http_url(url.trim()) => {
            WebhookUrl::Literal(ApiKey::new(url.trim(), "the configuration file"))
        }
        (Some(_), None, None) => return Err(invalid_url()),
        (None, Some(path), None) => WebhookUrl::File(path),
        (None, None, Some(variable)) => {
            WebhookUrl::Variable(variable_name("[notify] url_env", variable, "the address")?)
        }
        _ => return Err(invalid("[notify]", "only one of url, url_file and url_env can be set")),
    };
    Ok(NotifySettings {
        command,
        on: events(&table.on)?,
        after_failures: table.after_failures,
        again_after: parse_duration(&table.again_after).map_err(|problem| invalid("[notify] again_after", problem))?,
        timeout: Duration::from_secs(table.timeout_secs),
        attempts: table.attempts,
        kind: table.kind.as_deref().map(kind).transpose()?,
        webhook,
    })
}

fn kind(name: &str) -> Result<ReceiverKind, ConfigError> {
    let known = ReceiverKind::ALL.into_iter().find(|(_, known)| *known == name);
    let names = || ReceiverKind::ALL.map(|(_, name)| format!("'{name}'")).join(", ");
    known.map(|(kind, _)| kind).ok_or_else(|| invalid("[notify] kind", format!("'{name}' is none of {}", names())))
}

/// Returns a text of the command. A path that begins with `~/`, `./` or `../` is like every path of the file: `~` is
/// the home folder, and other paths are relative to the file. So is a program with a `/`. All other texts stay.
fn command_path(is_program: bool, text: String, folder: &Path) -> Result<String, ConfigError> {
    let is_path = ["~/", "./", "../"].iter().any(|begin| text.starts_with(begin)) || (is_program && text.contains('/'));
    if !is_path {
        return Ok(text);
    }
    let path = expand_tilde(PathBuf::from(&text)).map_err(|problem| invalid("[notify] command", problem))?;
    let path = folder.join(path).into_os_string();
    path.into_string().map_err(|_| invalid("[notify] command", format!("'{text}' leads to a path that is not UTF-8")))
}

fn events(names: &[String]) -> Result<Vec<NotifyEvent>, ConfigError> {
    if names.is_empty() {
        return Err(invalid("[notify] on", "it names no event: to turn notifications off, leave command and url out"));
    }
    let event = |name: &String| {
        let known = NotifyEvent::CHOICES.into_iter().find(|event| event.name() == name);
        let problem = || format!("'{name}' is neither 'failed' nor 'needs_a_look' nor 'recovered'");
        known.ok_or_else(|| invalid("[notify] on", problem()))
    };
    names.iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_a_command_are_those_of_the_file() {
        let expanded = |texts: &[&str]| {
            let texts = texts.iter().map(|text| (*text).to_owned()).collect();
            let table = NotifyTable { command: Some(texts), ..NotifyTable::default() };
            resolve(table, Path::new("/etc/studysync")).map(|settings| settings.command)
        };
        let home = crate::config::environment::variable("HOME").unwrap();
        assert_eq!(expanded(&["./tell", "now"]).unwrap(), ["/etc/studysync/./tell", "now"]);
        assert_eq!(expanded(&["bin/tell", "a/b"]).unwrap(), ["/etc/studysync/bin/tell", "a/b"]);
        assert_eq!(expanded(&["~/tell", "--at=~/x"]).unwrap(), [format!("{home}/tell"), "--at=~/x".to_owned()]);
        assert_eq!(expanded(&["sh", "~/tell.sh"]).unwrap(), ["sh".to_owned(), format!("{home}/tell.sh")]);
        assert_eq!(expanded(&["sh", "../tell.sh"]).unwrap(), ["sh", "/etc/studysync/../tell.sh"]);
        assert_eq!(expanded(&["/bin/tell", "~", "."]).unwrap(), ["/bin/tell", "~", "."]);
        assert!(expanded(&["$HOME/tell"]).unwrap_err().to_string().contains("[notify] command"));
    }
}
