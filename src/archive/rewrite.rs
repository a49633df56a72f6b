//! Rewrites archive files. An erasure changes pages, to remove records; a rebind changes headers, to bind the archive
//! to another service.
//!
//! The replacement is written next to the old file, synced and renamed over it, so that a complete file exists at any
//! instant. The torn tail of an unfinished scan is dropped. The caller decides what changes in a page.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
};

use super::{
    Archive, ArchiveError, ArchiveSettings, FileHeader,
    frame::{self, Frame, FrameError, KEPT_LEVEL},
    read_pages, reader,
    store::{REWRITE_SUFFIX, UNDER_WAY},
};
use crate::{
    files,
    model::{DurableStep, Failpoints},
};

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

/// Calls `change` for each page of a file, and rewrites the file if any call returns a changed page. `change` is called
/// twice for each page of a rewritten file. If `is_trial`, the changes are only counted, and the file stays as it is.
/// If writing fails, the old file stays.
pub fn rewrite<E: From<ArchiveError>>(
    path: &Path,
    failpoints: &Failpoints,
    is_trial: bool,
    mut change: impl FnMut(&[u8]) -> Result<Option<PageChange>, E>,
) -> Result<RewriteCounts, E> {
    let mut counts = RewriteCounts::default();
    // The first pass only counts, because most files do not change.
    each_frame(path, |frame| {
        if let Some(body) = body_of(&frame) {
            counts.pages += 1;
            if let Some(changed) = change(body)? {
                counts.changed += 1;
                counts.removed += u64::from(changed.removed);
            }
        }
        Ok::<(), E>(())
    })?;
    if counts.changed == 0 || is_trial {
        return Ok(counts);
    }
    let (_, header) = reader::open(path)?;
    replace(path, failpoints, &header, change)?;
    Ok(counts)
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
        if !settings.root.exists() {
            return Ok(0);
        }
        let archive = Archive::without_owner_check(settings);
        let (to_url, to_environment) = archive.identity();
        let mut pending = Vec::new();
        for path in archive.committed()?.into_iter().chain(archive.spools()?) {
            // A run that was killed while it created the file leaves a file without a header.
            let Ok(pages) = read_pages(&path) else { continue };
            let mut header = pages.header().clone();
            if header.is_of(to_url, to_environment) {
                continue;
            }
            if !header.is_of(from_url, from_environment) {
                return Err(ArchiveError::other_service(path, &header, from_url, from_environment));
            }
            (header.base_url, header.environment) = (to_url.to_owned(), to_environment.to_owned());
            pending.push((path, header));
        }
        for (path, header) in &pending {
            let failpoints = Failpoints::default();
            replace(path, &failpoints, header, |_| Ok::<_, ArchiveError>(None))?;
        }
        Ok(pending.len() as u64)
    }
}

/// Replaces a file by a copy with this header and with the changed pages. If writing fails, the old file stays.
fn replace<E: From<ArchiveError>>(
    path: &Path,
    failpoints: &Failpoints,
    header: &FileHeader,
    change: impl FnMut(&[u8]) -> Result<Option<PageChange>, E>,
) -> Result<(), E> {
    let replacement = files::with_suffix(path, REWRITE_SUFFIX);
    if let Err(error) = write_changed(path, &replacement, header, change) {
        // Remove the incomplete copy, because it may contain the records to remove. The first error is returned.
        fs::remove_file(&replacement).ok();
        return Err(error);
    }
    failpoints.hit(DurableStep::PagesRewritten).map_err(ArchiveError::io("replace", path))?;
    files::replace(&replacement, path).map_err(ArchiveError::io("replace", path))?;
    Ok(())
}

/// Writes a copy of a file with this header and with the changed pages, durably.
fn write_changed<E: From<ArchiveError>>(
    path: &Path,
    replacement: &Path,
    header: &FileHeader,
    mut change: impl FnMut(&[u8]) -> Result<Option<PageChange>, E>,
) -> Result<(), E> {
    let file = File::create(replacement).map_err(ArchiveError::io("create", replacement))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    frame::write_header(&mut out, header).map_err(ArchiveError::io("write", replacement))?;
    each_frame(path, |frame| {
        let changed = body_of(&frame).map(&mut change).transpose()?.flatten();
        let written = encoded(frame, changed).and_then(|bytes| out.write_all(&bytes));
        written.map_err(ArchiveError::io("write", replacement))?;
        Ok::<(), E>(())
    })?;
    let file = out.into_inner().map_err(|error| ArchiveError::io("write", replacement)(error.into_error()))?;
    file.sync_all().map_err(ArchiveError::io("sync", replacement))?;
    Ok(())
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

/// Calls `each` with every frame in order. Reading ends at the torn tail of an unfinished scan. A
/// torn frame in a complete scan is an error.
fn each_frame<E: From<ArchiveError>>(path: &Path, mut each: impl FnMut(Frame) -> Result<(), E>) -> Result<(), E> {
    let (mut input, _) = reader::open(path)?;
    // Only the spool of an unfinished scan may have a torn tail. In other files the frames after a torn frame would be
    // neither searched nor copied.
    let may_be_torn = path.parent().is_some_and(|folder| folder.ends_with(UNDER_WAY));
    let (mut pages, mut is_complete) = (0, !may_be_torn);
    loop {
        match frame::read_frame(&mut input) {
            Ok(Some((frame, _))) => {
                pages += usize::from(body_of(&frame).is_some());
                is_complete |= frame == Frame::End;
                each(frame)?;
            }
            Ok(None) => return Ok(()),
            // The torn tail of an unfinished scan is truncated when the scan resumes.
            Err(FrameError::Torn(_)) if !is_complete => return Ok(()),
            Err(error) => return Err(ArchiveError::frame(error, path, pages).into()),
        }
    }
}
