//! Reads the pages of a scan back, one at a time.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use super::{
    ArchiveError, FileHeader,
    frame::{self, Frame, FrameError, Skipped},
};

/// The pages of one file, side pages among them, in order. Ends after the frame that closes the scan; a file without
/// one ends at its last whole page.
#[derive(Debug)]
pub struct Pages {
    input: BufReader<File>,
    path: PathBuf,
    header: FileHeader,
    read: usize,
    is_complete: bool,
    is_side: bool,
}

/// Opens a file of pages.
pub fn read_pages(path: &Path) -> Result<Pages, ArchiveError> {
    let file = File::open(path).map_err(ArchiveError::io("open", path))?;
    let mut input = BufReader::with_capacity(1 << 20, file);
    let header = frame::read_header(&mut input).map_err(|why| ArchiveError::NotOurs { path: path.to_owned(), why })?;
    Ok(Pages { input, path: path.to_owned(), header, read: 0, is_complete: false, is_side: false })
}

/// What a file is, without its pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSummary {
    /// The scan and its service.
    pub header: FileHeader,
    /// Pages.
    pub pages: u64,
    /// Whether the frame that closes a complete scan is there.
    pub is_complete: bool,
    /// What was noted when the scan was last about to be committed.
    pub note: Option<Vec<u8>>,
}

/// Reads what a file is. Pages are skipped and not checked: that is done by whoever reads them.
pub fn summarize(path: &Path) -> Result<FileSummary, ArchiveError> {
    let file = File::open(path).map_err(ArchiveError::io("open", path))?;
    let mut input = BufReader::new(file);
    let header = frame::read_header(&mut input).map_err(|why| ArchiveError::NotOurs { path: path.to_owned(), why })?;
    let mut summary = FileSummary { header, pages: 0, is_complete: false, note: None };
    loop {
        match frame::skip_frame(&mut input) {
            Ok(Some(Skipped::Page)) => summary.pages += 1,
            Ok(Some(Skipped::End)) => summary.is_complete = true,
            Ok(Some(Skipped::Note(note))) => summary.note = Some(note),
            Ok(Some(Skipped::Other)) => {}
            Ok(None) => return Ok(summary),
            Err(FrameError::Torn(why)) => {
                let page = usize::try_from(summary.pages).unwrap_or(usize::MAX);
                return Err(ArchiveError::Damaged { path: path.to_owned(), page, why: why.to_owned() });
            }
            Err(FrameError::Io(source)) => return Err(ArchiveError::io("read", path)(source)),
        }
    }
}

impl Pages {
    /// The scan and its service.
    pub fn header(&self) -> &FileHeader {
        &self.header
    }

    /// Whether the page that was last handed out is a side page.
    pub fn is_side(&self) -> bool {
        self.is_side
    }

    /// Whether the frame that closes a complete scan was reached.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }
}

impl Iterator for Pages {
    type Item = Result<Vec<u8>, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_complete {
            return None;
        }
        let frame = frame::read_frame(&mut self.input);
        self.is_side = matches!(frame, Ok(Some((Frame::Side(_) | Frame::LessSide(..), _))));
        match frame {
            Ok(Some((
                Frame::Page(body) | Frame::Side(body) | Frame::LessPage(body, _) | Frame::LessSide(body, _),
                _,
            ))) => {
                self.read += 1;
                Some(Ok(body))
            }
            Ok(Some((Frame::End, _))) => {
                self.is_complete = true;
                None
            }
            // A note without the end before it belongs to nothing.
            Ok(None | Some((Frame::Note(_), _))) => None,
            Err(FrameError::Torn(why)) => {
                let (path, page) = (self.path.clone(), self.read);
                Some(Err(ArchiveError::Damaged { path, page, why: why.to_owned() }))
            }
            Err(FrameError::Io(source)) => Some(Err(ArchiveError::io("read", &self.path)(source))),
        }
    }
}
