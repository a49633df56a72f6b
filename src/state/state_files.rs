//! Functions for erasures: edit the stored reports, rewrite the state file without deleted bytes, and find the files
//! that belong to a state file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::model::DurableStep;

use super::{State, StateError};

/// Suffix of the folder of erasures next to the state file, which is no file of the state.
const ERASURES_SUFFIX: &str = ".erasures";

impl State {
    /// Edits the run JSON of every run in the history. `edit` returns the new text, or `None` for no change. Returns
    /// the number of changed runs.
    pub fn edit_reports(&mut self, mut edit: impl FnMut(&str) -> Option<String>) -> Result<u64, StateError> {
        self.database.transact(|transaction| {
            let mut edited = Vec::new();
            let mut statement = transaction.prepare("SELECT run_id, report FROM runs WHERE report IS NOT NULL")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                if let Some(report) = edit(&row.get::<_, String>(1)?) {
                    edited.push((row.get::<_, String>(0)?, report));
                }
            }
            for run in &edited {
                transaction.execute("UPDATE runs SET report = ?2 WHERE run_id = ?1", (&run.0, &run.1))?;
            }
            Ok(edited.len() as u64)
        })
    }

    /// Rewrites the file without the bytes of deleted rows, and empties SQLite's log.
    pub fn rewrite_without_deleted(&mut self) -> Result<(), StateError> {
        self.hit(DurableStep::StateRewritten)?;
        let rewritten = self.database.connection.execute_batch(
            "PRAGMA secure_delete = ON; PRAGMA wal_checkpoint(TRUNCATE); VACUUM; PRAGMA wal_checkpoint(TRUNCATE)",
        );
        rewritten.map_err(self.database.failed("rewrite"))
    }
}

/// Returns the state file and the files next to it that belong to it, such as logs, lock, inbox, and renamed damaged
/// files. Sorted; empty if the folder does not exist.
pub fn state_files(state: &Path) -> std::io::Result<Vec<PathBuf>> {
    let folder = state.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = state.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut files = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(files),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        let found = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A name that continues otherwise belongs to another state file whose name begins with the same letters.
        let is_suffix = |rest: &str| rest.is_empty() || (rest.starts_with(['-', '.']) && rest != ERASURES_SUFFIX);
        if found.strip_prefix(&name).is_some_and(is_suffix) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns true if a path is that of a damaged state file that was renamed.
pub fn is_damaged_copy(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".damaged-"))
}
