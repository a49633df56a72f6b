//! A state file that is torn or overwritten: found at open, put aside, and begun anew. What it knew is rebuilt from the
//! ledgers of the warehouses, which is not done here.
//!
//! Found is what SQLite's own check finds, and rows that this program never writes. A value that was changed into
//! another valid one is not: SQLite keeps no checksums.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{files::with_suffix, model::format_ms};

use super::{State, StateError, lock};

/// What SQLite keeps beside a database, and what becomes of it. The log goes first:
/// left alone beside a new file it would be replayed into it.
const COMPANIONS: [&str; 2] = ["-wal", "-shm"];

impl State {
    /// Like [`State::open`], but a damaged file is put aside under another name, which is returned, and a new one is
    /// begun. `now_ms` is this machine's time, for that name.
    pub fn open_or_begin_anew(
        path: &Path,
        base_url: &str,
        environment: &str,
        now_ms: i64,
    ) -> Result<(State, Option<PathBuf>), StateError> {
        let why = match State::open(path, base_url, environment) {
            Err(StateError::Damaged { why, .. }) => why,
            opened => return opened.map(|state| (state, None)),
        };
        // Under the lock of the lease: no other run may be at work on it.
        // It stays with this process until both are done.
        let Some(_lock) = lock::try_lock(path)? else {
            return Err(StateError::Leased { path: path.to_owned(), holder: None });
        };
        let aside = put_aside(path, now_ms).map_err(|source| StateError::PutAside { path: path.to_owned(), source })?;
        tracing::warn!(why, kept_as = %aside.display(), "the state file {} is damaged", path.display());
        Ok((State::open(path, base_url, environment)?, Some(aside)))
    }

    /// An error if the pages of the file do not fit together. Reads all of it: a few megabytes after years.
    pub(super) fn check_pages(&self) -> Result<(), StateError> {
        let found: String =
            self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(self.failed("read"))?;
        let why = match found.as_str() {
            "ok" if self.is_cut_short()? => "it is cut short".to_owned(),
            "ok" => return Ok(()),
            _ => found,
        };
        Err(StateError::Damaged { path: self.path.clone(), why })
    }

    /// Whether the file ends inside a page: SQLite reads zeros for the rest of it, and takes what is shorter than a
    /// page for a new database. With a log beside it, it is for the log to complete the file.
    fn is_cut_short(&self) -> Result<bool, StateError> {
        let page_bytes: i64 =
            self.connection.pragma_query_value(None, "page_size", |row| row.get(0)).map_err(self.failed("read"))?;
        let bytes = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
        let has_log = bytes(&with_suffix(&self.path, "-wal")) > 0;
        Ok(!has_log && bytes(&self.path) % page_bytes.unsigned_abs().max(1) != 0)
    }

    /// An error if a row that decides what is asked for cannot be read.
    pub(super) fn check_rows(&self) -> Result<(), StateError> {
        let damaged = |why: String| StateError::Damaged { path: self.path.clone(), why };
        let read_all = || -> Result<(), StateError> {
            for scope in self.covered_scopes()? {
                self.coverage(scope)?;
            }
            self.scans_under_way().map(drop)
        };
        read_all().map_err(|error| match error {
            StateError::Unreadable { what, .. } => damaged(what),
            StateError::Sqlite { source, .. } if source.sqlite_error().is_none() => damaged(source.to_string()),
            other => other,
        })
    }
}

fn put_aside(path: &Path, now_ms: i64) -> io::Result<PathBuf> {
    let stamp: String = format_ms(now_ms).chars().filter(|char| char.is_ascii_alphanumeric()).collect();
    let aside = with_suffix(path, &format!(".damaged-{stamp}"));
    for companion in COMPANIONS {
        match fs::rename(with_suffix(path, companion), with_suffix(&aside, companion)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, &aside)?;
    Ok(aside)
}
