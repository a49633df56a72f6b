//! An I/O error with its action and its path.

use std::{
    io,
    path::{Path, PathBuf},
};

/// An action on a file or folder failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct FileError {
    /// A verb in the infinitive, with its preposition: "list", "look at".
    pub action: &'static str,
    pub path: PathBuf,
    pub source: io::Error,
}

impl FileError {
    /// Returns a function for `map_err` that adds the action and the path to an I/O error.
    pub fn of(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError {
        move |source| FileError { action, path: path.to_owned(), source }
    }
}
