//! A file that a person names for output. A regular file is written beside its place and put there at the end. A
//! device, a pipe or a descriptor (`/dev/stdout`) is written to directly.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{Access, LINKS_MAX, beside, folder_of, metadata, next_link, put, real_path};

/// An output under construction. Dropped before [`Output::finish`], it leaves the file before as it was.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<File>,
    /// `None` for what is written to directly.
    unfinished: Option<Unfinished>,
}

#[derive(Debug)]
struct Unfinished {
    at: PathBuf,
    place: PathBuf,
    access: Access,
    is_placed: bool,
}

impl Output {
    /// Begins the output. Until it is finished, a regular file has the name of its place and this suffix.
    pub fn begin(path: &Path, suffix: &str, access: Access) -> io::Result<Output> {
        if let Some(out) = open_directly(path)? {
            return Ok(Output { out: BufWriter::new(out), unfinished: None });
        }
        let place = real_path(path)?;
        let at = beside(&place, suffix);
        // What a killed process left. A link that somebody put there is removed, and never followed.
        match fs::remove_file(&at) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(in_folder(&place, error)),
            _ => {}
        }
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&at);
        let out = BufWriter::new(created.map_err(|error| in_folder(&place, error))?);
        Ok(Output { out, unfinished: Some(Unfinished { at, place, access, is_placed: false }) })
    }

    /// Whether it is written beside its place.
    pub fn is_regular(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Puts the complete file in its place, durably.
    pub fn finish(self) -> io::Result<()> {
        let Output { out, unfinished } = self;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let Some(mut unfinished) = unfinished else { return Ok(()) };
        file.sync_all()?;
        put(&unfinished.at, &unfinished.place, unfinished.access)?;
        unfinished.is_placed = true;
        Ok(())
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_placed {
            fs::remove_file(&self.at).ok();
        }
    }
}

/// Opens what no file can take the place of; `None` for a regular file, or none yet.
fn open_directly(path: &Path) -> io::Result<Option<File>> {
    if let Some(descriptor) = descriptor(path)? {
        return match descriptor.file_name().and_then(|name| name.to_str()) {
            // A second handle on the same open file: what is written before and after keeps its place.
            Some("1") if is_own(&descriptor) => Ok(Some(io::stdout().as_fd().try_clone_to_owned()?.into())),
            Some("2") if is_own(&descriptor) => Ok(Some(io::stderr().as_fd().try_clone_to_owned()?.into())),
            _ => OpenOptions::new().append(true).open(&descriptor).map(Some),
        };
    }
    match metadata(path)? {
        Some(found) if found.is_dir() => Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder")),
        Some(found) if !found.is_file() => OpenOptions::new().write(true).open(path).map(Some),
        _ => Ok(None),
    }
}

/// The entry of an open file in `/dev/fd` or `/proc/.../fd` that a path names or leads to.
/// Its target is not a path to follow.
fn descriptor(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let is_number = at.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if is_number && is_descriptors(folder_of(&at)) {
            return Ok(Some(at));
        }
        match next_link(&at)? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(None)
}

fn is_descriptors(folder: &Path) -> bool {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    real == Path::new("/dev/fd") || real.starts_with("/proc") && real.ends_with("fd")
}

/// Whether a descriptor is one of this process.
fn is_own(descriptor: &Path) -> bool {
    let own = |folder: &str| Path::new(folder).canonicalize().ok();
    let folder = folder_of(descriptor).canonicalize().ok();
    folder.is_some() && (folder == own("/proc/self/fd") || folder == own("/dev/fd"))
}

fn in_folder(place: &Path, error: io::Error) -> io::Error {
    let folder = folder_of(place).display();
    io::Error::new(error.kind(), format!("cannot create a file in the folder {folder}: {error}"))
}
