//! Errors of the suppression list and its key.

use std::path::PathBuf;

use crate::{
    files::FileError,
    model::{Fault, RunReason, USE_NEWER},
};

/// An error of the suppression list or of its key.
#[derive(Debug, thiserror::Error)]
pub enum SuppressionError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content of the file is invalid.
    #[error("{} cannot be read: {why}", path.display())]
    Damaged { path: PathBuf, why: String },
    /// The list has entries but no key. Without the key their people are not recognized and would be stored again.
    #[error("{} lists erased people, but its key {} is missing", list.display(), key.display())]
    KeyLost { list: PathBuf, key: PathBuf },
    /// The list is missing, but an erasure in a warehouse needs it. Its people would be stored again.
    #[error("{} is missing, which keeps out the people of the erasure {erasure_id}", list.display())]
    ListLost { list: PathBuf, erasure_id: String },
    /// This machine and the copy in a bucket have erased people, with different keys. Hashes of one key say nothing to
    /// the other.
    #[error("{} and {copy} list erased people with different keys", folder.display())]
    OtherKey { folder: PathBuf, copy: String },
    /// A newer version of this program wrote the file.
    #[error("{} was written by a newer version of studysync", path.display())]
    Newer { path: PathBuf },
}

impl Fault for SuppressionError {
    fn reason(&self) -> RunReason {
        RunReason::RunFailed
    }

    fn hint(&self) -> Option<&str> {
        Some(match self {
            SuppressionError::File(error) => error.hint()?,
            SuppressionError::KeyLost { .. } => {
                "restore the key from a backup: without it, erased people would come back. If it is lost, replace suppressed.json by an \
                 empty list ({\"format_version\":1,\"erasures\":[]}) and erase them again"
            }
            SuppressionError::ListLost { .. } => {
                "restore the folder from a backup: without it, erased people would come back. If it is lost, write an empty list \
                 ({\"format_version\":1,\"erasures\":[]}) and erase them again"
            }
            SuppressionError::OtherKey { .. } => {
                "move the folder of this machine away, so that the next run begins with the list of the bucket; then erase the people \
                 of the moved list again"
            }
            SuppressionError::Damaged { .. } => "restore it from a backup",
            SuppressionError::Newer { .. } => USE_NEWER,
        })
    }
}
