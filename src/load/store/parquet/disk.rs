//! The steps on the file system whose order decides what a crash can leave behind: write, sync, rename, remove.
//!
//! Knows nothing of tables and parts. Every step can be made to fail in tests, which is how kills are tried out.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use crate::{
    files,
    load::LoadError,
    model::{DurableStep, Failpoints},
};

/// Called with the name of a step before it is taken; an error stands for the process being killed just then.
#[cfg(test)]
pub(super) type StepHook = std::sync::Arc<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// The file system, one named step at a time.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) failpoints: Failpoints,
    #[cfg(test)]
    pub(super) before_step: Option<StepHook>,
}

impl Disk {
    /// With somebody who watches its steps.
    pub(super) fn watched(failpoints: Failpoints) -> Self {
        Self {
            failpoints,
            #[cfg(test)]
            before_step: None,
        }
    }

    /// Writes a new small file, durably; the folder's entry for it still needs [`Disk::sync_folder`].
    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), LoadError> {
        self.step("write", path)?;
        let written = File::create(path).and_then(|mut file| {
            file.write_all(bytes)?;
            file.sync_all()
        });
        written.map_err(|source| io_error("write", path, source))
    }

    /// Makes the content of a file durable that something else wrote.
    pub(super) fn sync_file(&self, path: &Path) -> Result<(), LoadError> {
        self.step("sync", path)?;
        File::open(path).and_then(|file| file.sync_all()).map_err(|source| io_error("sync", path, source))
    }

    /// Makes the entries of a folder durable.
    pub(super) fn sync_folder(&self, path: &Path) -> Result<(), LoadError> {
        self.step("sync", path)?;
        File::open(path).and_then(|folder| folder.sync_all()).map_err(|source| io_error("sync", path, source))
    }

    /// Creates a folder, durably, unless it is there; the one above it must be.
    pub(super) fn create_folder(&self, path: &Path) -> Result<(), LoadError> {
        if path.is_dir() {
            return Ok(());
        }
        self.step("create", path)?;
        files::create_folders(path).map_err(|source| io_error("create", path, source))?;
        path.parent().map_or(Ok(()), |parent| self.sync_folder(parent))
    }

    /// Puts a file or folder in the place of another in one step, and makes it durable there.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<(), LoadError> {
        self.step("rename", to)?;
        if from.is_dir() {
            fs::rename(from, to).map_err(|source| io_error("replace", to, source))?;
            return to.parent().map_or(Ok(()), |parent| self.sync_folder(parent));
        }
        files::move_over(from, to).map_err(|source| io_error("replace", to, source))?;
        to.parent().map_or(Ok(()), |parent| self.step("sync", parent))
    }

    /// Removes a file, durably, if it is there.
    pub(super) fn remove_file(&self, path: &Path) -> Result<(), LoadError> {
        self.step("remove", path)?;
        files::remove(path).map_err(|source| io_error("remove", path, source))?;
        path.parent().map_or(Ok(()), |parent| self.sync_folder(parent))
    }

    /// Removes a folder with what is in it, if it is there. Not synced: whoever comes next removes it again.
    pub(super) fn remove_folder(&self, path: &Path) -> Result<(), LoadError> {
        self.step("remove", path)?;
        match fs::remove_dir_all(path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(io_error("remove", path, source)),
            _ => Ok(()),
        }
    }

    /// Names a step that is about to be taken by something else, the engine above all.
    pub(super) fn step(&self, action: &'static str, path: &Path) -> Result<(), LoadError> {
        #[cfg(test)]
        if let Some(before_step) = &self.before_step {
            before_step(&format!("{action} {}", path.display())).map_err(|source| io_error(action, path, source))?;
        }
        let step = match action {
            "write" => DurableStep::ParquetWritten,
            "sync" => DurableStep::ParquetSynced,
            "create" => DurableStep::ParquetFolderMade,
            "rename" => DurableStep::ParquetRenamed,
            _ => DurableStep::ParquetRemoved,
        };
        self.failpoints.hit(step).map_err(|source| io_error(action, path, source))
    }
}

/// The error of a failed step; a full disk has its own, because the user can do something about it.
pub(super) fn io_error(action: &'static str, path: &Path, source: io::Error) -> LoadError {
    LoadError::io(action, path, source)
}
