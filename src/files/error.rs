//! Errors about files and folders, and what to do if the operating system refuses access.

use std::{
    io,
    path::{Path, PathBuf},
};

use rustix::io::Errno;

use crate::model::{Fault, RunReason};

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
    pub fn of<E: Into<io::Error>>(action: &'static str, path: &Path) -> impl Fn(E) -> FileError + Copy {
        move |source| FileError { action, path: path.to_owned(), source: source.into() }
    }
}

impl Fault for FileError {
    fn reason(&self) -> RunReason {
        RunReason::RunFailed
    }

    fn hint(&self) -> Option<&str> {
        refusal_hint(&self.path, &self.source, FileAccess::Write)
    }
}

const OPEN_FILES: &str = "raise the limit of open files of this program: LimitNOFILE= in a unit of systemd, `ulimit -n` in a shell. No file \
     is damaged";

/// The access that a command needs to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    Read,
    Write,
}

/// Returns true if another user owns a path; for a path that cannot be seen, the nearest folder above it that can.
fn is_of_another_user(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let seen = path.ancestors().find_map(|path| path.metadata().ok());
    seen.is_some_and(|seen| seen.uid() != rustix::process::geteuid().as_raw())
}

/// Returns what to do if the operating system refuses access to a file or folder. The text names the permission that
/// this user lacks. Returns `None` for other errors.
pub fn refusal_hint(path: &Path, error: &io::Error, access: FileAccess) -> Option<&'static str> {
    use io::ErrorKind::{AlreadyExists, NotADirectory, PermissionDenied, ReadOnlyFilesystem};
    let may = |right| rustix::fs::access(path, right).is_ok();
    let is_of_another = is_of_another_user(path);
    // The action. After a first run as root, the files are root's, and the hint also says how to give them back.
    macro_rules! hint {
        ($action:literal) => {
            match is_of_another {
                true => concat!(
                    $action,
                    ". After a run as another user, such as root, give the files back: `chown -R USER: FOLDER`, for the \
                     folders of the state file, the archive and the warehouse"
                ),
                false => $action,
            }
        };
    }
    match error.kind() {
        _ if matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE)) => Some(OPEN_FILES),
        PermissionDenied if path.try_exists().is_err() => {
            Some(hint!("let this user enter the folders above it, or run the command as the user who owns them"))
        }
        PermissionDenied if path.exists() && !may(rustix::fs::Access::READ_OK) => {
            Some(hint!("let this user read it, or run the command as the user who owns it"))
        }
        PermissionDenied if access == FileAccess::Write && path.is_file() && !may(rustix::fs::Access::WRITE_OK) => {
            Some(hint!("make the file writable for this user, or run the command as the user who owns it"))
        }
        ReadOnlyFilesystem if access == FileAccess::Write => {
            Some("its file system is mounted read-only: make it writable, or name another path")
        }
        NotADirectory | AlreadyExists => {
            Some("a file has the name of a needed folder, so nothing below it is writable: name another path")
        }
        PermissionDenied if access == FileAccess::Write => {
            Some(hint!("make the folder writable for this user, or name another path"))
        }
        _ => None,
    }
}
