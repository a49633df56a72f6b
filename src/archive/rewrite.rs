//! Rewrites archive files. An erasure changes pages, to remove records; a rebind changes headers, to bind the archive
//! to another service.
//!
//! The replacement is written next to the old file, synced and renamed over it, so that a complete file exists at any
//! instant. An object is replaced by one write, on the condition that it has the version that was read. The torn tail
//! of an unfinished scan is dropped. The caller decides what changes in a page.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
};

use super::{
    Archive, ArchiveError, ArchiveSettings, FileHeader, PageFile,
    frame::{self, Frame, FrameError, KEPT_LEVEL},
    page_file::PART_BYTES,
};
use crate::model::{DurableStep, Failpoints, Stream};

/// The new content of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageChange {
    pub body: Vec<u8>,
    /// Records removed from the page; 0 if only texts changed.
    pub removed: u32,
}

/// The counts of a rewrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RewriteCounts {
    /// Pages read, probe pages included.
    pub pages: u64,
    /// Pages that changed.
    pub changed: u64,
    /// Records removed.
    pub removed: u64,
}

impl PageFile {
    /// Calls `change` for each page, and rewrites the file if any call returns a changed page. `change` is called twice
    /// for each page of a rewritten file. If `is_trial`, the changes are only counted, and the file stays as it is.
    /// If writing fails, the old file stays. An empty spool, whose header was never synced, has no pages.
    pub fn rewrite<E: From<ArchiveError>>(
        &self,
        failpoints: &Failpoints,
        is_trial: bool,
        mut change: impl FnMut(Stream, &[u8]) -> Result<Option<PageChange>, E>,
    ) -> Result<RewriteCounts, E> {
        let mut counts = RewriteCounts::default();
        // The first pass only counts, because most files do not change.
        let header = self.each_frame(|stream, frame| {
            if let Some(body) = body_of(&frame) {
                counts.pages += 1;
                if let Some(changed) = change(stream, body)? {
                    counts.changed += 1;
                    counts.removed += u64::from(changed.removed);
                }
            }
            Ok::<(), E>(())
        })?;
        if let Some(header) = header.filter(|_| counts.changed > 0 && !is_trial) {
            self.replace(failpoints, &header, change)?;
        }
        Ok(counts)
    }

    /// Replaces the file by a copy with this header and with the changed pages. If writing fails, the old file stays.
    fn replace<E: From<ArchiveError>>(
        &self,
        failpoints: &Failpoints,
        header: &FileHeader,
        change: impl FnMut(Stream, &[u8]) -> Result<Option<PageChange>, E>,
    ) -> Result<(), E> {
        let replacement = self.replacement_path();
        if let Err(error) = self.write_changed(&replacement, header, change) {
            // Remove the incomplete copy, because it may contain the records to remove. The first error is returned.
            fs::remove_file(&replacement).ok();
            return Err(error);
        }
        failpoints.hit(DurableStep::PagesRewritten).map_err(ArchiveError::io("replace", self.path()))?;
        Ok(self.replace_by(&replacement)?)
    }

    /// Writes a copy of the file with this header and with the changed pages, durably.
    fn write_changed<E: From<ArchiveError>>(
        &self,
        replacement: &Path,
        header: &FileHeader,
        mut change: impl FnMut(Stream, &[u8]) -> Result<Option<PageChange>, E>,
    ) -> Result<(), E> {
        let file = File::create(replacement).map_err(ArchiveError::io("create", replacement))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        frame::write_header(&mut out, header).map_err(ArchiveError::io("write", replacement))?;
        self.each_frame(|stream, frame| {
            let changed = body_of(&frame).map(|body| change(stream, body)).transpose()?.flatten();
            let written = encoded(frame, changed).and_then(|bytes| out.write_all(&bytes));
            written.map_err(ArchiveError::io("write", replacement))?;
            Ok::<(), E>(())
        })?;
        let file = out.into_inner().map_err(|error| ArchiveError::io("write", replacement)(error.into_error()))?;
        file.sync_all().map_err(ArchiveError::io("sync", replacement))?;
        Ok(())
    }

    /// Calls `each` with every frame in order, and returns the header. Reading ends at the torn tail of an unfinished
    /// scan. A torn frame in a complete scan is an error. Returns `None` for an empty spool.
    fn each_frame<E: From<ArchiveError>>(
        &self,
        mut each: impl FnMut(Stream, Frame) -> Result<(), E>,
    ) -> Result<Option<FileHeader>, E> {
        let is_empty = || fs::metadata(self.path()).is_ok_and(|metadata| metadata.len() == 0);
        // Only the spool of an unfinished scan may have a torn tail. In other files the frames after a torn frame would
        // be neither searched nor copied.
        if self.is_spool() && is_empty() {
            return Ok(None);
        }
        let (mut input, header) = self.open(PART_BYTES)?;
        let (mut pages, mut is_complete) = (0, !self.is_spool());
        loop {
            match frame::read_frame(&mut input) {
                Ok(Some((frame, _))) => {
                    pages += usize::from(body_of(&frame).is_some());
                    is_complete |= frame == Frame::End;
                    each(header.scan.scope.stream, frame)?;
                }
                Ok(None) => return Ok(Some(header)),
                // The torn tail of an unfinished scan is truncated when the scan resumes.
                Err(FrameError::Torn(_)) if !is_complete => return Ok(Some(header)),
                Err(error) => return Err(ArchiveError::frame(error, self.path(), pages).into()),
            }
        }
    }
}

impl Archive {
    /// Writes the service and environment of `settings` into the header of every archive file. A file whose header has
    /// them already is skipped, so that the same call resumes after a kill. Returns the number of files written; 0 if
    /// there is no archive.
    ///
    /// # Errors
    /// `OtherService` if a file belongs neither to `from_url` and `from_environment` nor to `settings`. In this case no
    /// file is written.
    pub fn rebind(settings: ArchiveSettings, from_url: &str, from_environment: &str) -> Result<u64, ArchiveError> {
        if settings.location.bucket.is_none() && !settings.location.path.exists() {
            return Ok(0);
        }
        Archive::without_owner_check(settings)?.rebind_from(from_url, from_environment)
    }

    /// Does the work of [`Archive::rebind`].
    pub(super) fn rebind_from(&self, from_url: &str, from_environment: &str) -> Result<u64, ArchiveError> {
        let (to_url, to_environment) = self.identity();
        // A run that was killed while it created a spool leaves a file without a header.
        let headers = self.each_file(|file| match file.header() {
            Err(_) if file.key().is_none() => Ok(None),
            header => header.map(Some),
        })?;
        let mut pending = Vec::new();
        for (file, header) in headers {
            let Some(mut header) = header.filter(|header| !header.is_of(to_url, to_environment)) else { continue };
            if !header.is_of(from_url, from_environment) {
                return Err(ArchiveError::other_service(file.path().into(), &header, from_url, from_environment));
            }
            (header.base_url, header.environment) = (to_url.to_owned(), to_environment.to_owned());
            pending.push((file, header));
        }
        for (file, header) in &pending {
            file.replace(&Failpoints::default(), header, |_, _| Ok::<_, ArchiveError>(None))?;
        }
        self.rebind_owner()?;
        Ok(pending.len() as u64)
    }
}

/// Encodes a frame. If `changed` is given, it replaces the page of the frame, as a redacted page. The number of removed
/// records includes those of earlier rewrites.
fn encoded(frame: Frame, changed: Option<PageChange>) -> std::io::Result<Vec<u8>> {
    let (is_probe, removed_before) = match &frame {
        Frame::Probe(_) => (true, 0),
        Frame::RedactedProbe(_, removed) => (true, *removed),
        Frame::RedactedPage(_, removed) => (false, *removed),
        _ => (false, 0),
    };
    match (frame, changed) {
        (_, Some(changed)) => {
            frame::redacted_frame(&changed.body, removed_before.saturating_add(changed.removed), is_probe, KEPT_LEVEL)
        }
        (Frame::Page(body), None) => frame::page_frame(&body, KEPT_LEVEL),
        (Frame::Probe(body), None) => frame::probe_frame(&body, KEPT_LEVEL),
        (Frame::RedactedPage(body, removed), None) => frame::redacted_frame(&body, removed, false, KEPT_LEVEL),
        (Frame::RedactedProbe(body, removed), None) => frame::redacted_frame(&body, removed, true, KEPT_LEVEL),
        (Frame::End, None) => Ok(frame::end_frame()),
        (Frame::Note(note), None) => Ok(frame::note_frame(&note)),
    }
}

/// Returns the page in a frame; `None` for an end frame or a note.
fn body_of(frame: &Frame) -> Option<&[u8]> {
    match frame {
        Frame::Page(body) | Frame::Probe(body) | Frame::RedactedPage(body, _) | Frame::RedactedProbe(body, _) => {
            Some(body)
        }
        Frame::End | Frame::Note(_) => None,
    }
}
