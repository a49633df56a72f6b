//! The copy of the state in the bucket of a warehouse, for workers that lose their disk between two runs.
//!
//! ```text
//! .studysync/state/checkpoints.sqlite   the state file at the end of the last command
//! .studysync/state/erasures.json        the files of the folder of erasures: suppressed people, receipts
//! ```
//!
//! A worker without a state file begins with the copy. The copy may be older than the ledger, because a killed run
//! leaves none. So the first run with it takes its coverage from the ledger.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    config::Settings,
    files::{self, FileError},
    load::Place,
    person::{ErasureFiles, SuppressionError, merge_erasures},
    state::{State, replace_file},
};

use super::{
    assemble::{failed, places},
    error::PipelineError,
};

/// Name of the copy of the state file.
const STATE: &str = "checkpoints.sqlite";
/// Name of the copy of the folder of erasures.
const ERASURES: &str = "erasures.json";
/// Suffix of the file that says that the state file is a copy, or that other workers have the same warehouse, until a
/// run has compared it with the ledger. The file is empty until a command changes the state file.
const MARK: &str = ".fetched";
/// Content of the file once a command has changed the state file.
const USED: &[u8] = b"used\n";
/// Suffix of the copy while it is made.
const COPY: &str = ".copy";

/// Fetches the state from the bucket of a warehouse, if this machine has none, or has only a copy that no command has
/// changed. Does nothing without a bucket.
///
/// # Errors
/// The bucket or a file fails. A command may go on without the copy: its state is rebuilt from the ledger.
pub fn fetch_state(settings: &Settings) -> Result<(), PipelineError> {
    let path = &settings.state_path;
    let mark = mark_of(path);
    let is_unused = || fs::read(&mark).is_ok_and(|text| text.is_empty());
    let Some(place) = place_in_bucket(settings).filter(|_| !path.exists() || is_unused()) else { return Ok(()) };
    let Some(state) = read_kept(&place, STATE)? else { return Ok(()) };
    merge_list(settings, &place)?;
    let folder = files::folder_of(path);
    files::create_folders(folder).map_err(FileError::of("create", folder))?;
    if !path.exists() {
        files::write_private(&mark, b"").map_err(FileError::of("write", &mark))?;
        tracing::info!(from = %place.location, "this machine has no state file, so that of the last run is fetched");
    }
    // A command that changes the file now keeps it.
    replace_file(path, &state, is_unused)?;
    Ok(())
}

/// Notes that a command changes the state file, which is then not fetched again. The command has the lease.
pub(super) fn note_use(settings: &Settings) -> Result<(), FileError> {
    let mark = mark_of(&settings.state_path);
    match mark.exists() {
        true => files::write_private(&mark, USED).map_err(FileError::of("write", &mark)),
        false => Ok(()),
    }
}

/// Merges the list of suppressed people in the bucket of the warehouse into that of this machine. Does nothing without
/// a bucket. For a command that has the warehouses open for writing, and before it stores a record: the people whom
/// other machines have erased must not be stored again.
pub(super) fn merge_erasures_of_bucket(settings: &Settings) -> Result<(), PipelineError> {
    place_in_bucket(settings).map_or(Ok(()), |place| merge_list(settings, &place))
}

fn merge_list(settings: &Settings, place: &Place) -> Result<(), PipelineError> {
    let Some(text) = read_kept(place, ERASURES)? else { return Ok(()) };
    let (folder, copy) = (settings.erasures_folder(), place.location.to_string());
    let damaged = |error: serde_json::Error| SuppressionError::Damaged {
        path: Path::new(&copy).join(ERASURES),
        why: error.to_string(),
    };
    let mut other: ErasureFiles = serde_json::from_slice(&text).map_err(damaged)?;
    // A name with a slash would leave the folder.
    other.retain(|name, _| !name.contains('/'));
    let own = erasures(&folder)?;
    let merged = merge_erasures(&own, &other, &folder, &copy)?;
    files::create_folders(&folder).map_err(FileError::of("create", &folder))?;
    for (name, text) in merged.iter().filter(|(name, text)| own.get(*name) != Some(text)) {
        let path = folder.join(name);
        files::write_private(&path, text.as_bytes()).map_err(FileError::of("write", &path))?;
    }
    for name in own.keys().filter(|name| !merged.contains_key(*name)) {
        let path = folder.join(name);
        files::remove(&path).map_err(FileError::of("remove", &path))?;
    }
    Ok(())
}

/// Returns true if the state file is a copy that no run has compared with the ledger.
pub(super) fn is_fetched(settings: &Settings) -> bool {
    mark_of(&settings.state_path).exists()
}

/// Notes that the next run takes its coverage from the ledger.
pub(super) fn add_mark(settings: &Settings) -> Result<(), FileError> {
    let mark = mark_of(&settings.state_path);
    files::write_private(&mark, USED).map_err(FileError::of("write", &mark))
}

/// Notes that the state file fits the ledger.
pub(super) fn remove_mark(settings: &Settings) -> Result<(), FileError> {
    let mark = mark_of(&settings.state_path);
    files::remove(&mark).map_err(FileError::of("remove", &mark))
}

/// Writes copies of the state of a command to the bucket of the warehouse.
#[derive(Clone)]
pub(super) struct StateKeeper {
    pub settings: Settings,
    pub state: Arc<Mutex<State>>,
    /// True once the command has opened the warehouses for writing: the copy belongs to the one that has them open.
    pub has_warehouses: Arc<AtomicBool>,
}

impl StateKeeper {
    /// Writes the state to the bucket of the warehouse, if it is in one. A failure is only logged: the ledger has what
    /// a run needs. Blocks the thread.
    pub fn keep(&self) {
        let Some(place) = place_in_bucket(&self.settings) else { return };
        if !self.has_warehouses.load(Ordering::Relaxed) {
            return;
        }
        if let Err(error) = self.try_keep(&place) {
            tracing::warn!(%error, "the state is not copied to {}", place.location);
        }
    }

    fn try_keep(&self, place: &Place) -> Result<(), PipelineError> {
        let copy = files::with_suffix(&self.settings.state_path, COPY);
        files::remove(&copy).map_err(FileError::of("remove", &copy))?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).copy_to(&copy)?;
        let bytes = fs::read(&copy).map_err(FileError::of("read", &copy));
        files::remove(&copy).map_err(FileError::of("remove", &copy))?;
        let Some(mut kept) = place.kept_files().map_err(failed(place.name()))? else { return Ok(()) };
        // The first run with the copy takes its coverage from the ledger, so it may be that of any run.
        kept.overwrite(STATE, &bytes?).map_err(failed(place.name()))?;
        let erasures = erasures(&self.settings.erasures_folder())?;
        // Without erasures there is nothing to lose.
        match erasures.is_empty() {
            true => Ok(()),
            false => {
                let text = serde_json::to_string(&erasures).unwrap_or_default();
                kept.write(ERASURES, text.as_bytes()).map_err(failed(place.name()))
            }
        }
    }
}

/// Returns the texts of the files in the folder of erasures, by name.
fn erasures(folder: &Path) -> Result<ErasureFiles, FileError> {
    let mut found = ErasureFiles::new();
    for path in files::files_below(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(FileError::of("read", &path))?;
        found.insert(name, text);
    }
    Ok(found)
}

fn read_kept(place: &Place, name: &str) -> Result<Option<Vec<u8>>, PipelineError> {
    let kept = place.kept_files().and_then(|kept| kept.map_or(Ok(None), |mut kept| kept.read(name)));
    kept.map_err(failed(place.name()))
}

fn mark_of(state: &Path) -> PathBuf {
    files::with_suffix(state, MARK)
}

fn place_in_bucket(settings: &Settings) -> Option<Place> {
    places(&settings.warehouse).into_iter().find(|place| place.location.bucket.is_some())
}
