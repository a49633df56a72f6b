//! Takes the bytes of recordings, as long as they are such and the run may fetch them.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    recordings::{Partial, RecordingsError, Version},
    source::{DownloadSink, DownloadStart},
};

/// What a run may fetch.
#[derive(Debug)]
pub(super) struct Allowance {
    pub file_limit_bytes: u64,
    pub run_limit_bytes: u64,
    /// What came.
    pub spent_bytes: AtomicU64,
}

impl Allowance {
    /// What came in this run.
    pub fn spent(&self) -> u64 {
        self.spent_bytes.load(Ordering::Relaxed)
    }

    /// Why no more is fetched, if nothing is left of it.
    pub fn is_used_up(&self) -> Option<String> {
        (self.spent() >= self.run_limit_bytes).then(|| self.reason())
    }

    fn reason(&self) -> String {
        format!("run_limit_mb = {} is used up", self.run_limit_bytes / 1_000_000)
    }

    fn require(&self, bytes: u64) -> Result<(), Declined> {
        match self.spent().saturating_add(bytes) <= self.run_limit_bytes {
            true => Ok(()),
            false => Err(Declined::Allowance(self.reason())),
        }
    }
}

/// Why no more is taken.
#[derive(Debug)]
pub(super) enum Declined {
    /// A web page, JSON or text.
    NotMedia,
    TooLarge,
    /// The run has fetched what it may.
    Allowance(String),
    File(RecordingsError),
}

/// Writes a recording as it comes.
pub(super) struct Sink<'a> {
    pub partial: Partial,
    allowance: &'a Allowance,
}

impl<'a> Sink<'a> {
    pub fn new(partial: Partial, allowance: &'a Allowance) -> Self {
        Sink { partial, allowance }
    }
}

impl DownloadSink for Sink<'_> {
    type Error = Declined;

    fn start(&mut self, start: &DownloadStart) -> Result<(), Declined> {
        if start.media_type.as_deref().is_some_and(is_no_media) {
            return Err(Declined::NotMedia);
        }
        if let Some(length) = start.length {
            if length > self.allowance.file_limit_bytes {
                return Err(Declined::TooLarge);
            }
            // What would not fit is not begun.
            self.allowance.require(length.saturating_sub(start.offset))?;
        }
        if start.offset == 0 {
            let version = start.validator.clone().map(|validator| Version { validator });
            self.partial.restart(version).map_err(Declined::File)?;
        }
        Ok(())
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Declined> {
        if self.partial.bytes() == 0 && is_document(bytes) {
            return Err(Declined::NotMedia);
        }
        let count = bytes.len() as u64;
        if self.partial.bytes().saturating_add(count) > self.allowance.file_limit_bytes {
            return Err(Declined::TooLarge);
        }
        self.allowance.require(count)?;
        self.allowance.spent_bytes.fetch_add(count, Ordering::Relaxed);
        self.partial.write(bytes).map_err(Declined::File)
    }
}

/// Whether a media type is that of no recording.
fn is_no_media(media_type: &str) -> bool {
    let is_document = media_type.ends_with("json") || media_type.ends_with("xml") || media_type.ends_with("javascript");
    media_type.starts_with("text/") || media_type.starts_with("image/") || is_document
}

/// Whether a body begins as markup or JSON does, and as no format of sound or film does.
fn is_document(bytes: &[u8]) -> bool {
    let begin = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    matches!(begin.first(), Some(b'<' | b'{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_no_recordings() {
        for media_type in ["text/html", "application/json", "image/png", "application/xhtml+xml", "text/plain"] {
            assert!(is_no_media(media_type), "{media_type}");
        }
        for media_type in ["video/mp4", "audio/mpeg", "application/octet-stream", "application/ogg", ""] {
            assert!(!is_no_media(media_type), "{media_type}");
        }
        for body in [&b"<html>"[..], b" \n<!doctype html>", b"{\"error\":1}", b"\xef\xbb\xbf<Error/>"] {
            assert!(is_document(body), "{body:?}");
        }
        for body in [&b"\0\0\0\x18ftypmp42"[..], b"OggS", b"ID3", b"\x1aE\xdf\xa3", b"RIFF", b"\xff\xfb", b""] {
            assert!(!is_document(body), "{body:?}");
        }
    }
}
