//! Writes the bytes of a download to its partial file. Ends the download if the file is no recording or exceeds a
//! limit.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    files::FileError,
    recordings::{FileVersion, PartialFile},
    source::{DownloadSink, DownloadStart},
};

/// The number of bytes that a run may still download, shared by concurrent downloads.
#[derive(Debug)]
pub(super) struct Allowance {
    /// The maximum size of one recording.
    pub file_limit_bytes: u64,
    /// The maximum number of bytes of one run.
    pub run_limit_bytes: u64,
    spending: Mutex<Spending>,
}

#[derive(Debug)]
struct Spending {
    /// Bytes that this run has downloaded.
    received_bytes: u64,
    /// Bytes that this run has downloaded, plus bytes that downloads in progress have announced.
    claimed_bytes: u64,
    /// True if a download did not fit. No further download begins, so that no request is sent in vain.
    is_used_up: bool,
}

impl Allowance {
    /// Creates an allowance with these limits. `received_bytes` is what the run has downloaded before.
    pub fn new(file_limit_bytes: u64, run_limit_bytes: u64, received_bytes: u64) -> Self {
        let spending = Spending { received_bytes, claimed_bytes: received_bytes, is_used_up: false };
        Allowance { file_limit_bytes, run_limit_bytes, spending: Mutex::new(spending) }
    }

    fn spending(&self) -> MutexGuard<'_, Spending> {
        self.spending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bytes that this run has downloaded.
    pub fn received_bytes(&self) -> u64 {
        self.spending().received_bytes
    }

    /// Returns why no further download may begin. Returns `None` if a download may begin.
    pub fn used_up_reason(&self) -> Option<String> {
        let spending = self.spending();
        (spending.is_used_up || spending.claimed_bytes >= self.run_limit_bytes).then(|| self.reason())
    }

    fn reason(&self) -> String {
        format!("run_limit_mb = {} is used up", self.run_limit_bytes / 1_000_000)
    }

    /// Reserves bytes for a download. Fails, and reserves nothing, if the bytes exceed the limit of the run.
    fn claim(&self, bytes: u64) -> Result<(), Declined> {
        let mut spending = self.spending();
        let claimed_bytes = spending.claimed_bytes.saturating_add(bytes);
        if claimed_bytes > self.run_limit_bytes {
            spending.is_used_up = true;
            return Err(Declined::DoesNotFit(self.reason()));
        }
        spending.claimed_bytes = claimed_bytes;
        Ok(())
    }
}

/// Why a download ends early.
#[derive(Debug)]
pub(super) enum Declined {
    /// The body is a web page, JSON or text.
    NotMedia,
    /// The file exceeds the limit of one recording.
    TooLarge,
    /// The file exceeds what the run may still download.
    DoesNotFit(String),
    /// Another download found that the host refuses requests.
    NextRun(String),
    File(FileError),
}

/// Bytes that a response announced and that have not arrived. Dropping the claim returns them to the allowance.
struct Claim<'a> {
    allowance: &'a Allowance,
    bytes: u64,
}

impl Claim<'_> {
    /// Replaces the claim by a claim of `bytes`. If it does not fit, nothing is claimed.
    fn renew(&mut self, bytes: u64) -> Result<(), Declined> {
        self.release();
        self.allowance.claim(bytes)?;
        self.bytes = bytes;
        Ok(())
    }

    /// Counts bytes that arrived. Bytes that were not announced are claimed now.
    fn receive(&mut self, bytes: u64) -> Result<(), Declined> {
        let announced = bytes.min(self.bytes);
        self.allowance.claim(bytes - announced)?;
        self.bytes -= announced;
        self.allowance.spending().received_bytes += bytes;
        Ok(())
    }

    /// Returns the claimed bytes to the allowance.
    fn release(&mut self) {
        self.allowance.spending().claimed_bytes -= std::mem::take(&mut self.bytes);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.release();
    }
}

/// Writes one download to its partial file.
pub(super) struct Sink<'a> {
    pub partial: PartialFile,
    claim: Claim<'a>,
    /// Returns why the host gets no further request in this run. Returns `None` if it may get one.
    closed_reason: &'a (dyn Fn() -> Option<String> + Sync),
}

impl<'a> Sink<'a> {
    pub fn new(
        partial: PartialFile,
        allowance: &'a Allowance,
        closed_reason: &'a (dyn Fn() -> Option<String> + Sync),
    ) -> Self {
        Sink { partial, claim: Claim { allowance, bytes: 0 }, closed_reason }
    }
}

impl DownloadSink for Sink<'_> {
    type Error = Declined;

    fn before_request(&mut self) -> Result<(), Declined> {
        (self.closed_reason)().map_or(Ok(()), |reason| Err(Declined::NextRun(reason)))
    }

    /// Checks the media type and the announced length, and reserves the announced bytes. Empties the partial file if
    /// the body begins at its first byte.
    fn start(&mut self, start: &DownloadStart) -> Result<(), Declined> {
        if start.media_type.as_deref().is_some_and(is_no_media) {
            return Err(Declined::NotMedia);
        }
        if let Some(length) = start.length {
            if length > self.claim.allowance.file_limit_bytes {
                return Err(Declined::TooLarge);
            }
            self.claim.renew(length.saturating_sub(start.offset))?;
        }
        if start.offset == 0 {
            let version = start.validator.clone().map(|validator| FileVersion { validator });
            self.partial.restart(version).map_err(Declined::File)?;
        }
        Ok(())
    }

    /// Writes bytes to the partial file. Checks the first bytes, and the limits.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Declined> {
        if self.partial.bytes() == 0 && is_document(bytes) {
            return Err(Declined::NotMedia);
        }
        let count = bytes.len() as u64;
        if self.partial.bytes().saturating_add(count) > self.claim.allowance.file_limit_bytes {
            return Err(Declined::TooLarge);
        }
        self.claim.receive(count)?;
        self.partial.write(bytes).map_err(Declined::File)
    }
}

/// Returns true if a media type cannot be the type of a recording: text, images, and documents such as JSON.
fn is_no_media(media_type: &str) -> bool {
    let is_document = media_type.ends_with("json") || media_type.ends_with("xml") || media_type.ends_with("javascript");
    media_type.starts_with("text/") || media_type.starts_with("image/") || is_document
}

/// Returns true if a body begins with `<` or `{`, as markup and JSON objects do. No audio or video format does.
fn is_document(bytes: &[u8]) -> bool {
    let begin = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    matches!(begin.first(), Some(b'<' | b'{'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_downloads_share_the_limit_of_the_run() {
        let allowance = Allowance::new(1_000, 1_000, 300);
        let claim = || Claim { allowance: &allowance, bytes: 0 };
        let (mut first, mut second) = (claim(), claim());
        first.renew(400).unwrap();
        second.renew(300).unwrap();
        first.receive(100).unwrap();
        assert_eq!((allowance.used_up_reason().is_some(), allowance.received_bytes()), (true, 400));
        drop(first);
        assert_eq!(allowance.used_up_reason(), None);
        // More arrives than was announced.
        second.receive(500).unwrap();
        second.receive(101).unwrap_err();
        assert_eq!((allowance.used_up_reason().is_some(), allowance.received_bytes()), (true, 900));
        drop(second);
        assert!(allowance.used_up_reason().is_some(), "a download did not fit: no request is made for another");
    }

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
