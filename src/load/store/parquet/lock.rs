//! The lock of a warehouse folder: one writer, or readers that keep writers out.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use crate::load::LoadError;

/// Most bytes of a lock file that are read: it names a process.
const LOCK_TEXT_BYTES_MAX: u64 = 64;

/// Takes a reader's lock without waiting, which keeps writers out. `None` where there is no lock file, or no locks.
pub(super) fn shared(root: &Path, path: &Path) -> Result<Option<File>, LoadError> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            Err(LoadError::Locked { path: root.to_path_buf(), holder: Some("studysync".to_owned()) })
        }
        // Without locks there is no other lock to respect. A writer refuses such a file system.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Takes the writer's lock without waiting. The system releases it when the process ends.
///
/// # Errors
/// [`LoadError::Locked`] while another process holds the lock, with its name if the file has one;
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
    // Only for the error message of other processes, so it need not be durable.
    let me = format!("process {}, studysync\n", std::process::id());
    if holder != me {
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(me.as_bytes()));
        written.map_err(failed)?;
    }
    Ok(file)
}
