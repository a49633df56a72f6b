//! Paths of the file and of the command line: expands `~`, resolves symbolic links, and chooses the default folder of
//! pages. This module reads no file's content.
//!
//! `~` is expanded as by a shell. Other forms that a shell would expand are errors. Without the error, the program
//! would create a folder with a name such as `$HOME`. Files such as `<state file>.inbox` are named after the file
//! itself, not after a link to it.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    environment::variable,
    error::{ConfigError, invalid},
};
use crate::files::{self, FileError};

pub(super) const STATE_PATH: &str = "studysync-state/checkpoints.sqlite";
pub(super) const ARCHIVE_FOLDER: &str = "archive";
/// Suffixes of the files next to a state file that must move with the state file: suppressed people, and the inbox of
/// webhooks.
const STATE_COMPANIONS: [&str; 2] = [".erasures", ".inbox"];

/// How addresses of MotherDuck begin.
const MOTHERDUCK: [&str; 2] = ["md:", "motherduck:"];
/// The word in place of a path that stands for no archive.
const NO_ARCHIVE: &str = "none";

/// `--archive PATH|none`.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(from = "PathBuf", into = "PathBuf")]
pub enum ArchiveChoice {
    /// Keeps the pages in this folder. The path may be the address of a folder of a bucket.
    Folder(PathBuf),
    /// Deletes the pages of a scan once the scan is committed.
    Nothing,
}

impl From<PathBuf> for ArchiveChoice {
    fn from(path: PathBuf) -> ArchiveChoice {
        if path.as_os_str() == NO_ARCHIVE { ArchiveChoice::Nothing } else { ArchiveChoice::Folder(path) }
    }
}

impl From<ArchiveChoice> for PathBuf {
    fn from(choice: ArchiveChoice) -> PathBuf {
        match choice {
            ArchiveChoice::Folder(path) => path,
            ArchiveChoice::Nothing => NO_ARCHIVE.into(),
        }
    }
}

impl ArchiveChoice {
    pub(super) fn folder_mut(&mut self) -> Option<&mut PathBuf> {
        match self {
            ArchiveChoice::Folder(path) => Some(path),
            ArchiveChoice::Nothing => None,
        }
    }
}

/// Returns the path with a leading `~` replaced by the home folder.
///
/// # Errors
/// A path that is empty, begins with another user's home or a variable, or is a URL or an address of MotherDuck.
pub(super) fn expand_tilde(path: PathBuf) -> Result<PathBuf, String> {
    expand_tilde_with(path, || variable("HOME").filter(|home| !home.is_empty()).map(PathBuf::from))
}

/// Expands a leading `~`, as [`expand_tilde`]. `home` returns the home folder; `None` if it is unknown.
fn expand_tilde_with(path: PathBuf, home: impl FnOnce() -> Option<PathBuf>) -> Result<PathBuf, String> {
    let shown = path.display();
    if path.as_os_str().is_empty() {
        return Err("the path is empty".to_owned());
    }
    let mut components = path.components();
    let Some(Component::Normal(first)) = components.next() else { return Ok(path) };
    let (first, rest) = (first.to_string_lossy(), components.as_path());
    let has_rest = rest != Path::new("");
    if first == "~" {
        let home = home()
            .ok_or_else(|| format!("'{shown}': ~ cannot be expanded, since HOME is not set: write the full path"))?;
        return Ok(home.join(rest));
    }
    if first.starts_with('~') && has_rest {
        return Err(format!("'{shown}': only ~/ is expanded, not the home of another user: write the full path"));
    }
    let is_name =
        |name: &str| name.starts_with(|letter: char| letter.is_ascii_alphabetic() || matches!(letter, '_' | '{'));
    let is_variable = first.strip_prefix('$').is_some_and(is_name)
        || (first.starts_with('%') && first.ends_with('%') && first.len() > 2);
    if is_variable {
        return Err(format!("'{shown}': variables are not expanded: write the path itself, or ~/ for your home"));
    }
    if MOTHERDUCK.iter().any(|scheme| first.starts_with(scheme)) {
        return Err(format!(
            "'{shown}': a warehouse cannot be in MotherDuck. It can read Parquet files: parquet = \"s3://BUCKET/FOLDER\""
        ));
    }
    let is_scheme = |name: &str| name.len() > 2 && name.ends_with(':');
    if is_scheme(&first) && path.to_string_lossy().contains("://") {
        return Err(format!("'{shown}' is an address: only [warehouse] parquet and [archive] path may be in a bucket"));
    }
    Ok(path)
}

/// Returns the path with its symbolic links resolved. The file itself need not exist.
///
/// # Errors
/// A link that cannot be read, or whose target folder is missing.
pub(super) fn resolve_links(path: PathBuf) -> Result<PathBuf, ConfigError> {
    let failed = FileError::of("resolve the links of", &path);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<String, String> {
        expand_tilde_with(PathBuf::from(text), || Some("/home/me".into())).map(|path| path.display().to_string())
    }

    #[test]
    fn only_the_tilde_is_expanded() {
        for (written, meant) in [
            ("~", "/home/me/"),
            ("~/w.duckdb", "/home/me/w.duckdb"),
            ("~//a/../b", "/home/me/a/../b"),
            ("w.duckdb", "w.duckdb"),
            ("./~/w", "./~/w"),
            ("a/~/w", "a/~/w"),
            ("~backup.csv", "~backup.csv"),
            ("/$x", "/$x"),
            ("$5.csv", "$5.csv"),
            ("C:/x", "C:/x"),
        ] {
            assert_eq!(path(written).as_deref(), Ok(meant), "{written}");
        }
        for (written, expected) in [
            ("", "empty"),
            ("~bob/w", "another user"),
            ("$HOME/w", "variables"),
            ("${HOME}/w", "variables"),
            ("%USERPROFILE%/w", "variables"),
            ("s3://bucket/x", "may be in a bucket"),
            ("file:///x", "may be in a bucket"),
            ("md:answers", "MotherDuck"),
            ("motherduck:answers", "MotherDuck"),
        ] {
            let problem = path(written).unwrap_err();
            assert!(problem.contains(expected), "{written}: {problem}");
        }
        assert!(expand_tilde_with("~/x".into(), || None).unwrap_err().contains("HOME is not set"));
    }
}
