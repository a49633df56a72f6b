//! The archive: the path of each scan's file, its move after the commit, and its expiry.

use std::{
    collections::BTreeSet,
    fs::{self, OpenOptions},
    io::{self, Write},
    num::NonZero,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use crate::{
    bucket::{Bucket, OldVersions},
    files::{self, FileError},
    model::{BucketAddress, DAY_MS, DurableStep, Failpoints, Location, Scan, ScanId, format_ms},
};

use super::{
    ArchiveError, FileHeader, PageFile, RecoveredSpool, Spool, frame,
    objects::PageObjects,
    owner::{ArchiveSettings, OwnerFile},
    page_file::{REWRITE_SUFFIX, UNDER_WAY},
    parallel,
};

/// Requests to a bucket at the same time.
const REQUESTS_MAX: usize = 8;

/// The archive of one service and environment.
#[derive(Clone, Debug)]
pub struct Archive {
    settings: ArchiveSettings,
    /// The committed scans in a bucket; `None` if they are in the folder.
    objects: Option<PageObjects>,
    failpoints: Failpoints,
}

impl Archive {
    /// Opens the archive and creates its folder if needed.
    ///
    /// # Errors
    /// `OtherService` or `OtherOwner` if the folder holds the pages of another service, environment or state file.
    pub fn open(settings: ArchiveSettings) -> Result<Archive, ArchiveError> {
        let archive = Archive::without_owner_check(settings)?;
        archive.claim()?;
        Ok(archive)
    }

    /// Opens the archive, and creates its folder if needed. Does not check that the folder belongs to this service,
    /// environment and state file: `rebind` changes the service.
    pub(super) fn without_owner_check(settings: ArchiveSettings) -> Result<Archive, ArchiveError> {
        let connect = |address| Bucket::connect(address, &Failpoints::default());
        let bucket = settings.location.bucket.as_ref().map(connect).transpose()?;
        Archive::over(settings, bucket)
    }

    /// Opens the archive as [`Archive::without_owner_check`], with this access to its bucket.
    pub(super) fn over(settings: ArchiveSettings, bucket: Option<Bucket>) -> Result<Archive, ArchiveError> {
        let scratch = settings.location.path.join(UNDER_WAY);
        files::create_folders(&scratch).map_err(ArchiveError::io("create", &scratch))?;
        let objects = bucket.map(|bucket| PageObjects { bucket, scratch, prepared: Arc::default() });
        Ok(Archive { settings, objects, failpoints: Failpoints::default() })
    }

    /// Makes these settings the owner of the folder, or checks that they are.
    pub(super) fn claim(&self) -> Result<(), ArchiveError> {
        self.owner_file().claim(|is_one_enough| match is_one_enough {
            true => Ok(self.any_pages()?.into_iter().collect()),
            false => self.all_pages(),
        })
    }

    /// Binds the owner file to the service of these settings.
    pub(super) fn rebind_owner(&self) -> Result<(), ArchiveError> {
        self.owner_file().rebind()
    }

    fn owner_file(&self) -> OwnerFile<'_> {
        OwnerFile { settings: &self.settings, bucket: self.objects.as_ref().map(|objects| &objects.bucket) }
    }

    /// Returns true if there is an archive. Creates nothing.
    pub fn exists(location: &Location) -> Result<bool, ArchiveError> {
        match &location.bucket {
            Some(address) => OwnerFile::exists(&Bucket::connect(address, &Failpoints::default())?),
            None => Ok(location.path.exists()),
        }
    }

    /// Returns the address of the bucket, and whether the bucket keeps the content of objects that were replaced;
    /// `None` for an archive on this machine.
    pub fn old_versions(&self) -> Result<Option<(&BucketAddress, OldVersions)>, ArchiveError> {
        let Some(PageObjects { bucket, .. }) = &self.objects else { return Ok(None) };
        Ok(Some((bucket.address(), bucket.old_versions()?)))
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

    /// Writes the spools of scans that will be committed now to the bucket, because a worker without a disk loses its
    /// spools with a kill. Does nothing for an archive on this machine. If the commit fails, the objects stay.
    pub fn prepare_commit<'a>(&self, scans: impl IntoIterator<Item = &'a Scan>) -> Result<(), ArchiveError> {
        let Some(objects) = self.objects.as_ref().filter(|_| self.settings.keeps_pages) else { return Ok(()) };
        let scans: Vec<&Scan> = scans.into_iter().collect();
        parallel::map(REQUESTS_MAX, &scans, |scan| self.put_spool(objects, scan))?;
        objects.prepared().extend(scans.iter().map(|scan| scan.id.clone()));
        Ok(())
    }

    /// Moves the spools of committed scans into the archive, or removes them if pages are not kept. Each folder is
    /// synced once. In a bucket, a spool is removed after the object was written.
    pub fn archive_spools<'a>(&self, scans: impl IntoIterator<Item = &'a Scan>) -> Result<(), ArchiveError> {
        let scans: Vec<&Scan> = scans.into_iter().collect();
        match &self.objects {
            _ if !self.settings.keeps_pages => scans.iter().try_for_each(|scan| self.discard(&scan.id)),
            Some(objects) => {
                let archived = parallel::map(REQUESTS_MAX, &scans, |scan| {
                    // The lock must not be held during the request.
                    let is_prepared = objects.prepared().remove(&scan.id);
                    if !is_prepared {
                        self.put_spool(objects, scan)?;
                    }
                    self.discard(&scan.id)
                });
                archived.map(drop)
            }
            None => self.move_spools(&scans),
        }
    }

    fn put_spool(&self, objects: &PageObjects, scan: &Scan) -> Result<(), ArchiveError> {
        let spool = self.under_way(&scan.id);
        self.failpoints.hit(DurableStep::SpoolArchived).map_err(ArchiveError::io("write", &spool))?;
        // An earlier run has written the object, and was killed before the checkpoint.
        if !spool.try_exists().map_err(ArchiveError::io("look at", &spool))? {
            return Ok(());
        }
        objects.put(&key_of(scan), &spool)
    }

    fn move_spools(&self, scans: &[&Scan]) -> Result<(), ArchiveError> {
        let mut folders = BTreeSet::new();
        for scan in scans {
            let (from, to) = (self.under_way(&scan.id), self.settings.location.path.join(key_of(scan)));
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
        let spools = files_in(&folder)?;
        if let Some(objects) = self.objects.as_ref().filter(|_| !spools.is_empty()) {
            // The spool of a killed write in parts is still there.
            objects.abort_uploads()?;
        }
        for path in spools {
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
        let mut old = Vec::new();
        for file in self.committed()? {
            // The clock of the machine that made the id may have been wrong, so the header decides. The id spares
            // reading the header of each file that stays.
            let is_new = file.scan_id().and_then(|id| id.created_ms()).is_some_and(|made_ms| made_ms >= oldest_ms);
            if !is_new && file.header()?.scan.started_ms < oldest_ms {
                old.push(file);
            }
        }
        match &self.objects {
            Some(objects) => objects.remove(&old)?,
            None => old.iter().try_for_each(|file| self.remove(file.path()))?,
        }
        Ok(old.len())
    }

    /// Returns the files of committed scans, in no particular order.
    pub fn committed(&self) -> Result<Vec<PageFile>, ArchiveError> {
        if let Some(objects) = &self.objects {
            return objects.list();
        }
        let mut files = Vec::new();
        for stream in folders_in(&self.settings.location.path)? {
            if stream.file_name().is_some_and(|name| name == UNDER_WAY) {
                continue;
            }
            for month in folders_in(&stream)? {
                files.extend(pages_in(&month)?);
            }
        }
        Ok(files)
    }

    /// Calls `visit` for each file with pages, on one thread per processor, or on more for a bucket. Returns the
    /// results in the order of the paths. After an error of `visit`, visits no further file and returns the error.
    pub fn each_file<T: Send, E: From<ArchiveError> + Send>(
        &self,
        visit: impl Fn(&PageFile) -> Result<T, E> + Sync,
    ) -> Result<Vec<(PageFile, T)>, E> {
        let mut files = self.all_pages()?;
        files.sort_by(|left, right| left.path().cmp(right.path()));
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if self.objects.is_some() { processors.max(REQUESTS_MAX) } else { processors };
        let results = parallel::map(threads, &files, visit)?;
        Ok(files.into_iter().zip(results).collect())
    }

    /// Returns the folders in which a run creates files: the archive's own, and each existing folder below it.
    pub fn folders(&self) -> Result<Vec<PathBuf>, ArchiveError> {
        let root = &self.settings.location.path;
        let streams = folders_in(root)?;
        let months = streams.iter().map(|stream| folders_in(stream)).collect::<Result<Vec<_>, _>>()?;
        Ok([vec![root.clone()], streams, months.concat()].concat())
    }

    /// Returns all archive files, and the spools of unfinished scans, in no particular order.
    fn all_pages(&self) -> Result<Vec<PageFile>, ArchiveError> {
        Ok([pages_in(&self.under_way_folder())?, self.committed()?].concat())
    }

    /// Returns any one archive file or spool; `None` if the archive has neither.
    fn any_pages(&self) -> Result<Option<PageFile>, ArchiveError> {
        if self.objects.is_some() {
            return Ok(self.all_pages()?.pop());
        }
        for stream in folders_in(&self.settings.location.path)? {
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
        self.settings.location.path.join(UNDER_WAY)
    }

    /// Returns the path of a scan's spool.
    pub fn under_way(&self, scan: &ScanId) -> PathBuf {
        self.under_way_folder().join(format!("{scan}.pages"))
    }

    /// Removes the incomplete replacement files of rewrites that were killed, and incomplete objects.
    pub fn remove_unfinished(&self) -> Result<(), ArchiveError> {
        if let Some(objects) = &self.objects {
            objects.abort_uploads()?;
        }
        let is_unfinished = |path: &&PathBuf| path.to_string_lossy().ends_with(REWRITE_SUFFIX);
        let mut files = files_in(&self.under_way_folder())?;
        for stream in folders_in(&self.settings.location.path)? {
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
}

/// Returns the path of a committed scan's file below the folder, which is the key of its object. The month is that of
/// the start of the window, in UTC.
fn key_of(scan: &Scan) -> String {
    let day = format_ms(scan.window.start_ms.div_euclid(DAY_MS) * DAY_MS);
    let month = day.get(..7).unwrap_or("unknown");
    format!("{}/{month}/{}.pages", scan.scope.stream.name(), scan.id)
}

fn remove(path: &Path) -> Result<(), ArchiveError> {
    files::remove(path).map_err(ArchiveError::io("remove", path))
}

/// Returns the archive files in a folder, without incomplete replacement files.
fn pages_in(folder: &Path) -> Result<Vec<PageFile>, ArchiveError> {
    let mut files = files_in(folder)?;
    files.retain(|path| !path.to_string_lossy().ends_with(REWRITE_SUFFIX));
    Ok(files.into_iter().map(PageFile::from).collect())
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
