//! Stores recordings of VIDEOVOICE answers (spoken or filmed) as files named by their content hash, in one folder per
//! session.
//!
//! Removing the folder of a session removes all recordings of the session (promise P9).
//!
//! ```text
//! 3f/3fa1…/<sha-256>       a recording
//! 3f/3fa1…/<upload>.json   the outcome of an upload: its recording, or why there is none
//! 3f/3fa1…/<upload>.part   an unfinished download; <upload>.part.json has the version of the remote file
//! ```
//!
//! Names of folders and uploads are hashes, because ids of the service are arbitrary texts. This module sends no
//! requests and knows no warehouse.

mod partial;
mod upload;

pub use partial::{FileVersion, PartialFile};
pub use upload::{MissingReason, MissingRecording, Recording, STORED, UploadKey, UploadOutcome};

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    files::{self, FileError},
    model::{DurableStep, Failpoints, Identifier, IdentifierKind, RowStamp},
};

/// A folder of recordings. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recordings {
    root: PathBuf,
    failpoints: Failpoints,
}

/// Counts of the stored recordings of some sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredRecordings {
    /// Number of sessions that have a folder.
    pub sessions: u64,
    /// Number of complete recordings and partial downloads.
    pub files: u64,
    /// Size of the recordings and partial downloads.
    pub bytes: u64,
}

impl Recordings {
    /// Returns the recordings in a folder, which may not exist yet.
    pub fn at(root: &Path, failpoints: Failpoints) -> Recordings {
        Recordings { root: root.to_owned(), failpoints }
    }

    /// Creates the folder if it does not exist.
    pub fn make_folder(&self) -> Result<(), FileError> {
        files::create_folders(&self.root).map_err(FileError::of("create", &self.root))
    }

    /// Returns true if the folder exists.
    pub fn is_there(&self) -> bool {
        self.root.is_dir()
    }

    /// Returns the stored outcome of an upload. Returns `None` if no outcome is stored, if its file is no valid JSON,
    /// or if the recording is missing or has another size.
    pub fn find(&self, key: &UploadKey) -> Result<Option<UploadOutcome>, FileError> {
        Ok(self.noted(key)?.filter(|outcome| match outcome {
            UploadOutcome::Stored(recording) => self.is_stored(&self.relative_path(key, recording), recording.bytes),
            UploadOutcome::Missing(_) => true,
        }))
    }

    /// Returns true if a recording has a file of this size. Also true if that cannot be found out.
    pub fn is_stored(&self, relative_path: &Path, bytes: u64) -> bool {
        let found = files::metadata(&self.root.join(relative_path));
        found.map_or(true, |found| found.is_some_and(|found| found.len() == bytes))
    }

    /// Returns the noted outcome of an upload, also if the file of the recording is gone. Returns `None` if no outcome
    /// is stored, or if its file is no valid JSON.
    pub fn noted(&self, key: &UploadKey) -> Result<Option<UploadOutcome>, FileError> {
        let path = self.outcome_path(key);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(FileError::of("read", &path))?,
        };
        // A damaged outcome file only costs one more download.
        Ok(serde_json::from_slice(&text).ok())
    }

    /// Returns the path of a recording, relative to the folder of all recordings.
    pub fn relative_path(&self, key: &UploadKey, recording: &Recording) -> PathBuf {
        folder_of(&key.session).join(&recording.sha256)
    }

    /// Begins a download, or resumes an interrupted one.
    pub fn begin(&self, key: &UploadKey) -> Result<PartialFile, FileError> {
        let folder = self.root.join(folder_of(&key.session));
        files::create_folders(&folder).map_err(FileError::of("create", &folder))?;
        PartialFile::open(folder.join(key.name()))
    }

    /// Moves a complete download to the path with the hash of its content, and writes the outcome of the upload. Both
    /// are durable when this function returns. `media_type` is the type that the host sent. `written` returns
    /// [`Recording::written`] for a hash.
    pub fn store(
        &self,
        key: &UploadKey,
        partial: PartialFile,
        media_type: Option<String>,
        now_ms: i64,
        written: impl FnOnce(&str) -> Result<Option<RowStamp>, FileError>,
    ) -> Result<Recording, FileError> {
        let (sha256, bytes, from) = partial.finish()?;
        let written = written(&sha256)?;
        let recording = Recording { sha256, bytes, media_type, fetched_ms: now_ms, written };
        let path = self.root.join(self.relative_path(key, &recording));
        self.failpoints.hit(DurableStep::RecordingKept).map_err(FileError::of("keep", &path))?;
        files::replace(&from, &path).map_err(FileError::of("keep", &path))?;
        self.note(key, &UploadOutcome::Stored(recording.clone()))?;
        PartialFile::forget(&self.root.join(folder_of(&key.session)).join(key.name()))?;
        Ok(recording)
    }

    /// Removes a partial download that will not be resumed.
    pub fn discard(&self, key: &UploadKey) -> Result<(), FileError> {
        PartialFile::remove(&self.root.join(folder_of(&key.session)).join(key.name()))
    }

    /// Writes the outcome of an upload next to the recordings, durably.
    pub fn note(&self, key: &UploadKey, upload: &UploadOutcome) -> Result<(), FileError> {
        use std::io::Write as _;
        let path = self.outcome_path(key);
        let write = || {
            files::create_folders(files::folder_of(&path))?;
            let text = serde_json::to_vec(upload)?;
            let mut output = files::Output::begin(&path, ".new", files::Access::Private)?;
            output.write_all(&text)?;
            self.failpoints.hit(DurableStep::RecordingNoted)?;
            output.finish()
        };
        write().map_err(FileError::of("write", &path))
    }

    fn outcome_path(&self, key: &UploadKey) -> PathBuf {
        self.root.join(folder_of(&key.session)).join(key.name() + ".json")
    }

    /// Counts the recordings of the sessions among these identifiers. Other identifiers are ignored.
    pub fn count(&self, people: &[Identifier]) -> Result<StoredRecordings, FileError> {
        let mut stored = StoredRecordings::default();
        for folder in self.folders_of(people) {
            let Some(entries) = listed(&folder)? else { continue };
            stored.sessions += 1;
            for entry in entries {
                let path = entry.path();
                if path.extension().is_none_or(|extension| extension == "part") {
                    stored.files += 1;
                    stored.bytes += entry.metadata().map_err(FileError::of("look at", &path))?.len();
                }
            }
        }
        Ok(stored)
    }

    /// Returns the paths of the complete recordings of the sessions among these identifiers, relative to the folder.
    pub fn paths_of(&self, people: &[Identifier]) -> Result<Vec<PathBuf>, FileError> {
        let mut paths = Vec::new();
        for folder in self.folders_of(people) {
            let files = listed(&folder)?.into_iter().flatten().map(|entry| entry.path());
            let recordings = files.filter(|path| path.extension().is_none());
            paths.extend(recordings.filter_map(|path| Some(path.strip_prefix(&self.root).ok()?.to_owned())));
        }
        paths.sort();
        Ok(paths)
    }

    /// Returns the folder of all recordings.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Removes the folders of the sessions among these identifiers, durably. Returns the number of removed recordings
    /// and partial downloads.
    pub fn remove(&self, people: &[Identifier]) -> Result<u64, FileError> {
        let stored = self.count(people)?;
        for folder in self.folders_of(people) {
            if files::metadata(&folder).map_err(FileError::of("look at", &folder))?.is_none() {
                continue;
            }
            self.failpoints.hit(DurableStep::RecordingRemoved).map_err(FileError::of("remove", &folder))?;
            fs::remove_dir_all(&folder).map_err(FileError::of("remove", &folder))?;
            let above = files::folder_of(&folder);
            files::sync_folder(above).map_err(FileError::of("sync", above))?;
        }
        Ok(stored.files)
    }

    /// Returns the folders of the sessions among these identifiers, sorted. A folder may not exist.
    fn folders_of(&self, people: &[Identifier]) -> Vec<PathBuf> {
        let sessions = people.iter().filter(|one| one.kind == IdentifierKind::Session);
        let mut folders: Vec<PathBuf> = sessions.map(|session| self.root.join(folder_of(&session.value))).collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

/// Returns the entries of a folder. Returns `None` if the folder does not exist.
fn listed(folder: &Path) -> Result<Option<Vec<fs::DirEntry>>, FileError> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        entries => entries.and_then(Iterator::collect).map(Some).map_err(FileError::of("list", folder)),
    }
}

/// Returns the folder of a session, relative to the folder of all recordings. `session` is a normalized [`Identifier`]
/// value.
fn folder_of(session: &str) -> PathBuf {
    let name = upload::hash(&[session]);
    Path::new(&name[..2]).join(&name)
}

#[cfg(test)]
mod tests;
