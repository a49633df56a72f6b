//! Recordings of VIDEOVOICE answers as files, each named after its content, in a folder for each session (promise P9:
//! what belongs to a session goes with its folder).
//!
//! ```text
//! 3f/3fa1…/<sha-256>       a recording
//! 3f/3fa1…/<upload>.json   what became of an upload: which recording it is, or why there is none
//! 3f/3fa1…/<upload>.part   a download under way; its .part.json says of which version of the file
//! ```
//!
//! Folders and uploads have names that are hashes: ids are texts of the service, and a text is no file name. Nothing
//! here asks the network, or knows a warehouse.

mod error;
mod partial;
mod upload;

pub use error::RecordingsError;
pub use partial::{Partial, Version};
pub use upload::{Missing, Reason, Recording, Upload, UploadKey};

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    files,
    model::{DurableStep, Failpoints, Identifier, IdentifierKind},
};

use error::failed;

/// Where recordings are. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Recordings {
    root: PathBuf,
    failpoints: Failpoints,
}

/// What is kept of some sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Sessions that have a folder.
    pub sessions: u64,
    /// Recordings, whole or in part.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Recordings {
    /// Those in this folder, which need not be there yet.
    pub fn at(root: &Path, failpoints: Failpoints) -> Recordings {
        Recordings { root: root.to_owned(), failpoints }
    }

    /// Makes their folder, if it is not there.
    pub fn make_folder(&self) -> Result<(), RecordingsError> {
        files::create_folders(&self.root).map_err(failed("create", &self.root))
    }

    /// Whether there ever was one.
    pub fn is_there(&self) -> bool {
        self.root.is_dir()
    }

    /// What became of an upload; `None` if nothing is known of it, or its file is not there as it was stored.
    pub fn look_up(&self, key: &UploadKey) -> Result<Option<Upload>, RecordingsError> {
        let path = self.note_of(key);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(failed("read", &path))?,
        };
        // A note that cannot be read costs a download.
        let Ok(upload) = serde_json::from_slice(&text) else { return Ok(None) };
        if let Upload::Stored(recording) = &upload {
            let file = self.root.join(self.place_of(key, recording));
            let found = files::metadata(&file).map_err(failed("look at", &file))?;
            if found.is_none_or(|found| found.len() != recording.bytes) {
                return Ok(None);
            }
        }
        Ok(Some(upload))
    }

    /// Where a recording is, from the folder of all recordings on.
    pub fn place_of(&self, key: &UploadKey, recording: &Recording) -> PathBuf {
        folder_of(&key.session).join(&recording.sha256)
    }

    /// Begins a download, or goes on with one that was cut short.
    pub fn begin(&self, key: &UploadKey) -> Result<Partial, RecordingsError> {
        let folder = self.root.join(folder_of(&key.session));
        files::create_folders(&folder).map_err(failed("create", &folder))?;
        Partial::open(folder.join(key.name()))
    }

    /// Keeps a complete download under the name of its content, durably.
    pub fn keep(
        &self,
        key: &UploadKey,
        partial: Partial,
        media_type: Option<String>,
        now_ms: i64,
    ) -> Result<Recording, RecordingsError> {
        let (sha256, bytes, from) = partial.finish()?;
        let recording = Recording { sha256, bytes, media_type, fetched_ms: now_ms };
        let place = self.root.join(self.place_of(key, &recording));
        self.failpoints.hit(DurableStep::RecordingKept).map_err(failed("keep", &place))?;
        files::replace(&from, &place).map_err(failed("keep", &place))?;
        self.note(key, &Upload::Stored(recording.clone()))?;
        Partial::forget(&self.root.join(folder_of(&key.session)).join(key.name()))?;
        Ok(recording)
    }

    /// Notes why there is no recording.
    pub fn note_missing(&self, key: &UploadKey, missing: &Missing) -> Result<(), RecordingsError> {
        self.note(key, &Upload::Missing(missing.clone()))
    }

    /// Removes the part of a download that nobody will go on with.
    pub fn discard(&self, key: &UploadKey) -> Result<(), RecordingsError> {
        Partial::remove(&self.root.join(folder_of(&key.session)).join(key.name()))
    }

    fn note(&self, key: &UploadKey, upload: &Upload) -> Result<(), RecordingsError> {
        use std::io::Write as _;
        let path = self.note_of(key);
        let write = || {
            files::create_folders(files::folder_of(&path))?;
            let text = serde_json::to_vec(upload)?;
            let mut output = files::Output::begin(&path, ".new", files::Access::Private)?;
            output.write_all(&text)?;
            self.failpoints.hit(DurableStep::RecordingNoted)?;
            output.finish()
        };
        write().map_err(failed("write", &path))
    }

    fn note_of(&self, key: &UploadKey) -> PathBuf {
        self.root.join(folder_of(&key.session)).join(key.name() + ".json")
    }

    /// What is kept of these sessions. Identifiers of other kinds have no recordings.
    pub fn held(&self, people: &[Identifier]) -> Result<Held, RecordingsError> {
        let mut held = Held::default();
        for folder in self.folders_of(people) {
            let Some(entries) = listed(&folder)? else { continue };
            held.sessions += 1;
            for entry in entries {
                let path = entry.path();
                if path.extension().is_none_or(|extension| extension == "part") {
                    held.files += 1;
                    held.bytes += entry.metadata().map_err(failed("look at", &path))?.len();
                }
            }
        }
        Ok(held)
    }

    /// Removes all that is kept of these sessions, durably. Returns how many recordings that were.
    pub fn remove(&self, people: &[Identifier]) -> Result<u64, RecordingsError> {
        let held = self.held(people)?;
        for folder in self.folders_of(people) {
            if files::metadata(&folder).map_err(failed("look at", &folder))?.is_none() {
                continue;
            }
            self.failpoints.hit(DurableStep::RecordingRemoved).map_err(failed("remove", &folder))?;
            fs::remove_dir_all(&folder).map_err(failed("remove", &folder))?;
            let above = files::folder_of(&folder);
            files::sync_folder(above).map_err(failed("sync", above))?;
        }
        Ok(held.files)
    }

    fn folders_of(&self, people: &[Identifier]) -> Vec<PathBuf> {
        let sessions = people.iter().filter(|one| one.kind == IdentifierKind::Session);
        let mut folders: Vec<PathBuf> = sessions.map(|session| self.root.join(folder_of(&session.value))).collect();
        folders.sort();
        folders.dedup();
        folders
    }
}

/// The entries of a folder; `None` if it is not there.
fn listed(folder: &Path) -> Result<Option<Vec<fs::DirEntry>>, RecordingsError> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        entries => entries.and_then(Iterator::collect).map(Some).map_err(failed("list", folder)),
    }
}

/// The folder of a session, from the folder of all recordings on. `session`: as [`Identifier`] compares it.
fn folder_of(session: &str) -> PathBuf {
    let name = upload::hash(&[session]);
    Path::new(&name[..2]).join(&name)
}

#[cfg(test)]
mod tests;
