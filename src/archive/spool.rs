//! The file of an unfinished scan. Pages are appended, synced in groups, and recovered after a kill.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    files,
    model::{DurableStep, Failpoints},
};

use super::{
    ArchiveError, FileHeader,
    frame::{self, Frame, FrameError, PAGE_BYTES_MAX},
};

/// Stored bytes after which the next append syncs. A power cut loses only unsynced pages; the next run requests them
/// again.
const SYNC_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Time since the latest sync after which the next append syncs.
const SYNC_EVERY: Duration = Duration::from_millis(1000);

/// The file of one unfinished scan, open for appending.
#[derive(Debug)]
pub struct Spool {
    file: File,
    path: PathBuf,
    /// Size of the header in bytes, which is the offset of the first frame.
    header_bytes: u64,
    /// Pages in the file, probe pages excluded.
    pages: usize,
    /// Level of zstd for the next pages.
    level: i32,
    /// True if the folder's entry of the file is durable.
    is_listed: bool,
    /// Bytes appended since the latest sync.
    unsynced_bytes: usize,
    synced_at: Instant,
    failpoints: Failpoints,
}

/// A spool that was opened again after an interruption, and its content.
#[derive(Debug)]
pub struct RecoveredSpool {
    /// The spool, ready for the next page.
    pub spool: Spool,
    /// The scan, and the service of its pages.
    pub header: FileHeader,
    pub content: SpoolContent,
}

/// The content of the complete frames of a spool.
#[derive(Debug, Default)]
pub struct SpoolContent {
    /// Size of the header and the frames in bytes.
    valid_bytes: u64,
    /// Pages, probe pages excluded.
    pages: usize,
    /// The last complete page, probe pages excluded. The scan resumes after this page. `None` if the file has no page.
    pub last_page: Option<Vec<u8>>,
    /// The probe pages after `last_page`.
    pub last_probes: Vec<Vec<u8>>,
    /// Number of earlier pages that are not followed by exactly one probe page. The boundaries of these pages have no
    /// conclusive probe.
    pub without_probe: u64,
    /// True if the last page or one of its probe pages is redacted, so that the last row of the page may be unknown.
    pub is_last_redacted: bool,
    /// True if any page or probe page is redacted.
    pub is_any_redacted: bool,
    /// True if the scan is marked as complete.
    pub is_complete: bool,
    /// The latest commit note; see [`super::Archive::note`].
    pub note: Option<Vec<u8>>,
}

impl SpoolContent {
    fn add(&mut self, frame: Frame, bytes: u64) {
        self.valid_bytes += bytes;
        match frame {
            Frame::Page(_) => self.is_last_redacted = false,
            Frame::RedactedPage(..) | Frame::RedactedProbe(..) => {
                (self.is_last_redacted, self.is_any_redacted) = (true, true);
            }
            _ => {}
        }
        match frame {
            Frame::Page(body) | Frame::RedactedPage(body, _) => {
                self.pages += 1;
                self.without_probe += u64::from(self.last_page.is_some() && self.last_probes.len() != 1);
                self.last_probes.clear();
                self.last_page = Some(body);
            }
            Frame::Probe(body) | Frame::RedactedProbe(body, _) => self.last_probes.push(body),
            Frame::End => self.is_complete = true,
            Frame::Note(text) => self.note = Some(text),
        }
    }
}

impl Spool {
    /// Creates the file with its header, which the first sync makes durable. Replaces a file of the same name.
    pub(super) fn create(path: &Path, header: &FileHeader, failpoints: Failpoints) -> Result<Spool, ArchiveError> {
        failpoints.hit(DurableStep::SpoolMade).map_err(ArchiveError::io("create", path))?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(path)
            .map_err(ArchiveError::io("create", path))?;
        frame::write_header(&mut file, header).map_err(ArchiveError::io("write", path))?;
        let header_bytes = file.stream_position().map_err(ArchiveError::io("write", path))?;
        Ok(Spool {
            file,
            path: path.to_owned(),
            header_bytes,
            pages: 0,
            level: frame::KEPT_LEVEL,
            is_listed: false,
            unsynced_bytes: 0,
            synced_at: Instant::now(),
            failpoints,
        })
    }

    /// Opens the file of an unfinished scan, reads its frames, and truncates an incomplete tail, which a kill or a lost
    /// write can cause. The new spool appends after the last complete frame.
    pub(super) fn recover(path: &Path, failpoints: Failpoints) -> Result<RecoveredSpool, ArchiveError> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(ArchiveError::io("open", path))?;
        let mut input = BufReader::new(&file);
        let header =
            frame::read_header(&mut input).map_err(|why| ArchiveError::NotOurs { path: path.to_owned(), why })?;
        let header_bytes = input.stream_position().map_err(ArchiveError::io("read", path))?;
        let mut content = SpoolContent { valid_bytes: header_bytes, ..SpoolContent::default() };
        loop {
            match frame::read_frame(&mut input) {
                Ok(Some((frame, bytes))) => content.add(frame, bytes),
                Ok(None) | Err(FrameError::Torn(_)) => break,
                Err(FrameError::Io(source)) => return Err(ArchiveError::io("read", path)(source)),
            }
        }
        drop(input);
        let spool = Spool {
            file,
            path: path.to_owned(),
            header_bytes,
            pages: content.pages,
            level: frame::KEPT_LEVEL,
            is_listed: false,
            unsynced_bytes: 0,
            synced_at: Instant::now(),
            failpoints,
        };
        spool.cut_after(content.valid_bytes)?;
        Ok(RecoveredSpool { spool, header, content })
    }

    /// Removes what follows the last complete frame, and continues there.
    fn cut_after(&self, valid_bytes: u64) -> Result<(), ArchiveError> {
        let failed = || ArchiveError::io("cut the torn tail of", &self.path);
        self.failpoints.hit(DurableStep::SpoolCut).map_err(failed())?;
        self.file.set_len(valid_bytes).map_err(failed())?;
        (&self.file).seek(SeekFrom::Start(valid_bytes)).map_err(ArchiveError::io("read", &self.path))?;
        Ok(())
    }

    /// Compresses the next pages faster and less, because the scan will probably change nothing, so that its pages are
    /// removed.
    pub fn expect_no_changes(&mut self) {
        self.level = frame::SHORT_LIVED_LEVEL;
    }

    /// Appends one page, and syncs if a sync is due. Returns true if everything appended so far is durable. Otherwise
    /// the page is durable after the next [`Spool::sync`].
    pub fn append(&mut self, body: &[u8]) -> Result<bool, ArchiveError> {
        let is_durable = self.append_frame(body, frame::page_frame)?;
        self.pages += 1;
        Ok(is_durable)
    }

    /// Appends a probe page: the answer to a tie probe. A resumed scan continues after the last page, not after a probe
    /// page. Returns true if everything appended so far is durable.
    pub fn append_probe(&mut self, body: &[u8]) -> Result<bool, ArchiveError> {
        self.append_frame(body, frame::probe_frame)
    }

    /// Appends a redacted page or probe page, from which `removed` records were removed. Returns true if everything
    /// appended so far is durable.
    pub fn append_redacted(&mut self, body: &[u8], removed: u32, is_probe: bool) -> Result<bool, ArchiveError> {
        let is_durable =
            self.append_frame(body, |body, level| frame::redacted_frame(body, removed, is_probe, level))?;
        self.pages += usize::from(!is_probe);
        Ok(is_durable)
    }

    /// Encodes and appends a page. Returns true if everything appended so far is durable. Fails if the page is larger
    /// than the format allows.
    fn append_frame(
        &mut self,
        body: &[u8],
        encode: impl FnOnce(&[u8], i32) -> io::Result<Vec<u8>>,
    ) -> Result<bool, ArchiveError> {
        if body.len() > PAGE_BYTES_MAX {
            return Err(ArchiveError::PageTooLarge { bytes: body.len(), limit: PAGE_BYTES_MAX });
        }
        let frame = encode(body, self.level).map_err(ArchiveError::io("compress a page for", &self.path))?;
        self.write(&frame)
    }

    /// Appends a frame, and syncs if a sync is due. Returns true if the file was synced.
    fn write(&mut self, frame: &[u8]) -> Result<bool, ArchiveError> {
        self.hit(DurableStep::PageSpooled)?;
        self.file.write_all(frame).map_err(ArchiveError::io("write", &self.path))?;
        self.unsynced_bytes += frame.len();
        let is_due = self.unsynced_bytes >= SYNC_BYTES_MAX || self.synced_at.elapsed() >= SYNC_EVERY;
        if is_due {
            self.sync()?;
        }
        Ok(is_due)
    }

    /// Makes everything appended so far durable.
    pub fn sync(&mut self) -> Result<(), ArchiveError> {
        self.hit(DurableStep::SpoolSynced)?;
        self.file.sync_data().map_err(ArchiveError::io("sync", &self.path))?;
        if !self.is_listed {
            let folder = files::folder_of(&self.path);
            files::sync_folder(folder).map_err(ArchiveError::io("sync", folder))?;
            self.is_listed = true;
        }
        self.unsynced_bytes = 0;
        self.synced_at = Instant::now();
        Ok(())
    }

    /// Removes all pages, because the scan restarts at the window's first page.
    pub fn restart(&mut self) -> Result<(), ArchiveError> {
        self.hit(DurableStep::SpoolRestarted)?;
        self.file.set_len(self.header_bytes).map_err(ArchiveError::io("cut", &self.path))?;
        self.file.seek(SeekFrom::Start(self.header_bytes)).map_err(ArchiveError::io("cut", &self.path))?;
        self.pages = 0;
        self.sync()
    }

    /// Marks the scan as complete. [`super::Archive::note`] makes the mark and all pages durable before the commit.
    pub fn complete(&mut self) -> Result<(), ArchiveError> {
        self.hit(DurableStep::SpoolCompleted)?;
        self.file.write_all(&frame::end_frame()).map_err(ArchiveError::io("write", &self.path))
    }

    fn hit(&self, step: DurableStep) -> Result<(), ArchiveError> {
        self.failpoints.hit(step).map_err(ArchiveError::io("write", &self.path))
    }

    /// Returns the number of pages in the file, probe pages excluded.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
