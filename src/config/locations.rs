//! Resolves symbolic links of files and folders, and chooses the default folder of pages. This module reads no file's
//! content.
//!
//! Files such as `<state file>.inbox` are named after the file itself, not after a link to it.

use std::path::{Path, PathBuf};

use super::{
    defaults::{ARCHIVE_FOLDER, STATE_PATH},
    error::{ConfigError, invalid},
};
use crate::files;

/// Suffixes of the files next to a state file that must move with the state file: suppressed people, and the inbox of
/// webhooks.
const STATE_COMPANIONS: [&str; 2] = [".erasures", ".inbox"];

/// Returns the path with its symbolic links resolved. The file itself need not exist.
///
/// # Errors
/// A link that cannot be read, or whose target folder is missing.
pub(super) fn resolve_links(path: PathBuf) -> Result<PathBuf, ConfigError> {
    let failed = |source| ConfigError::Link { path: path.clone(), source };
    let target = files::real_path(&path).map_err(failed)?;
    let folder = files::folder_of(&target);
    // If the folder of the link's target is missing, the disk may not be mounted. A new warehouse there would look as
    // if the old one were lost.
    if target != path && files::metadata(folder).map_err(failed)?.is_none() {
        let problem =
            format!("it is a link to {}, and the folder {} does not exist", target.display(), folder.display());
        return Err(invalid(path.display().to_string(), problem));
    }
    Ok(target)
}

/// Returns the path of the state file with its symbolic links resolved.
///
/// # Errors
/// [`resolve_links`] fails, or companion files of the state are next to the link and not next to its target.
pub(super) fn resolve_state_links(path: PathBuf) -> Result<PathBuf, ConfigError> {
    let target = resolve_links(path.clone())?;
    if target == path {
        return Ok(target);
    }
    for suffix in STATE_COMPANIONS {
        let misplaced = files::with_suffix(&path, suffix);
        let expected = files::with_suffix(&target, suffix);
        if misplaced.try_exists().unwrap_or(true) && misplaced.canonicalize().ok() != expected.canonicalize().ok() {
            let problem =
                format!("it is a link to {}: move {} to {}", target.display(), misplaced.display(), expected.display());
            return Err(invalid(path.display().to_string(), problem));
        }
    }
    Ok(target)
}

/// Returns the default folder called `name` for the pages of a state file. A state file with the default name has
/// `name` next to it; any other state file has `<state file>.name`. So two state files in one folder do not share a
/// folder of pages.
pub(super) fn default_page_folder(state: &Path, name: &str) -> PathBuf {
    let default_state =
        Path::new(STATE_PATH).file_name().map(|file_name| state.with_file_name(file_name)).unwrap_or_default();
    let shared = state.with_file_name(name);
    let separate = files::with_suffix(state, &format!(".{name}"));
    // Earlier versions used the shared folder for every state file. An existing shared archive stays in use.
    let is_of_earlier_version =
        name == ARCHIVE_FOLDER && shared.is_dir() && !separate.exists() && !default_state.exists();
    if state == default_state || is_of_earlier_version { shared } else { separate }
}
