//! Finds a torn or overwritten state file when the file is opened, renames the file, and creates a new one. The caller
//! rebuilds the coverage from the ledgers of the warehouses.
//!
//! The check finds what SQLite's own check finds, and values that this program never writes. The check does not find a
//! value that was changed into another valid value, because SQLite keeps no checksums.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{files::with_suffix, model::format_ms};

use super::{State, StateError, lock};

/// The suffixes of the files that SQLite keeps next to a database. These files are renamed before the database, because
/// SQLite would replay an old log into a new database.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

impl State {
    /// Opens the file for writing. Renames a damaged file, and creates a new one. Also returns the new path of a
    /// damaged file; `None` if the file was not damaged. The new path contains `now_ms`, this machine's time.
    ///
    /// # Errors
    /// `Leased` if the file is damaged and another run uses it.
    pub fn open_or_replace_damaged(
        path: &Path,
        base_url: &str,
        environment: &str,
        now_ms: i64,
    ) -> Result<(State, Option<PathBuf>), StateError> {
        let why = match State::open(path, base_url, environment) {
            Err(StateError::Damaged { why, .. }) => why,
            opened => return opened.map(|state| (state, None)),
        };
        // The lock of the lease keeps other runs from using the file until it is replaced.
        let Some(_lock) = lock::try_lock(path)? else {
            return Err(StateError::Leased { path: path.to_owned(), holder: None });
        };
        let renamed = rename_damaged(path, now_ms)
            .map_err(|source| StateError::RenameDamaged { path: path.to_owned(), source })?;
        tracing::warn!(why, renamed_to = %renamed.display(), "the state file {} is damaged", path.display());
        Ok((State::open(path, base_url, environment)?, Some(renamed)))
    }

    /// Checks with SQLite that the pages of the file fit together, and that the file is not cut short. Reads the whole
    /// file, which has a few megabytes after years.
    ///
    /// # Errors
    /// `Damaged` if the check fails.
    pub(super) fn check_pages(&self) -> Result<(), StateError> {
        let found: String = self.database.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        let why = match found.as_str() {
            "ok" if self.is_cut_short()? => "it is cut short".to_owned(),
            "ok" => return Ok(()),
            _ => found,
        };
        Err(StateError::Damaged { path: self.path().to_owned(), why })
    }

    /// Returns true if the file ends inside a page and has no log that could complete the page. SQLite does not report
    /// such a file. SQLite reads zeros for the rest of the page, and takes a file shorter than one page for a new one.
    fn is_cut_short(&self) -> Result<bool, StateError> {
        let page_bytes: i64 = self.database.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        let has_log = bytes(&with_suffix(self.path(), "-wal")) > 0;
        Ok(!has_log && bytes(self.path()) % page_bytes.unsigned_abs().max(1) != 0)
    }

    /// Checks that the rows that decide which windows are requested can be read: coverage and unfinished scans.
    ///
    /// # Errors
    /// `Damaged` if a row cannot be read.
    pub(super) fn check_rows(&self) -> Result<(), StateError> {
        let damaged = |why: String| StateError::Damaged { path: self.path().to_owned(), why };
        let read_all = || -> Result<(), StateError> {
            for scope in self.covered_scopes()? {
                self.coverage(scope)?;
            }
            self.unfinished_scans().map(drop)
        };
        read_all().map_err(|error| match error {
            StateError::InvalidValue { what, .. } => damaged(what),
            StateError::Sqlite { source, .. } if source.sqlite_error().is_none() => damaged(source.to_string()),
            other => other,
        })
    }
}

/// Renames a damaged state file and the files that SQLite keeps next to it. Returns the new path of the state file.
fn rename_damaged(path: &Path, now_ms: i64) -> io::Result<PathBuf> {
    let stamp: String = format_ms(now_ms).chars().filter(|char| char.is_ascii_alphanumeric()).collect();
    let renamed = with_suffix(path, &format!(".damaged-{stamp}"));
    for companion in COMPANIONS {
        match fs::rename(with_suffix(path, companion), with_suffix(&renamed, companion)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, &renamed)?;
    Ok(renamed)
}
