//! What was told and what waits to be delivered, in a file beside the state file: it has to work also when the
//! checkpoints cannot be opened.

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
use serde::{Deserialize, Serialize};

use crate::{
    config::Settings,
    files::{self, Access, Output},
    model::DAY_MS,
    pipeline::chain,
};

use super::{channel::Channel, decision::Told, message::Message};

/// Messages that wait at once. More than that are older news of the same trouble.
const WAITING_MAX: usize = 20;
/// A message that could not be delivered for so long is news no more.
const WAITING_MS_MAX: i64 = 7 * DAY_MS;
/// How long another process that has the file is waited for: it may be telling somebody who does not answer.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often it is tried again meanwhile.
const LOCK_RETRY: Duration = Duration::from_millis(50);

/// A message with the channels that do not have it yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub id: u64,
    /// When it was written, epoch milliseconds.
    pub since_ms: i64,
    pub channels: Vec<Channel>,
    pub message: Message,
}

/// The content of the file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Content {
    told: Told,
    next_id: u64,
    waiting: Vec<Waiting>,
}

/// The file, locked against other processes until it is dropped: two runs that end at once do not tell the same.
///
/// Where the file cannot be locked or written, the ledger works all the same, in memory: better told twice than never.
pub(super) struct Ledger {
    path: PathBuf,
    content: Content,
    /// Keeps the lock; `None` if it could not be had.
    lock: Option<File>,
}

impl Ledger {
    /// Opens the ledger of a state file. Waits a few seconds for another process that has it.
    pub async fn open(settings: &Settings) -> Ledger {
        let path = files::beside(&settings.state_path, ".notifications");
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
            // What waits is left to whoever can write down that it was delivered.
            content.waiting.clear();
        }
        Ledger { path, content, lock }
    }

    /// Judges with what was told, and writes down what is to be delivered before anything goes out.
    pub fn add(&mut self, now_ms: i64, channels: &[Channel], judge: impl FnOnce(&mut Told) -> Vec<Message>) {
        self.change(|content| {
            for message in judge(&mut content.told) {
                content.next_id += 1;
                let (id, channels) = (content.next_id, channels.to_vec());
                content.waiting.push(Waiting { id, since_ms: now_ms, channels, message });
            }
            content.waiting.retain(|waiting| now_ms.saturating_sub(waiting.since_ms) < WAITING_MS_MAX);
            let too_many = content.waiting.len().saturating_sub(WAITING_MAX);
            content.waiting.drain(..too_many);
        });
    }

    /// What waits, the oldest first.
    pub fn waiting(&self) -> Vec<Waiting> {
        self.content.waiting.clone()
    }

    /// A channel has a message, or will never take it.
    pub fn settle(&mut self, id: u64, channel: Channel) {
        self.change(|content| {
            for waiting in content.waiting.iter_mut().filter(|waiting| waiting.id == id) {
                waiting.channels.retain(|other| *other != channel);
            }
            content.waiting.retain(|waiting| !waiting.channels.is_empty());
        });
    }

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

/// A file that cannot be understood is begun anew: at worst something is told twice.
fn read(path: &Path) -> io::Result<Content> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::default()),
        Err(error) => Err(error),
    }
}

async fn lock(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        files::create_folders(folder)?;
    }
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(files::beside(path, ".lock"))?;
    let begun = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_WAIT_MAX => tokio::time::sleep(LOCK_RETRY).await,
            Err(Errno::WOULDBLOCK) => {
                let secs = LOCK_WAIT_MAX.as_secs();
                return Err(io::Error::other(format!("another process has had the notifications for {secs} s")));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
