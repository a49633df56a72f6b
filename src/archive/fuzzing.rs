//! Entry points for the fuzzer; compiled for fuzzing only.

use crate::model::{FlagSet, RunId, Scan, ScanId, Scope, Stream, Window};

use super::frame::{self, FileHeader, Frame, FrameError};

/// The minimum size of a header in bytes. The maximum is 256 bytes more.
pub const FRAMES_BYTES_MIN: usize = 160;

/// Encodes the file of a complete scan with these pages.
pub fn write_file(pages: &[&[u8]]) -> Vec<u8> {
    let scan = Scan {
        id: ScanId("scan".into()),
        run_id: RunId("run".into()),
        scope: Scope::all(Stream::Responses),
        window: Window::new(0, 1),
        flags: FlagSet::ALL,
        started_ms: 2,
    };
    let header = FileHeader { base_url: "http://127.0.0.1:1".into(), environment: "test".into(), scan };
    let mut file = Vec::new();
    frame::write_header(&mut file, &header).expect("a vector takes any bytes");
    for page in pages {
        file.extend(frame::page_frame(page, frame::KEPT_LEVEL).expect("a page within the limit"));
    }
    file.extend(frame::end_frame());
    file
}

/// Decodes the complete pages of a file, without probe pages, redacted pages and notes. The `bool` is true if the file
/// has an end frame. `None` if the file has no header.
pub fn read_file(mut bytes: &[u8]) -> Option<(Vec<Vec<u8>>, bool)> {
    frame::read_header(&mut bytes).ok()?;
    let mut pages = Vec::new();
    loop {
        match frame::read_frame(&mut bytes) {
            Ok(Some((Frame::Page(page), _))) => pages.push(page),
            Ok(Some((Frame::End, _))) => return Some((pages, true)),
            Ok(Some(_)) => {}
            Ok(None) | Err(FrameError::Torn(_)) => return Some((pages, false)),
            Err(FrameError::Io(error)) => panic!("bytes in memory cannot fail: {error}"),
        }
    }
}
