//! The archive folder: the path of each scan's file, its move after the commit, and its expiry.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    files::{self, FileError},
    model::{DAY_MS, DurableStep, Failpoints, Scan, ScanId, format_ms},
};

use super::{
    ArchiveError, FileHeader, RecoveredSpool, Spool, frame,
    owner::{self, ArchiveSettings},
};

/// The name of the folder of spools.
pub(super) const UNDER_WAY: &str = "under-way";
/// Suffix of a file that will replace an archive file and is being written.
pub(super) const REWRITE_SUFFIX: &str = ".rewrite";

/// The archive of one service and environment.
#[derive(Clone, Debug)]
pub struct Archive {
    settings: ArchiveSettings,
    failpoints: Failpoints,
}

impl Archive {
    /// Opens the archive and creates its folder if needed.
    ///
    /// # Errors
    /// `OtherService` or `OtherOwner` if the folder holds the pages of another service, environment or state file.
    pub fn open(settings: ArchiveSettings) -> Result<Archive, ArchiveError> {
        let under_way = settings.root.join(UNDER_WAY);
        files::create_folders(&under_way).map_err(ArchiveError::io("create", &under_way))?;
        let archive = Archive::without_owner_check(settings);
        owner::claim(&archive.settings, |is_one_enough| match is_one_enough {
            true => Ok(archive.any_pages()?.into_iter().collect()),
            false => archive.all_pages(),
        })?;
        Ok(archive)
    }

    /// Creates a handle of the archive, without access to the disk. Does not check that the folder belongs to this
    /// service, environment and state file: `rebind` changes the service.
    pub(super) fn without_owner_check(settings: ArchiveSettings) -> Archive {
        Archive { settings, failpoints: Failpoints::default() }
    }

    /// Returns the base URL of the service and the environment label of new files.
    pub(super) fn identity(&self) -> (&str, &str) {
        (&self.settings.base_url, &self.settings.environment)
    }

    /// Returns the same archive with these failpoints.
    #[must_use]
    pub fn with_failpoints(self, failpoints: Failpoints) -> Archive {
        Archive { failpoints, ..self }
    }

    /// Creates the spool of a scan. Its first sync makes it durable.
    pub fn begin(&self, scan: &Scan) -> Result<Spool, ArchiveError> {
        let header = FileHeader {
            base_url: self.settings.base_url.clone(),
            environment: self.settings.environment.clone(),
            scan: scan.clone(),
        };
        Spool::create(&self.under_way(&scan.id), &header, self.failpoints.clone())
    }

    /// Opens the spool of an unfinished scan. `None` if the file is missing, has no valid header or belongs to another
    /// scan.
    pub fn recover(&self, scan: &Scan) -> Result<Option<RecoveredSpool>, ArchiveError> {
        match Spool::recover(&self.under_way(&scan.id), self.failpoints.clone()) {
            Ok(recovered) if recovered.header.scan == *scan => Ok(Some(recovered)),
            Ok(_) | Err(ArchiveError::NotOurs { .. }) => Ok(None),
            Err(ArchiveError::File(FileError { source, .. })) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Appends a commit note to the spool of a complete scan, and makes the whole spool durable. The note says how the
    /// scan will be committed. If the write fails, the file is cut to its old size.
    pub fn note(&self, scan: &ScanId, note: &[u8]) -> Result<(), ArchiveError> {
        let path = self.under_way(scan);
        let mut file = OpenOptions::new().append(true).open(&path).map_err(ArchiveError::io("open", &path))?;
        let valid_bytes = file.metadata().map_err(ArchiveError::io("read", &path))?.len();
        let written = file.write_all(&frame::note_frame(note)).and_then(|()| file.sync_data());
        written.map_err(|error| {
            // Reading would end at a torn note and miss the next note.
            file.set_len(valid_bytes).ok();
            ArchiveError::io("write", &path)(error)
        })?;
        sync_folder(&self.under_way_folder())
    }

    /// Moves the spools of committed scans into the archive, or removes them if pages are not kept. Each folder is
    /// synced once.
    pub fn archive_spools<'a>(&self, scans: impl IntoIterator<Item = &'a Scan>) -> Result<(), ArchiveError> {
        let mut folders = BTreeSet::new();
        for scan in scans {
            if !self.settings.keeps_pages {
                self.discard(&scan.id)?;
                continue;
            }
            let (from, to) = (self.under_way(&scan.id), self.committed_path(scan));
            let folder = files::folder_of(&to);
            if folders.insert(folder.to_owned()) {
                files::create_folders(folder).map_err(ArchiveError::io("create", folder))?;
            }
            self.failpoints.hit(DurableStep::SpoolArchived).map_err(ArchiveError::io("move", &from))?;
            match files::move_over_unsynced(&from, &to) {
                // An earlier run has moved the spool and was killed before the checkpoint.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                outcome => outcome.map_err(ArchiveError::io("move", &from))?,
            }
        }
        folders.iter().try_for_each(|folder| sync_folder(folder))
    }

    /// Removes the spool of a scan that will not be committed.
    pub fn discard(&self, scan: &ScanId) -> Result<(), ArchiveError> {
        self.remove(&self.under_way(scan))
    }

    /// Removes spools whose scan is not in `under_way`. A run leaves such a spool if it is killed before it records the
    /// scan, or after the scan ended and before it removes the spool. Returns the number of removed files.
    pub fn discard_orphans(&self, under_way: &[ScanId]) -> Result<usize, ArchiveError> {
        let folder = self.under_way_folder();
        let mut removed = 0;
        for path in files_in(&folder)? {
            let scan = path.file_stem().map(|stem| ScanId(stem.to_string_lossy().into_owned()));
            if !scan.is_some_and(|scan| under_way.contains(&scan)) {
                self.remove(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes the files of committed scans that began before the retention period. `now_ms` is the service's time.
    /// Returns the number of removed files.
    pub fn expire(&self, now_ms: i64) -> Result<usize, ArchiveError> {
        let Some(keep_days) = self.settings.keep_days else { return Ok(0) };
        let oldest_ms = now_ms.saturating_sub(i64::from(keep_days) * DAY_MS);
        let mut removed = 0;
        for path in self.committed()? {
            if super::read_pages(&path)?.header().scan.started_ms < oldest_ms {
                self.remove(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Returns the files of committed scans, in no particular order.
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

    /// Returns the folders in which a run creates files: the archive's own, and each existing folder below it.
    pub fn folders(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        let streams = folders_in(&self.settings.root)?;
        let months = streams.iter().map(|stream| folders_in(stream)).collect::<Result<Vec<_>, _>>()?;
        Ok([vec![self.settings.root.clone()], streams, months.concat()].concat())
    }

    /// Returns the spools of unfinished scans, in no particular order.
    pub fn spools(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        pages_in(&self.under_way_folder())
    }

    /// Returns all archive files and spools, in no particular order.
    pub(super) fn all_pages(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        Ok([self.spools()?, self.committed()?].concat())
    }

    /// Returns any one archive file or spool; `None` if the archive has neither.
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

    /// Returns the folder of spools.
    pub fn under_way_folder(&self) -> PathBuf {
        self.settings.root.join(UNDER_WAY)
    }

    /// Returns the path of a scan's spool.
    pub fn under_way(&self, scan: &ScanId) -> PathBuf {
        self.under_way_folder().join(format!("{scan}.pages"))
    }

    /// Removes the incomplete replacement files of rewrites that were killed.
    pub fn remove_unfinished(&self) -> Result<(), ArchiveError> {
        let is_unfinished = |path: &&PathBuf| path.to_string_lossy().ends_with(REWRITE_SUFFIX);
        let mut files = files_in(&self.under_way_folder())?;
        for stream in folders_in(&self.settings.root)? {
            for month in folders_in(&stream)? {
                files.extend(files_in(&month)?);
            }
        }
        files.iter().filter(is_unfinished).try_for_each(|path| self.remove(path))
    }

    fn remove(&self, path: &Path) -> Result<(), ArchiveError> {
        self.failpoints.hit(DurableStep::SpoolRemoved).map_err(ArchiveError::io("remove", path))?;
        remove(path)
    }

    /// Returns the path of a committed scan's file. The month is that of the start of the window, in UTC.
    fn committed_path(&self, scan: &Scan) -> PathBuf {
        let day = format_ms(scan.window.start_ms.div_euclid(DAY_MS) * DAY_MS);
        let month = day.get(..7).unwrap_or("unknown");
        self.settings.root.join(scan.scope.stream.name()).join(month).join(format!("{}.pages", scan.id))
    }
}

fn remove(path: &Path) -> Result<(), ArchiveError> {
    files::remove(path).map_err(ArchiveError::io("remove", path))
}

/// Returns the archive files in a folder, without incomplete replacement files.
fn pages_in(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    let mut files = files_in(folder)?;
    files.retain(|path| !path.to_string_lossy().ends_with(REWRITE_SUFFIX));
    Ok(files)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    entries(folder, |kind| kind.is_file())
}

fn folders_in(folder: &Path) -> Result<Vec<PathBuf>, ArchiveError> {
    entries(folder, |kind| kind.is_dir())
}

/// Returns the paths of the entries of a folder whose file type `wanted` accepts.
fn entries(folder: &Path, wanted: impl Fn(fs::FileType) -> bool) -> Result<Vec<PathBuf>, ArchiveError> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(ArchiveError::io("list", folder))? {
        let entry = entry.map_err(ArchiveError::io("list", folder))?;
        if files::kind_of(&entry).map_err(ArchiveError::io("look at", entry.path()))?.is_some_and(&wanted) {
            paths.push(entry.path());
        }
    }
    Ok(paths)
}

/// Syncs a folder. A new or renamed file is durable only after its folder was synced.
pub(super) fn sync_folder(folder: &Path) -> Result<(), ArchiveError> {
    files::sync_folder(folder).map_err(ArchiveError::io("sync", folder))
}
