//! Which database files this process has open. DuckDB's lock is the process's, not the handle's: a second handle in the
//! same process is not refused, and closing it drops the lock of the first. So the process must refuse it itself.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use crate::load::LoadError;

/// Open handles by file; a writer counts as [`WRITER`].
static OPEN: Mutex<BTreeMap<PathBuf, usize>> = Mutex::new(BTreeMap::new());
const WRITER: usize = usize::MAX;

/// A file that is open here, until dropped. Either one writer has it, or any number of readers.
#[derive(Debug)]
pub(in crate::load) struct Claim {
    path: PathBuf,
}

impl Claim {
    /// Claims the file for the one writer.
    pub(in crate::load) fn for_writing(path: &Path) -> Result<Self, LoadError> {
        Self::take(path, |held| (held == 0).then_some(WRITER))
    }

    /// Claims the file for one more reader.
    pub(in crate::load) fn for_reading(path: &Path) -> Result<Self, LoadError> {
        Self::take(path, |held| (held != WRITER).then(|| held + 1))
    }

    fn take(path: &Path, count: impl FnOnce(usize) -> Option<usize>) -> Result<Self, LoadError> {
        let key = key_of(path);
        // The map stays whole whatever a panicking holder did: each change is one statement.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        match count(open.get(&key).copied().unwrap_or(0)) {
            Some(count) => {
                open.insert(key.clone(), count);
                Ok(Self { path: key })
            }
            None => Err(LoadError::Locked { path: path.to_owned(), holder: Some("this process".into()) }),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        match open.get_mut(&self.path) {
            Some(count) if *count != WRITER && *count > 1 => *count -= 1,
            _ => drop(open.remove(&self.path)),
        }
    }
}

/// One name for one file, whether or not it exists yet and however it is linked to.
fn key_of(path: &Path) -> PathBuf {
    let resolved = path.canonicalize().ok();
    let in_folder = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    resolved.or_else(in_folder).or_else(|| std::path::absolute(path).ok()).unwrap_or_else(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_many_readers() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("w.duckdb");
        let refused = |claim: Result<Claim, LoadError>| matches!(claim, Err(LoadError::Locked { .. }));
        let writer = Claim::for_writing(&path).unwrap();
        // Created meanwhile, and named otherwise: still the same file.
        std::fs::write(&path, "").unwrap();
        let otherwise = folder.path().join(".").join("w.duckdb");
        assert!(refused(Claim::for_reading(&otherwise)) && refused(Claim::for_writing(&otherwise)));
        drop(writer);
        let first = Claim::for_reading(&path).unwrap();
        let second = Claim::for_reading(&otherwise).unwrap();
        drop(first);
        assert!(refused(Claim::for_writing(&path)));
        drop(second);
        Claim::for_writing(&path).unwrap();
    }
}
