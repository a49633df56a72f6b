//! Stores the messages to deliver and the last notified state, in a file next to the state file. The file is separate
//! because notifications must work when the checkpoints cannot be opened.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    config::Settings,
    files::{self, Access, Output},
    model::DAY_MS,
    pipeline::chain,
};

use super::{decision::NotifiedState, message::Message};

/// Maximum pending messages. The oldest are dropped, because newer messages describe the same problem.
const PENDING_MAX: usize = 20;
/// The maximum age of a pending message. An older message is dropped, because it is no news any more.
const PENDING_MS_MAX: i64 = 7 * DAY_MS;
/// How long to wait for another process that has the file locked.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// Interval between two attempts to lock.
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// A channel that carries notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Command,
    Webhook,
}

impl Channel {
    /// Returns the configured channels.
    pub(super) fn configured(settings: &Settings) -> Vec<Channel> {
        let command = (!settings.notify.command.is_empty()).then_some(Channel::Command);
        let webhook = settings.notify.has_webhook().then_some(Channel::Webhook);
        command.into_iter().chain(webhook).collect()
    }

    /// Returns the name in logs and outputs.
    pub fn name(self) -> &'static str {
        match self {
            Channel::Command => "command",
            Channel::Webhook => "webhook",
        }
    }
}

/// A message and the channels that have not delivered it yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PendingMessage {
    pub id: u64,
    /// When the message was written, epoch milliseconds.
    pub since_ms: i64,
    #[serde(deserialize_with = "known_channels")]
    pub channels: Vec<Channel>,
    pub message: Message,
}

/// The content of the file.
#[derive(Clone, Debug, Default, Serialize)]
struct Content {
    #[serde(rename = "told")]
    state: NotifiedState,
    next_id: u64,
    #[serde(rename = "waiting")]
    pending: Vec<PendingMessage>,
}

impl Content {
    /// Reads each part of the file for itself. A part that is damaged, or that a later version wrote, is dropped with a
    /// warning, and the others stay.
    fn readable(mut file: Value) -> Content {
        let next_id = file.get("next_id").and_then(Value::as_u64).unwrap_or(0);
        let mut take = |member: &str| file.get_mut(member).map(Value::take).unwrap_or_default();
        let state = part(take("told"), "state").unwrap_or_default();
        let messages = match take("waiting") {
            Value::Array(messages) => messages,
            _ => Vec::new(),
        };
        let mut pending: Vec<PendingMessage> =
            messages.into_iter().filter_map(|message| part(message, "message")).collect();
        pending.retain(|message| !message.channels.is_empty());
        // No new message may get the number of a pending one.
        let last_id = pending.iter().map(|pending| pending.id).max().unwrap_or(0);
        Content { state, next_id: next_id.max(last_id), pending }
    }
}

/// Reads a part of the file; `None` if it is missing or cannot be read.
fn part<T: DeserializeOwned>(value: Value, what: &str) -> Option<T> {
    if value.is_null() {
        return None;
    }
    serde_json::from_value(value)
        .inspect_err(|error| tracing::warn!(what, why = chain(error), "cannot read a part of the past notifications"))
        .ok()
}

/// Reads the names of channels. A name that only a later version knows is left out.
fn known_channels<'de, D: Deserializer<'de>>(names: D) -> Result<Vec<Channel>, D::Error> {
    let names = Vec::<Value>::deserialize(names)?;
    Ok(names.into_iter().filter_map(|name| serde_json::from_value(name).ok()).collect())
}

/// The outbox. Its file is locked until the value is dropped, so that two runs that end together do not send the same
/// message twice.
///
/// If the file cannot be locked or written, the outbox works in memory: a message that is sent twice is better than
/// none.
pub(super) struct Outbox {
    path: PathBuf,
    content: Content,
    /// Holds the lock; `None` if locking failed.
    lock: Option<File>,
}

impl Outbox {
    /// Opens the outbox next to the state file. Waits up to five seconds for another process that has locked the file.
    pub async fn open(settings: &Settings) -> Outbox {
        let path = files::with_suffix(&settings.state_path, ".notifications");
        let lock = match lock(&path).await {
            Ok(lock) => Some(lock),
            Err(error) => {
                tracing::warn!(why = chain(&error), "cannot record a notification: it may be sent again");
                None
            }
        };
        let mut content = read(&path).unwrap_or_else(|error| {
            tracing::warn!(why = chain(&error), "cannot read past notifications: they may be sent again");
            Content::default()
        });
        if lock.is_none() {
            // Without the lock a delivery cannot be recorded. A later process with the lock sends the messages in the
            // file.
            content.pending.clear();
        }
        Outbox { path, content, lock }
    }

    /// Adds the messages that `decide` returns, to be sent by these channels, and saves the file. `decide` may change
    /// the notified state. Drops messages that are too old or too many.
    pub fn add(&mut self, now_ms: i64, channels: &[Channel], decide: impl FnOnce(&mut NotifiedState) -> Vec<Message>) {
        self.change(|content| {
            for message in decide(&mut content.state) {
                content.next_id += 1;
                let (id, channels) = (content.next_id, channels.to_vec());
                content.pending.push(PendingMessage { id, since_ms: now_ms, channels, message });
            }
            content.pending.retain(|pending| now_ms.saturating_sub(pending.since_ms) < PENDING_MS_MAX);
            let too_many = content.pending.len().saturating_sub(PENDING_MAX);
            content.pending.drain(..too_many);
        });
    }

    /// Returns the pending messages, oldest first.
    pub fn pending(&self) -> Vec<PendingMessage> {
        self.content.pending.clone()
    }

    /// Removes a channel from a message, because the channel has delivered the message or never will. A message without
    /// channels is removed.
    pub fn remove(&mut self, id: u64, channel: Channel) {
        self.change(|content| {
            for pending in content.pending.iter_mut().filter(|pending| pending.id == id) {
                pending.channels.retain(|other| *other != channel);
            }
            content.pending.retain(|pending| !pending.channels.is_empty());
        });
    }

    /// Changes the content of the outbox. Saves the file if the content has changed and the file is locked.
    fn change(&mut self, change: impl FnOnce(&mut Content)) {
        let before = serde_json::to_string(&self.content).ok();
        change(&mut self.content);
        let after = serde_json::to_string(&self.content).ok();
        let (Some(after), Some(_)) = (after.filter(|after| before.as_ref() != Some(after)), &self.lock) else { return };
        if let Err(error) = write(&self.path, &after) {
            tracing::warn!(why = chain(&error), "cannot record a notification: it may be sent again");
        }
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut output = Output::begin(path, ".part", Access::Private)?;
    output.write_all(text.as_bytes())?;
    output.finish()
}

/// Reads the file. Returns an empty outbox if the file is missing, or is no JSON at all.
fn read(path: &Path) -> io::Result<Content> {
    match fs::read(path) {
        // A byte that is no UTF-8 is in one message, and must not hide the others.
        Ok(bytes) => match serde_json::from_str(&String::from_utf8_lossy(&bytes)) {
            Ok(value) => Ok(Content::readable(value)),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), why = chain(&error),
                    "the past notifications are damaged: pending messages are lost, and others may be sent again"
                );
                Ok(Content::default())
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::default()),
        Err(error) => Err(error),
    }
}

/// Locks the file `<path>.lock`. Fails if another process has it locked for [`LOCK_WAIT_MAX`].
async fn lock(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        files::create_folders(folder)?;
    }
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(files::with_suffix(path, ".lock"))?;
    let started = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if started.elapsed() < LOCK_WAIT_MAX => tokio::time::sleep(LOCK_RETRY).await,
            Err(Errno::WOULDBLOCK) => {
                let secs = LOCK_WAIT_MAX.as_secs();
                return Err(io::Error::other(format!("another process has locked the notifications for {secs} s")));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
