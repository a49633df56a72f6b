//! An output file that replaces its target when it is complete.
//!
//! A regular file is written under a temporary name in the same folder, then renamed. A device, a pipe or a descriptor
//! (`/dev/stdout`) is written to directly.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufWriter, Write},
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::{Access, LINKS_MAX, folder_of, metadata, move_over_real, next_link, real_path, remove_name, with_suffix};

/// Suffix of a private file until it is complete.
const UNFINISHED_PRIVATE: &str = ".new";

/// An output file under construction. If it is dropped before [`Output::finish`], a regular target stays unchanged.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<File>,
    /// `None` if the target is written to directly.
    temporary: Option<TemporaryFile>,
}

/// The temporary file that replaces its target at the end. Dropping the value before the file is renamed removes the
/// file.
#[derive(Debug)]
struct TemporaryFile {
    path: PathBuf,
    target: PathBuf,
    access: Access,
    is_renamed: bool,
}

impl Output {
    /// Begins the output. Until [`Output::finish`], a regular file has the name of its target plus `suffix`. `access`
    /// applies if the target does not exist yet.
    pub fn begin(target: &Path, suffix: &str, access: Access) -> io::Result<Output> {
        if let Some(out) = open_directly(target)? {
            return Ok(Output { out: BufWriter::new(out), temporary: None });
        }
        let target = real_path(target)?;
        let path = with_suffix(&target, suffix);
        // Removes the file that a killed process left. A link of this name is removed too, and never followed.
        remove_name(&path).map_err(|error| in_folder(&target, error))?;
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let out = BufWriter::new(created.map_err(|error| in_folder(&target, error))?);
        Ok(Output { out, temporary: Some(TemporaryFile { path, target, access, is_renamed: false }) })
    }

    /// Returns true if the target is a regular file or does not exist, so that it is replaced at the end.
    pub fn is_regular(&self) -> bool {
        self.temporary.is_some()
    }

    /// Completes the output: replaces a regular target with the complete file, atomically and durably.
    pub fn finish(self) -> io::Result<()> {
        let Output { out, temporary } = self;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        let Some(mut temporary) = temporary else { return Ok(()) };
        file.sync_all()?;
        move_over_real(&temporary.path, &temporary.target, temporary.access)?;
        temporary.is_renamed = true;
        Ok(())
    }
}

/// Writes a file such as a key, a list or a journal, atomically and durably. Only this user can read a new file; a
/// replaced file keeps its access.
///
/// A kill leaves the earlier file unchanged, and perhaps a file `<file>.new`, which the next write removes.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut output = Output::begin(path, UNFINISHED_PRIVATE, Access::Private)?;
    output.write_all(bytes)?;
    output.finish()
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.is_renamed {
            fs::remove_file(&self.path).ok();
        }
    }
}

/// Opens a device, a pipe or a descriptor, which cannot be replaced. Returns `None` for a regular file, and if the path
/// does not exist. Fails for a folder.
fn open_directly(path: &Path) -> io::Result<Option<File>> {
    if let Some(descriptor) = descriptor(path)? {
        return match descriptor.file_name().and_then(|name| name.to_str()) {
            // A second handle on the same open file, so that all writes of this process share one position.
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

/// Returns the entry in `/dev/fd` or `/proc/.../fd` that a path names or links to; `None` if the path leads to no such
/// entry. Does not follow the link that the entry itself is.
fn descriptor(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let is_number = at.file_name().is_some_and(|name| name.as_encoded_bytes().iter().all(u8::is_ascii_digit));
        if is_number && is_descriptor_folder(folder_of(&at)) {
            return Ok(Some(at));
        }
        match next_link(&at)? {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Returns true if a folder is `/dev/fd` or `/proc/.../fd`.
fn is_descriptor_folder(folder: &Path) -> bool {
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    real == Path::new("/dev/fd") || real.starts_with("/proc") && real.ends_with("fd")
}

/// Returns true if a descriptor belongs to this process.
fn is_own(descriptor: &Path) -> bool {
    let own = |folder: &str| Path::new(folder).canonicalize().ok();
    let folder = folder_of(descriptor).canonicalize().ok();
    folder.is_some() && (folder == own("/proc/self/fd") || folder == own("/dev/fd"))
}

fn in_folder(target: &Path, error: io::Error) -> io::Error {
    let folder = folder_of(target).display();
    io::Error::new(error.kind(), format!("cannot create a file in the folder {folder}: {error}"))
}
