//! The errors of the archive, one variant for each reaction of the caller.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::frame::{FileHeader, FrameError};
use crate::{
    bucket::{BucketError, BucketErrorKind},
    files::FileError,
    model::{FREE_SPACE, Fault, RunReason},
};

/// An error of the archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A request to the bucket failed: see the answer of the store.
    #[error(transparent)]
    Bucket(BucketError),
    /// Another process has replaced or removed the object.
    #[error("another process has changed {}", path.display())]
    Changed { path: PathBuf },
    /// No space is left.
    #[error("no space is left for {}", path.display())]
    Full {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file was not written by this program, or its header is torn.
    #[error("{} is not an archive of pages: {why}", path.display())]
    NotOurs { path: PathBuf, why: String },
    /// The file belongs to another service or environment.
    #[error("{} was pulled from {found}, and the settings say {wanted}", path.display())]
    OtherService { path: PathBuf, found: String, wanted: String },
    /// The folder belongs to another state file.
    #[error("{} holds the pages of the state file {found}, and this run uses {wanted}", path.display())]
    OtherOwner { path: PathBuf, found: String, wanted: String },
    /// A page is damaged.
    #[error("page {page} of {} is damaged: {why}", path.display())]
    Damaged { path: PathBuf, page: usize, why: String },
    /// A page is larger than the format allows.
    #[error("a page of {bytes} bytes is over the limit of {limit} bytes")]
    PageTooLarge { bytes: usize, limit: usize },
}

impl ArchiveError {
    /// Builds the error of a file that belongs to another service or environment. `base_url` and `environment` are
    /// those of the settings.
    pub fn other_service(path: PathBuf, header: &FileHeader, base_url: &str, environment: &str) -> Self {
        let found = format!("{} ({})", header.base_url, header.environment);
        ArchiveError::OtherService { path, found, wanted: format!("{base_url} ({environment})") }
    }

    /// Builds the error of a frame that cannot be read. `page` is the number of pages before the frame.
    pub(super) fn frame(error: FrameError, path: &Path, page: usize) -> ArchiveError {
        match error {
            FrameError::Torn(why) => ArchiveError::Damaged { path: path.to_owned(), page, why: why.to_owned() },
            FrameError::Io(source) => ArchiveError::io("read", path)(source),
        }
    }

    /// Adds the action and the path to an I/O error, for `map_err`. A full disk or an exceeded limit becomes `Full`. A
    /// failed request of an [`ObjectReader`](crate::bucket::ObjectReader) becomes the error of the request.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> ArchiveError {
        let path = path.into();
        let other = move |source: io::Error| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                ArchiveError::Full { path, source }
            }
            _ => ArchiveError::File(FileError { action, path, source }),
        };
        move |source| source.downcast::<BucketError>().map_or_else(other, ArchiveError::from)
    }
}

impl From<BucketError> for ArchiveError {
    /// Names a conflict with another process, whose condition is of no use to people.
    fn from(error: BucketError) -> Self {
        match error.kind() {
            BucketErrorKind::Changed => ArchiveError::Changed { path: error.object().into() },
            _ => ArchiveError::Bucket(error),
        }
    }
}

impl Fault for ArchiveError {
    fn reason(&self) -> RunReason {
        match self {
            ArchiveError::Full { .. } => RunReason::DiskFull,
            ArchiveError::OtherService { .. } | ArchiveError::OtherOwner { .. } => RunReason::Configuration,
            ArchiveError::Bucket(error) if error.kind() != BucketErrorKind::Failed => error.reason(),
            _ => RunReason::RunFailed,
        }
    }

    fn hint(&self) -> Option<&str> {
        Some(match self {
            ArchiveError::Damaged { .. } => {
                "the warehouse is unchanged; restore the file from a backup, or leave the archive as it is: only `replay` reads it"
            }
            ArchiveError::Full { .. } => FREE_SPACE,
            ArchiveError::Changed { .. } => {
                "run the command again; only one process at a time may change an archive, with one state file"
            }
            ArchiveError::Bucket(error) => error.hint()?,
            ArchiveError::File(error) => error.hint()?,
            ArchiveError::OtherService { .. } | ArchiveError::OtherOwner { .. } => {
                "name another folder with --archive (path under [archive]): a folder holds the pages of one service, environment and state \
                 file. After the state file was renamed, remove owner.json from the folder"
            }
            _ => return None,
        })
    }
}
