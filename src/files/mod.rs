//! Durable file operations: replaces a file atomically, syncs folders, and sets who may read a new file.
//!
//! - A symbolic link is followed: its target is replaced, and the link stays.
//! - A replaced file keeps its mode, owner and group. Only this user can read a new file, unless the caller chooses
//!   another [`Access`].
//! - [`Output`] writes to devices, pipes and descriptors directly; the other functions cannot replace them.
//!
//! This module does not interpret the content of a file.

mod access;
mod error;
mod listing;
mod output;
#[cfg(test)]
mod tests;

pub use access::{Access, create_folders, keep_access_below, keep_private, share_as_usual};
pub use error::{FileAccess, FileError, refusal_hint};
pub use listing::{files_below, files_beside, folder_of, metadata};
pub use output::{Output, write_private};

use std::{
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

/// Maximum number of links that a path may lead through, as on Linux.
const LINKS_MAX: usize = 40;
/// Suffix of a file that is being copied to another file system.
const COPIED: &str = ".part";

/// Resolves the links at the end of a path, even if the file that the last link names does not exist yet.
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

/// Returns the target of a link; `None` if the path is not a link, does not exist or cannot be read.
fn next_link(path: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(path) {
        Ok(target) => Ok(Some(folder_of(path).join(target))),
        // InvalidInput: not a link. PermissionDenied: opening the file reports it later, with the name of the file.
        Err(error) => match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied => Ok(None),
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(None),
            _ => Err(error),
        },
    }
}

/// Replaces the file at `path` with the complete file `new`, atomically and durably. Removes `new` if the replacement
/// fails.
pub fn replace(new: &Path, path: &Path) -> io::Result<()> {
    let replaced = move_over(new, path);
    if replaced.is_err() {
        // The first error is the one to report.
        fs::remove_file(new).ok();
    }
    replaced
}

/// Replaces the file at `path` with the complete file `new`, atomically and durably. After an error `new` still exists.
pub fn move_over(new: &Path, path: &Path) -> io::Result<()> {
    move_over_real(new, &real_path(path)?, Access::Private)
}

/// Replaces the file at `path` with the complete and durable file `new`, atomically. The replacement is durable after
/// [`sync_folder`] of its folder. After an error `new` still exists.
pub fn move_over_unsynced(new: &Path, path: &Path) -> io::Result<()> {
    let target = real_path(path)?;
    set_access(new, &target, Access::Private)?;
    rename_over(new, &target, Access::Private)
}

/// Renames the complete file `new` to `path`, atomically and durably, unless another process has created a file there
/// meanwhile: then only removes `new`.
///
/// # Errors
/// `NotFound` if another process that makes the same file has removed `new`.
pub fn name_new(new: &Path, path: &Path) -> io::Result<()> {
    let target = real_path(path)?;
    let synced = set_access(new, &target, Access::Private).and_then(|file| file.sync_all());
    match synced.and_then(|()| rename_to_unused(new, &target)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => remove(new),
        Err(error) if error.kind() == io::ErrorKind::NotFound && target.exists() => Ok(()),
        Err(error) if matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput) => {
            replace(new, &target)
        }
        renamed => renamed.and_then(|()| sync_folder(folder_of(&target))),
    }
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn rename_to_unused(new: &Path, target: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, new, CWD, target, RenameFlags::NOREPLACE)?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn rename_to_unused(_: &Path, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Renames the folder `new` to `path`, durably. There may be an empty folder at `path`.
pub fn move_folder(new: &Path, path: &Path) -> io::Result<()> {
    fs::rename(new, path)?;
    sync_folder(folder_of(path))
}

/// Replaces the file `target`, whose links are resolved, with the complete file `new`. `access` applies if `target`
/// does not exist yet. Fails if `target` is a folder or a device.
fn move_over_real(new: &Path, target: &Path, access: Access) -> io::Result<()> {
    set_access(new, target, access)?.sync_all()?;
    rename_over(new, target, access)?;
    sync_folder(folder_of(target))
}

/// Gives `new` the mode and owner of `target`, or `access` if `target` does not exist. Returns `new`, open.
fn set_access(new: &Path, target: &Path, access: Access) -> io::Result<File> {
    let old = metadata(target)?;
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let file = File::open(new)?;
    match old {
        Some(old) => access::copy_from(&file, target, &old)?,
        None => access::set_initial(&file, target, access)?,
    }
    Ok(file)
}

fn rename_over(new: &Path, target: &Path, access: Access) -> io::Result<()> {
    match fs::rename(new, target) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => copy_across(new, target, access),
        renamed => renamed.map_err(explain),
    }
}

/// Replaces a file on another file system: copies `new` into the folder of `target`, renames the copy, and removes
/// `new`.
fn copy_across(new: &Path, target: &Path, access: Access) -> io::Result<()> {
    let near = with_suffix(target, &format!(".{}{COPIED}", std::process::id()));
    let copied = fs::copy(new, &near).and_then(|_| move_over_real(&near, target, access));
    if copied.is_err() {
        fs::remove_file(&near).ok();
    }
    copied?;
    fs::remove_file(new)
}

/// Rewords the error for replacing a file that is a mount point. Returns all other errors unchanged.
fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::ResourceBusy => io::Error::new(
            io::ErrorKind::ResourceBusy,
            "the file itself is mounted, so no other file can take its place: mount its folder instead",
        ),
        _ => error,
    }
}

/// Returns the type of an entry of a folder, or of its link's target; `None` if the entry was removed meanwhile.
///
/// # Errors
/// `NotFound` for a link without a target: the type cannot be known.
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

/// Removes a file if it exists. For a link, removes the target and the link.
pub fn remove(path: &Path) -> io::Result<()> {
    let real = real_path(path)?;
    remove_name(&real)?;
    if real == path { Ok(()) } else { remove_name(path) }
}

/// Removes a file or link if it exists. Does not follow links.
fn remove_name(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Syncs a folder, so that created, renamed and removed names in it are durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

/// Returns a path with a suffix appended to its file name.
pub fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    // `components` drops a slash at the end.
    let mut name = OsString::from(path.components().as_path());
    name.push(suffix);
    PathBuf::from(name)
}
