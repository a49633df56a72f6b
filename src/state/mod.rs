//! The checkpoints: stores in SQLite what the program knows between runs. One process writes the state file at a time.
//!
//! The ledger of a warehouse proves which data the warehouse has. The state file says which windows need no new
//! request. Only `pipeline` checkpoints a window, and only after the warehouses have committed it.

mod coverage;
mod damage;
mod database;
mod destinations;
mod error;
mod inbox;
mod lease;
mod lease_holder;
mod lock;
mod owner;
mod people;
mod proofs;
mod pushes;
mod runs;
mod scans;
mod state_files;

pub use coverage::ScanCheckpoint;
pub use destinations::KnownDestination;
pub use error::StateError;
pub use inbox::{DUPLICATES_KNOWN_MS, DeliveryReceipt, Inbox, NewDelivery, PendingDeliveries, ScheduleEntry};
pub use lease::Lease;
pub use lease_holder::LeaseHolder;
pub use people::{PeopleCounts, RefreshIntervals};
pub use proofs::ProvenInterval;
pub use pushes::{ContentHash, PushAnswer, PushIntent, PushLedger, PushOutcome, PushRecord};
pub use runs::{RunEnd, RunEntry};
pub use scans::{LastRead, StoredInterval, UnfinishedScan};
pub use state_files::{RawFile, is_damaged_copy, open_raw, replace_file, state_files};

use std::{ops::Range, path::Path};

use crate::{
    files::{self, FileError},
    model::{DurableStep, Failpoints, Stream},
};

use database::{Database, READ_ONLY};
use rusqlite::OpenFlags;
use rusqlite_migration::M;

const MIGRATIONS: &[M<'_>] = &[
    M::up(include_str!("../../state/0001_checkpoints.sql")),
    M::up(include_str!("../../state/0002_proofs.sql")),
    M::up(include_str!("../../state/0003_people.sql")),
    M::up(include_str!("../../state/0004_pushes.sql")),
    M::up(include_str!("../../state/0005_known_pages.sql")),
    M::up(include_str!("../../state/0006_no_known_pages.sql")),
    M::up(include_str!("../../state/0007_trait_evidence.sql")),
    M::up(include_str!("../../state/0008_runs_in_order.sql")),
];

/// The checkpoint database.
#[derive(Debug)]
pub struct State {
    database: Database,
    failpoints: Failpoints,
    /// Ordinals of commits that are reserved and not used.
    ordinals: Range<i64>,
}

/// The result of looking for a state file at a path.
enum ExistingFile {
    Missing,
    /// A file of an earlier version of the program, or an empty file.
    Outdated,
    Current(State),
}

impl State {
    /// Opens the file for writing, and creates it if it is missing. Checks the file for damage, migrates it, and binds
    /// it to the service and environment (promise P10).
    ///
    /// # Errors
    /// `Damaged` for a damaged file. `OtherService` if the file has rows of another service or environment.
    pub fn open(path: &Path, base_url: &str, environment: &str) -> Result<State, StateError> {
        create_folder_of(path)?;
        let mut state = State::connect(path, OpenFlags::default())?;
        state.check_pages()?;
        state.database.make_durable()?;
        state.database.migrate(MIGRATIONS)?;
        state.check_rows()?;
        state.claim(base_url, environment)?;
        Ok(state)
    }

    /// Returns the state with these failpoints, which are hit before each durable step.
    #[must_use]
    pub fn with_failpoints(self, failpoints: Failpoints) -> State {
        State { failpoints, ..self }
    }

    /// Opens the file for reading. Migrates a file of an earlier version, which needs write access. Checks neither for
    /// damage nor for the owner. Returns `None` if the file is missing.
    pub fn open_read_only(path: &Path) -> Result<Option<State>, StateError> {
        match State::open_existing(path)? {
            ExistingFile::Current(state) => Ok(Some(state)),
            ExistingFile::Missing => Ok(None),
            ExistingFile::Outdated => {
                let mut state = State::connect(path, OpenFlags::default())?;
                state.database.migrate(MIGRATIONS)?;
                Ok(Some(state))
            }
        }
    }

    /// Opens the file for reading only while other processes may create or migrate it. Returns `None` if the file is
    /// missing, incomplete, or of an earlier version.
    pub fn open_if_current(path: &Path) -> Result<Option<State>, StateError> {
        match State::open_existing(path)? {
            ExistingFile::Current(state) => Ok(Some(state)),
            ExistingFile::Missing | ExistingFile::Outdated => Ok(None),
        }
    }

    /// Opens the file for reading only if it exists and has all migrations. Does not check the file for damage.
    ///
    /// # Errors
    /// `Newer` if a newer version of the program wrote the file.
    fn open_existing(path: &Path) -> Result<ExistingFile, StateError> {
        if !file_exists(path)? {
            return Ok(ExistingFile::Missing);
        }
        let mut state = State::connect(path, READ_ONLY)?;
        let version = match state.database.version() {
            // SQLite creates files next to a database even to read it, and this folder is read-only. Without a log, no
            // process writes the database, so SQLite can read it without such files.
            Err(StateError::ReadOnly { .. }) if !file_exists(&files::with_suffix(path, "-wal"))? => {
                state.database = Database::connect_immutable(path)?;
                state.database.version()?
            }
            version => version?,
        };
        match version.cmp(&MIGRATIONS.len()) {
            std::cmp::Ordering::Equal => Ok(ExistingFile::Current(state)),
            std::cmp::Ordering::Greater => Err(StateError::Newer { path: path.to_owned() }),
            std::cmp::Ordering::Less => Ok(ExistingFile::Outdated),
        }
    }

    fn connect(path: &Path, flags: OpenFlags) -> Result<State, StateError> {
        Ok(State { database: Database::connect(path, flags)?, failpoints: Failpoints::default(), ordinals: 0..0 })
    }

    /// Returns a fact about the file: `base_url` or `environment`.
    pub fn meta(&self, key: &str) -> Result<Option<String>, StateError> {
        self.database.query_optional("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
    }

    pub fn path(&self) -> &Path {
        &self.database.path
    }

    /// Hits the failpoint of a durable step. Call this before each write.
    fn hit(&self, step: DurableStep) -> Result<(), StateError> {
        self.failpoints.hit(step).map_err(|source| StateError::Stopped { path: self.path().to_owned(), source })
    }

    fn parse_stream(&self, text: &str) -> Result<Stream, StateError> {
        text.parse().map_err(|what| StateError::InvalidValue { path: self.path().to_owned(), what })
    }
}

fn create_folder_of(path: &Path) -> Result<(), StateError> {
    let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) else { return Ok(()) };
    Ok(files::create_folders(folder).map_err(FileError::of("create the folder", folder))?)
}

/// Returns true if the file exists.
///
/// # Errors
/// `Inaccessible` if the operating system refuses access.
fn file_exists(path: &Path) -> Result<bool, StateError> {
    files::metadata(path)
        .map(|found| found.is_some())
        .map_err(|source| StateError::Inaccessible { path: path.to_owned(), source })
}

/// Returns the survey as it is stored in a key: -1 for all surveys.
fn stored_survey(survey_id: Option<i64>) -> i64 {
    survey_id.unwrap_or(-1)
}

/// Returns the survey of a stored key: `None` for -1, which stands for all surveys.
fn loaded_survey(stored: i64) -> Option<i64> {
    (stored != -1).then_some(stored)
}

/// Returns a count as the signed integer that SQLite stores, at most `i64::MAX`.
fn stored_count(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
