//! The lock of a warehouse folder: one writer, or readers that keep writers out.

use std::{
    fs::{File, TryLockError},
    io::{Read, Seek, Write},
    path::Path,
};

use crate::load::LoadError;

/// A lock file holds the number of a process; more is not read.
const LOCK_TEXT_BYTES_MAX: u64 = 64;

/// Takes the lock of a reader without waiting: it keeps writers out. `None` where there is no file to lock, or no locks.
pub(super) fn shared(root: &Path, path: &Path) -> Result<Option<File>, LoadError> {
    let Ok(file) = File::open(path) else { return Ok(None) };
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => {
            Err(LoadError::Locked { path: root.to_path_buf(), holder: Some("studysync".to_owned()) })
        }
        // A file system without locks has no other reader's lock to respect either; a writer refuses it.
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Takes the lock of the writer without waiting. The system releases it when the process ends, however it ends.
///
/// # Errors
/// [`LoadError::Locked`] while another process holds it, with the holder if the file names one; [`LoadError::LockRefused`] if the file
/// system has no locks.
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
    // Only for the message that the next process gets, so it need not be durable.
    let me = format!("process {}, studysync\n", std::process::id());
    if holder != me {
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(me.as_bytes()));
        written.map_err(failed)?;
    }
    Ok(file)
}
