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
    collections::BTreeMap,
    fs, io,
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
    state::State,
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
/// run has compared it with the ledger.
const MARK: &str = ".fetched";
/// Suffix of the copy while it is made.
const COPY: &str = ".copy";

/// Fetches the state from the bucket of a warehouse, if this machine has none. Does nothing without a bucket.
///
/// # Errors
/// The bucket or a file fails. A command may go on without the copy: its state is rebuilt from the ledger.
pub fn fetch_state(settings: &Settings) -> Result<(), PipelineError> {
    let path = &settings.state_path;
    let Some(place) = place_in_bucket(settings).filter(|_| !path.exists()) else { return Ok(()) };
    let kept = |name| place.kept_file(name).map_err(failed(place.name()));
    let Some(state) = kept(STATE)? else { return Ok(()) };
    let erasures = kept(ERASURES)?.and_then(|text| serde_json::from_slice::<BTreeMap<String, String>>(&text).ok());
    let folder = settings.erasures_folder();
    for (name, text) in erasures.unwrap_or_default() {
        files::create_folders(&folder).map_err(FileError::of("create", &folder))?;
        // A name with a slash would leave the folder.
        let path = folder.join(Path::new(&name).file_name().unwrap_or_default());
        create(&path, text.as_bytes())?;
    }
    let folder = files::folder_of(path);
    files::create_folders(folder).map_err(FileError::of("create", folder))?;
    create(&mark_of(path), b"")?;
    create(path, &state)?;
    tracing::info!(from = %place.location, "this machine has no state file, so that of the last run is fetched");
    Ok(())
}

/// Creates a file whole, unless it exists: another command may have it open by now.
fn create(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let new = files::with_suffix(path, &format!(".{}", uuid::Uuid::new_v4()));
    files::write_private(&new, bytes).map_err(FileError::of("write", &new))?;
    let linked = fs::hard_link(&new, path);
    files::remove(&new).map_err(FileError::of("remove", &new))?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(FileError::of("create", path)(error)),
        _ => Ok(()),
    }
}

/// Returns true if the state file is a copy that no run has compared with the ledger.
pub(super) fn is_fetched(settings: &Settings) -> bool {
    mark_of(&settings.state_path).exists()
}

/// Notes that the next run takes its coverage from the ledger.
pub(super) fn add_mark(settings: &Settings) -> Result<(), FileError> {
    create(&mark_of(&settings.state_path), b"")
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
        let keep = |name, bytes: &[u8]| place.keep_file(name, bytes).map_err(failed(place.name()));
        keep(STATE, &bytes?)?;
        let erasures = erasures(&self.settings.erasures_folder())?;
        // Without erasures there is nothing to lose.
        match erasures.is_empty() {
            true => Ok(()),
            false => keep(ERASURES, serde_json::to_string(&erasures).unwrap_or_default().as_bytes()),
        }
    }
}

/// Returns the texts of the files in the folder of erasures, by name.
fn erasures(folder: &Path) -> Result<BTreeMap<String, String>, FileError> {
    let mut found = BTreeMap::new();
    for path in files::files_below(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).map_err(FileError::of("read", &path))?;
        found.insert(name, text);
    }
    Ok(found)
}

fn mark_of(state: &Path) -> PathBuf {
    files::with_suffix(state, MARK)
}

fn place_in_bucket(settings: &Settings) -> Option<Place> {
    places(&settings.warehouse).into_iter().find(|place| place.location.bucket.is_some())
}
