//! The steps on the file system whose order decides what a crash leaves behind: write, sync, rename, remove.
//!
//! Tests can make every step fail, as if the process were killed at this step.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
    sync::Arc,
};

use super::remote::Remote;
use crate::{
    bucket::Content,
    files,
    load::LoadError,
    model::{DurableStep, Failpoints},
};

/// Called before each step with the step's action and path. If the hook returns an error, the step fails with it.
#[cfg(test)]
pub(super) type StepHook = std::sync::Arc<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// Access to the file system in steps. Failpoints and tests can make each step fail.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) failpoints: Failpoints,
    /// The bucket of the warehouse; `None` for a warehouse in a folder.
    pub(super) remote: Option<Arc<Remote>>,
    #[cfg(test)]
    pub(super) before_step: Option<StepHook>,
}

impl Disk {
    /// Creates an access that hits these failpoints before each step.
    pub(super) fn with_failpoints(failpoints: Failpoints) -> Self {
        Self { failpoints, ..Self::default() }
    }

    /// Returns the bucket if it keeps the file at this path.
    fn remote_of(&self, path: &Path) -> Option<&Remote> {
        self.remote.as_deref().filter(|remote| remote.keeps(path))
    }

    /// Writes a small file and makes its content durable. The name of the file in its folder is durable only after
    /// [`Disk::sync`].
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), LoadError> {
        self.step("write", path)?;
        let written = File::create(path).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.map_err(LoadError::io("write", path))
    }

    /// Makes durable the content of a file, or the names of the files in a folder. A working copy need not be durable.
    pub(super) fn sync(&self, path: &Path) -> Result<(), LoadError> {
        self.step("sync", path)?;
        if self.remote.is_some() {
            return Ok(());
        }
        File::open(path).and_then(|file| file.sync_all()).map_err(LoadError::io("sync", path))
    }

    /// Creates a folder durably, unless the folder exists. The parent of the folder must exist.
    pub(super) fn create_folder(&self, path: &Path) -> Result<(), LoadError> {
        if path.is_dir() {
            return Ok(());
        }
        self.step("create", path)?;
        files::create_folders(path).map_err(LoadError::io("create", path))?;
        path.parent().map_or(Ok(()), |parent| self.sync(parent))
    }

    /// Renames a file or folder durably. A file at the target is replaced.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), LoadError> {
        self.step("rename", to)?;
        if from.is_dir() {
            fs::rename(from, to).map_err(LoadError::io("replace", to))?;
            return to.parent().map_or(Ok(()), |parent| self.sync(parent));
        }
        if let Some(remote) = self.remote_of(to) {
            remote.put(to, Content::File(from))?;
        }
        files::move_over(from, to).map_err(LoadError::io("replace", to))?;
        if let Some(remote) = self.remote_of(to) {
            remote.arrived(to);
        }
        // `move_over` has synced the folder already, so only the failpoint is hit.
        to.parent().map_or(Ok(()), |parent| self.step("sync", parent))
    }

    /// Replaces the content of a small file atomically and durably.
    pub(super) fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), LoadError> {
        let new = files::with_suffix(path, ".new");
        self.write(&new, bytes)?;
        self.rename(&new, path)
    }

    /// Removes a file durably, if it exists.
    pub(super) fn remove_file(&self, path: &Path) -> Result<(), LoadError> {
        self.step("remove", path)?;
        if let Some(remote) = self.remote_of(path) {
            remote.remove(path)?;
        }
        files::remove(path).map_err(LoadError::io("remove", path))?;
        path.parent().map_or(Ok(()), |parent| self.sync(parent))
    }

    /// Removes a folder with its content, if the folder exists. The removal is not made durable: if a crash restores
    /// files, the next open removes them.
    pub(super) fn remove_folder(&self, path: &Path) -> Result<(), LoadError> {
        self.step("remove", path)?;
        match fs::remove_dir_all(path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(LoadError::io("remove", path)(source)),
            _ => Ok(()),
        }
    }

    /// Hits the failpoint of a step, which must happen before the step. Callers that write or create files without this
    /// module call this function themselves. `action` is `write`, `sync`, `create`, `rename` or `remove`.
    pub(super) fn step(&self, action: &'static str, path: &Path) -> Result<(), LoadError> {
        #[cfg(test)]
        if let Some(before_step) = &self.before_step {
            before_step(&format!("{action} {}", path.display())).map_err(LoadError::io(action, path))?;
        }
        let step = match action {
            "write" => DurableStep::ParquetWritten,
            "sync" => DurableStep::ParquetSynced,
            "create" => DurableStep::ParquetFolderMade,
            "rename" => DurableStep::ParquetRenamed,
            _ => DurableStep::ParquetRemoved,
        };
        self.failpoints.hit(step).map_err(LoadError::io(action, path))
    }
}
