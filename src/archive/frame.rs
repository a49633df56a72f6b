//! The bytes of an archive file: a header, then frames. All integers are little-endian.
//!
//! ```text
//! file   = "SSYNCPG2" header frame*
//! header = length:u32 checksum:u64 JSON
//! frame  = kind:u8 raw:u32 stored:u32 checksum:u64 bytes[stored]
//! kind   = 'P' page, 'T' side page, 'Q' and 'U' the same without some records, 'E' end of the scan,
//!          'C' note on a commit
//! ```
//!
//! 'Q' and 'U' are a page and a side page that somebody's records were taken out of: before the compressed bytes stands
//! how many they were, as u32. Such a page is no longer what the service sent.
//!
//! A side page belongs to the scan, and leads nowhere:
//! it holds rows of one millisecond at the edge of the page before it.
//!
//! Notes stand behind the end, one for each time that the scan was about to be committed; the last counts. They are
//! text, stored as it is, and mean nothing here. A file of an earlier version has none.
//!
//! A frame's checksum (xxh3) covers its kind, its size and the stored bytes: a torn tail is told from a whole frame at
//! any byte, and a page never turns into something else.

use std::{
    cell::RefCell,
    io::{self, Read, Seek, Write},
};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use zstd::bulk::{Compressor, Decompressor};

use crate::model::{Scan, is_same_service};

/// The largest page that is archived, decompressed; a page over it is an error, never cut.
pub const PAGE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// The largest header that is read.
const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// Fast: it costs a fraction of the parsing, and level 3 makes files of such pages only some per cent smaller.
const ZSTD_LEVEL: i32 = 1;
const MAGIC: &[u8; 8] = b"SSYNCPG2";
const FRAME_HEAD_BYTES: usize = 17;
const REMOVED_BYTES: usize = 4;

/// What an archive file holds, at its beginning. It never changes after the file was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHeader {
    /// The service (promise P10).
    pub base_url: String,
    /// The environment label (promise P10).
    pub environment: String,
    /// The scan whose pages these are.
    pub scan: Scan,
}

impl FileHeader {
    /// Whether the pages are of this service and environment.
    pub fn is_of(&self, base_url: &str, environment: &str) -> bool {
        is_same_service(&self.base_url, base_url) && self.environment == environment
    }
}

/// A frame as it stands in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Page(Vec<u8>),
    Side(Vec<u8>),
    /// A page, or a side page, without records that were on it, and how many those were.
    LessPage(Vec<u8>, u32),
    LessSide(Vec<u8>, u32),
    End,
    Note(Vec<u8>),
}

/// Why a frame could not be read.
#[derive(Debug)]
pub(super) enum FrameError {
    /// The file ends inside the frame, or its bytes are not those that were written: a kill or a lost write.
    Torn(&'static str),
    Io(io::Error),
}

pub(super) fn write_header(out: &mut impl Write, header: &FileHeader) -> io::Result<()> {
    let json = serde_json::to_vec(header)?;
    let length = u32::try_from(json.len()).map_err(|_| io::Error::other("header too long"))?;
    out.write_all(MAGIC)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&xxh3_64(&json).to_le_bytes())?;
    out.write_all(&json)
}

/// Reads the header; the text of an error says what is wrong.
pub(super) fn read_header(input: &mut impl Read) -> Result<FileHeader, String> {
    let mut head = [0; 20];
    input.read_exact(&mut head).map_err(|_| "its header is torn".to_owned())?;
    if &head[..8] != MAGIC {
        return Err("it does not begin like one".to_owned());
    }
    let length = u32_at(&head, 8);
    if length > HEADER_BYTES_MAX {
        return Err(format!("its header claims {length} bytes"));
    }
    let mut json = vec![0; length as usize];
    input.read_exact(&mut json).map_err(|_| "its header is torn".to_owned())?;
    if xxh3_64(&json) != u64_at(&head, 12) {
        return Err("its header is damaged".to_owned());
    }
    serde_json::from_slice(&json).map_err(|error| format!("its header cannot be read: {error}"))
}

/// The bytes of a page's frame.
pub(super) fn page_frame(body: &[u8]) -> io::Result<Vec<u8>> {
    body_frame(b'P', body)
}

/// The bytes of a side page's frame.
pub(super) fn side_frame(body: &[u8]) -> io::Result<Vec<u8>> {
    body_frame(b'T', body)
}

/// The bytes of the frame of a page, or of a side page, that records were taken out of.
pub(super) fn less_frame(body: &[u8], removed: u32, is_side: bool) -> io::Result<Vec<u8>> {
    let raw = u32::try_from(body.len()).map_err(|_| io::Error::other("page too large"))?;
    let mut stored = removed.to_le_bytes().to_vec();
    stored.extend(compressed(body)?);
    Ok(frame(if is_side { b'U' } else { b'Q' }, raw, &stored))
}

fn body_frame(kind: u8, body: &[u8]) -> io::Result<Vec<u8>> {
    let raw = u32::try_from(body.len()).map_err(|_| io::Error::other("page too large"))?;
    let stored = compressed(body)?;
    Ok(frame(kind, raw, &stored))
}

/// The bytes of the frame that closes a complete scan.
pub(super) fn end_frame() -> Vec<u8> {
    frame(b'E', 0, &[])
}

/// The bytes of the frame that says how the scan is committed.
pub(super) fn note_frame(note: &[u8]) -> Vec<u8> {
    frame(b'C', note.len() as u32, note)
}

thread_local! {
    // Making one costs more than a small page.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compressed(body: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => compressor.compress(body),
        None => kept.insert(Compressor::new(ZSTD_LEVEL)?).compress(body),
    })
}

fn decompressed(stored: &[u8], raw: usize) -> io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(decompressor) => decompressor.decompress(stored, raw),
        None => kept.insert(Decompressor::new()?).decompress(stored, raw),
    })
}

fn frame(kind: u8, raw: u32, stored: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FRAME_HEAD_BYTES + stored.len());
    bytes.push(kind);
    bytes.extend_from_slice(&raw.to_le_bytes());
    // zstd's bound on 4 GiB of input fits u32 only because pages are at most PAGE_BYTES_MAX.
    bytes.extend_from_slice(&(stored.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&checksum(kind, raw, stored).to_le_bytes());
    bytes.extend_from_slice(stored);
    bytes
}

fn checksum(kind: u8, raw: u32, stored: &[u8]) -> u64 {
    xxh3_64_with_seed(stored, u64::from(raw) << 8 | u64::from(kind))
}

/// The next frame and the number of bytes it takes, or `None` at the end of the file.
pub(super) fn read_frame(input: &mut impl Read) -> Result<Option<(Frame, u64)>, FrameError> {
    let mut head = [0; FRAME_HEAD_BYTES];
    match read_fully(input, &mut head)? {
        0 => return Ok(None),
        FRAME_HEAD_BYTES => {}
        _ => return Err(FrameError::Torn("its head is cut")),
    }
    let (raw, stored) = (u32_at(&head, 1) as usize, u32_at(&head, 5) as usize);
    if raw > PAGE_BYTES_MAX || stored > PAGE_BYTES_MAX {
        return Err(FrameError::Torn("it claims more bytes than a page may have"));
    }
    let mut bytes = Vec::new();
    let read = input.take(stored as u64).read_to_end(&mut bytes).map_err(FrameError::Io)?;
    if read < stored {
        return Err(FrameError::Torn("it is cut"));
    }
    if checksum(head[0], raw as u32, &bytes) != u64_at(&head, 9) {
        return Err(FrameError::Torn("its checksum is wrong"));
    }
    let frame = match head[0] {
        kind @ (b'P' | b'T') => {
            let body = decompressed(&bytes, raw).map_err(|_| FrameError::Torn("it cannot be decompressed"))?;
            if kind == b'P' { Frame::Page(body) } else { Frame::Side(body) }
        }
        b'E' => Frame::End,
        kind @ (b'Q' | b'U') => {
            let packed = bytes.get(REMOVED_BYTES..).unwrap_or_default();
            let body = decompressed(packed, raw).map_err(|_| FrameError::Torn("it cannot be decompressed"))?;
            let removed = u32_at(&bytes, 0);
            if kind == b'Q' { Frame::LessPage(body, removed) } else { Frame::LessSide(body, removed) }
        }
        b'C' => Frame::Note(bytes),
        _ => return Err(FrameError::Torn("its kind is unknown")),
    };
    Ok(Some((frame, (FRAME_HEAD_BYTES + stored) as u64)))
}

/// A frame that was passed over.
pub(super) enum Skipped {
    Page,
    End,
    Note(Vec<u8>),
    Other,
}

/// What the next frame is; only a note is read. `None` at the end of the file.
pub(super) fn skip_frame(input: &mut (impl Read + Seek)) -> Result<Option<Skipped>, FrameError> {
    let mut head = [0; FRAME_HEAD_BYTES];
    match read_fully(input, &mut head)? {
        0 => return Ok(None),
        FRAME_HEAD_BYTES => {}
        _ => return Err(FrameError::Torn("its head is cut")),
    }
    if head[0] == b'C' {
        input.seek_relative(-(FRAME_HEAD_BYTES as i64)).map_err(FrameError::Io)?;
        let frame = read_frame(input)?;
        return Ok(frame.map(|(frame, _)| match frame {
            Frame::Note(note) => Skipped::Note(note),
            _ => Skipped::Other,
        }));
    }
    input.seek_relative(i64::from(u32_at(&head, 5))).map_err(FrameError::Io)?;
    Ok(Some(match head[0] {
        b'P' | b'Q' => Skipped::Page,
        b'E' => Skipped::End,
        _ => Skipped::Other,
    }))
}

/// Like `read_exact`, but tells how much there was.
fn read_fully(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize, FrameError> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FrameError::Io(error)),
        }
    }
    Ok(filled)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].iter().take(4).rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
