//! Leaves no byte of what was deleted, and says which files belong to a state file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::model::DurableStep;

use super::{State, StateError};

/// The folder of erasures is beside the state file too, and looked after elsewhere.
const NOT_OURS: &str = ".erasures";

/// A text of the history that somebody asks to be changed.
type Change<'a> = dyn FnMut(&str) -> Option<String> + 'a;

impl State {
    /// Changes the texts of the history of runs, and returns how many changed.
    pub fn change_reports(&mut self, change: &mut Change<'_>) -> Result<u64, StateError> {
        let failed = self.failed("write");
        let mut apply = || -> rusqlite::Result<u64> {
            let transaction = self.connection.transaction()?;
            let mut changed = Vec::new();
            {
                let mut statement = transaction.prepare("SELECT run_id, report FROM runs WHERE report IS NOT NULL")?;
                let mut rows = statement.query([])?;
                while let Some(row) = rows.next()? {
                    let report: String = row.get(1)?;
                    if let Some(report) = change(&report) {
                        changed.push((row.get::<_, String>(0)?, report));
                    }
                }
            }
            for (run_id, report) in &changed {
                transaction.execute("UPDATE runs SET report = ?2 WHERE run_id = ?1", (run_id, report))?;
            }
            transaction.commit()?;
            Ok(changed.len() as u64)
        };
        apply().map_err(failed)
    }

    /// Writes the file anew, without what was deleted from it, and empties its log.
    pub fn wipe(&mut self) -> Result<(), StateError> {
        self.hit(DurableStep::StateRewritten)?;
        let wiped = self.connection.execute_batch(
            "PRAGMA secure_delete = ON; PRAGMA wal_checkpoint(TRUNCATE); VACUUM; PRAGMA wal_checkpoint(TRUNCATE)",
        );
        wiped.map_err(self.failed("write anew"))
    }
}

/// The state file and what lies beside it under its name: its logs, its lock, and damaged ones that were put aside.
pub fn files_of(state: &Path) -> std::io::Result<Vec<PathBuf>> {
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
        // Without `-` or `.` it is another state file, whose name begins with this one's.
        let is_ours = |rest: &str| rest.is_empty() || (rest.starts_with(['-', '.']) && rest != NOT_OURS);
        if found.strip_prefix(&name).is_some_and(is_ours) && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a file was put aside because it was damaged.
pub fn was_put_aside(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".damaged-"))
}
