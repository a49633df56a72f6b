//! Reads the pages of an archive file.

use std::{
    io::BufReader,
    path::{Path, PathBuf},
};

use super::{
    ArchiveError, FileHeader, PageFile,
    frame::{self, Frame, FrameKind, HEADER_BYTES_MAX},
    page_file::{PART_BYTES, PageFileReader},
};

/// Iterates over the pages of one file in order, probe pages included. The iteration ends at the end frame, at a note
/// before it, or at the end of the file.
#[derive(Debug)]
pub struct Pages {
    input: BufReader<PageFileReader>,
    path: PathBuf,
    header: FileHeader,
    /// Pages read so far, probe pages included.
    pages_read: usize,
    is_complete: bool,
    /// True if the latest page is a probe page.
    is_probe: bool,
}

/// Opens the spool at a path, as [`PageFile::read_pages`].
pub fn read_pages(path: &Path) -> Result<Pages, ArchiveError> {
    PageFile::from(path.to_owned()).read_pages()
}

/// Summarizes the spool at a path, as [`PageFile::summarize`].
pub fn summarize(path: &Path) -> Result<FileSummary, ArchiveError> {
    PageFile::from(path.to_owned()).summarize()
}

/// What a file contains, without the content of its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The scan, and the service of its pages.
    pub header: FileHeader,
    /// Number of pages, probe pages excluded.
    pub pages: u64,
    /// True if the file has an end frame.
    pub is_complete: bool,
    /// The latest commit note, see [`super::Archive::note`]; `None` if the file has none.
    pub note: Option<Vec<u8>>,
}

impl PageFile {
    /// Opens the file and reads its header. `part_bytes` is the most that one request reads of an object.
    pub(super) fn open(&self, part_bytes: u64) -> Result<(BufReader<PageFileReader>, FileHeader), ArchiveError> {
        let mut input = BufReader::with_capacity(1 << 20, self.open_bytes(part_bytes)?);
        let not_ours = |why| ArchiveError::NotOurs { path: self.path().to_owned(), why };
        let header = frame::read_header(&mut input).map_err(not_ours)?;
        Ok((input, header))
    }

    /// Reads the header: the scan, and the service of its pages.
    pub fn header(&self) -> Result<FileHeader, ArchiveError> {
        // The first request reads the whole header, but not the pages.
        self.open(2 * u64::from(HEADER_BYTES_MAX)).map(|(_, header)| header)
    }

    /// Opens the file and reads its header. The returned iterator reads the pages.
    pub fn read_pages(&self) -> Result<Pages, ArchiveError> {
        let (input, header) = self.open(PART_BYTES)?;
        Ok(Pages { input, path: self.path().to_owned(), header, pages_read: 0, is_complete: false, is_probe: false })
    }

    /// Summarizes the file. Pages are skipped, and their checksums are not checked. A frame with an incomplete head and
    /// a damaged note are errors; a page that is cut short counts as a page.
    pub fn summarize(&self) -> Result<FileSummary, ArchiveError> {
        let (mut input, header) = self.open(PART_BYTES)?;
        let mut summary = FileSummary { header, pages: 0, is_complete: false, note: None };
        loop {
            match frame::skip_frame(&mut input) {
                Ok(Some(FrameKind::Page)) => summary.pages += 1,
                Ok(Some(FrameKind::End)) => summary.is_complete = true,
                Ok(Some(FrameKind::Note(note))) => summary.note = Some(note),
                Ok(Some(FrameKind::Other)) => {}
                Ok(None) => return Ok(summary),
                Err(error) => {
                    let page = usize::try_from(summary.pages).unwrap_or(usize::MAX);
                    return Err(ArchiveError::frame(error, self.path(), page));
                }
            }
        }
    }
}

impl Pages {
    /// Returns the header of the file: its scan, and the service of its pages.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Returns true if the latest page is a probe page.
    pub fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// Returns true if the end frame was reached.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl Iterator for Pages {
    type Item = Result<Vec<u8>, ArchiveError>;

    /// Reads the next page. Notes before the end frame end the iteration. A torn frame or a failed read is an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.is_complete {
            return None;
        }
        let frame = frame::read_frame(&mut self.input);
        self.is_probe = matches!(frame, Ok(Some((Frame::Probe(_) | Frame::RedactedProbe(..), _))));
        match frame {
            Ok(Some((
                Frame::Page(body) | Frame::Probe(body) | Frame::RedactedPage(body, _) | Frame::RedactedProbe(body, _),
                _,
            ))) => {
                self.pages_read += 1;
                Some(Ok(body))
            }
            Ok(Some((Frame::End, _))) => {
                self.is_complete = true;
                None
            }
            // A note before the end frame is ignored, with everything after it.
            Ok(None | Some((Frame::Note(_), _))) => None,
            Err(error) => Some(Err(ArchiveError::frame(error, &self.path, self.pages_read))),
        }
    }
}
