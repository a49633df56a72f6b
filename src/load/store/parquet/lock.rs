//! The lock of a warehouse folder: one writer holds it alone, or several readers share it and keep writers out.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use crate::load::LoadError;

/// Most bytes that are read of a lock file, whose text names the process that holds the lock.
const LOCK_TEXT_BYTES_MAX: u64 = 64;

/// Takes a shared lock, which keeps writers out, without waiting. Returns `None` if the lock file cannot be opened or
/// the file system has no locks. Fails with [`LoadError::Locked`] if a writer has the lock. `path` is the lock file;
/// `root` is the folder to name in errors.
pub(super) fn shared(root: &Path, path: &Path) -> Result<Option<File>, LoadError> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            Err(LoadError::Locked { path: root.to_path_buf(), holder: Some("studysync".to_owned()) })
        }
        // On a file system without locks there is no writer either, because a writer refuses to open the folder.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Takes the writer's lock without waiting, and writes the name of this process into the lock file. The system releases
/// the lock when the process ends. `path` is the lock file; `root` is the folder to name in errors.
///
/// # Errors
/// [`LoadError::Locked`] while another process holds the lock, with the process that the file names;
/// [`LoadError::LockRefused`] if the file system has no locks.
pub(super) fn exclusive(root: &Path, path: &Path) -> Result<File, LoadError> {
    let failed = LoadError::io("lock", path);
    let mut file = File::options().create(true).truncate(false).read(true).write(true).open(path).map_err(failed)?;
    let taken = file.try_lock();
    let mut holder = String::new();
    let read = (&file).take(LOCK_TEXT_BYTES_MAX).read_to_string(&mut holder);
    match taken {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = read.is_ok().then(|| holder.trim().to_owned()).filter(|holder| !holder.is_empty());
            return Err(LoadError::Locked { path: root.to_path_buf(), holder });
        }
        Err(TryLockError::Error(source)) => return Err(LoadError::LockRefused { path: path.to_path_buf(), source }),
    }
    // The name is only for the error message of other processes, so it need not be durable.
    let me = format!("process {}, studysync\n", std::process::id());
    if holder != me {
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(me.as_bytes()));
        written.map_err(failed)?;
    }
    Ok(file)
}
