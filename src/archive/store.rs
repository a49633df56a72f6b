//! The folder of the archive: where the file of a scan is, and what becomes of it after the commit.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    files,
    model::{DAY_MS, DurableStep, Failpoints, Scan, ScanId, format_ms},
};

use super::{ArchiveError, FileHeader, Recovered, Spool, frame, owner};

pub(super) const UNDER_WAY: &str = "under-way";

/// Where pages go and how long they stay.
#[derive(Clone, Debug)]
pub struct ArchiveSettings {
    /// The folder.
    pub root: PathBuf,
    /// Whether pages stay after the commit; if not, the folder is the spool of scans under way and nothing else.
    pub keeps_pages: bool,
    /// How long they stay, in days; `None` keeps them for ever.
    pub keep_days: Option<u32>,
    /// The service (promise P10).
    pub base_url: String,
    /// The environment label (promise P10).
    pub environment: String,
    /// The name of the state file: a folder holds the pages of one.
    pub state: String,
}

/// The archive of one service and environment.
#[derive(Clone, Debug)]
pub struct Archive {
    settings: ArchiveSettings,
    failpoints: Failpoints,
}

impl Archive {
    /// Makes the folder if it is missing.
    ///
    /// # Errors
    /// `OtherService` or `OtherOwner` if the folder holds the pages of another service, environment or state file.
    pub fn open(settings: ArchiveSettings) -> Result<Archive, ArchiveError> {
        let under_way = settings.root.join(UNDER_WAY);
        files::create_folders(&under_way).map_err(ArchiveError::io("create", &under_way))?;
        let archive = Archive::of_anybody(settings);
        owner::claim(&archive, &archive.settings)?;
        Ok(archive)
    }

    /// The folder, whosever pages it holds.
    pub(super) fn of_anybody(settings: ArchiveSettings) -> Archive {
        Archive { settings, failpoints: Failpoints::default() }
    }

    /// The service and the environment of new pages.
    pub(super) fn identity(&self) -> (&str, &str) {
        (&self.settings.base_url, &self.settings.environment)
    }

    /// The same archive, with somebody who watches its durable steps.
    #[must_use]
    pub fn watched(self, failpoints: Failpoints) -> Archive {
        Archive { failpoints, ..self }
    }

    /// Begins the file of a scan.
    pub fn begin(&self, scan: &Scan) -> Result<Spool, ArchiveError> {
        let header = FileHeader {
            base_url: self.settings.base_url.clone(),
            environment: self.settings.environment.clone(),
            scan: scan.clone(),
        };
        let spool = Spool::create(&self.under_way(&scan.id), &header, self.failpoints.clone())?;
        sync_folder(&self.under_way_folder())?;
        Ok(spool)
    }

    /// Opens the file of a scan that was cut short; `None` when there is none, or nothing in it can be used.
    pub fn recover(&self, scan: &Scan) -> Result<Option<Recovered>, ArchiveError> {
        match Spool::recover(&self.under_way(&scan.id), self.failpoints.clone()) {
            Ok(recovered) if recovered.header.scan == *scan => Ok(Some(recovered)),
            Ok(_) | Err(ArchiveError::NotOurs { .. }) => Ok(None),
            Err(ArchiveError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Before the commit: notes, durably, how the complete scan is about to be committed.
    pub fn note(&self, scan: &ScanId, note: &[u8]) -> Result<(), ArchiveError> {
        let path = self.under_way(scan);
        let mut file = OpenOptions::new().append(true).open(&path).map_err(ArchiveError::io("open", &path))?;
        let whole_bytes = file.metadata().map_err(ArchiveError::io("read", &path))?.len();
        let written = file.write_all(&frame::note_frame(note)).and_then(|()| file.sync_data());
        written.map_err(|error| {
            // A torn note would hide the one that is written next; the first error is the one to tell.
            file.set_len(whole_bytes).ok();
            ArchiveError::io("write", &path)(error)
        })
    }

    /// After the commit: the file moves to its place in the archive, or goes if pages are not kept.
    pub fn settle(&self, scan: &Scan) -> Result<(), ArchiveError> {
        let from = self.under_way(&scan.id);
        if !self.settings.keeps_pages {
            return self.discard(&scan.id);
        }
        let to = self.place(scan);
        let folder = to.parent().unwrap_or(&self.settings.root);
        files::create_folders(folder).map_err(ArchiveError::io("create", folder))?;
        self.failpoints.hit(DurableStep::SpoolArchived).map_err(ArchiveError::io("move", &from))?;
        match files::move_over(&from, &to) {
            // Gone already: an earlier run was killed between this step and its checkpoint.
            Err(error) if error.kind() == io::ErrorKind::NotFound => sync_folder(folder),
            outcome => outcome.map_err(ArchiveError::io("move", &from)),
        }
    }

    /// Drops the file of a scan that will not be committed.
    pub fn discard(&self, scan: &ScanId) -> Result<(), ArchiveError> {
        self.remove(&self.under_way(scan))
    }

    /// Drops spools that no scan under way owns: a run was killed between making the file and remembering it.
    pub fn discard_orphans(&self, under_way: &[ScanId]) -> Result<usize, ArchiveError> {
        let folder = self.under_way_folder();
        let mut dropped = 0;
        for path in files_in(&folder)? {
            let owner = path.file_stem().map(|stem| ScanId(stem.to_string_lossy().into_owned()));
            if !owner.is_some_and(|owner| under_way.contains(&owner)) {
                self.remove(&path)?;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// Drops committed pages of windows whose scan is older than the retention; `now_ms` is the service's time.
    pub fn expire(&self, now_ms: i64) -> Result<usize, ArchiveError> {
        let Some(keep_days) = self.settings.keep_days else { return Ok(0) };
        let oldest_ms = now_ms.saturating_sub(i64::from(keep_days) * DAY_MS);
        let mut dropped = 0;
        for path in self.committed()? {
            if super::read_pages(&path)?.header().scan.started_ms < oldest_ms {
                self.remove(&path)?;
                dropped += 1;
            }
        }
        Ok(dropped)
    }

    /// The files of committed scans, in no particular order.
    pub fn committed(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        let mut files = Vec::new();
        for stream in folders_in(&self.settings.root)? {
            if stream.file_name().is_some_and(|name| name == UNDER_WAY) {
                continue;
            }
            for month in folders_in(&stream)? {
                files.extend(pages_in(&month)?);
            }
        }
        Ok(files)
    }

    /// The files of scans under way, in no particular order.
    pub fn spools(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        pages_in(&self.under_way_folder())
    }

    /// Every file of pages, in no particular order.
    pub(super) fn all_pages(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        Ok([self.spools()?, self.committed()?].concat())
    }

    /// One file of pages, if there is any.
    pub(super) fn any_pages(&self) -> Result<Option<PathBuf>, ArchiveError> {
        for stream in folders_in(&self.settings.root)? {
            let months = if stream.ends_with(UNDER_WAY) { vec![stream] } else { folders_in(&stream)? };
            for month in months {
                if let Some(pages) = pages_in(&month)?.pop() {
                    return Ok(Some(pages));
                }
            }
        }
        Ok(None)
    }

    /// The folder of scans that are not committed yet.
    pub fn under_way_folder(&self) -> PathBuf {
        self.settings.root.join(UNDER_WAY)
    }

    /// The file of a scan under way.
    pub fn under_way(&self, scan: &ScanId) -> PathBuf {
        self.under_way_folder().join(format!("{scan}.pages"))
    }

    /// Files that a rewrite was about to put in place when it was killed, anywhere in the archive.
    pub fn unfinished(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        let is_unfinished = |path: &PathBuf| path.to_string_lossy().ends_with(super::FRESH_SUFFIX);
        let mut files = files_in(&self.under_way_folder())?;
        for stream in folders_in(&self.settings.root)? {
            for month in folders_in(&stream)? {
                files.extend(files_in(&month)?);
            }
        }
        files.retain(is_unfinished);
        Ok(files)
    }

    /// Removes such a file.
    pub fn remove_unfinished(&self, path: &Path) -> Result<(), ArchiveError> {
        self.remove(path)
    }

    fn remove(&self, path: &Path) -> Result<(), ArchiveError> {
        self.failpoints.hit(DurableStep::SpoolRemoved).map_err(ArchiveError::io("remove", path))?;
        remove(path)
    }

    fn place(&self, scan: &Scan) -> PathBuf {
        let day = format_ms(scan.window.start_ms.div_euclid(DAY_MS) * DAY_MS);
        let month = day.get(..7).unwrap_or("unknown");
        self.settings.root.join(scan.scope.stream.name()).join(month).join(format!("{}.pages", scan.id))
    }
}

fn remove(path: &Path) -> Result<(), ArchiveError> {
    files::remove(path).map_err(ArchiveError::io("remove", path))
}

/// The files of pages in a folder, without those that are being written anew.
fn pages_in(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let mut files = files_in(folder)?;
    files.retain(|path| !path.to_string_lossy().ends_with(super::FRESH_SUFFIX));
    Ok(files)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    entries(folder, |kind| kind.is_file())
}

fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    entries(folder, |kind| kind.is_dir())
}

fn entries(folder: &Path, wanted: impl Fn(fs::FileType) -> bool) -> Result<Vec<PathBuf>, ArchiveError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(ArchiveError::io("list", folder))? {
        let entry = entry.map_err(ArchiveError::io("list", folder))?;
        if files::kind_of(&entry).map_err(ArchiveError::io("look at", entry.path()))?.is_some_and(&wanted) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// A new name is durable only once its folder is.
pub(super) fn sync_folder(folder: &Path) -> Result<(), ArchiveError> {
    files::sync_folder(folder).map_err(ArchiveError::io("sync", folder))
}
