//! Where things are: links are followed once, here, so that whatever lies beside a file lies beside the file itself;
//! and pages go to a folder that is named after the state file. Reads links and names, and no file.

use std::path::{Path, PathBuf};

use super::{
    error::{ConfigError, value},
    resolve::{ARCHIVE_FOLDER, STATE_PATH},
};
use crate::files;

/// What lies beside a state file and must not be left behind: who is kept out, and what webhooks told.
const BESIDE_STATE: [&str; 2] = [".erasures", ".inbox"];

/// The file or folder that a path leads to.
pub(super) fn real(path: PathBuf) -> Result<PathBuf, ConfigError> {
    let failed = |source| ConfigError::Link { path: path.clone(), source };
    let real = files::real_path(&path).map_err(failed)?;
    let folder = files::folder_of(&real);
    // A disk that is not mounted: a new warehouse in its place would look like a lost one.
    if real != path && files::metadata(folder).map_err(failed)?.is_none() {
        let problem = format!("it is a link to {}, and there is no folder {}", real.display(), folder.display());
        return Err(value(path.display().to_string(), problem));
    }
    Ok(real)
}

/// The state file that a path leads to.
pub(super) fn real_state(path: PathBuf) -> Result<PathBuf, ConfigError> {
    let real = real(path.clone())?;
    if real == path {
        return Ok(real);
    }
    for suffix in BESIDE_STATE {
        let left = files::beside(&path, suffix);
        let wanted = files::beside(&real, suffix);
        if left.try_exists().unwrap_or(true) && left.canonicalize().ok() != wanted.canonicalize().ok() {
            let problem =
                format!("it is a link to {}: move {} to {}", real.display(), left.display(), wanted.display());
            return Err(value(path.display().to_string(), problem));
        }
    }
    Ok(real)
}

/// The folder of pages beside a state file where nothing else is said: `name` beside one of the usual name, `<state
/// file>.name` beside any other, so that two state files in one folder share none.
pub(super) fn folder_of_pages(state: &Path, name: &str) -> PathBuf {
    let usual = Path::new(STATE_PATH).file_name().map(|usual| state.with_file_name(usual)).unwrap_or_default();
    let shared = state.with_file_name(name);
    let own = files::beside(state, &format!(".{name}"));
    // Earlier versions used the shared folder for any state file: such a folder stays in use.
    let is_of_before = name == ARCHIVE_FOLDER && shared.is_dir() && !own.exists() && !usual.exists();
    if state == usual || is_of_before { shared } else { own }
}
