//! The file of one scan while it is under way:
//! pages are appended, made durable in groups, and found again after a kill.

use std::{
    fs::{File, OpenOptions},
    io::{BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

use crate::model::{DurableStep, Steps};

use super::{
    ArchiveError, FileHeader,
    frame::{self, Frame, FrameError, PAGE_BYTES_MAX},
};

/// Pages are made durable at least once in so many stored bytes ...
const SYNC_BYTES_MAX: usize = 8 * 1024 * 1024;
/// ... or so much time, whichever comes first: what a power cut can cost is asked for again.
const SYNC_EVERY: Duration = Duration::from_millis(1000);

/// One scan's file, open for appending.
#[derive(Debug)]
pub struct Spool {
    file: File,
    path: PathBuf,
    /// Bytes of the header: where the frames begin.
    header_bytes: u64,
    pages: usize,
    unsynced_bytes: usize,
    synced_at: Instant,
    steps: Steps,
}

/// What a spool held when it was opened again.
#[derive(Debug)]
pub struct Recovered {
    /// The spool, ready for the next page.
    pub spool: Spool,
    /// The scan and its service.
    pub header: FileHeader,
    /// The last whole page that is no side page: the scan goes on from it.
    pub last_page: Option<Vec<u8>>,
    /// The side pages behind it.
    pub last_sides: Vec<Vec<u8>>,
    /// How many of the pages before it have not exactly one side page behind them.
    pub without_side: u64,
    /// Whether records were taken out of the last page or of its side pages: where it ended is no longer known.
    pub is_last_less: bool,
    /// Whether records were taken out of any page.
    pub is_any_less: bool,
    /// Whether the end of the scan was written.
    pub is_complete: bool,
    /// What was noted when the scan was last about to be committed.
    pub note: Option<Vec<u8>>,
}

impl Spool {
    /// Makes the file; one of the same name is replaced.
    pub(super) fn create(path: &Path, header: &FileHeader, steps: Steps) -> Result<Spool, ArchiveError> {
        steps.reach(DurableStep::SpoolMade).map_err(ArchiveError::io("create", path))?;
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(path)
            .map_err(ArchiveError::io("create", path))?;
        frame::write_header(&mut file, header).map_err(ArchiveError::io("write", path))?;
        let header_bytes = file.stream_position().map_err(ArchiveError::io("write", path))?;
        file.sync_all().map_err(ArchiveError::io("sync", path))?;
        Ok(Spool {
            file,
            path: path.to_owned(),
            header_bytes,
            pages: 0,
            unsynced_bytes: 0,
            synced_at: Instant::now(),
            steps,
        })
    }

    /// Opens the file of a scan that was cut short. A torn tail is taken off.
    pub(super) fn recover(path: &Path, steps: Steps) -> Result<Recovered, ArchiveError> {
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(ArchiveError::io("open", path))?;
        let mut input = BufReader::new(&file);
        let header =
            frame::read_header(&mut input).map_err(|why| ArchiveError::NotOurs { path: path.to_owned(), why })?;
        let header_bytes = input.stream_position().map_err(ArchiveError::io("read", path))?;
        let (mut whole_bytes, mut pages, mut last_page, mut is_complete) = (header_bytes, 0, None, false);
        let (mut last_sides, mut without_side, mut note) = (Vec::new(), 0, None);
        let (mut is_last_less, mut is_any_less) = (false, false);
        loop {
            let frame = frame::read_frame(&mut input);
            match &frame {
                Ok(Some((Frame::Page(_), _))) => is_last_less = false,
                Ok(Some((Frame::LessPage(..) | Frame::LessSide(..), _))) => (is_last_less, is_any_less) = (true, true),
                _ => {}
            }
            match frame {
                Ok(Some((Frame::Page(body) | Frame::LessPage(body, _), bytes))) => {
                    whole_bytes += bytes;
                    pages += 1;
                    without_side += u64::from(last_page.is_some() && last_sides.len() != 1);
                    last_sides.clear();
                    last_page = Some(body);
                }
                Ok(Some((Frame::Side(body) | Frame::LessSide(body, _), bytes))) => {
                    whole_bytes += bytes;
                    last_sides.push(body);
                }
                Ok(Some((Frame::End, bytes))) => {
                    whole_bytes += bytes;
                    is_complete = true;
                }
                Ok(Some((Frame::Note(text), bytes))) => {
                    whole_bytes += bytes;
                    note = Some(text);
                }
                Ok(None) | Err(FrameError::Torn(_)) => break,
                Err(FrameError::Io(source)) => return Err(ArchiveError::io("read", path)(source)),
            }
        }
        drop(input);
        let mut file = file;
        steps.reach(DurableStep::SpoolCut).map_err(ArchiveError::io("cut the torn tail of", path))?;
        file.set_len(whole_bytes).map_err(ArchiveError::io("cut the torn tail of", path))?;
        file.seek(SeekFrom::Start(whole_bytes)).map_err(ArchiveError::io("read", path))?;
        let spool = Spool {
            file,
            path: path.to_owned(),
            header_bytes,
            pages,
            unsynced_bytes: 0,
            synced_at: Instant::now(),
            steps,
        };
        let recovered = Recovered {
            spool,
            header,
            last_page,
            last_sides,
            without_side,
            is_last_less,
            is_any_less,
            is_complete,
            note,
        };
        Ok(recovered)
    }

    /// Appends one page. It is durable after the next [`Spool::sync`], which this calls when enough has come together.
    /// Returns whether everything is durable now.
    pub fn append(&mut self, body: &[u8]) -> Result<bool, ArchiveError> {
        if body.len() > PAGE_BYTES_MAX {
            return Err(ArchiveError::PageTooLarge { bytes: body.len(), limit: PAGE_BYTES_MAX });
        }
        let frame = frame::page_frame(body).map_err(ArchiveError::io("compress a page for", &self.path))?;
        let is_durable = self.write(&frame)?;
        self.pages += 1;
        Ok(is_durable)
    }

    /// Appends a side page: rows of the scan that are no page of its list. A scan that goes on does not go on from it.
    pub fn append_side(&mut self, body: &[u8]) -> Result<bool, ArchiveError> {
        if body.len() > PAGE_BYTES_MAX {
            return Err(ArchiveError::PageTooLarge { bytes: body.len(), limit: PAGE_BYTES_MAX });
        }
        let frame = frame::side_frame(body).map_err(ArchiveError::io("compress a page for", &self.path))?;
        self.write(&frame)
    }

    /// Appends a page, or a side page, that records were taken out of before anything else saw it;
    /// the file says how many.
    pub fn append_less(&mut self, body: &[u8], removed: u32, is_side: bool) -> Result<bool, ArchiveError> {
        if body.len() > PAGE_BYTES_MAX {
            return Err(ArchiveError::PageTooLarge { bytes: body.len(), limit: PAGE_BYTES_MAX });
        }
        let failed = ArchiveError::io("compress a page for", &self.path);
        let frame = frame::less_frame(body, removed, is_side).map_err(failed)?;
        let is_durable = self.write(&frame)?;
        self.pages += usize::from(!is_side);
        Ok(is_durable)
    }

    fn write(&mut self, frame: &[u8]) -> Result<bool, ArchiveError> {
        self.reach(DurableStep::PageSpooled)?;
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
        self.reach(DurableStep::SpoolSynced)?;
        self.file.sync_data().map_err(ArchiveError::io("sync", &self.path))?;
        self.unsynced_bytes = 0;
        self.synced_at = Instant::now();
        Ok(())
    }

    /// Drops all pages: the window starts over.
    pub fn restart(&mut self) -> Result<(), ArchiveError> {
        self.reach(DurableStep::SpoolRestarted)?;
        self.file.set_len(self.header_bytes).map_err(ArchiveError::io("cut", &self.path))?;
        self.file.seek(SeekFrom::Start(self.header_bytes)).map_err(ArchiveError::io("cut", &self.path))?;
        self.pages = 0;
        self.sync()
    }

    /// Marks the scan as complete, durably.
    pub fn complete(&mut self) -> Result<(), ArchiveError> {
        self.reach(DurableStep::SpoolCompleted)?;
        self.file.write_all(&frame::end_frame()).map_err(ArchiveError::io("write", &self.path))?;
        self.sync()
    }

    fn reach(&self, step: DurableStep) -> Result<(), ArchiveError> {
        self.steps.reach(step).map_err(ArchiveError::io("write", &self.path))
    }

    /// The pages appended so far, side pages not counted.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
