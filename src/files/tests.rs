//! Links, modes, devices and failures.

use std::{
    io::Read,
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    os::unix::net::UnixListener,
    thread,
};

use super::*;
use std::io::Write;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn written(path: &Path, text: &str) -> io::Result<()> {
    let mut out = Output::begin(path, ".part", Access::Private)?;
    out.write_all(text.as_bytes())?;
    out.finish()
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// Creates a device for a test, so that a bug cannot replace a device of the machine. Number 7 is `/dev/full`.
///
/// `None` if this user cannot create devices.
fn device(folder: &Path, name: &str, number: u32) -> Option<PathBuf> {
    let path = folder.join(name);
    let made = std::process::Command::new("mknod").arg(&path).args(["c", "1", &number.to_string()]).output().ok()?;
    if !made.status.success() || File::options().write(true).open(&path).is_err() {
        println!("SKIPPED: no device can be made here");
        fs::remove_file(&path).ok();
        return None;
    }
    Some(path)
}

#[test]
fn links_are_followed_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, near) = (folder.path().join("disk"), folder.path().join("near"));
    fs::create_dir(&disk).unwrap();
    fs::create_dir(&near).unwrap();
    // A chain, relative to the folder of each link; the file at its end is not there yet.
    symlink("../disk/second", near.join("first")).unwrap();
    symlink("file", disk.join("second")).unwrap();
    assert_eq!(fs::canonicalize(files_parent(&near.join("first"))).unwrap(), fs::canonicalize(&disk).unwrap());
    for text in ["new", "replaced"] {
        written(&near.join("first"), text).unwrap();
        assert_eq!(fs::read_to_string(disk.join("file")).unwrap(), text);
        fs::write(near.join("fresh"), format!("{text} again")).unwrap();
        replace(&near.join("fresh"), &near.join("first")).unwrap();
        assert_eq!(fs::read_to_string(disk.join("file")).unwrap(), format!("{text} again"));
        assert!(near.join("first").is_symlink() && disk.join("second").is_symlink());
    }
    assert_eq!((names(&near), names(&disk)), (vec!["first".to_owned()], vec!["file".to_owned(), "second".to_owned()]));
    remove(&near.join("first")).unwrap();
    assert_eq!((names(&near).len(), names(&disk)), (0, vec!["second".to_owned()]));
    symlink("b", near.join("a")).unwrap();
    symlink("a", near.join("b")).unwrap();
    assert!(real_path(&near.join("a")).is_err(), "a circle of links");
}

fn files_parent(path: &Path) -> PathBuf {
    folder_of(&real_path(path).unwrap()).to_owned()
}

#[test]
fn a_link_to_another_file_system_is_followed() {
    let (folder, disk) = (tempfile::tempdir().unwrap(), tempfile::tempdir_in("/dev/shm"));
    let Ok(disk) = disk else { return println!("SKIPPED: there is no /dev/shm") };
    if folder.path().metadata().unwrap().dev() == disk.path().metadata().unwrap().dev() {
        return println!("SKIPPED: /dev/shm is on the same file system");
    }
    let (link, target) = (folder.path().join("link"), disk.path().join("file"));
    fs::write(&target, "old").unwrap();
    set_mode(&target, 0o640);
    symlink(&target, &link).unwrap();
    fs::write(folder.path().join("new"), "new").unwrap();
    move_over(&folder.path().join("new"), &link).unwrap();
    assert_eq!((fs::read_to_string(&target).unwrap().as_str(), mode(&target)), ("new", 0o640));
    assert_eq!((names(folder.path()), names(disk.path())), (vec!["link".to_owned()], vec!["file".to_owned()]));
}

#[test]
fn a_new_file_is_private_and_a_replaced_one_keeps_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    written(&path, "new").unwrap();
    assert_eq!(mode(&path), 0o600);
    for kept in [0o640, 0o400, 0o644, 0o600, 0o660] {
        set_mode(&path, kept);
        written(&path, "again").unwrap();
        assert_eq!(mode(&path), kept);
        fs::write(folder.path().join("fresh"), "fresh").unwrap();
        set_mode(&folder.path().join("fresh"), 0o666);
        replace(&folder.path().join("fresh"), &path).unwrap();
        assert_eq!(mode(&path), kept);
    }
    fs::write(folder.path().join("open"), "made by somebody else").unwrap();
    set_mode(&folder.path().join("open"), 0o644);
    move_over(&folder.path().join("open"), &folder.path().join("other")).unwrap();
    assert_eq!(mode(&folder.path().join("other")), 0o600);
}

#[test]
fn a_folder_shared_with_a_group_shares_new_files() {
    let folder = tempfile::tempdir().unwrap();
    let shared = folder.path().join("shared");
    create_folders(&shared).unwrap();
    assert_eq!(mode(&shared), 0o700);
    set_mode(&shared, 0o2750);
    written(&shared.join("file"), "new").unwrap();
    create_folders(&shared.join("a/b")).unwrap();
    assert_eq!((mode(&shared.join("file")), mode(&shared.join("a/b"))), (0o640, 0o2750));
}

#[test]
fn a_replaced_file_keeps_its_owner_and_group() {
    if !rustix::process::geteuid().is_root() {
        return println!("SKIPPED: only root gives files away");
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "old").unwrap();
    std::os::unix::fs::chown(&path, Some(65_534), Some(12_345)).unwrap();
    written(&path, "new").unwrap();
    let found = fs::metadata(&path).unwrap();
    assert_eq!((found.uid(), found.gid()), (65_534, 12_345));
}

#[test]
fn devices_and_pipes_are_written_to_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    fifo(&pipe);
    let reader = thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut text = String::new();
            File::open(pipe).unwrap().read_to_string(&mut text).unwrap();
            text
        }
    });
    written(&pipe, "through the pipe").unwrap();
    assert_eq!(reader.join().unwrap(), "through the pipe");
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    let null = folder.path().join("null");
    if let Some(device) = device(folder.path(), "device", 7) {
        symlink(&device, &null).unwrap();
        assert_eq!(written(&null, "no room").unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(fs::metadata(&device).unwrap().file_type().is_char_device() && null.is_symlink());
        assert!(move_over(&pipe, &null).is_err());
        fs::remove_file(&null).unwrap();
        fs::remove_file(&device).unwrap();
    }
    let socket = folder.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    assert!(written(&socket, "nobody listens to files").is_err());
    fs::write(folder.path().join("new"), "new").unwrap();
    for place in [&pipe, &socket] {
        assert!(move_over(&folder.path().join("new"), place).is_err(), "{}", place.display());
    }
    assert_eq!(names(folder.path()), ["new", "pipe", "socket"]);
}

#[test]
fn descriptors_are_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("open");
    fs::write(&path, "before ").unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&file);
    for name in [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")] {
        written(Path::new(&name), "and after ").unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), "before and after and after ");
    assert_eq!(names(folder.path()), ["open"]);
}

#[test]
fn a_failure_leaves_the_old_file_and_no_temporary_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "old").unwrap();
    drop(Output::begin(&path, ".part", Access::Private).unwrap());
    fs::create_dir(folder.path().join("folder")).unwrap();
    assert_eq!(written(&folder.path().join("folder"), "x").unwrap_err().kind(), io::ErrorKind::IsADirectory);
    let error = written(&folder.path().join("none/file"), "x").unwrap_err().to_string();
    assert!(error.contains("none"), "{error}");
    fs::write(folder.path().join("new"), "new").unwrap();
    assert!(replace(&folder.path().join("new"), &folder.path().join("folder")).is_err());
    assert_eq!(names(folder.path()), ["file", "folder"]);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
}

#[test]
fn a_link_under_the_temporary_name_is_not_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let (path, victim) = (folder.path().join("file"), folder.path().join("victim"));
    fs::write(&victim, "safe").unwrap();
    symlink(&victim, folder.path().join("file.part")).unwrap();
    written(&path, "new").unwrap();
    assert_eq!((fs::read_to_string(&victim).unwrap().as_str(), path.is_symlink()), ("safe", false));
}

#[test]
fn a_new_tree_gets_the_access_of_the_old_one() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    for root in [&old, &new] {
        create_folders(&root.join("month")).unwrap();
        fs::write(root.join("month/data"), "").unwrap();
        set_mode(&root.join("month/data"), 0o600);
    }
    fs::write(new.join("more"), "").unwrap();
    set_mode(&old, 0o2750);
    set_mode(&old.join("month"), 0o750);
    set_mode(&old.join("month/data"), 0o640);
    keep_access_below(&old, &new).unwrap();
    let found = ["", "month", "month/data", "more"].map(|name| mode(&new.join(name)));
    assert_eq!(found, [0o2750, 0o750, 0o640, 0o640]);
    fs::remove_file(old.join("month/data")).unwrap();
    symlink("elsewhere", old.join("month/data")).unwrap();
    assert!(keep_access_below(&old, &new).unwrap_err().to_string().contains("month/data"));
}

#[test]
fn a_new_file_gets_its_name_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.duckdb");
    for (text, expected) in [("first", "first"), ("second", "first")] {
        let new = folder.path().join("new");
        fs::write(&new, text).unwrap();
        name_new(&new, &path).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), new.exists()), (expected, false));
    }
    // Another process has removed the new file.
    let missing = folder.path().join("missing");
    name_new(&missing, &path).unwrap();
    let error = name_new(&missing, &folder.path().join("other.duckdb")).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
}
