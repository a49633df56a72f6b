//! Files that take the place of others: whole, durable, behind links, with the access of the file before.
//!
//! - A symbolic link is followed: its target is replaced, and the link stays.
//! - A replaced file keeps its mode, owner and group. A new file is for this user alone.
//! - Devices, pipes and descriptors are written to directly: see [`Output`].
//!
//! Knows nothing of what is in a file.

mod access;
mod folder;
mod output;
#[cfg(test)]
mod tests;

pub use access::{Access, create_folders, keep_access_below, keep_private, share_as_usual};
pub use folder::folder_of;
pub use output::Output;

use std::{
    ffi::OsString,
    fs::{self, File, Metadata},
    io,
    path::{Path, PathBuf},
};

/// As many links as Linux follows.
const LINKS_MAX: usize = 40;
/// Ends the name of a file that is copied to another file system.
const COPIED: &str = ".part";

/// The file that a path leads to: links at its end are followed, also where the file at their end does not exist yet.
pub fn real_path(path: &Path) -> io::Result<PathBuf> {
    let mut real = path.to_owned();
    for _ in 0..LINKS_MAX {
        match next_link(&real)? {
            Some(next) => real = next,
            None => return Ok(real),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, "too many symbolic links lead from one to the next"))
}

/// Where a link leads; `None` for what is no link.
fn next_link(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(path) {
        Ok(target) => Ok(Some(folder_of(path).join(target))),
        // InvalidInput: not a link. What this user may not reach is refused, with its name, to whoever opens it.
        Err(error) => match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied => Ok(None),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

/// Puts a complete file in the place of another, durably, and removes it if that fails.
pub fn replace(new: &Path, path: &Path) -> io::Result<()> {
    let placed = put_in_place(new, path);
    if placed.is_err() {
        // The first error is the one to tell.
        fs::remove_file(new).ok();
    }
    placed
}

/// Puts a complete file in the place of another, durably. After an error it is still where it was.
pub fn put_in_place(new: &Path, path: &Path) -> io::Result<()> {
    put(new, &real_path(path)?, Access::Private)
}

fn put(new: &Path, place: &Path, access: Access) -> io::Result<()> {
    let old = metadata(place)?;
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let file = File::open(new)?;
    match old {
        Some(old) => access::keep(&file, place, &old)?,
        None => access::begin(&file, place, access)?,
    }
    file.sync_all()?;
    match fs::rename(new, place) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => return copy_across(new, place, access),
        renamed => renamed.map_err(explain)?,
    }
    sync_folder(folder_of(place))
}

/// The place is on another file system: the file is copied beside it first.
fn copy_across(new: &Path, place: &Path, access: Access) -> io::Result<()> {
    let near = beside(place, &format!(".{}{COPIED}", std::process::id()));
    let copied = fs::copy(new, &near).and_then(|_| put(&near, place, access));
    if copied.is_err() {
        fs::remove_file(&near).ok();
    }
    copied?;
    fs::remove_file(new)
}

fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ResourceBusy => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the file itself is mounted, so no other file can take its place: mount its folder instead",
        ),
        _ => error,
    }
}

/// What is at a path; `None` if nothing is.
pub fn metadata(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What an entry of a folder is, behind a link too; `None` if it is gone by now. An error for a link that leads
/// nowhere: nobody can tell what it hides.
pub fn kind_of(entry: &fs::DirEntry) -> io::Result<Option<fs::FileType>> {
    let kind = match entry.file_type() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        kind => kind?,
    };
    if !kind.is_symlink() {
        return Ok(Some(kind));
    }
    match metadata(&entry.path())? {
        Some(found) => Ok(Some(found.file_type())),
        None => Err(io::Error::new(io::ErrorKind::NotFound, "it is a link that leads nowhere")),
    }
}

/// Removes a file, if it is there: the one that a link leads to, and the link.
pub fn remove(path: &Path) -> io::Result<()> {
    let real = real_path(path)?;
    remove_name(&real)?;
    if real == path { Ok(()) } else { remove_name(path) }
}

fn remove_name(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// The path whose name is that of another, followed by a suffix.
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    // Without a slash at its end.
    let mut name = OsString::from(path.components().as_path());
    name.push(suffix);
    PathBuf::from(name)
}
