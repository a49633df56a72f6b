//! The error of files with recordings of answers.

use std::{
    io,
    path::{Path, PathBuf},
};

/// A file or folder with recordings of answers cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {}", path.display())]
pub struct RecordingsError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// Returns a function for `map_err` that adds the action and the path to an I/O error.
pub(super) fn failed<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl FnOnce(E) -> RecordingsError {
    let path = path.to_owned();
    move |source| RecordingsError { action, path, source: source.into() }
}
