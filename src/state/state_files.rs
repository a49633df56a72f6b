//! Functions for erasures: edit the stored reports, rewrite the state file without deleted bytes, find the files that
//! belong to a state file, and read their raw bytes.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::{FileExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{
    files::{self, FileError, with_suffix},
    model::DurableStep,
};

use super::{Inbox, State, StateError, lock::try_lock};

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

    /// Writes a complete copy of the file to `path`, where no file is. Who may read the file may read the copy.
    pub fn copy_to(&self, path: &Path) -> Result<(), StateError> {
        let failed = |source| StateError::Inaccessible { path: path.to_owned(), source };
        let rights = fs::metadata(self.path()).map_err(failed)?.permissions();
        // SQLite writes to an empty file that is there, and gives a new one the rights of any other file.
        File::create_new(path).and_then(|file| file.set_permissions(rights)).map_err(failed)?;
        let copied = self.database.connection.execute("VACUUM INTO ?1", [path.to_string_lossy()]);
        copied.map(drop).map_err(self.database.failed("copy"))
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

/// Replaces the state file by a copy of another machine, if no command has the lease and `may` returns true then.
/// Returns whether it was replaced.
pub fn replace_file(state: &Path, bytes: &[u8], may: impl FnOnce() -> bool) -> Result<bool, StateError> {
    let Some(_lock) = try_lock(state)?.filter(|_| may()) else { return Ok(false) };
    for suffix in ["-wal", "-shm"] {
        let log = with_suffix(state, suffix);
        files::remove(&log).map_err(FileError::of("remove", &log))?;
    }
    files::write_private(state, bytes).map_err(FileError::of("write", state))?;
    Ok(true)
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

/// The databases that [`open_raw`] opened. They stay open until the process ends: closing a file drops every lock that
/// the process has on the file, also the locks of SQLite's connections.
static OPEN_DATABASES: Mutex<Vec<(FileId, Arc<File>)>> = Mutex::new(Vec::new());

/// Device and inode of a file.
type FileId = (u64, u64);

/// A file that is open to read its raw bytes.
#[derive(Debug)]
pub struct RawFile {
    file: Arc<File>,
    /// Number of bytes that were read.
    offset: u64,
}

impl Read for RawFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buffer, self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

/// Opens any file to read its raw bytes. The connections of this process to the state file and its inbox keep their
/// locks, also if `path` is one of these databases. Returns `None` for the shared memory of these databases, which has
/// locks too and contains no text.
pub fn open_raw(path: &Path, state: &Path) -> io::Result<Option<RawFile>> {
    let wanted = file_id(&fs::metadata(path)?);
    let is_wanted = |path: &Path| fs::metadata(path).is_ok_and(|found| file_id(&found) == wanted);
    let databases = [state.to_owned(), Inbox::path_of(state)];
    if databases.iter().any(|database| is_wanted(&with_suffix(database, "-shm"))) {
        return Ok(None);
    }
    if !databases.iter().any(|database| is_wanted(database)) {
        return Ok(Some(RawFile { file: Arc::new(File::open(path)?), offset: 0 }));
    }
    let mut open = OPEN_DATABASES.lock().unwrap_or_else(PoisonError::into_inner);
    let known = open.iter().find(|(id, _)| *id == wanted).map(|(_, file)| Arc::clone(file));
    let file = match known {
        Some(file) => file,
        None => {
            let file = Arc::new(File::open(path)?);
            open.push((file_id(&file.metadata()?), Arc::clone(&file)));
            file
        }
    };
    Ok(Some(RawFile { file, offset: 0 }))
}

fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// Returns true if a path is that of a damaged state file that was renamed.
pub fn is_damaged_copy(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(".damaged-"))
}
