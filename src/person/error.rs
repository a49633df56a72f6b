//! What can go wrong with the list of those who are suppressed.

use std::{io, path::PathBuf};

/// An error of the list or of its key.
#[derive(Debug, thiserror::Error)]
pub enum SuppressionError {
    /// Reading or writing failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        action: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file is not what this program wrote.
    #[error("{} cannot be read: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    /// There are people to be kept out, and nothing to know them by: going on would let them back in.
    #[error("{} names people to be kept out, and their key {} is gone", list.display(), key.display())]
    KeyLost { list: PathBuf, key: PathBuf },
    /// The file was written by a newer version of this program.
    #[error("{} was written by a newer version of studysync", path.display())]
    Newer { path: PathBuf },
}
