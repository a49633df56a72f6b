//! Access rights of files: only this user can read a new file, unless the caller chooses another [`Access`]; a replaced
//! file keeps its mode, owner and group.
//!
//! A folder with the set-group-id bit is shared on purpose: a new file in it gets the group rights of the folder.

use std::{
    fs::{self, DirBuilder, File, Metadata, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown},
    path::Path,
    sync::OnceLock,
};

use rustix::fs::Mode;

use super::listing::folder_of;

/// The permission bits of a file mode.
const RIGHTS: u32 = 0o777;
/// Set-user-id, set-group-id and sticky. Folders keep these bits, files do not.
const SPECIAL: u32 = 0o7000;
/// The owner's rights in a mode.
const OF_OWNER: u32 = 0o700;
/// The group's rights in a mode.
const OF_GROUP: u32 = 0o070;
/// The rights of everybody else in a mode.
const OF_OTHERS: u32 = 0o007;
/// The set-group-id bit.
const SHARED_WITH_GROUP: u32 = 0o2000;

/// The umask of the user: that of the process before [`keep_private`] changed it.
static USUAL_UMASK: OnceLock<u32> = OnceLock::new();

/// Who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Only this user, and the group of a folder with the set-group-id bit, because the file may contain personal data.
    Private,
    /// The users that the umask admits.
    Usual,
    /// Everybody, whatever the umask, because another program reads the file.
    Everybody,
}

/// Sets the umask so that only this user can read what this process creates, including files of DuckDB and SQLite.
///
/// Call it once, before the first file is created.
pub fn keep_private() {
    let before = rustix::process::umask(Mode::RWXG | Mode::RWXO);
    USUAL_UMASK.get_or_init(|| before.as_raw_mode() & RIGHTS);
}

/// Sets the access of a new file that replaces no file. `target` is the path that the file will get.
pub(super) fn set_initial(file: &File, target: &Path, access: Access) -> io::Result<()> {
    let mode = file.metadata()?.mode() & RIGHTS;
    let wanted = match access {
        Access::Private => mode & OF_OWNER | group_rights(mode, folder_of(target))?,
        Access::Usual => usual_mode(),
        Access::Everybody => 0o644,
    };
    set_mode(file, mode, wanted)
}

/// Gives a file the access of the file `target` that it replaces, and never more. `old` is the metadata of `target`. If
/// the group cannot be kept, the group gets no rights, and everybody else at most the rights of the old group.
pub(super) fn copy_from(file: &File, target: &Path, old: &Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    let kept = if old.is_dir() { SPECIAL | RIGHTS } else { RIGHTS };
    let mut wanted = old.mode() & kept;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) && fchown(file, Some(old.uid()), Some(old.gid())).is_err() {
        let has_group = new.gid() == old.gid() || fchown(file, None, Some(old.gid())).is_ok();
        wanted = if has_group { wanted } else { without_group(wanted) };
    }
    set_mode(file, new.mode() & kept, wanted)?;
    if !copy_acl(file, target) {
        // With an access control list, the group bits are the mask of that list, not the rights of the group. Without
        // the list, they could give the group more rights than before, so they are removed.
        file.set_permissions(Permissions::from_mode(wanted & !OF_GROUP))?;
    }
    Ok(())
}

/// Returns a mode for a file that could not keep its group. The group gets no rights. Everybody else gets at most the
/// rights of the old group, because the members of the old group now count as everybody else.
fn without_group(mode: u32) -> u32 {
    let of_group = (mode & OF_GROUP) >> 3;
    mode & !OF_GROUP & !(OF_OTHERS & !of_group)
}

/// Gives a new file the access that the umask of the user admits.
pub fn share_as_usual(file: &File) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(usual_mode()))
}

/// Returns the mode of a new file under the umask at the start of the process.
fn usual_mode() -> u32 {
    0o666 & !USUAL_UMASK.get().copied().unwrap_or(OF_GROUP | OF_OTHERS)
}

/// Sets the mode of a file to `wanted`, unless `mode`, the present one, is the same.
fn set_mode(file: &File, mode: u32, wanted: u32) -> io::Result<()> {
    if mode == wanted { Ok(()) } else { file.set_permissions(Permissions::from_mode(wanted)) }
}

/// Copies the access control list of `target` to a file. Returns false if `target` has a list that cannot be copied.
#[cfg(target_os = "linux")]
fn copy_acl(file: &File, target: &Path) -> bool {
    const ACL: &str = "system.posix_acl_access";
    const ACL_BYTES_MAX: usize = 65536;
    let mut list = Vec::with_capacity(ACL_BYTES_MAX);
    match rustix::fs::getxattr(target, ACL, rustix::buffer::spare_capacity(&mut list)) {
        Ok(_) => rustix::fs::fsetxattr(file, ACL, &list, rustix::fs::XattrFlags::empty()).is_ok(),
        Err(_) => true,
    }
}

#[cfg(not(target_os = "linux"))]
fn copy_acl(_file: &File, _target: &Path) -> bool {
    true
}

/// Returns the group rights of a new file in a folder. In a folder with the set-group-id bit, the group gets the
/// owner's rights in `mode`, as far as the group has these rights in the folder. In another folder, the group gets
/// none.
fn group_rights(mode: u32, folder: &Path) -> io::Result<u32> {
    let of_folder = fs::metadata(folder)?.mode();
    Ok(if of_folder & SHARED_WITH_GROUP == 0 { 0 } else { (mode & OF_OWNER) >> 3 & of_folder & OF_GROUP })
}

/// Creates a folder and its missing parents, for this user only. In a folder with the set-group-id bit, the new folder
/// is shared with the group, too. Does nothing if the folder exists.
pub fn create_folders(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent() {
        create_folders(above)?;
    }
    match DirBuilder::new().mode(OF_OWNER).create(path) {
        // Another process created the folder.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => return Ok(()),
        created => created?,
    }
    let folder = File::open(path)?;
    let mode = folder.metadata()?.mode();
    let group = group_rights(mode, folder_of(path))?;
    if group == 0 { Ok(()) } else { folder.set_permissions(Permissions::from_mode(mode & 0o7777 | group)) }
}

/// Gives the folder `new` and its content the access of the same names in the folder `old`, which `new` is going to
/// replace. A file that `old` lacks gets the access of a new private file.
///
/// # Errors
/// `InvalidInput` if the old folder has a link where the new folder has a file or folder: the target of the link would
/// be left behind.
pub fn keep_access_below(old: &Path, new: &Path) -> io::Result<()> {
    let mut paths = vec![(old.to_owned(), new.to_owned())];
    while let Some((old, new)) = paths.pop() {
        match old.symlink_metadata() {
            Ok(found) if found.is_symlink() => {
                let why = format!("{} is a link, and the new folder has a folder or file in its place", old.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            }
            Ok(found) => copy_from(&File::open(&new)?, &old, &found)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let file = File::open(&new)?;
                let mode = file.metadata()?.mode() & (SPECIAL | RIGHTS);
                set_mode(&file, mode, mode & (SPECIAL | OF_OWNER) | group_rights(mode, folder_of(&new))?)?;
            }
            Err(error) => return Err(error),
        }
        if new.is_dir() {
            for entry in fs::read_dir(&new)? {
                let name = entry?.file_name();
                paths.push((old.join(&name), new.join(&name)));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p9_a_lost_group_gives_nobody_more_rights() {
        for (mode, expected) in [(0o640, 0o600), (0o644, 0o604), (0o604, 0o600), (0o664, 0o604), (0o2750, 0o2700)] {
            assert_eq!(without_group(mode), expected, "{mode:o}");
        }
    }
}
