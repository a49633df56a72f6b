//! What was told and what waits to be delivered, in a file beside the state file: it has to work also when the checkpoints cannot be opened.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{
    config::Settings,
    files::{self, Access, Output},
    model::DAY_MS,
};

use super::{channel::Channel, decision::Told, message::Message};

/// Messages that wait at once. More than that are older news of the same trouble.
const WAITING_MAX: usize = 20;
/// A message that could not be delivered for so long is news no more.
const WAITING_MS_MAX: i64 = 7 * DAY_MS;

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

/// The file, locked against other processes while it is read and written. It is not locked while messages go out.
pub(super) struct Ledger {
    path: PathBuf,
}

impl Ledger {
    /// The ledger of a state file.
    pub fn of(settings: &Settings) -> Ledger {
        Ledger { path: files::beside(&settings.state_path, ".notifications") }
    }

    /// Judges with what was told, and writes down what is to be delivered before anything goes out.
    pub fn add(
        &self,
        now_ms: i64,
        channels: &[Channel],
        judge: impl FnOnce(&mut Told) -> Vec<Message>,
    ) -> io::Result<()> {
        self.change(|content| {
            for message in judge(&mut content.told) {
                content.next_id += 1;
                let (id, channels) = (content.next_id, channels.to_vec());
                content.waiting.push(Waiting { id, since_ms: now_ms, channels, message });
            }
            content.waiting.retain(|waiting| now_ms.saturating_sub(waiting.since_ms) < WAITING_MS_MAX);
            let too_many = content.waiting.len().saturating_sub(WAITING_MAX);
            content.waiting.drain(..too_many);
        })
    }

    /// What waits, the oldest first.
    pub fn waiting(&self) -> io::Result<Vec<Waiting>> {
        Ok(read(&self.path)?.waiting)
    }

    /// A channel has a message.
    pub fn delivered(&self, id: u64, channel: Channel) -> io::Result<()> {
        self.change(|content| {
            for waiting in content.waiting.iter_mut().filter(|waiting| waiting.id == id) {
                waiting.channels.retain(|other| *other != channel);
            }
            content.waiting.retain(|waiting| !waiting.channels.is_empty());
        })
    }

    fn change(&self, change: impl FnOnce(&mut Content)) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            files::create_folders(folder)?;
        }
        let _lock = lock(&files::beside(&self.path, ".lock"))?;
        let mut content = read(&self.path)?;
        let before = serde_json::to_string(&content).map_err(io::Error::other)?;
        change(&mut content);
        let after = serde_json::to_string(&content).map_err(io::Error::other)?;
        if before == after {
            return Ok(());
        }
        let mut output = Output::begin(&self.path, ".part", Access::Private)?;
        output.write_all(after.as_bytes())?;
        output.finish()
    }
}

/// A file that cannot be understood is begun anew: at worst something is told twice.
fn read(path: &Path) -> io::Result<Content> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).unwrap_or_default()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Content::default()),
        Err(error) => Err(error),
    }
}

fn lock(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    // Whoever has it reads and writes a small file, and goes on.
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}
