//! Reads the pages of a scan back, one at a time.

use std::{
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
};

use super::{
    ArchiveError, FileHeader,
    frame::{self, Frame, FrameError},
};

/// The pages of one file, side pages among them, in order. Ends after the frame that closes the scan; a file without one ends at its last whole page.
#[derive(Debug)]
pub struct Pages {
    input: BufReader<File>,
    path: PathBuf,
    header: FileHeader,
    read: usize,
    is_complete: bool,
}

/// Opens a file of pages.
pub fn read_pages(path: &Path) -> Result<Pages, ArchiveError> {
    let file = File::open(path).map_err(ArchiveError::io("open", path))?;
    let mut input = BufReader::with_capacity(1 << 20, file);
    let header = frame::read_header(&mut input).map_err(|why| ArchiveError::NotOurs { path: path.to_owned(), why })?;
    Ok(Pages { input, path: path.to_owned(), header, read: 0, is_complete: false })
}

impl Pages {
    /// The scan and its service.
    pub fn header(&self) -> &FileHeader {
        &self.header
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
        match frame::read_frame(&mut self.input) {
            Ok(Some((Frame::Page(body) | Frame::Side(body), _))) => {
                self.read += 1;
                Some(Ok(body))
            }
            Ok(Some((Frame::End, _))) => {
                self.is_complete = true;
                None
            }
            Ok(None) => None,
            Err(FrameError::Torn(why)) => {
                let (path, page) = (self.path.clone(), self.read);
                Some(Err(ArchiveError::Damaged { path, page, why: why.to_owned() }))
            }
            Err(FrameError::Io(source)) => Some(Err(ArchiveError::io("read", &self.path)(source))),
        }
    }
}
