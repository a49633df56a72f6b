//! Encodes and decodes archive files: a header, then frames. All integers are little-endian.
//!
//! ```text
//! file   = "SSYNCPG2" header frame*
//! header = length:u32 checksum:u64 JSON
//! frame  = kind:u8 raw:u32 stored:u32 checksum:u64 bytes[stored]
//! kind   = 'P' page | 'T' probe page | 'Q' redacted page | 'U' redacted probe page
//!        | 'E' end of the scan | 'C' commit note
//! ```
//!
//! A probe page contains the rows of one millisecond, which is that of a page boundary. A probe page follows the page
//! with this boundary, or the last page if the probe waited for the end of the list. A scan resumes after a page, never
//! after a probe page.
//!
//! A redacted page is a page without the records of erased people, or with replaced texts. The number of removed
//! records, as u32, precedes the compressed bytes.
//!
//! Commit notes follow the end frame, one for each attempt to commit the scan; the last one counts. Commit notes are
//! stored uncompressed and have no meaning in this module. Files of earlier versions have no notes.
//!
//! A frame's checksum (xxh3) covers its kind, `raw` (the size before compression) and the stored bytes. The checksum
//! detects a tail that is torn at any byte, and prevents that a damaged page is read as another kind of frame.

use std::{
    cell::RefCell,
    io::{self, Read, Seek, Write},
};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};
use zstd::{
    bulk::{Compressor, Decompressor},
    zstd_safe::compress_bound,
};

use crate::model::{Scan, is_same_service};

/// Maximum decompressed bytes of a page; a larger page is an error and is never truncated.
pub const PAGE_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Maximum bytes of a header's JSON.
pub(super) const HEADER_BYTES_MAX: u32 = 64 * 1024;
/// The level of zstd for pages that are kept. Level 3 makes archive files only a few per cent smaller.
pub(super) const KEPT_LEVEL: i32 = 1;
/// The level of zstd for pages that are probably removed soon. It makes files about 60 % larger, in two thirds of the
/// time.
pub(super) const SHORT_LIVED_LEVEL: i32 = -3;
const MAGIC: &[u8; 8] = b"SSYNCPG2";
/// Bytes of a frame before its stored bytes.
const FRAME_HEAD_BYTES: usize = 17;
/// Bytes of the number of removed records in a redacted page.
const REMOVED_BYTES: usize = 4;

/// The header of an archive file: the service and the scan of its pages.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHeader {
    /// The base URL of the service (promise P10).
    pub base_url: String,
    /// The environment label (promise P10).
    pub environment: String,
    /// The scan to which the pages belong.
    pub scan: Scan,
}

impl FileHeader {
    /// Returns true if the file belongs to this service and environment.
    pub fn is_of(&self, base_url: &str, environment: &str) -> bool {
        is_same_service(&self.base_url, base_url) && self.environment == environment
    }
}

/// A decoded frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Frame {
    Page(Vec<u8>),
    Probe(Vec<u8>),
    /// A redacted page and the number of removed records.
    RedactedPage(Vec<u8>, u32),
    /// A redacted probe page and the number of removed records.
    RedactedProbe(Vec<u8>, u32),
    End,
    Note(Vec<u8>),
}

/// The reason why a frame could not be read.
#[derive(Debug)]
pub(super) enum FrameError {
    /// The file ends inside the frame, or the frame is invalid, for example its checksum. The cause is a kill or a lost
    /// write.
    Torn(&'static str),
    Io(io::Error),
}

/// Writes the header of a file.
pub(super) fn write_header(out: &mut impl Write, header: &FileHeader) -> io::Result<()> {
    let json = serde_json::to_vec(header)?;
    let length = u32::try_from(json.len()).map_err(|_| io::Error::other("header too long"))?;
    out.write_all(MAGIC)?;
    out.write_all(&length.to_le_bytes())?;
    out.write_all(&xxh3_64(&json).to_le_bytes())?;
    out.write_all(&json)
}

/// Reads the header of a file. `Err` explains to people what is wrong with the file.
pub(super) fn read_header(input: &mut impl Read) -> Result<FileHeader, String> {
    let mut head = [0; 20];
    input.read_exact(&mut head).map_err(|_| "its header is torn".to_owned())?;
    if &head[..8] != MAGIC {
        return Err("its first bytes are wrong".to_owned());
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

/// Encodes a page.
pub(super) fn page_frame(body: &[u8], level: i32) -> io::Result<Vec<u8>> {
    body_frame(b'P', body, level)
}

/// Encodes a probe page.
pub(super) fn probe_frame(body: &[u8], level: i32) -> io::Result<Vec<u8>> {
    body_frame(b'T', body, level)
}

/// Encodes a redacted page or a redacted probe page.
pub(super) fn redacted_frame(body: &[u8], removed: u32, is_probe: bool, level: i32) -> io::Result<Vec<u8>> {
    let raw = u32::try_from(body.len()).map_err(|_| io::Error::other("page too large"))?;
    let mut stored = removed.to_le_bytes().to_vec();
    stored.extend(compressed(body, level)?);
    Ok(frame(if is_probe { b'U' } else { b'Q' }, raw, &stored))
}

/// Encodes a page with this kind byte.
fn body_frame(kind: u8, body: &[u8], level: i32) -> io::Result<Vec<u8>> {
    let raw = u32::try_from(body.len()).map_err(|_| io::Error::other("page too large"))?;
    let stored = compressed(body, level)?;
    Ok(frame(kind, raw, &stored))
}

/// Encodes the end of a complete scan.
pub(super) fn end_frame() -> Vec<u8> {
    frame(b'E', 0, &[])
}

/// Encodes a commit note.
pub(super) fn note_frame(note: &[u8]) -> Vec<u8> {
    frame(b'C', note.len() as u32, note)
}

thread_local! {
    // Creating a compressor costs more than compressing a small page.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn compressed(body: &[u8], level: i32) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|cached| {
        let compressor = match cached {
            Some(compressor) => compressor,
            None => cached.insert(Compressor::new(level)?),
        };
        compressor.set_compression_level(level)?;
        compressor.compress(body)
    })
}

/// Decompresses a page. `raw` is the size of the page after decompression, in bytes.
fn decompressed(stored: &[u8], raw: usize) -> io::Result<Vec<u8>> {
    DECOMPRESSOR.with_borrow_mut(|cached| match cached {
        Some(decompressor) => decompressor.decompress(stored, raw),
        None => cached.insert(Decompressor::new()?).decompress(stored, raw),
    })
}

/// Encodes a frame. `raw` is the size of the page before compression, in bytes, or the size of a note; 0 for the end
/// frame.
fn frame(kind: u8, raw: u32, stored: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FRAME_HEAD_BYTES + stored.len());
    bytes.push(kind);
    bytes.extend_from_slice(&raw.to_le_bytes());
    // The size fits u32, because a page has at most PAGE_BYTES_MAX bytes and compression hardly lengthens it.
    bytes.extend_from_slice(&(stored.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&checksum(kind, raw, stored).to_le_bytes());
    bytes.extend_from_slice(stored);
    bytes
}

fn checksum(kind: u8, raw: u32, stored: &[u8]) -> u64 {
    xxh3_64_with_seed(stored, u64::from(raw) << 8 | u64::from(kind))
}

/// Reads, checks and decompresses the next frame. Also returns the size of the frame in the file, in bytes. `None` at
/// the end of the file.
pub(super) fn read_frame(input: &mut impl Read) -> Result<Option<(Frame, u64)>, FrameError> {
    let mut head = [0; FRAME_HEAD_BYTES];
    match read_fully(input, &mut head)? {
        0 => return Ok(None),
        FRAME_HEAD_BYTES => {}
        _ => return Err(FrameError::Torn("its head is cut")),
    }
    let (raw, stored) = (u32_at(&head, 1) as usize, u32_at(&head, 5) as usize);
    // Compression lengthens bytes that it cannot compress.
    if raw > PAGE_BYTES_MAX || stored > compress_bound(PAGE_BYTES_MAX) {
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
            if kind == b'P' { Frame::Page(body) } else { Frame::Probe(body) }
        }
        b'E' => Frame::End,
        kind @ (b'Q' | b'U') => {
            let compressed = bytes.get(REMOVED_BYTES..).unwrap_or_default();
            let body = decompressed(compressed, raw).map_err(|_| FrameError::Torn("it cannot be decompressed"))?;
            let removed = u32_at(&bytes, 0);
            if kind == b'Q' { Frame::RedactedPage(body, removed) } else { Frame::RedactedProbe(body, removed) }
        }
        b'C' => Frame::Note(bytes),
        _ => return Err(FrameError::Torn("its kind is unknown")),
    };
    Ok(Some((frame, (FRAME_HEAD_BYTES + stored) as u64)))
}

/// The kind of a skipped frame. `Page` is a page or a redacted page; probe pages are `Other`.
pub(super) enum FrameKind {
    Page,
    End,
    Note(Vec<u8>),
    Other,
}

/// Skips the next frame and returns its kind. Only commit notes are read and checked against their checksum. `None` at
/// the end of the file.
pub(super) fn skip_frame(input: &mut (impl Read + Seek)) -> Result<Option<FrameKind>, FrameError> {
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
            Frame::Note(note) => FrameKind::Note(note),
            _ => FrameKind::Other,
        }));
    }
    input.seek_relative(i64::from(u32_at(&head, 5))).map_err(FrameError::Io)?;
    Ok(Some(match head[0] {
        b'P' | b'Q' => FrameKind::Page,
        b'E' => FrameKind::End,
        _ => FrameKind::Other,
    }))
}

/// Like `read_exact`, but returns the number of bytes read before the end of the file.
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

/// Reads the little-endian integer in the four bytes from `at`. Missing bytes count as 0.
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].iter().take(4).rev().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

/// Reads the little-endian integer in the eight bytes from `at`. Missing bytes count as 0.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].iter().take(8).rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
