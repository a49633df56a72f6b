//! What the program remembers between runs, in SQLite. Opened by one writer at a time.
//!
//! The warehouse's ledger is the truth about data; this is what need not be asked again. It is advanced only after a
//! commit, and `pipeline` alone decides when.

mod coverage;
mod damage;
mod destinations;
mod error;
mod holder;
mod inbox;
mod lease;
mod lock;
mod owner;
mod people;
mod proofs;
mod pushes;
mod runs;
mod scans;
mod service_profile;
mod stored_interval;
mod wipe;

pub use coverage::Covered;
pub use destinations::KnownDestination;
pub use error::StateError;
pub use holder::Holder;
pub use inbox::{Accepted, Inbox, NewDelivery, REPEATS_KNOWN_MS, ScheduleEntry, Waiting};
pub use lease::Lease;
pub use people::{PeopleCounts, PeopleRules};
pub use proofs::Proven;
pub use pushes::{ContentKey, PushFate, PushIntent, PushLedger, PushOutcome, Pushed};
pub use runs::RunEntry;
pub use scans::UnderWay;
pub use stored_interval::{LastRead, StoredInterval};
pub use wipe::{files_of, was_put_aside};

use std::path::{Path, PathBuf};

use crate::{
    files,
    model::{DurableStep, Failpoints},
};

use rusqlite::{Connection, OpenFlags, OptionalExtension};
use rusqlite_migration::{M, Migrations};

const MIGRATIONS: &[M<'_>] = &[
    M::up(include_str!("../../state/0001_checkpoints.sql")),
    M::up(include_str!("../../state/0002_proofs.sql")),
    M::up(include_str!("../../state/0003_people.sql")),
    M::up(include_str!("../../state/0004_pushes.sql")),
    M::up(include_str!("../../state/0005_known_pages.sql")),
    M::up(include_str!("../../state/0006_no_known_pages.sql")),
    M::up(include_str!("../../state/0007_trait_evidence.sql")),
];
const READ_ONLY: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);
/// How long a reader (`status`) and the writer wait for each other.
const BUSY_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// The checkpoint database.
#[derive(Debug)]
pub struct State {
    connection: Connection,
    path: PathBuf,
    failpoints: Failpoints,
}

/// What is at the place of a state file.
enum Found {
    Nothing,
    /// Of an earlier version, or not filled yet.
    Older,
    Current(State),
}

impl State {
    /// Opens the file for writing, and makes it if it is missing. It remembers the service and environment it was made
    /// for and refuses others (promise P10).
    pub fn open(path: &Path, base_url: &str, environment: &str) -> Result<State, StateError> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            files::create_folders(folder).map_err(|source| StateError::Folder { path: folder.to_owned(), source })?;
        }
        let mut state = State::connect(path, OpenFlags::default())?;
        state.check_pages()?;
        state.connection.pragma_update(None, "journal_mode", "WAL").map_err(state.failed("switch on the WAL of"))?;
        state.connection.pragma_update(None, "synchronous", "FULL").map_err(state.failed("set up"))?;
        state.migrate()?;
        state.check_rows()?;
        state.own(base_url, environment)?;
        Ok(state)
    }

    /// The same file, with somebody who watches its durable steps.
    #[must_use]
    pub fn watched(self, failpoints: Failpoints) -> State {
        State { failpoints, ..self }
    }

    /// Opens the file for reading alone; `None` when there is none.
    pub fn open_read_only(path: &Path) -> Result<Option<State>, StateError> {
        match State::look_at(path)? {
            Found::Current(state) => Ok(Some(state)),
            Found::Nothing => Ok(None),
            // Only a writer may lift it; a reader does the same as one would.
            Found::Older => {
                let mut state = State::connect(path, OpenFlags::default())?;
                state.migrate()?;
                Ok(Some(state))
            }
        }
    }

    /// The same for whoever looks on while runs are at work: a file that one of them is just making, or that none has
    /// lifted to this version yet, is left alone, as if there were none.
    pub fn open_if_current(path: &Path) -> Result<Option<State>, StateError> {
        match State::look_at(path)? {
            Found::Current(state) => Ok(Some(state)),
            Found::Nothing | Found::Older => Ok(None),
        }
    }

    fn look_at(path: &Path) -> Result<Found, StateError> {
        if !is_there(path)? {
            return Ok(Found::Nothing);
        }
        let mut state = State::connect(path, READ_ONLY)?;
        let version = match state.version() {
            // SQLite makes files beside it even to read it.
            // Without a log nobody is at work, and it can do without them.
            Err(StateError::ReadOnly { .. }) if !is_there(&files::with_suffix(path, "-wal"))? => {
                state = State::connect_immutable(path)?;
                state.version()?
            }
            version => version?,
        };
        match usize::try_from(version).unwrap_or(usize::MAX).cmp(&MIGRATIONS.len()) {
            std::cmp::Ordering::Equal => Ok(Found::Current(state)),
            std::cmp::Ordering::Greater => Err(StateError::Newer { path: path.to_owned() }),
            std::cmp::Ordering::Less => Ok(Found::Older),
        }
    }

    /// The version of its tables.
    fn version(&self) -> Result<i64, StateError> {
        let version = self.connection.pragma_query_value(None, "user_version", |row| row.get(0));
        version.map_err(self.failed("read"))
    }

    /// Opens a file to which nobody writes.
    fn connect_immutable(path: &Path) -> Result<State, StateError> {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let escaped = absolute.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
        let uri = format!("file:{escaped}?immutable=1");
        let state = State::connect(Path::new(&uri), READ_ONLY | OpenFlags::SQLITE_OPEN_URI)?;
        Ok(State { path: path.to_owned(), ..state })
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<State, StateError> {
        let opened = Connection::open_with_flags(path, flags);
        let connection = opened.map_err(|source| StateError::sqlite("open", path, source))?;
        let state = State { connection, path: path.to_owned(), failpoints: Failpoints::default() };
        state.connection.busy_timeout(BUSY_WAIT).map_err(state.failed("set up"))?;
        Ok(state)
    }

    fn migrate(&mut self) -> Result<(), StateError> {
        let outcome = Migrations::from_slice(MIGRATIONS).to_latest(&mut self.connection);
        let path = self.path.clone();
        outcome.map_err(|error| match error {
            rusqlite_migration::Error::MigrationDefinition(_) => StateError::Newer { path },
            rusqlite_migration::Error::RusqliteError { err, .. } => StateError::sqlite("prepare", &path, err),
            other => StateError::Migration { path, why: other.to_string() },
        })
    }

    /// A fact about the file: `base_url` or `environment`.
    pub fn meta(&self, key: &str) -> Result<Option<String>, StateError> {
        self.connection
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
            .optional()
            .map_err(self.failed("read"))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// To be called before each write.
    fn hit(&self, step: DurableStep) -> Result<(), StateError> {
        self.failpoints.hit(step).map_err(|source| StateError::Stopped { path: self.path.clone(), source })
    }

    /// For `map_err`: an SQLite error with what was tried and on which file.
    fn failed(&self, action: &'static str) -> impl FnOnce(rusqlite::Error) -> StateError + use<> {
        let path = self.path.clone();
        move |source| StateError::sqlite(action, &path, source)
    }
}

/// Whether there is a file. An error if nobody can tell.
fn is_there(path: &Path) -> Result<bool, StateError> {
    files::metadata(path)
        .map(|found| found.is_some())
        .map_err(|source| StateError::Unreachable { path: path.to_owned(), source })
}

/// `survey_id` as stored: -1 for all surveys, so that it can be part of a key.
fn stored_survey(survey_id: Option<i64>) -> i64 {
    survey_id.unwrap_or(-1)
}

fn loaded_survey(stored: i64) -> Option<i64> {
    (stored != -1).then_some(stored)
}

#[cfg(test)]
mod tests;
