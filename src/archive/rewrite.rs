//! Writes a file of pages anew with some pages changed: how records leave the archive.
//!
//! The new file is written beside the old one, made durable and renamed over it: at any instant there is the old file
//! or the new one, whole. A torn tail, which a scan under way may have, is left off.
//! What changes in a page is not decided here.

use std::{
    fs::{self, File},
    io::{BufReader, BufWriter, Write},
    path::Path,
};

use super::{
    Archive, ArchiveError, ArchiveSettings,
    frame::{self, Frame, FrameError},
    read_pages,
    store::UNDER_WAY,
};
use crate::{
    files,
    model::{DurableStep, Steps},
};

/// How the name of a file that is being written anew ends.
pub const FRESH_SUFFIX: &str = ".rewrite";

/// What a page becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageChange {
    pub body: Vec<u8>,
    /// Records that were taken out of it; none where only texts were changed.
    pub removed: u32,
}

/// What a rewrite found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Pages looked at, side pages among them.
    pub pages: u64,
    /// Pages that changed.
    pub changed: u64,
    /// Records that are gone.
    pub removed: u64,
}

/// Asks for each page of a file what it becomes, `None` being what it is, and writes the file anew if any changes. With
/// `is_trial` it is only counted.
pub fn rewrite<E: From<ArchiveError>>(
    path: &Path,
    steps: &Steps,
    is_trial: bool,
    mut change: impl FnMut(&[u8]) -> Result<Option<PageChange>, E>,
) -> Result<Rewritten, E> {
    let mut counts = Rewritten::default();
    // Most files hold nobody who is looked for: those are read once and not written.
    each_frame(path, |_, frame| {
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
    let fresh = files::beside(path, FRESH_SUFFIX);
    let written = write_anew(path, &fresh, &mut change);
    if written.is_err() {
        // The first error is the one to tell, and a copy of what should go must not stay.
        fs::remove_file(&fresh).ok();
    }
    written?;
    steps.reach(DurableStep::PagesRewritten).map_err(ArchiveError::io("replace", path))?;
    files::replace(&fresh, path).map_err(ArchiveError::io("replace", path))?;
    Ok(counts)
}

impl Archive {
    /// Writes into every file of pages whose it is: the service has moved, or its environment has another name. Files
    /// that say so already stay as they are, so that the same call goes on after a kill. Returns the files written.
    ///
    /// # Errors
    /// `OtherService` if a file is of neither, before any is written.
    pub fn rebind(settings: ArchiveSettings, from_url: &str, from_environment: &str) -> Result<u64, ArchiveError> {
        if !settings.root.exists() {
            return Ok(0);
        }
        let archive = Archive::of_anybody(settings);
        let (to_url, to_environment) = archive.identity();
        let mut left = Vec::new();
        for path in archive.committed()?.into_iter().chain(archive.spools()?) {
            // A scan that was cut short while its file was made has no header.
            let Ok(pages) = read_pages(&path) else { continue };
            let header = pages.header();
            if header.is_of(to_url, to_environment) {
                continue;
            }
            if !header.is_of(from_url, from_environment) {
                return Err(ArchiveError::other_service(path, header, from_url, from_environment));
            }
            left.push(path);
        }
        left.iter().try_for_each(|path| rebind_file(path, to_url, to_environment))?;
        Ok(left.len() as u64)
    }
}

fn rebind_file(path: &Path, base_url: &str, environment: &str) -> Result<(), ArchiveError> {
    let mut header = read_pages(path)?.header().clone();
    (header.base_url, header.environment) = (base_url.to_owned(), environment.to_owned());
    let fresh = files::beside(path, FRESH_SUFFIX);
    let write = || -> Result<(), ArchiveError> {
        let failed = |source| ArchiveError::io("write", &fresh)(source);
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&fresh).map_err(failed)?);
        frame::write_header(&mut out, &header).map_err(failed)?;
        each_frame(path, |_, frame| {
            let bytes = encoded(frame, None);
            bytes.and_then(|bytes| out.write_all(&bytes)).map_err(failed)
        })?;
        let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)
    };
    if let Err(error) = write() {
        // The first error is the one to tell.
        fs::remove_file(&fresh).ok();
        return Err(error);
    }
    files::replace(&fresh, path).map_err(ArchiveError::io("replace", path))
}

fn write_anew<E: From<ArchiveError>>(
    path: &Path,
    fresh: &Path,
    change: &mut impl FnMut(&[u8]) -> Result<Option<PageChange>, E>,
) -> Result<(), E> {
    let file = File::create(fresh).map_err(ArchiveError::io("create", fresh))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut is_headed = false;
    each_frame(path, |header, frame| {
        let failed = ArchiveError::io("write", fresh);
        if !is_headed {
            frame::write_header(&mut out, header).map_err(ArchiveError::io("write", fresh))?;
            is_headed = true;
        }
        let changed = body_of(&frame).map(&mut *change).transpose()?.flatten();
        let bytes = encoded(frame, changed);
        bytes.and_then(|bytes| out.write_all(&bytes)).map_err(failed)?;
        Ok::<(), E>(())
    })?;
    let file = out.into_inner().map_err(|error| ArchiveError::io("write", fresh)(error.into_error()))?;
    file.sync_all().map_err(ArchiveError::io("sync", fresh))?;
    Ok(())
}

/// The frame's bytes, with what its page became.
fn encoded(frame: Frame, changed: Option<PageChange>) -> std::io::Result<Vec<u8>> {
    let (is_side, before) = match &frame {
        Frame::Side(_) => (true, 0),
        Frame::LessSide(_, removed) => (true, *removed),
        Frame::LessPage(_, removed) => (false, *removed),
        _ => (false, 0),
    };
    match (frame, changed) {
        (_, Some(changed)) => frame::less_frame(&changed.body, before.saturating_add(changed.removed), is_side),
        (Frame::Page(body), None) => frame::page_frame(&body),
        (Frame::Side(body), None) => frame::side_frame(&body),
        (Frame::LessPage(body, removed), None) => frame::less_frame(&body, removed, false),
        (Frame::LessSide(body, removed), None) => frame::less_frame(&body, removed, true),
        (Frame::End, None) => Ok(frame::end_frame()),
        (Frame::Note(note), None) => Ok(frame::note_frame(&note)),
    }
}

fn body_of(frame: &Frame) -> Option<&[u8]> {
    match frame {
        Frame::Page(body) | Frame::Side(body) | Frame::LessPage(body, _) | Frame::LessSide(body, _) => Some(body),
        Frame::End | Frame::Note(_) => None,
    }
}

/// Hands over each frame in order, up to the end of the file or to where it is torn.
/// A committed file is never torn, so there that is an error.
fn each_frame<E: From<ArchiveError>>(
    path: &Path,
    mut each: impl FnMut(&super::FileHeader, Frame) -> Result<(), E>,
) -> Result<(), E> {
    let file = File::open(path).map_err(ArchiveError::io("open", path))?;
    let mut input = BufReader::with_capacity(1 << 20, file);
    let header = frame::read_header(&mut input).map_err(|why| ArchiveError::NotOurs { path: path.to_owned(), why })?;
    // A committed file has no torn end: what stands behind a damaged frame would be neither searched nor kept.
    let may_be_torn = path.parent().is_some_and(|folder| folder.ends_with(UNDER_WAY));
    let (mut pages, mut is_whole) = (0, !may_be_torn);
    loop {
        match frame::read_frame(&mut input) {
            Ok(Some((frame, _))) => {
                pages += usize::from(body_of(&frame).is_some());
                is_whole |= frame == Frame::End;
                each(&header, frame)?;
            }
            Ok(None) => return Ok(()),
            // What a scan under way has behind its last whole frame is cut off when it goes on.
            Err(FrameError::Torn(_)) if !is_whole => return Ok(()),
            Err(FrameError::Torn(why)) => {
                return Err(ArchiveError::Damaged { path: path.to_owned(), page: pages, why: why.to_owned() }.into());
            }
            Err(FrameError::Io(source)) => return Err(ArchiveError::io("read", path)(source).into()),
        }
    }
}
